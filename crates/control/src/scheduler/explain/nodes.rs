//! Why no node takes a pod: the number of nodes by reason, what the best one lacks, what would help.

use super::amounts::{called, count, node_amount, resource_name};
use super::inter_pod;
use crate::devices::{ClaimFault, SelectorError};
use crate::key::Key;
use crate::quantity::decimal;
use crate::scheduler::reasons::{Amount, ClaimRefusal, GpuRequest, NodeObstacle, NodeObstacles, NodeRule};
use kai_engine::units::GPU;

/// What stands in the way, most frequent first, and a hint about the most frequent.
pub(super) fn sentence(obstacles: &NodeObstacles) -> String {
    if obstacles.nodes == 0 {
        return "the node pool has no nodes.".to_owned();
    }
    let mut counts: Vec<(u32, String, &NodeObstacle)> = obstacles
        .counts
        .iter()
        .map(|count| (count.nodes, phrase(&count.obstacle, count.nodes), &count.obstacle))
        .collect();
    counts.sort_by(|left, right| right.0.cmp(&left.0).then_with(|| left.1.cmp(&right.1)));
    if counts.is_empty() {
        return "every node was refused.".to_owned();
    }
    let parts: Vec<&str> = counts.iter().map(|(_, phrase, _)| phrase.as_str()).collect();
    let hint = counts.iter().find_map(|(_, _, obstacle)| hint(obstacle));
    format!("{}.{}", parts.join("; "), hint.map_or_else(String::new, |hint| format!(" {hint}")))
}

fn phrase(obstacle: &NodeObstacle, number: u32) -> String {
    let nodes = count(number, "node", "nodes");
    let (is, has, lacks, its) =
        if number == 1 { ("is", "has", "lacks", "its") } else { ("are", "have", "lack", "their") };
    match obstacle {
        NodeObstacle::Short { least, .. } => {
            let missing = node_amount(least, least.value);
            let best = if number == 1 { "short of" } else { "the best is short of" };
            format!("{nodes} {lacks} {} ({best} {missing})", resource_name(least))
        }
        NodeObstacle::GpuTooSmall { largest_mib: None } => format!("{nodes} {has} GPUs of unknown memory"),
        NodeObstacle::GpuTooSmall { largest_mib: Some(largest) } => {
            format!("{nodes} {has} GPUs with too little memory ({largest} MiB at most)")
        }
        NodeObstacle::GpuMemory { requested } => {
            let what = match requested {
                GpuRequest::Memory { devices, mib } => {
                    format!("{} with {mib} MiB free", count(*devices, "GPU", "GPUs"))
                }
                GpuRequest::Fraction { devices, portion } => {
                    format!("{} with a free share of {}", count(*devices, "GPU", "GPUs"), decimal(*portion, GPU))
                }
                GpuRequest::Other => "GPU memory".to_owned(),
            };
            format!("{nodes} {lacks} {what}")
        }
        NodeObstacle::ClaimFault { fault } => {
            fault.as_ref().map_or_else(|| "a resource claim cannot be used".to_owned(), ClaimFault::explain)
        }
        NodeObstacle::Rule { rule } => format!("{nodes} {}", rule_phrase(*rule, is, has)),
        NodeObstacle::QueueBound { queue, resource } => {
            format!("on {nodes} queue {} would exceed what it may use of {}", queue.shown(), called(*resource))
        }
        NodeObstacle::PodSlots => format!("{nodes} {has} no pod slot left"),
        NodeObstacle::Numa => {
            format!("{nodes} cannot align the pod's resources in {its} NUMA zones as {its} Topology Manager demands")
        }
        NodeObstacle::Claims { refusal } => claim_phrase(refusal, &nodes, has),
        NodeObstacle::HostPorts => format!("{nodes} {has} a host port of the pod in use"),
        NodeObstacle::InterPod { rule } => inter_pod::phrase(rule, number),
        NodeObstacle::VolumeLimit { driver } => {
            format!("{nodes} {has} as many volumes of driver {driver} as CSINode allows")
        }
        NodeObstacle::StorageCapacity { class } => {
            format!("{nodes} {has} insufficient capacity of StorageClass {class} after other pods' claims")
        }
        NodeObstacle::OutsideDomain => format!("{nodes} {is} outside the topology domain"),
    }
}

fn claim_phrase(refusal: &ClaimRefusal, nodes: &str, has: &str) -> String {
    let name = |claim: &Option<Key>| match claim {
        Some(claim) => format!("resource claim {claim}"),
        None => "its extended resources".to_owned(),
    };
    match refusal {
        ClaimRefusal::Unknown => format!("{nodes} cannot serve its resource claims"),
        ClaimRefusal::Elsewhere { claim } => format!("from {nodes} the devices of {} cannot be used", name(claim)),
        ClaimRefusal::Devices { claim } => format!("{nodes} {has} too few free devices for {}", name(claim)),
        ClaimRefusal::Steps { claim } => {
            format!("on {nodes} the search for devices for {} exceeded its limit", name(claim))
        }
        ClaimRefusal::Selector { error: Some(SelectorError { origin, expression, device, problem }) } => {
            format!("on {nodes} the selector `{expression}` of {origin} fails, as for device {device}: {problem}")
        }
        ClaimRefusal::Selector { error: None } => format!("on {nodes} a selector of its resource claims fails"),
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
    }
}

/// What would help, where the pod or its owner can do something about it.
fn hint(obstacle: &NodeObstacle) -> Option<String> {
    match obstacle {
        NodeObstacle::Short { shares_gpus: true, .. } => None,
        NodeObstacle::Short { least, requested, largest, .. } => too_large(least, *requested, *largest),
        NodeObstacle::Rule { rule: NodeRule::DeviceMemoryUnknown }
        | NodeObstacle::GpuTooSmall { largest_mib: None } => {
            Some("Label nodes with nvidia.com/gpu.memory, or ask with gpu-fraction.".to_owned())
        }
        NodeObstacle::GpuTooSmall { largest_mib: Some(largest) } => {
            Some(format!("Ask for at most {largest} MiB of each GPU, or for whole GPUs."))
        }
        NodeObstacle::Rule { rule: NodeRule::Taint } => Some("Add a toleration to use the tainted nodes.".to_owned()),
        NodeObstacle::Rule { rule: NodeRule::Affinity } => {
            Some("Compare spec.nodeSelector and spec.affinity of the pod with the labels of the nodes.".to_owned())
        }
        NodeObstacle::InterPod { rule } => inter_pod::hint(rule),
        NodeObstacle::Rule { rule: NodeRule::LegacyMig } => {
            Some("Request the MIG profile as a resource of a container instead.".to_owned())
        }
        _ => None,
    }
}

/// A request that not even an empty node could serve.
fn too_large(least: &Amount, requested: i64, largest: i64) -> Option<String> {
    if requested <= largest {
        None
    } else if largest == 0 {
        Some(format!("No node of the pool has any {}.", resource_name(least)))
    } else {
        let (requested, largest) = (node_amount(least, requested), node_amount(least, largest));
        Some(format!("The pod asks for {requested}, but no node has more than {largest}, even when empty."))
    }
}
