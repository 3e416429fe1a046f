//! Cheap tests that a set of victims must pass before anything is tried. None refuses a set that could work.

use std::collections::{BTreeSet, BinaryHeap};

use super::scenario::{Gathered, gpu_demand, node_of};
use super::victims::Batch;
use crate::ids::{NodeId, TaskId};
use crate::ledger::Ledger;

/// GPUs that would be free on each node, kept up to date as victims are gathered.
#[derive(Debug)]
pub struct FreeGpus {
    free: Vec<i64>,
    demands: Vec<i64>,
}

impl FreeGpus {
    /// What is free now or later, plus what recorded victims hold.
    pub fn new(ledger: &Ledger<'_>, pending: &[TaskId], recorded: &[Batch]) -> Self {
        let free = ledger.snapshot.nodes.ids().map(|node| {
            let (idle, releasing) = ledger.gpus_free(node);
            idle + releasing
        });
        let mut demands: Vec<_> = pending.iter().map(|task| gpu_demand(ledger, *task)).collect();
        demands.sort_unstable();
        demands.reverse();
        let mut gpus = Self { free: free.collect(), demands };
        for batch in recorded {
            gpus.add(ledger, batch);
        }
        gpus
    }

    /// Adds what a batch would give back.
    pub fn add(&mut self, ledger: &Ledger<'_>, batch: &Batch) {
        for task in &batch.tasks {
            if let Some(node) = node_of(ledger, *task) {
                self.free[node.index()] += ledger.cost(*task, node).0[2];
            }
        }
    }

    /// Whether the pods' demands fit, largest first, each on the node with most left.
    pub fn suffice(&self) -> bool {
        let largest = self.demands.first().copied().unwrap_or(0);
        if largest == 0 {
            return true;
        }
        // Only the nodes with most free can matter: as many as there are pods.
        let mut nodes: BinaryHeap<(i64, NodeId)> = self
            .free
            .iter()
            .enumerate()
            .filter(|(_, free)| **free > 0)
            .map(|(node, free)| (*free, NodeId::at(node)))
            .collect();
        for demand in &self.demands {
            if *demand == 0 {
                return true;
            }
            match nodes.pop() {
                Some((free, node)) if free >= *demand => nodes.push((free - demand, node)),
                _ => return false,
            }
        }
        true
    }
}

/// Whether each pending pod is admitted by some node that is feasible or gives something back.
pub fn nodes_admit(ledger: &Ledger<'_>, pending: &[TaskId], feasible: &[NodeId], gathered: &Gathered) -> bool {
    let batches = gathered.recorded.iter().chain(&gathered.potential);
    let mut nodes: BTreeSet<NodeId> = feasible.iter().copied().collect();
    nodes.extend(batches.flat_map(|batch| &batch.tasks).filter_map(|task| node_of(ledger, *task)));
    pending.iter().all(|task| {
        let class = &ledger.snapshot.classes[ledger.snapshot.task(*task).class.index()];
        nodes.iter().any(|node| class.admitted.contains(node.index()))
    })
}
