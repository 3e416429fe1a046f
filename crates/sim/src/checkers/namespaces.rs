//! No pod starts in a queue that is not for its namespace.

use kai_control::objects::{Namespace, PodGroup};

use super::CycleObservation;

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for key in &observation.performed.bound {
        let group = observation.world.pods.get(key).and_then(|pod| observation.world.pod_groups.get(&pod.group()?));
        if let Some(group) = group.filter(|group| !allows(observation, group)) {
            wrong.push(format!("pod {key} was bound, but queue {} is not for its namespace", group.queue));
        }
    }
    wrong
}

/// Whether the queue of the pod group, and all above it, are for its namespace.
pub(super) fn allows(observation: &CycleObservation<'_>, group: &PodGroup) -> bool {
    let name = &group.key.namespace;
    let namespace = observation.world.namespaces.get(name).cloned().unwrap_or_else(|| Namespace::named(name));
    let queues = observation.chain(&group.queue).into_iter().filter_map(|queue| observation.world.queues.get(queue));
    let mut rules = queues.filter_map(|queue| queue.namespaces.as_ref());
    rules.all(|rule| rule.allows(&namespace))
}
