//! Cheap tests that a set of victims must pass before anything is tried. None refuses a set that could work.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use super::victims::{FreedGpus, VictimBatch};
use crate::ids::{DeviceId, NodeId, TaskId};
use crate::ledger::Ledger;
use crate::snapshot::{GPUS, GpuAsk, Shape};
use crate::units::{GPU, compat};

/// GPUs that would be free on each node, and how many of the pending pods could find room, by size.
///
/// For each size of pod, nodes must have room for as many pods of that size as there are pods at least that large.
#[derive(Clone, Debug)]
pub(crate) struct NodeGpuCheck {
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

impl NodeGpuCheck {
    /// What is free on each node, for pods with these demands. `rooms` remembers sizes of pods that were asked about.
    pub(crate) fn new(free: &[i64], demands: &[i64], rooms: &mut BTreeMap<i64, i64>) -> Self {
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

    /// Adds (`sign` 1) or removes (−1) the GPUs that evicting the batch frees. With `stays` its pods need a place
    /// again, so those of the pending pods' size are not counted: they take what they free.
    pub(crate) fn give_back(&mut self, batch: &VictimBatch, stays: bool, sign: i64) {
        if !stays {
            batch.all_places().for_each(|place| self.give(place.node, sign * place.gpus));
            return;
        }
        let same = |place: &FreedGpus| self.only_size().is_some_and(|size| place.whole && place.gpus % size == 0);
        let others: Vec<FreedGpus> = batch
            .places
            .iter()
            .copied()
            .filter(|place| !same(place))
            .chain(batch.dependent_targets.iter().copied())
            .collect();
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
    pub(crate) fn suffice(&self) -> bool {
        self.sizes.iter().all(|size| size.room >= size.pods)
    }
}

fn room(free: i64, gpus: i64) -> i64 {
    if free > 0 { free / gpus } else { 0 }
}

/// Cluster-wide condition: free GPUs plus what may be lost cover the demand of the pending pods, on whatever nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TotalGpuCheck {
    demand: i64,
    free: i64,
    counted: Counted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// Only whole GPUs are asked for.
    Whole,
    /// Parts as well: all GPUs are alike, so that a part is as large everywhere.
    Parts,
    /// What is asked for differs from node to node.
    Nothing,
}

/// What is free of GPUs that are all alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedGpuTotals {
    /// MiB of each.
    memory: i64,
    /// Whole ones and parts, now or later, rounded up.
    free: i64,
}

impl SharedGpuTotals {
    /// `None` if GPUs are not alike, or given out in other ways as well.
    pub(crate) fn new(ledger: &Ledger<'_>) -> Option<Self> {
        let snapshot = ledger.snapshot;
        let with_gpus =
            || snapshot.nodes.ids().filter(|node| snapshot.row(&snapshot.nodes.allocatable, *node)[GPUS] > 0);
        let memory = snapshot.nodes.device_memory[with_gpus().next()?.index()];
        let alike = with_gpus().all(|node| snapshot.nodes.device_memory[node.index()] == memory);
        if !alike || memory <= 0 || !snapshot.claims.devices.is_empty() {
            return None;
        }
        let whole = |node: NodeId| (ledger.idle(node)[GPUS] + ledger.releasing(node)[GPUS]).max(0);
        let part = |device: &DeviceId| {
            let device = ledger.device(*device);
            let used = device.allocated + device.pipelined;
            // One whose pods are all being released is a whole one.
            if used > 0 { -in_gpus(used - memory, memory).min(0) } else { 0 }
        };
        let free = with_gpus().map(|node| whole(node) + ledger.devices_on(node).iter().map(part).sum::<i64>()).sum();
        Some(Self { memory, free })
    }
}

/// Millionths of GPUs, rounded down.
fn in_gpus(mib: i64, memory: i64) -> i64 {
    (i128::from(mib) * i128::from(GPU)).div_euclid(i128::from(memory)) as i64
}

impl TotalGpuCheck {
    /// For these pods, with so much free; `parts` where any of them asks for a part of a GPU.
    pub(crate) fn new(ledger: &Ledger<'_>, free: i64, parts: Option<SharedGpuTotals>, pending: &[TaskId]) -> Self {
        let shapes = || pending.iter().map(|task| ledger.snapshot.shape(ledger.snapshot.task(*task).shape));
        if shapes().all(|shape| shape.gpu == GpuAsk::Whole) {
            return Self { demand: shapes().map(|shape| shape.quota_gpu).sum(), free, counted: Counted::Whole };
        }
        let demand = |shape: &Shape| match (shape.gpu, parts) {
            (GpuAsk::Whole, _) => Some(shape.quota_gpu),
            (GpuAsk::Fraction { devices, portion }, Some(parts)) => {
                let memory = compat::share_to_memory(portion, parts.memory);
                Some(i64::from(devices) * in_gpus(memory, parts.memory))
            }
            (GpuAsk::Memory { devices, mib }, Some(parts)) => Some(i64::from(devices) * in_gpus(mib, parts.memory)),
            _ => None,
        };
        match (shapes().map(demand).sum::<Option<i64>>(), parts) {
            (Some(demand), Some(parts)) => Self { demand, free: parts.free, counted: Counted::Parts },
            _ => Self { demand: 0, free: 0, counted: Counted::Nothing },
        }
    }

    /// Whether a pod must lose its place.
    pub(crate) fn is_short(&self) -> bool {
        self.counted != Counted::Nothing && self.demand > self.free
    }

    /// Whether parts of GPUs are asked for, of which queues count no more than hundredths.
    pub(crate) fn has_parts(&self) -> bool {
        self.counted == Counted::Parts
    }

    /// Whole GPUs that must be lost.
    pub(crate) fn missing(&self) -> i64 {
        if self.is_short() && !self.has_parts() { self.demand - self.free } else { 0 }
    }

    /// Whether all could fit if so many GPUs are lost, as queues count them, of so many pods.
    pub(crate) fn suffices(&self, lost: i64, pods: usize) -> bool {
        let rounding = if self.has_parts() { GPU / 100 * pods as i64 } else { 0 };
        !self.is_short() || self.demand <= self.free.saturating_add(lost).saturating_add(rounding)
    }
}

/// Whether the node filter of each pending pod passes some node that is feasible or gives something back.
#[derive(Debug)]
pub(crate) struct FeasibleNodeCheck<'t> {
    /// Pods without such a node so far.
    without_node: Vec<&'t TaskId>,
}

impl<'t> FeasibleNodeCheck<'t> {
    /// Looks at the feasible nodes.
    pub(crate) fn new(ledger: &Ledger<'_>, pending: &'t [TaskId], feasible: &FixedBitSet) -> Self {
        let feasible = |task: &TaskId| !feasible_nodes_of(ledger, *task).is_disjoint(feasible);
        Self { without_node: pending.iter().filter(|task| !feasible(task)).collect() }
    }

    /// Looks at the nodes of a batch as well.
    pub(crate) fn add(&mut self, ledger: &Ledger<'_>, batch: &VictimBatch) {
        if self.without_node.is_empty() {
            return;
        }
        let admits = |task: &TaskId| {
            batch.all_places().any(|place| feasible_nodes_of(ledger, *task).contains(place.node.index()))
        };
        self.without_node.retain(|task| !admits(task));
    }

    /// Whether every pod has a node.
    pub(crate) fn suffices(&self) -> bool {
        self.without_node.is_empty()
    }
}

fn feasible_nodes_of<'s>(ledger: &Ledger<'s>, task: TaskId) -> &'s FixedBitSet {
    &ledger.snapshot.node_filters[ledger.snapshot.task(task).node_filter.index()].feasible
}
