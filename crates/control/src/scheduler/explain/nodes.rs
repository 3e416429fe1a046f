//! Why no node takes a pod: the number of nodes by reason, what the best one lacks, what would help.

use kai_engine::Snapshot;
use kai_engine::ids::{ClaimId, TaskId};
use kai_engine::outcome::ClaimObstacle;
use kai_engine::outcome::{NodeObstacle, ObstacleCounts};
use kai_engine::snapshot::{GPUS, GpuAsk, NodeRule};
use kai_engine::units::compat::DEVICE_MEMORY_DEFAULT;

use super::amounts::{called, column_amount, count};
use super::{inter_pod, volumes};
use crate::devices::{ClaimFault, SelectorError, Written};
use crate::scheduler::lower::Lowered;

/// The most that any one node has, by column.
pub(super) fn largest(snapshot: &Snapshot) -> Vec<i64> {
    let mut largest = vec![0; snapshot.columns.len()];
    for row in snapshot.nodes.allocatable.chunks_exact(largest.len()) {
        for (most, amount) in largest.iter_mut().zip(row) {
            *most = (*most).max(*amount);
        }
    }
    largest
}

/// What stands in the way, most frequent first, and a hint about the most frequent.
pub(super) fn sentence(lowered: &Lowered<'_>, largest: &[i64], task: TaskId, tally: &ObstacleCounts) -> String {
    if lowered.names.nodes.is_empty() {
        return "the node pool has no nodes.".to_owned();
    }
    let mut counts: Vec<(u32, String, &NodeObstacle)> = tally
        .counts
        .iter()
        .map(|(obstacle, number)| (*number, phrase(lowered, task, obstacle, *number), obstacle))
        .collect();
    counts.sort_by(|left, right| right.0.cmp(&left.0).then_with(|| left.1.cmp(&right.1)));
    if counts.is_empty() {
        return "every node was refused.".to_owned();
    }
    let parts: Vec<&str> = counts.iter().map(|(_, phrase, _)| phrase.as_str()).collect();
    let hint = counts.iter().find_map(|(_, _, obstacle)| hint(lowered, largest, task, obstacle));
    format!("{}.{}", parts.join("; "), hint.map_or_else(String::new, |hint| format!(" {hint}")))
}

fn phrase(lowered: &Lowered<'_>, task: TaskId, obstacle: &NodeObstacle, number: u32) -> String {
    let nodes = count(number, "node", "nodes");
    let (is, has, lacks, its) =
        if number == 1 { ("is", "has", "lacks", "its") } else { ("are", "have", "lack", "their") };
    match obstacle {
        NodeObstacle::Short { column, least } => {
            let column = *column as usize;
            let name = lowered.names.columns[column];
            let missing = column_amount(column, name, *least);
            let best = if number == 1 { "short of" } else { "the best is short of" };
            format!("{nodes} {lacks} {name} ({best} {missing})")
        }
        NodeObstacle::DeviceTooSmall { largest: DEVICE_MEMORY_DEFAULT } => {
            format!("{nodes} {has} GPUs of unknown memory")
        }
        NodeObstacle::DeviceTooSmall { largest } => {
            format!("{nodes} {has} GPUs with too little memory ({largest} MiB at most)")
        }
        NodeObstacle::DeviceMemory => {
            let what = match lowered.snapshot.shape(lowered.snapshot.task(task).shape).gpu {
                GpuAsk::Memory { devices, mib } => {
                    format!("{} with {mib} MiB free", count(devices, "GPU", "GPUs"))
                }
                GpuAsk::Fraction { devices, portion } => format!(
                    "{} with a free share of {}",
                    count(devices, "GPU", "GPUs"),
                    crate::quantity::decimal(portion, kai_engine::units::GPU)
                ),
                GpuAsk::None | GpuAsk::Whole | GpuAsk::Mig => "GPU memory".to_owned(),
            };
            format!("{nodes} {lacks} {what}")
        }
        NodeObstacle::Rule(NodeRule::Claim(fault)) => {
            let fault = lowered.devices.as_ref().and_then(|devices| devices.faults.get(*fault as usize));
            fault.map_or_else(|| "a resource claim cannot be used".to_owned(), ClaimFault::explain)
        }
        NodeObstacle::Rule(rule) => format!("{nodes} {}", rule_phrase(*rule, is, has)),
        NodeObstacle::Queue(queue, resource) => {
            let queue = lowered.names.queues[queue.index()].shown();
            format!("on {nodes} queue {queue} would exceed what it may use of {}", called(*resource))
        }
        NodeObstacle::PodSlots => format!("{nodes} {has} no pod slot left"),
        NodeObstacle::Numa => {
            format!("{nodes} cannot align the pod's resources in {its} NUMA zones as {its} Topology Manager demands")
        }
        NodeObstacle::Claim(refusal) => claim_phrase(lowered, *refusal, &nodes, has),
        NodeObstacle::Ports => format!("{nodes} {has} a host port of the pod in use"),
        NodeObstacle::InterPod(obstacle) => inter_pod::phrase(lowered, *obstacle, number),
        NodeObstacle::Volumes(overfull) => volumes::phrase(lowered, *overfull, number),
        NodeObstacle::OutsideDomain => format!("{nodes} {is} outside the topology domain"),
    }
}

fn claim_phrase(lowered: &Lowered<'_>, refusal: ClaimObstacle, nodes: &str, has: &str) -> String {
    let Some(devices) = &lowered.devices else { return format!("{nodes} cannot serve its resource claims") };
    let name = |claim: ClaimId| match &devices.written[claim.index()] {
        Written::Claim(claim) => format!("resource claim {}", claim.key),
        Written::Extended(_) => "its extended resources".to_owned(),
    };
    match refusal {
        ClaimObstacle::Elsewhere(claim) => format!("from {nodes} the devices of {} cannot be used", name(claim)),
        ClaimObstacle::Devices(claim) => format!("{nodes} {has} too few free devices for {}", name(claim)),
        ClaimObstacle::Steps(claim) => {
            format!("on {nodes} the search for devices for {} exceeded its limit", name(claim))
        }
        ClaimObstacle::Selector(selection) => match devices.inventory.error(selection) {
            Some(SelectorError { origin, expression, device, problem }) => {
                format!("on {nodes} the selector `{expression}` of {origin} fails, as for device {device}: {problem}")
            }
            None => format!("on {nodes} a selector of its resource claims fails"),
        },
    }
}

fn rule_phrase(rule: NodeRule, is: &str, has: &str) -> String {
    match rule {
        NodeRule::LegacyMig => "cannot take pods that ask for MIG by annotation".to_owned(),
        NodeRule::MigOnly => format!("{has} no MIG"),
        NodeRule::LegacyMigNeighbour => format!("still {has} pods that asked for MIG by annotation"),
        NodeRule::MigSingle => format!("{has} MIG strategy single, for pods with whole GPUs only"),
        NodeRule::MigMixed => format!("{has} MIG strategy mixed, for pods with MIG profiles only"),
        NodeRule::DeviceMemoryUnknown => format!("{has} no GPUs of known memory"),
        NodeRule::SharingUnsupported => "cannot share GPUs".to_owned(),
        NodeRule::Cordoned => format!("{is} cordoned"),
        NodeRule::NotReady => format!("{is} not ready"),
        NodeRule::MemoryPressure => format!("{is} under memory pressure"),
        NodeRule::DiskPressure => format!("{is} under disk pressure"),
        NodeRule::PidPressure => format!("{is} under process-id pressure"),
        NodeRule::NetworkUnavailable => format!("{has} no network"),
        NodeRule::Taint => format!("{has} a taint that the pod does not tolerate"),
        NodeRule::Affinity => format!("{is} not among those that its node selector or affinity asks for"),
        NodeRule::Prerequisite => "cannot run it until its claims and ConfigMaps exist".to_owned(),
        NodeRule::VolumeUnreachable => "cannot reach a volume of the pod".to_owned(),
        NodeRule::VolumeZone => format!("{is} in another zone than a volume of the pod"),
        NodeRule::NoVolume => format!("{has} no free volume for a claim of the pod, and none can be provisioned there"),
        NodeRule::StorageFull => format!("{has} insufficient storage capacity for a claim"),
        NodeRule::NotGpuWorker => format!("{is} not labelled as a GPU worker"),
        NodeRule::NotCpuWorker => format!("{is} not labelled as a CPU worker"),
        NodeRule::ClaimsOnly => format!("{has} GPUs that only ResourceClaims can use"),
        NodeRule::Claim(_) => "cannot serve a resource claim of the pod".to_owned(),
    }
}

/// What would help, where the pod or its owner can do something about it.
fn hint(lowered: &Lowered<'_>, largest: &[i64], task: TaskId, obstacle: &NodeObstacle) -> Option<String> {
    match obstacle {
        NodeObstacle::Short { column, .. } => too_large(lowered, largest, task, *column as usize),
        NodeObstacle::Rule(NodeRule::DeviceMemoryUnknown)
        | NodeObstacle::DeviceTooSmall { largest: DEVICE_MEMORY_DEFAULT } => {
            Some("Label nodes with nvidia.com/gpu.memory, or ask with gpu-fraction.".to_owned())
        }
        NodeObstacle::DeviceTooSmall { largest } => {
            Some(format!("Ask for at most {largest} MiB of each GPU, or for whole GPUs."))
        }
        NodeObstacle::Rule(NodeRule::Taint) => Some("Add a toleration to use the tainted nodes.".to_owned()),
        NodeObstacle::Rule(NodeRule::Affinity) => {
            Some("Compare spec.nodeSelector and spec.affinity of the pod with the labels of the nodes.".to_owned())
        }
        NodeObstacle::InterPod(obstacle) => inter_pod::hint(lowered, task, *obstacle),
        NodeObstacle::Rule(NodeRule::LegacyMig) => {
            Some("Request the MIG profile as a resource of a container instead.".to_owned())
        }
        _ => None,
    }
}

/// A request that not even an empty node could serve.
fn too_large(lowered: &Lowered<'_>, largest: &[i64], task: TaskId, column: usize) -> Option<String> {
    let snapshot = &lowered.snapshot;
    let shape = snapshot.shape(snapshot.task(task).shape);
    if column == GPUS && shape.gpu.shared_devices().is_some() {
        return None;
    }
    let (asked, largest) = (shape.need[column], largest[column]);
    let name = lowered.names.columns[column];
    if asked <= largest {
        None
    } else if largest == 0 {
        Some(format!("No node of the pool has any {name}."))
    } else {
        let (asked, largest) = (column_amount(column, name, asked), column_amount(column, name, largest));
        Some(format!("The pod asks for {asked}, but no node has more than {largest}, even when empty."))
    }
}
