//! Nobody waits beside free room: when a cycle does nothing, no single pod that waits fits on a node as it is.
//!
//! Looks at the plain case only, where no rule needs interpretation: jobs of pods that may start one by one, whole GPUs,
//! no rules about nodes, and nodes that take everybody.

use std::collections::BTreeMap;

use kai_control::objects::{Node, Phase, Pod, PodGroup};
use kai_engine::units::{QueueResource, Triple};

use super::Evidence;
use crate::amounts::{charged_on, holds_node};

pub(super) fn check(evidence: &Evidence<'_>) -> Vec<String> {
    let performed = evidence.performed;
    let idle = performed.bound.is_empty() && performed.promised.is_empty() && performed.evicted.is_empty();
    if evidence.cycle.queues.is_empty() || !idle || evidence.cycle.pending.is_empty() {
        return Vec::new();
    }
    let nodes: Vec<&Node> = evidence.world.nodes.values().filter(|node| open(evidence, node)).collect();
    let mut held: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in evidence.world.pods.values().filter(|pod| holds_node(pod)) {
        held.entry(pod.node.as_deref().unwrap_or_default()).or_default().push(pod);
    }
    let (all, fixed) = (evidence.allocated(|_| true), evidence.allocated(|group| !evidence.preemptible(group)));
    let mut wrong = Vec::new();
    for pod in evidence.world.pods.values().filter(|pod| plain(evidence, pod)) {
        let Some(group) = evidence.group_of(pod).filter(|group| starts_alone(evidence, group)) else { continue };
        let asked = charged_on(&pod.request, None);
        if !within_bounds(evidence, group, asked, &all, &fixed) {
            continue;
        }
        let fits = |node: &&&Node| fits(pod, node, held.get(node.name.as_str()).map_or(&[], Vec::as_slice));
        if let Some(node) = nodes.iter().find(fits) {
            wrong.push(format!("pod {} waits, though {} has room for it", pod.key, node.name));
        }
    }
    wrong
}

/// A node that takes every pod.
fn open(evidence: &Evidence<'_>, node: &Node) -> bool {
    let ready = node.conditions.get("Ready").is_none_or(|status| status == "True");
    let shared = node.allocatable.migs().next().is_some();
    ready && !node.unschedulable && node.taints.is_empty() && !shared && evidence.in_shard(&node.labels)
}

/// A waiting pod without any wish about its node.
fn plain(evidence: &Evidence<'_>, pod: &Pod) -> bool {
    let waits = pod.node.is_none() && pod.phase == Phase::Pending && pod.deletion.is_none() && !pod.gated;
    let free = pod.node_selector.is_empty() && pod.node_affinity.is_none() && pod.host_ports.is_empty();
    let whole = pod.request.sharing.is_none() && pod.request.resources.scalars.is_empty();
    let ours = pod.scheduler == evidence.settings.scheduler_name;
    waits && free && whole && ours && pod.other_rules.is_empty()
}

/// A job that can use one more pod at once.
fn starts_alone(evidence: &Evidence<'_>, group: &PodGroup) -> bool {
    let simple = group.sub_groups.is_empty() && group.constraint.is_none() && group.backed_off_on.is_none();
    simple && group.min_member.unwrap_or(1) <= 1 && evidence.in_shard(&group.labels)
}

fn within_bounds(
    evidence: &Evidence<'_>,
    group: &PodGroup,
    asked: Triple,
    all: &BTreeMap<&str, Triple>,
    fixed: &BTreeMap<&str, Triple>,
) -> bool {
    let chain = evidence.chain(&group.queue);
    let preemptible = evidence.preemptible(group);
    let sum = |sums: &BTreeMap<&str, Triple>, name: &str, resource| {
        sums.get(name).copied().unwrap_or_default().get(resource) + asked.get(resource)
    };
    !chain.is_empty()
        && chain.iter().all(|name| {
            let Some(queue) = evidence.world.queues.get(*name) else { return false };
            QueueResource::ALL.into_iter().zip(queue.amounts()).all(|(resource, amounts)| {
                amounts.limit.allows(sum(all, name, resource))
                    && (preemptible || amounts.quota.allows(sum(fixed, name, resource)))
            })
        })
}

/// Whether what a node has left is enough, shared GPUs counted as taken.
fn fits(pod: &Pod, node: &Node, held: &[&Pod]) -> bool {
    let offered = &node.allocatable;
    let mut devices: Vec<&str> = held.iter().flat_map(|pod| pod.gpu_groups()).collect();
    devices.sort_unstable();
    devices.dedup();
    let taken = |amount: fn(&Pod) -> i64| held.iter().map(|pod| amount(pod)).sum::<i64>() + amount(pod);
    let whole = taken(|pod| if pod.request.sharing.is_none() { pod.request.resources.gpus } else { 0 });
    whole + devices.len() as i64 <= offered.gpus
        && taken(|pod| pod.request.resources.cpu_milli) <= offered.cpu_milli
        && taken(|pod| pod.request.resources.memory_bytes) <= offered.memory_bytes
        && (held.len() as i64) < offered.pods
}
