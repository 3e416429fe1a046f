//! Why no node takes a pod: obstacles with names.

use kai_engine::Snapshot;
use kai_engine::ids::{ClaimId, PodMatcherId, TaskId};
use kai_engine::outcome::{self, ClaimObstacle, InterPodObstacle, ObstacleCounts, VolumeObstacle};
use kai_engine::snapshot::{CPU, GPUS, GpuAsk, MEMORY, PODS};
use kai_engine::units::compat::DEVICE_MEMORY_DEFAULT;

use super::queue_ref;
use crate::devices::ClaimSource;
use crate::key::{Key, PodKey};
use crate::objects::resources::{ScalarUnit, scalar_unit};
use crate::scheduler::lower::{Lowered, MatcherName};
use crate::scheduler::reasons::{
    Amount, ClaimRefusal, GpuRequest, InterPodRule, NodeCount, NodeObstacle, NodeObstacles, NodeRule, OtherPods, Unit,
};
use kai_api::keys::resource;

/// The most that any one node has, by column.
pub(super) fn largest(snapshot: &Snapshot) -> Vec<i64> {
    let mut largest = vec![0; snapshot.resources.len()];
    for row in snapshot.nodes.allocatable.chunks_exact(largest.len()) {
        for (most, amount) in largest.iter_mut().zip(row) {
            *most = (*most).max(*amount);
        }
    }
    largest
}

pub(super) fn collect(
    lowered: &Lowered<'_>,
    largest: &[i64],
    task: TaskId,
    obstacles: &ObstacleCounts,
) -> NodeObstacles {
    let named = |(obstacle, nodes): &(outcome::NodeObstacle, u32)| NodeCount {
        nodes: *nodes,
        obstacle: named(lowered, largest, task, obstacle),
    };
    NodeObstacles {
        nodes: u32::try_from(lowered.names.nodes.len()).unwrap_or(u32::MAX),
        counts: obstacles.counts.iter().map(named).collect(),
    }
}

fn named(lowered: &Lowered<'_>, largest: &[i64], task: TaskId, obstacle: &outcome::NodeObstacle) -> NodeObstacle {
    let shape = lowered.snapshot.shape(lowered.snapshot.task(task).shape);
    match *obstacle {
        outcome::NodeObstacle::Short { column, least } => {
            let column = column as usize;
            NodeObstacle::Short {
                least: amount(column, lowered.names.columns[column], least),
                requested: shape.need[column],
                largest: largest[column],
                shares_gpus: column == GPUS && shape.gpu.shared_devices().is_some(),
            }
        }
        outcome::NodeObstacle::DeviceTooSmall { largest } => {
            NodeObstacle::GpuTooSmall { largest_mib: (largest != DEVICE_MEMORY_DEFAULT).then_some(largest) }
        }
        outcome::NodeObstacle::DeviceMemory => NodeObstacle::GpuMemory {
            requested: match shape.gpu {
                GpuAsk::Memory { devices, mib } => GpuRequest::Memory { devices, mib },
                GpuAsk::Fraction { devices, portion } => GpuRequest::Fraction { devices, portion },
                GpuAsk::None | GpuAsk::Whole | GpuAsk::Mig => GpuRequest::Other,
            },
        },
        outcome::NodeObstacle::Rule(rule) => match (NodeRule::of(rule), rule) {
            (Some(rule), _) => NodeObstacle::Rule { rule },
            (None, kai_engine::snapshot::NodeRule::Claim(fault)) => {
                let faults = lowered.devices.as_ref().map(|devices| &devices.faults);
                NodeObstacle::ClaimFault { fault: faults.and_then(|faults| faults.get(fault as usize)).cloned() }
            }
            (None, _) => NodeObstacle::ClaimFault { fault: None },
        },
        outcome::NodeObstacle::Queue(queue, resource) => {
            NodeObstacle::QueueBound { queue: queue_ref(lowered, queue), resource }
        }
        outcome::NodeObstacle::PodSlots => NodeObstacle::PodSlots,
        outcome::NodeObstacle::Numa => NodeObstacle::Numa,
        outcome::NodeObstacle::Claim(refusal) => NodeObstacle::Claims { refusal: claim_refusal(lowered, refusal) },
        outcome::NodeObstacle::Ports => NodeObstacle::HostPorts,
        outcome::NodeObstacle::InterPod(obstacle) => {
            NodeObstacle::InterPod { rule: inter_pod_rule(lowered, task, obstacle) }
        }
        outcome::NodeObstacle::Volumes(VolumeObstacle::Driver(driver)) => {
            NodeObstacle::VolumeLimit { driver: lowered.names.volume_drivers[driver as usize].to_owned() }
        }
        outcome::NodeObstacle::Volumes(VolumeObstacle::Storage(kind)) => {
            NodeObstacle::StorageCapacity { class: lowered.names.storage_kinds[kind as usize].to_owned() }
        }
        outcome::NodeObstacle::OutsideDomain => NodeObstacle::OutsideDomain,
    }
}

/// An amount of a snapshot column.
fn amount(column: usize, name: &str, value: i64) -> Amount {
    let (resource, unit) = match column {
        CPU => ("cpu", Unit::MilliCores),
        MEMORY => ("memory", Unit::Bytes),
        GPUS => (resource::NVIDIA_GPU, Unit::MicroGpus),
        PODS => ("pods", Unit::One),
        _ if is_bytes(name) => (name, Unit::Bytes),
        _ if scalar_unit(name) == Some(ScalarUnit::Milli) => (name, Unit::Milli),
        _ => (name, Unit::One),
    };
    Amount { resource: resource.to_owned(), value, unit }
}

fn is_bytes(name: &str) -> bool {
    matches!(name, "ephemeral-storage" | "storage") || name.starts_with("hugepages-")
}

fn claim_refusal(lowered: &Lowered<'_>, refusal: ClaimObstacle) -> ClaimRefusal {
    let Some(devices) = &lowered.devices else { return ClaimRefusal::Unknown };
    let key = |claim: ClaimId| -> Option<Key> {
        match &devices.sources[claim.index()] {
            ClaimSource::Claim(claim) => Some(claim.key.clone()),
            ClaimSource::Extended(_) => None,
        }
    };
    match refusal {
        ClaimObstacle::Elsewhere(claim) => ClaimRefusal::Elsewhere { claim: key(claim) },
        ClaimObstacle::Devices(claim) => ClaimRefusal::Devices { claim: key(claim) },
        ClaimObstacle::Steps(claim) => ClaimRefusal::Steps { claim: key(claim) },
        ClaimObstacle::Selector(selection) => {
            ClaimRefusal::Selector { error: devices.inventory.error(selection).cloned() }
        }
    }
}

fn inter_pod_rule(lowered: &Lowered<'_>, task: TaskId, obstacle: InterPodObstacle) -> InterPodRule {
    let (InterPodObstacle::NoMatchingPod(matcher)
    | InterPodObstacle::AntiAffinity(matcher)
    | InterPodObstacle::ExistingAntiAffinity(matcher)
    | InterPodObstacle::Skew(matcher)
    | InterPodObstacle::NoDomain(matcher)) = obstacle;
    let MatcherName { key, selector, claim } = &lowered.names.matchers[matcher.index()];
    let topology_key = (*key).to_owned();
    match obstacle {
        InterPodObstacle::NoMatchingPod(_) => InterPodRule::Affinity {
            topology_key,
            selector: selector.clone(),
            // One that is itself among them was looking for pods that were tried with it.
            no_match_anywhere: members(lowered, matcher).next().is_none() && !is_part_of(lowered, task, matcher),
        },
        InterPodObstacle::AntiAffinity(_) => {
            let pods = other_pods(lowered, matcher);
            match claim {
                Some(claim) => InterPodRule::ExclusiveClaim { claim: (*claim).clone(), pods },
                None => InterPodRule::AntiAffinity { topology_key, pods },
            }
        }
        InterPodObstacle::ExistingAntiAffinity(_) => {
            InterPodRule::ExistingAntiAffinity { topology_key, pods: other_pods(lowered, matcher) }
        }
        InterPodObstacle::Skew(_) => InterPodRule::Spread { topology_key, selector: selector.clone() },
        InterPodObstacle::NoDomain(_) => InterPodRule::NoTopologyLabel { topology_key },
    }
}

fn is_part_of(lowered: &Lowered<'_>, task: TaskId, matcher: PodMatcherId) -> bool {
    let snapshot = &lowered.snapshot;
    let list = snapshot.task(task).matchers.map(|list| &snapshot.matcher_lists[list as usize]);
    list.is_some_and(|list| list.binary_search(&matcher).is_ok())
}

/// Pods of a matcher that were on a node when the cycle began, those of jobs first.
fn members<'a, 'w>(lowered: &'a Lowered<'w>, matcher: PodMatcherId) -> impl Iterator<Item = &'w PodKey> + use<'a, 'w> {
    let snapshot = &lowered.snapshot;
    let counts = move |list: u32| snapshot.matcher_lists[list as usize].binary_search(&matcher).is_ok();
    let tasks = snapshot.tasks.iter().zip(&lowered.names.tasks);
    let tasks = tasks.filter(move |(task, _)| task.node.is_some() && task.matchers.is_some_and(counts));
    let unmanaged_pods = snapshot.unmanaged_pods.iter().zip(&lowered.names.unmanaged_pods);
    let unmanaged_pods = unmanaged_pods.filter(move |(unmanaged_pod, _)| unmanaged_pod.matchers.is_some_and(counts));
    tasks.map(|(_, key)| *key).chain(unmanaged_pods.map(|(_, key)| *key))
}

fn other_pods(lowered: &Lowered<'_>, matcher: PodMatcherId) -> OtherPods {
    let mut members = members(lowered, matcher);
    let first = members.next().cloned();
    OtherPods { first, more: u32::try_from(members.count()).unwrap_or(u32::MAX) }
}
