//! A pod that was just bound reaches its volumes, its node takes them all, and no other pod uses what is for one pod.

use std::collections::BTreeSet;

use kai_control::key::Key;
use kai_control::objects::{PersistentVolumeClaim, Pod};

use super::CycleObservation;
use crate::amounts::holds_node;

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let world = observation.world;
    let mut wrong = Vec::new();
    for pod in observation.bound_pods() {
        let Some(node) = pod.node.as_ref().and_then(|name| world.nodes.get(name)) else { continue };
        if pod.prerequisites.is_none() {
            continue;
        }
        for claim in claims(observation, pod) {
            let volume = claim.volume.as_ref().and_then(|name| world.volumes.get(name));
            if !volume.is_some_and(|volume| volume.reaches(&node.name, &node.labels)) {
                wrong.push(format!("{} cannot reach the volume of claim {} from {}", pod.key, claim.key, node.name));
            }
            let uses = |other: &&Pod| claims(observation, other).any(|known| known.key == claim.key);
            let users = world.pods.values().filter(|other| holds_node(other)).filter(uses).count();
            if claim.is_for_one_pod() && users > 1 {
                wrong.push(format!("claim {} is for one pod, but has {users}", claim.key));
            }
        }
        let limits = world.csi_nodes.get(&node.name).map(|limited| &limited.limits);
        for (driver, limit) in limits.into_iter().flatten() {
            let here = world.pods.values().filter(|other| holds_node(other) && other.node == pod.node);
            let volumes = here.flat_map(|other| claims(observation, other)).filter_map(|claim| claim.volume.as_ref());
            let csi = volumes.filter_map(|name| world.volumes.get(name)?.csi.as_ref());
            let attached: BTreeSet<&(String, String)> = csi.filter(|(known, _)| known == driver).collect();
            if attached.len() > *limit as usize {
                wrong.push(format!("{} has {} volumes of {driver}, {limit} at most", node.name, attached.len()));
            }
        }
    }
    wrong
}

fn claims<'a>(observation: &CycleObservation<'a>, pod: &'a Pod) -> impl Iterator<Item = &'a PersistentVolumeClaim> {
    let world = observation.world;
    let names = pod.prerequisites.iter().flat_map(|prerequisites| prerequisites.all_claims());
    names.filter_map(|name| world.volume_claims.get(&Key::new(&*pod.key.namespace, name)))
}
