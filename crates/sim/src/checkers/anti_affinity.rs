//! A bound pod shares no topology domain with a pod that its anti-affinity excludes, or whose anti-affinity excludes it.
//!
//! Looks at terms about pods of the same namespace, which say everything themselves.

use kai_control::objects::{Pod, PodAffinityTerm};

use super::CycleObservation;
use crate::amounts::holds_node;

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for pod in observation.bound_pods() {
        for other in observation.world.pods.values().filter(|other| holds_node(other) && other.key != pod.key) {
            if avoids(observation, pod, other) || avoids(observation, other, pod) {
                let node = pod.node.as_deref().unwrap_or_default();
                wrong.push(format!("pod {} was bound to {node}, too close to {}", pod.key, other.key));
            }
        }
    }
    wrong
}

/// Whether both are in one domain of a term by which the first keeps away from the second.
fn avoids(observation: &CycleObservation<'_>, pod: &Pod, other: &Pod) -> bool {
    let terms = pod.inter_pod.iter().flat_map(|rules| &rules.required_anti_affinity);
    let plain = |term: &&PodAffinityTerm| term.namespaces.is_empty() && term.namespace_selector.is_none();
    let domain = |pod: &Pod, key: &str| {
        let node = observation.world.nodes.get(pod.node.as_deref()?)?;
        node.labels.get(key).cloned()
    };
    pod.key.namespace == other.key.namespace
        && terms.filter(plain).any(|term| {
            let sought = term.selector.as_ref().is_some_and(|selector| selector.selects(&other.labels));
            let key = term.topology_key.as_str();
            sought && domain(pod, key).is_some_and(|here| domain(other, key) == Some(here))
        })
}
