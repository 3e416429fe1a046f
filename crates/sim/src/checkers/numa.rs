//! A node that gets a pod has room in each of its NUMA zones for what the scheduler takes from there.

use std::collections::BTreeMap;

use kai_api::keys::annotation;
use kai_control::objects::{Resources, ZoneAmount};

use super::CycleObservation;
use super::nodes::amounts;
use crate::amounts::holds_node;

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let world = observation.world;
    let mut wrong = Vec::new();
    for node in observation.nodes_bound_to() {
        let Some(topology) = world.numa_topologies.get(node) else { continue };
        let mut taken: BTreeMap<String, Resources> = BTreeMap::new();
        for pod in world.pods.values().filter(|pod| holds_node(pod) && pod.node.as_deref() == Some(node)) {
            let zones = pod.annotations.get(annotation::NUMA_PLACEMENT_PREDICTED);
            for ZoneAmount { zone, amount } in zones.and_then(|text| ZoneAmount::parse_all(text)).unwrap_or_default() {
                taken.entry(zone).or_default().add(&amount);
            }
        }
        for zone in &topology.zones {
            let Some(taken) = taken.get(&zone.name) else { continue };
            let offered: BTreeMap<&str, i64> = all(&zone.allocatable).collect();
            for (resource, amount) in all(taken) {
                let room = offered.get(resource).copied().unwrap_or(0);
                if amount > room {
                    let zone = &zone.name;
                    wrong.push(format!("pods take {amount} {resource} of zone {zone} of {node}, it has {room}"));
                }
            }
        }
    }
    wrong
}

fn all(resources: &Resources) -> impl Iterator<Item = (&str, i64)> {
    amounts(resources).chain([("GPUs", resources.gpus)])
}
