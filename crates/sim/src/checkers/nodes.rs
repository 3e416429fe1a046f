//! A node that gets a pod has room for all it holds, those that are leaving included.

use std::collections::BTreeMap;

use super::CycleObservation;
use crate::amounts::holds_node;

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let touched = observation.nodes_bound_to();
    if touched.is_empty() {
        return Vec::new();
    }
    let mut held: BTreeMap<&str, BTreeMap<&str, i64>> = BTreeMap::new();
    for pod in observation.world.pods.values().filter(|pod| holds_node(pod)) {
        let Some(node) = pod.node.as_deref().filter(|node| touched.contains(node)) else { continue };
        let sums = held.entry(node).or_default();
        let resources = &pod.request.resources;
        for (name, amount) in amounts(resources) {
            *sums.entry(name).or_default() += amount;
        }
    }
    let mut wrong = Vec::new();
    for (name, sums) in held {
        let Some(node) = observation.world.nodes.get(name) else { continue };
        let offered: BTreeMap<&str, i64> = amounts(&node.allocatable).collect();
        for (resource, amount) in sums {
            let room = offered.get(resource).copied().unwrap_or(0);
            if amount > room {
                wrong.push(format!("pods on {name} ask for {amount} {resource}, it has {room}"));
            }
        }
    }
    wrong
}

/// Amounts by name; GPUs are counted device by device elsewhere.
pub(super) fn amounts(resources: &kai_control::objects::Resources) -> impl Iterator<Item = (&str, i64)> {
    let fixed =
        [("milli-CPU", resources.cpu_milli), ("bytes of memory", resources.memory_bytes), ("pods", resources.pods)];
    fixed.into_iter().chain(resources.scalars.iter().map(|(name, amount)| (name.as_str(), *amount)))
}
