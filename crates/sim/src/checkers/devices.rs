//! Every GPU of a node that gets a pod serves one pod whole, or several in parts that fit into it.

use std::collections::BTreeMap;

use kai_api::keys::name;
use kai_control::objects::GpuSharing;
use kai_engine::units::compat;

use super::CycleObservation;
use crate::amounts::{device_memory, holds_node};

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let touched = observation.nodes_bound_to();
    if touched.is_empty() {
        return Vec::new();
    }
    let mut whole: BTreeMap<&str, i64> = touched.iter().map(|node| (*node, 0)).collect();
    let mut shared: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for pod in observation.world.pods.values().filter(|pod| holds_node(pod)) {
        let Some(on) = pod.node.as_deref().filter(|node| touched.contains(node)) else { continue };
        let Some(node) = observation.world.nodes.get(on) else { continue };
        if pod.key.namespace == name::RESOURCE_RESERVATION {
            // The GPU of a reservation is the one that its users share.
            for group in pod.gpu_groups() {
                shared.entry((on, group)).or_default();
            }
            continue;
        }
        let Some(sharing) = pod.request.sharing else {
            *whole.entry(on).or_default() += pod.request.resources.gpus;
            continue;
        };
        let mib = match sharing {
            GpuSharing::Fraction { portion, .. } => compat::share_to_memory(portion, device_memory(node)),
            GpuSharing::Memory { mib, .. } => mib,
        };
        let groups = pod.gpu_groups();
        if groups.len() != sharing.devices() as usize {
            wrong.push(format!("pod {} shares {} GPUs, but holds {}", pod.key, sharing.devices(), groups.len()));
        }
        for group in groups {
            *shared.entry((on, group)).or_default() += mib;
        }
    }
    for ((name, group), mib) in &shared {
        let memory = observation.world.nodes.get(*name).map_or(0, device_memory);
        *whole.entry(*name).or_default() += 1;
        if *mib > memory {
            wrong.push(format!("pods on GPU {group} of {name} take {mib} MiB, it has {memory}"));
        }
    }
    for (name, used) in whole {
        let offered = observation.world.nodes.get(name).map_or(0, |node| node.allocatable.gpus);
        if used > offered {
            wrong.push(format!("pods on {name} take {used} GPUs, it has {offered}"));
        }
    }
    wrong
}
