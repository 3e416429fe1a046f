//! Cheap tests that a set of victims must pass before anything is tried. None refuses a set that could work.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;

use super::scenario::node_of;
use super::victims::Batch;
use crate::ids::{NodeId, QueueId, TaskId};
use crate::ledger::Ledger;
use crate::snapshot::GpuAsk;
use crate::units::Triple;

/// GPUs that would be free on each node, and how many of the pending pods could find room, by size.
///
/// For each size of pod, nodes must have room for as many pods of that size as there are pods at least that large.
#[derive(Clone, Debug)]
pub struct FreeGpus {
    free: Vec<i64>,
    sizes: Vec<Size>,
}

#[derive(Clone, Copy, Debug)]
struct Size {
    gpus: i64,
    /// Pods at least this large.
    pods: i64,
    /// Pods of this size that fit on the nodes.
    room: i64,
}

impl FreeGpus {
    /// What is free on each node, for pods with these demands.
    pub fn new(free: &[i64], demands: &[i64]) -> Self {
        let mut sizes: Vec<i64> = demands.iter().copied().filter(|gpus| *gpus > 0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let size = |gpus: i64| Size {
            gpus,
            pods: demands.iter().filter(|demand| **demand >= gpus).count() as i64,
            room: free.iter().map(|free| room(*free, gpus)).sum(),
        };
        Self { free: free.to_vec(), sizes: sizes.into_iter().map(size).collect() }
    }

    /// Adds what a batch would give back, or takes it away again.
    pub fn add(&mut self, ledger: &Ledger<'_>, batch: &Batch, sign: i64) {
        for task in batch.all() {
            if let Some(node) = node_of(ledger, task) {
                let before = self.free[node.index()];
                let after = before + sign * ledger.cost(task, node).0[2];
                self.free[node.index()] = after;
                for size in &mut self.sizes {
                    size.room += room(after, size.gpus) - room(before, size.gpus);
                }
            }
        }
    }

    /// Whether the pods could fit, as far as GPUs are concerned.
    pub fn suffice(&self) -> bool {
        self.sizes.iter().all(|size| size.room >= size.pods)
    }
}

fn room(free: i64, gpus: i64) -> i64 {
    if free > 0 { free / gpus } else { 0 }
}

/// All GPUs that the pods, and victims who must keep a place, can count on together, wherever they are.
#[derive(Clone, Debug)]
pub struct Volume {
    demand: i64,
    free: i64,
    /// Parts of GPUs are rounded in several ways, so only whole ones are counted.
    counts: bool,
    victims: BTreeMap<QueueId, Triple>,
}

impl Volume {
    /// For these pods.
    pub fn new(ledger: &Ledger<'_>, free: &[i64], pending: &[TaskId]) -> Self {
        let shape = |task: &TaskId| ledger.snapshot.shape(ledger.snapshot.task(*task).shape);
        Self {
            demand: pending.iter().map(|task| shape(task).quota_gpu).sum(),
            free: free.iter().map(|free| (*free).max(0)).sum(),
            counts: pending.iter().all(|task| shape(task).gpu == GpuAsk::Whole),
            victims: BTreeMap::new(),
        }
    }

    /// Adds the victims of a batch.
    pub fn add(&mut self, ledger: &Ledger<'_>, batch: &Batch) {
        if let Some(queue) = ledger.snapshot.job(batch.job).queue.filter(|_| self.counts) {
            let held = |task: &TaskId| node_of(ledger, *task).map_or(Triple::ZERO, |node| ledger.cost(*task, node));
            let held = batch.tasks.iter().fold(Triple::ZERO, |sum, task| sum + held(task));
            *self.victims.entry(queue).or_default() += held;
        }
    }

    /// Whether there could be room for everyone if victims of `losers` need not keep a place.
    pub fn suffices(&self, losers: impl Fn(&BTreeMap<QueueId, Triple>) -> BTreeSet<QueueId>) -> bool {
        if !self.counts || self.demand <= self.free {
            return true;
        }
        let lost: i64 = losers(&self.victims).iter().map(|queue| self.victims[queue].0[2]).sum();
        self.demand <= self.free + lost
    }
}

/// Whether each pending pod is admitted by some node that is feasible or gives something back.
#[derive(Debug)]
pub struct Admission<'t> {
    /// Pods that no node so far admits.
    homeless: Vec<&'t TaskId>,
}

impl<'t> Admission<'t> {
    /// Looks at the feasible nodes.
    pub fn new(ledger: &Ledger<'_>, pending: &'t [TaskId], feasible: &FixedBitSet) -> Self {
        let admitted = |task: &TaskId| !class_of(ledger, *task).is_disjoint(feasible);
        Self { homeless: pending.iter().filter(|task| !admitted(task)).collect() }
    }

    /// Looks at the nodes of a batch as well.
    pub fn add(&mut self, ledger: &Ledger<'_>, batch: &Batch) {
        if self.homeless.is_empty() {
            return;
        }
        let nodes: Vec<NodeId> = batch.all().filter_map(|task| node_of(ledger, task)).collect();
        self.homeless.retain(|task| !nodes.iter().any(|node| class_of(ledger, **task).contains(node.index())));
    }

    /// Whether every pod has a node.
    pub fn suffices(&self) -> bool {
        self.homeless.is_empty()
    }
}

fn class_of<'s>(ledger: &Ledger<'s>, task: TaskId) -> &'s FixedBitSet {
    &ledger.snapshot.classes[ledger.snapshot.task(task).class.index()].admitted
}
