//! No workload waits beside free capacity: when a cycle does nothing, no job that waits could start, or grow by a pod,
//! on the nodes as they are. So nothing starves while there is room.
//!
//! Looks at the plain case only, where no rule needs interpretation: jobs of equal pods, whole GPUs, no rules about
//! nodes, and nodes that take every pod.

use std::collections::BTreeMap;

use kai_control::key::GroupKey;
use kai_control::objects::{Node, Phase, Pod, PodGroup};
use kai_engine::units::{QueueResource, ResourceQuantities};

use super::{CycleObservation, namespaces};
use crate::amounts::{charged_on, holds_node};

pub(crate) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let performed = observation.performed;
    let idle = performed.bound.is_empty() && performed.pipelined.is_empty() && performed.evicted.is_empty();
    if observation.cycle.queues.is_empty() || !idle || observation.cycle.pending.is_empty() {
        return Vec::new();
    }
    // Whom others keep away is decided by selectors, which are looked at elsewhere.
    if observation.world.pods.values().any(|pod| pod.inter_pod.is_some()) {
        return Vec::new();
    }
    let nodes: Vec<&Node> = observation.world.nodes.values().filter(|node| open(observation, node)).collect();
    let mut held: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in observation.world.pods.values().filter(|pod| holds_node(pod)) {
        held.entry(pod.node.as_deref().unwrap_or_default()).or_default().push(pod);
    }
    let (all, fixed) =
        (observation.allocated(|_| true), observation.allocated(|group| !observation.preemptible(group)));
    let mut jobs: BTreeMap<GroupKey, Vec<&Pod>> = BTreeMap::new();
    for pod in observation.world.pods.values().filter(|pod| waits(observation, pod)) {
        if let Some(group) = pod.group() {
            jobs.entry(group).or_default().push(pod);
        }
    }
    let mut wrong = Vec::new();
    for (key, pods) in &jobs {
        let Some(group) = observation.world.pod_groups.get(key).filter(|group| simple(observation, group)) else {
            continue;
        };
        let (pod, missing) = (pods[0], missing(observation, group));
        let alike = pods.iter().all(|other| plain(other) && other.request.resources == pod.request.resources);
        if !alike || (pods.len() as i64) < missing {
            continue;
        }
        let asked = charged_on(&pod.request, None);
        let together = (0..missing).fold(ResourceQuantities::ZERO, |sum, _| sum + asked);
        if !within_bounds(observation, group, together, &all, &fixed) {
            continue;
        }
        let room = |node: &&Node| room(pod, node, held.get(node.name.as_str()).map_or(&[], Vec::as_slice));
        if nodes.iter().map(room).sum::<i64>() >= missing {
            wrong.push(format!("{missing} pods of {key} could start, but it waits"));
        }
    }
    wrong
}

/// Pods that must start together for the job to run, or to grow.
fn missing(observation: &CycleObservation<'_>, group: &PodGroup) -> i64 {
    let own = |pod: &&Pod| pod.group().as_ref() == Some(&group.key);
    let held = observation.world.pods.values().filter(own).filter(|pod| observation.counts(pod)).count() as i64;
    (i64::from(group.min_member.unwrap_or(1)) - held).max(1)
}

/// A node that takes every pod.
fn open(observation: &CycleObservation<'_>, node: &Node) -> bool {
    let ready = node.conditions.get("Ready").is_none_or(|status| status == "True");
    let shared = node.allocatable.migs().next().is_some();
    // Which pods fit into its zones is decided by its kubelet.
    let zones = observation.settings.numa.is_some() && observation.world.numa_topologies.contains_key(&node.name);
    ready && !node.unschedulable && node.taints.is_empty() && !shared && !zones && observation.in_shard(&node.labels)
}

/// A pod that may be scheduled now.
fn waits(observation: &CycleObservation<'_>, pod: &Pod) -> bool {
    let waits = pod.node.is_none() && pod.phase == Phase::Pending && pod.deletion.is_none() && !pod.gated;
    waits && pod.scheduler == observation.settings.scheduler_name
}

/// A pod without any wish about its node.
fn plain(pod: &Pod) -> bool {
    let free = pod.node_selector.is_empty() && pod.node_affinity.is_none() && pod.host_ports.is_empty();
    let whole = pod.request.sharing.is_none() && pod.request.resources.scalars.is_empty();
    free && whole && pod.claims.is_empty() && pod.signature_extra.is_empty() && pod.prerequisites.is_none()
}

/// A job of one kind of pods, without wishes about where they stand together.
fn simple(observation: &CycleObservation<'_>, group: &PodGroup) -> bool {
    let simple = group.sub_groups.is_empty() && group.constraint.is_none() && group.backed_off_on.is_none();
    simple && observation.in_shard(&group.labels) && namespaces::allows(observation, group)
}

fn within_bounds(
    observation: &CycleObservation<'_>,
    group: &PodGroup,
    asked: ResourceQuantities,
    all: &BTreeMap<&str, ResourceQuantities>,
    fixed: &BTreeMap<&str, ResourceQuantities>,
) -> bool {
    let chain = observation.chain(&group.queue);
    let preemptible = observation.preemptible(group);
    let sum = |sums: &BTreeMap<&str, ResourceQuantities>, name: &str, resource| {
        sums.get(name).copied().unwrap_or_default().get(resource) + asked.get(resource)
    };
    !chain.is_empty()
        && chain.iter().all(|name| {
            let Some(queue) = observation.world.queues.get(*name) else { return false };
            QueueResource::ALL.into_iter().zip(queue.amounts()).all(|(resource, amounts)| {
                amounts.limit.allows(sum(all, name, resource))
                    && (preemptible || amounts.quota.allows(sum(fixed, name, resource)))
            })
        })
}

/// How many such pods fit into what a node has left, shared GPUs counted as taken.
fn room(pod: &Pod, node: &Node, held: &[&Pod]) -> i64 {
    let offered = &node.allocatable;
    let mut devices: Vec<&str> = held.iter().flat_map(|pod| pod.gpu_groups()).collect();
    devices.sort_unstable();
    devices.dedup();
    let sum = |amount: fn(&Pod) -> i64| held.iter().map(|pod| amount(pod)).sum::<i64>();
    let gpus: fn(&Pod) -> i64 = |pod| if pod.request.sharing.is_none() { pod.request.resources.gpus } else { 0 };
    let cpu: fn(&Pod) -> i64 = |pod| pod.request.resources.cpu_milli;
    let memory: fn(&Pod) -> i64 = |pod| pod.request.resources.memory_bytes;
    let left = [
        (offered.pods - held.len() as i64, 1),
        (offered.gpus - sum(gpus) - devices.len() as i64, gpus(pod)),
        (offered.cpu_milli - sum(cpu), cpu(pod)),
        (offered.memory_bytes - sum(memory), memory(pod)),
    ];
    let asked = left.into_iter().filter(|(_, ask)| *ask > 0);
    asked.map(|(left, ask)| left.max(0) / ask).min().unwrap_or(0)
}
