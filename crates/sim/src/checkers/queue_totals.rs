//! What the scheduler reports of its queues equals what the pods add up to.

use std::collections::BTreeMap;

use kai_control::scheduler::Effect;
use kai_engine::units::ResourceQuantities;

use super::CycleObservation;
use crate::amounts::{charged_on, claimed_gpus};

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    if observation.cycle.queues.is_empty() {
        return Vec::new();
    }
    let mut expected: BTreeMap<&str, ResourceQuantities> = observation.allocated(|_| true);
    for effect in &observation.cycle.effects {
        // A pipelined pod counts for the queue until the end of its cycle, though nothing is written down.
        let Effect::Pipeline { pod, job, node, .. } = effect else { continue };
        let (Some(pod), Some(group)) = (observation.world.pods.get(pod), observation.world.pod_groups.get(job)) else {
            continue;
        };
        for queue in observation.chain(&group.queue) {
            let claimed = ResourceQuantities::new(0, 0, claimed_gpus(pod, observation.world));
            *expected.entry(queue).or_default() +=
                charged_on(&pod.request, observation.world.nodes.get(node)) + claimed;
        }
    }
    observation
        .cycle
        .queues
        .iter()
        .filter_map(|queue| {
            let held = expected.get(queue.name.as_str()).copied().unwrap_or_default();
            (held != queue.allocated).then(|| {
                format!(
                    "queue {} is reported to hold {:?}, but its pods hold {:?}",
                    queue.name, queue.allocated.0, held.0
                )
            })
        })
        .collect()
}
