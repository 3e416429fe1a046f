//! Which node is best for a pod. Points add up; the placement strategy only decides between equal points, because
//! its range is smaller than the smallest other score. Names decide the rest.
//!
//! Every score looks at one node alone, so that after a placement only the nodes it touched are scored again.

use crate::ids::NodeId;
use crate::ledger::{Ledger, When};
use crate::nodes::numa;
use crate::nodes::resources;
use crate::policy::{Policy, Strategy};
use crate::snapshot::{CPU, GPUS, GpuAsk, ResourceKind, Shape};

/// A node's score for a pod; larger is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score {
    /// Sum of all scores but the placement strategy.
    pub points: i64,
    /// Placement strategy.
    pub placement: i64,
}

/// Extra score of nodes for one pod, from a preferred topology level; nodes without an entry are not used.
#[derive(Clone, Debug)]
pub struct DomainScores(Vec<Option<i64>>);

impl DomainScores {
    /// No node is used yet.
    pub fn new(node_count: usize) -> Self {
        Self(vec![None; node_count])
    }

    /// Gives a node its score.
    pub fn set(&mut self, node: NodeId, score: i64) {
        self.0[node.index()] = Some(score);
    }

    /// The score of a node.
    pub fn get(&self, node: NodeId) -> Option<i64> {
        self.0[node.index()]
    }

    /// Nodes with score, in name order.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, i64)> + '_ {
        let known = self.0.iter().enumerate();
        known.filter_map(|(node, score)| score.map(|score| (NodeId::at(node), score)))
    }
}

/// Score of the node nominated earlier.
pub(crate) const NOMINATED: i64 = 10_000_000;

/// Score per point of preferred inter-pod affinity.
pub(crate) const AFFINITY_POINT: i64 = 1_000_000;

/// Score per point of preferred spread constraints, weighed as kube-scheduler does. All of it is less than the score of resources
/// that are free now.
pub(crate) const SPREAD_POINT: i64 = 2;

/// One step of score inside a preferred topology domain.
pub(crate) const DOMAIN_STEP: i64 = 100_000;

/// Score of a node for a request, whatever the pod's nomination or topology says.
pub(crate) fn score(ledger: &Ledger<'_>, policy: &Policy, shape: &Shape, node: NodeId) -> Score {
    let on = &policy.scores;
    let points = points(on.resource_type, || resource_type(ledger, shape, node))
        + points(on.availability, || availability(ledger, shape, node))
        + points(on.gpu_sharing, || gpu_sharing(ledger, shape, node))
        + points(on.gpu_memory_fit, || gpu_memory_fit(ledger, shape, node))
        + points(policy.numa, || numa::points(ledger, shape, node));
    Score { points, placement: placement(ledger, policy, shape, node) }
}

/// Points of a score that may be off.
fn points(is_on: bool, points: impl FnOnce() -> i64) -> i64 {
    if is_on { points() } else { 0 }
}

/// The part of the score that is for room right now.
pub(crate) fn available(ledger: &Ledger<'_>, policy: &Policy, shape: &Shape, node: NodeId) -> i64 {
    if policy.scores.availability { availability(ledger, shape, node) } else { 0 }
}

/// Pods without GPUs go to nodes without GPUs.
fn resource_type(ledger: &Ledger<'_>, shape: &Shape, node: NodeId) -> i64 {
    let row = ledger.snapshot.row(&ledger.snapshot.nodes.allocatable, node);
    let has_gpus = || {
        row.iter()
            .zip(&ledger.snapshot.resources)
            .any(|(amount, column)| *amount > 0 && matches!(column, ResourceKind::Gpu | ResourceKind::Mig { .. }))
    };
    if shape.gpu == GpuAsk::None && !has_gpus() { 10 } else { 0 }
}

/// Nodes with room now come before nodes where the pod would wait for pods that are being released.
fn availability(ledger: &Ledger<'_>, shape: &Shape, node: NodeId) -> i64 {
    if resources::fits(ledger, shape, node, When::Now) { 1_000 } else { 0 }
}

/// A pod that shares GPUs goes where a shared GPU has room.
fn gpu_sharing(ledger: &Ledger<'_>, shape: &Shape, node: NodeId) -> i64 {
    // KAI draws every pod there that asks for no whole GPU: it asks for no memory, so it fits anywhere.
    let shares = shape.gpu.shared_devices().is_some() || !ledger.repairs.gpu_sharing && shape.gpu != GpuAsk::Whole;
    if shares && resources::fitting_devices(ledger, shape.gpu, node).next().is_some() { 10_000 } else { 0 }
}

/// A pod that asks for GPU memory goes to the smallest GPU that holds it, so that larger ones stay free for pods that need
/// them: a point less for each GiB. All of it is less than the score of resources that are free now.
fn gpu_memory_fit(ledger: &Ledger<'_>, shape: &Shape, node: NodeId) -> i64 {
    let gib = ledger.snapshot.nodes.device_memory[node.index()] / 1024;
    if matches!(shape.gpu, GpuAsk::Memory { .. }) { -gib.min(999) } else { 0 }
}

/// Pack or spread by what is free, now or later, of the resource that the pod is about.
fn placement(ledger: &Ledger<'_>, policy: &Policy, shape: &Shape, node: NodeId) -> i64 {
    let Some(placement) = policy.scores.placement else { return 0 };
    let (column, strategy) = if shape.needs_gpu() { (GPUS, placement.gpu) } else { (CPU, placement.cpu) };
    let total = ledger.snapshot.row(&ledger.snapshot.nodes.allocatable, node)[column];
    let free = ledger.idle(node)[column] + ledger.releasing(node)[column];
    match strategy {
        Strategy::Pack => -free,
        Strategy::Spread if total == 0 => 0,
        // 40 binary digits tell apart all fractions of amounts that occur on one node.
        Strategy::Spread => ((i128::from(free) << 40) / i128::from(total)) as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Scores;
    use crate::snapshot::builder::{Builder, NodeRow};
    use crate::units::GPU;

    #[test]
    fn gpu_memory_fit_prefers_small_gpus_for_requests_of_gpu_memory() {
        let mut builder = Builder::new(Vec::new());
        for gib in [80, 24, 141] {
            builder.node(NodeRow { device_memory: gib * 1024, ..NodeRow::idle(vec![8_000, 1 << 30, 8 * GPU, 110]) });
        }
        let snapshot = builder.finish();
        let policy = Policy { scores: Scores { gpu_memory_fit: true, ..Scores::NONE }, ..Policy::default() };
        let ledger = Ledger::open(&snapshot, &policy);
        let points = |gpu: GpuAsk| {
            let shape = Shape { need: vec![0, 0, 0, 1], gpu, quota_gpu: 0, numa: None };
            [0, 1, 2].map(|node| score(&ledger, &policy, &shape, NodeId(node)).points)
        };
        assert_eq!(points(GpuAsk::Memory { devices: 1, mib: 20_000 }), [-80, -24, -141]);
        assert_eq!(points(GpuAsk::Fraction { devices: 1, portion: GPU / 2 }), [0, 0, 0]);
    }
}
