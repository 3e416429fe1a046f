//! A pod that was just bound has the devices of its claims, its node reaches them, and no device is in two claims.

use std::collections::BTreeMap;

use kai_control::key::Key;

use super::CycleObservation;
use crate::amounts::holds_node;

pub(crate) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let world = observation.world;
    let mut wrong = Vec::new();
    let bound = observation.bound_pods().filter(|pod| holds_node(pod) && !pod.claims.is_empty());
    let mut bound = bound.peekable();
    if bound.peek().is_some() {
        wrong.extend(allocated_twice(observation));
    }
    for pod in bound {
        let Some(node) = pod.node.as_ref().and_then(|name| world.nodes.get(name)) else { continue };
        for own in &pod.claims {
            let key = own.claim.as_ref().map(|name| Key::new(&*pod.key.namespace, name));
            let Some(claim) = key.and_then(|key| world.resource_claims.get(&key)) else {
                wrong.push(format!("{} is on {}, but its claim {} does not exist", pod.key, node.name, own.name));
                continue;
            };
            let Some(allocation) = &claim.allocation else {
                wrong.push(format!("{} is on {}, but its claim {} has no devices", pod.key, node.name, claim.key));
                continue;
            };
            let terms = allocation.nodes.as_ref();
            if terms.is_some_and(|terms| !terms.iter().any(|term| term.holds(&node.name, &node.labels))) {
                wrong.push(format!("{} cannot reach the devices of claim {} from {}", pod.key, claim.key, node.name));
            }
            if !claim.reserved_for.iter().any(|(name, _)| *name == pod.key.name) {
                wrong.push(format!("{} is on {}, but claim {} is not reserved for it", pod.key, node.name, claim.key));
            }
        }
    }
    wrong
}

/// Devices that several claims hold; administrators may look at devices in use.
fn allocated_twice(observation: &CycleObservation<'_>) -> Vec<String> {
    let mut holders: BTreeMap<(&str, &str, &str), Vec<String>> = BTreeMap::new();
    for claim in observation.world.resource_claims.values() {
        let devices = claim.allocation.iter().flat_map(|allocation| &allocation.results);
        for device in devices.filter(|device| !device.admin) {
            let id = (device.driver.as_str(), device.pool.as_str(), device.device.as_str());
            holders.entry(id).or_default().push(claim.key.to_string());
        }
    }
    let shared = holders.into_iter().filter(|(_, claims)| claims.len() > 1);
    shared.map(|((_, pool, device), claims)| format!("device {device} of {pool} is in {}", claims.join(", "))).collect()
}
