//! Why a pod found no node: every node counts once, for the first thing in its way.

use std::collections::BTreeMap;

use crate::claims;
use crate::finder::{NodeSet, within_capacity};
use crate::fit::{self, When};
use crate::ids::{NodeId, TaskId};
use crate::inter_pod::InterPodFilter;
use crate::ledger::Ledger;
use crate::numa;
use crate::outcome::{NodeObstacle, ObstacleCounts, Reason};
use crate::policy::Policy;
use crate::snapshot::{GPUS, NodeRule, PODS, Shape};
use crate::{capacity, units::GPU, volumes};

/// PodSetCounts what stands in the way on each node.
pub fn count_obstacles(ledger: &Ledger<'_>, policy: &Policy, task: TaskId, nodes: NodeSet<'_>) -> ObstacleCounts {
    let mut counts: BTreeMap<NodeObstacle, u32> = BTreeMap::new();
    let mut shortages: BTreeMap<u32, (i64, u32)> = BTreeMap::new();
    let mut too_small: Option<(i64, u32)> = None;
    for node in ledger.snapshot.nodes.ids() {
        match obstacle(ledger, policy, task, nodes, node) {
            Some(NodeObstacle::Short { column, least }) => {
                let entry = shortages.entry(column).or_insert((least, 0));
                *entry = (entry.0.min(least), entry.1 + 1);
            }
            Some(NodeObstacle::DeviceTooSmall { largest }) => {
                let (known, count) = too_small.unwrap_or((largest, 0));
                too_small = Some((known.max(largest), count + 1));
            }
            Some(other) => *counts.entry(other).or_insert(0) += 1,
            None => {}
        }
    }
    let shortages =
        shortages.into_iter().map(|(column, (least, count))| (NodeObstacle::Short { column, least }, count));
    let too_small = too_small.map(|(largest, count)| (NodeObstacle::DeviceTooSmall { largest }, count));
    ObstacleCounts { counts: shortages.chain(too_small).chain(counts).collect() }
}

/// The first thing in the way of the pod on a node.
pub fn obstacle(
    ledger: &Ledger<'_>,
    policy: &Policy,
    task: TaskId,
    nodes: NodeSet<'_>,
    node: NodeId,
) -> Option<NodeObstacle> {
    let snapshot = ledger.snapshot;
    let row = snapshot.task(task);
    let shape = snapshot.shape(row.shape);
    if !nodes.contains(node) {
        return Some(NodeObstacle::OutsideDomain);
    }
    if !fit::fits(ledger, shape, node, When::Later) {
        return Some(shortage(ledger, shape, node));
    }
    if !policy.filters {
        let numa = (policy.numa && !numa::fits(ledger, shape, node)).then_some(NodeObstacle::Numa);
        return claim_refused(ledger, task, node).or(numa);
    }
    if let Some(rule) = rule(ledger, task, node) {
        return Some(NodeObstacle::Rule(rule));
    }
    if !within_capacity(ledger, policy, task, node) {
        let job = snapshot.job(row.job);
        let cost = ledger.cost(task, node);
        return match capacity::check(&ledger.queues, job.queue?, job.preemptible, cost)? {
            Reason::OverLimit(block) | Reason::NonPreemptibleOverQuota(block) => {
                Some(NodeObstacle::Queue(block.queue, block.resource))
            }
            _ => None,
        };
    }
    if shape.gpu.shared_devices().is_some() {
        match fit::choose_devices(ledger, shape, node, policy.device_order) {
            None => return Some(NodeObstacle::DeviceMemory),
            Some(choice) if !fit::slots_suffice(ledger, node, choice.fresh) => return Some(NodeObstacle::PodSlots),
            Some(_) => {}
        }
    }
    if let Some(refused) = claim_refused(ledger, task, node) {
        return Some(refused);
    }
    if policy.numa && !numa::fits(ledger, shape, node) {
        return Some(NodeObstacle::Numa);
    }
    let ports = row.ports.map_or(&[][..], |set| &snapshot.port_sets[set as usize]);
    if ports.iter().any(|port| ledger.port_taken(node, *port)) {
        return Some(NodeObstacle::Ports);
    }
    let inter_pod =
        InterPodFilter::of(ledger, task).and_then(|inter_pod| inter_pod.check(node).err()).map(NodeObstacle::InterPod);
    inter_pod.or_else(|| volumes::when(ledger, task, node).err().map(NodeObstacle::Volumes))
}

fn claim_refused(ledger: &Ledger<'_>, task: TaskId, node: NodeId) -> Option<NodeObstacle> {
    ledger.snapshot.task(task).claims?;
    claims::choose(ledger, task, node, When::Later).err().map(NodeObstacle::Claim)
}

fn rule(ledger: &Ledger<'_>, task: TaskId, node: NodeId) -> Option<NodeRule> {
    let class = &ledger.snapshot.classes[ledger.snapshot.task(task).class.index()];
    class.excluded.iter().find(|(_, nodes)| nodes.contains(node.index())).map(|(rule, _)| *rule)
}

/// The first column that the node has too little of.
fn shortage(ledger: &Ledger<'_>, shape: &Shape, node: NodeId) -> NodeObstacle {
    let (idle, releasing) = (ledger.idle(node), ledger.releasing(node));
    let missing = |column: usize| shape.need[column] - idle[column] - releasing[column];
    let shared = shape.gpu.shared_devices();
    for column in fit::columns_in_order(ledger.snapshot, shape) {
        if missing(column) > 0 && !fit::left_to_claims(ledger, node, column) {
            return if column == PODS {
                NodeObstacle::PodSlots
            } else {
                NodeObstacle::Short { column: column as u32, least: missing(column) }
            };
        }
    }
    let device_memory = ledger.snapshot.nodes.device_memory[node.index()];
    if !fit::device_is_large_enough(ledger, shape.gpu, node) {
        return NodeObstacle::DeviceTooSmall { largest: device_memory };
    }
    match shared {
        // No device of the node has anything to do with GPUs.
        Some(devices) if ledger.snapshot.row(&ledger.snapshot.nodes.allocatable, node)[GPUS] < GPU => {
            NodeObstacle::Short { column: GPUS as u32, least: i64::from(devices) * GPU }
        }
        _ => NodeObstacle::DeviceMemory,
    }
}
