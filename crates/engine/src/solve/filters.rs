//! Cheap tests that a set of victims must pass before anything is tried. None refuses a set that could work.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use super::victims::{Batch, Place};
use crate::ids::{NodeId, TaskId};
use crate::ledger::Ledger;
use crate::snapshot::GpuAsk;

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
    /// What is free on each node, for pods with these demands. `rooms` remembers sizes of pods that were asked about.
    pub fn new(free: &[i64], demands: &[i64], rooms: &mut BTreeMap<i64, i64>) -> Self {
        let mut sizes: Vec<i64> = demands.iter().copied().filter(|gpus| *gpus > 0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let size = |gpus: i64| Size {
            gpus,
            pods: demands.iter().filter(|demand| **demand >= gpus).count() as i64,
            room: *rooms.entry(gpus).or_insert_with(|| free.iter().map(|free| room(*free, gpus)).sum()),
        };
        Self { free: free.to_vec(), sizes: sizes.into_iter().map(size).collect() }
    }

    /// Adds what a batch would give back, or takes it away again. Of victims who must find another place, pods of the
    /// same size take as much room as they make.
    pub fn give_back(&mut self, batch: &Batch, stays: bool, sign: i64) {
        if !stays {
            batch.all_places().for_each(|place| self.give(place.node, sign * place.gpus));
            return;
        }
        let same = |place: &Place| self.only_size().is_some_and(|size| place.whole && place.gpus % size == 0);
        let others: Vec<Place> =
            batch.places.iter().copied().filter(|place| !same(place)).chain(batch.ridden.iter().copied()).collect();
        for place in others {
            self.give(place.node, sign * place.gpus);
        }
    }

    /// The size of the pods, if they are all alike.
    fn only_size(&self) -> Option<i64> {
        match self.sizes[..] {
            [size] => Some(size.gpus),
            _ => None,
        }
    }

    /// Adds GPUs to a node.
    fn give(&mut self, node: NodeId, gpus: i64) {
        let before = self.free[node.index()];
        self.free[node.index()] += gpus;
        for size in &mut self.sizes {
            size.room += room(before + gpus, size.gpus) - room(before, size.gpus);
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
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    demand: i64,
    free: i64,
    /// Parts of GPUs are rounded in several ways, so only whole ones are counted.
    counts: bool,
}

impl Volume {
    /// For these pods.
    pub fn new(ledger: &Ledger<'_>, free: &[i64], pending: &[TaskId]) -> Self {
        let shape = |task: &TaskId| ledger.snapshot.shape(ledger.snapshot.task(*task).shape);
        Self {
            demand: pending.iter().map(|task| shape(task).quota_gpu).sum(),
            free: free.iter().map(|free| (*free).max(0)).sum(),
            counts: pending.iter().all(|task| shape(task).gpu == GpuAsk::Whole),
        }
    }

    /// Whether somebody must lose a place.
    pub fn is_short(&self) -> bool {
        self.counts && self.demand > self.free
    }

    /// GPUs that somebody must lose.
    pub fn missing(&self) -> i64 {
        if self.is_short() { self.demand - self.free } else { 0 }
    }

    /// Whether there could be room for everyone if so many GPUs are lost.
    pub fn suffices(&self, lost: i64) -> bool {
        !self.is_short() || self.demand <= self.free.saturating_add(lost)
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
        let admits =
            |task: &TaskId| batch.all_places().any(|place| class_of(ledger, *task).contains(place.node.index()));
        self.homeless.retain(|task| !admits(task));
    }

    /// Whether every pod has a node.
    pub fn suffices(&self) -> bool {
        self.homeless.is_empty()
    }
}

fn class_of<'s>(ledger: &Ledger<'s>, task: TaskId) -> &'s FixedBitSet {
    &ledger.snapshot.classes[ledger.snapshot.task(task).class.index()].admitted
}
