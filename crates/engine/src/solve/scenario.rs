//! Which victims to try together: the scenario generators.
//!
//! Victims are accumulated one batch at a time; after each step a generator offers sets of them, small ones first.

use std::collections::{BTreeMap, BTreeSet};

use super::victims::Batch;
use crate::ids::{JobId, NodeId, TaskId};
use crate::ledger::Ledger;
use crate::snapshot::Column;

/// Victims gathered so far for one prefix of a pending job.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Victims of the last prefix that worked out, in batches.
    pub recorded: Vec<Batch>,
    /// Victims found for this prefix, in order.
    pub potential: Vec<Batch>,
}

/// Victims to try.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scenario {
    /// Indices into the recorded batches come first, then those of potential ones, shifted by their number.
    pub batches: Vec<usize>,
}

impl Gathered {
    /// All batches: recorded, then potential.
    pub fn batch(&self, index: usize) -> &Batch {
        self.recorded.get(index).unwrap_or_else(|| &self.potential[index - self.recorded.len()])
    }

    /// Pods of the recorded batches.
    pub fn recorded_tasks(&self) -> BTreeSet<TaskId> {
        self.recorded.iter().flat_map(|batch| batch.tasks.iter().copied()).collect()
    }

    fn with_potential(&self, chosen: impl Fn(usize, &Batch) -> bool) -> Scenario {
        let recorded = 0..self.recorded.len();
        let potential = self.potential.iter().enumerate().filter(|(index, batch)| chosen(*index, batch));
        Scenario { batches: recorded.chain(potential.map(|(index, _)| index + self.recorded.len())).collect() }
    }

    /// The scenario of recorded victims alone.
    pub fn recorded_only(&self) -> Option<Scenario> {
        (!self.recorded.is_empty()).then(|| self.with_potential(|_, _| false))
    }

    /// For each node of the newest victim's job: all victims of every job that would lose a pod there.
    pub fn node_local(&self, ledger: &Ledger<'_>) -> Vec<Scenario> {
        let Some(newest) = self.potential.last() else { return Vec::new() };
        let mut jobs_at: BTreeMap<NodeId, BTreeSet<JobId>> = BTreeMap::new();
        for batch in &self.potential {
            for task in &batch.tasks {
                if let Some(node) = node_of(ledger, *task) {
                    jobs_at.entry(node).or_default().insert(batch.job);
                }
            }
        }
        let hosts: BTreeSet<_> =
            ledger.snapshot.job_tasks(newest.job).filter_map(|task| node_of(ledger, task)).collect();
        let mut offered = BTreeSet::new();
        let mut scenarios = Vec::new();
        for jobs in hosts.iter().filter_map(|node| jobs_at.get(node)) {
            if offered.insert(jobs) {
                scenarios.push(self.with_potential(|_, batch| jobs.contains(&batch.job)));
            }
        }
        scenarios
    }

    /// Growing sets of nodes, those with least to gain first, with all batches that touch them.
    pub fn multi_node(&self, ledger: &Ledger<'_>, feasible: &[NodeId], demands: &[i64]) -> Vec<Scenario> {
        let gain = |batches: &[Batch]| {
            let mut gained: BTreeMap<NodeId, i64> = BTreeMap::new();
            for task in batches.iter().flat_map(|batch| &batch.tasks) {
                if let Some(node) = node_of(ledger, *task) {
                    *gained.entry(node).or_insert(0) += ledger.cost(*task, node).0[2];
                }
            }
            gained
        };
        let (recorded, potential) = (gain(&self.recorded), gain(&self.potential));
        let base = |node: NodeId| {
            let (idle, releasing) = ledger.gpus_free(node);
            idle + releasing + recorded.get(&node).copied().unwrap_or(0)
        };
        let smallest = demands.iter().copied().min().unwrap_or(0);
        let mut order: Vec<(i64, usize, NodeId)> = Vec::new();
        let mut seen = BTreeSet::new();
        for task in self.potential.iter().flat_map(|batch| &batch.tasks) {
            if let Some(node) = node_of(ledger, *task)
                && seen.insert(node)
            {
                let cap = base(node) + potential[&node];
                if cap >= smallest {
                    order.push((cap, order.len(), node));
                }
            }
        }
        order.sort_unstable();
        let elsewhere: i64 = feasible.iter().filter(|node| !potential.contains_key(node)).map(|node| base(*node)).sum();
        let demand = (demands.iter().sum::<i64>() - elsewhere).max(0);
        let Some(first) = shortest_prefix(&order, demand) else { return Vec::new() };
        let mut scenarios = Vec::new();
        let mut step = 0;
        loop {
            let length = (first + step).min(order.len());
            let nodes: BTreeSet<_> = order[..length].iter().map(|(_, _, node)| *node).collect();
            let touches = |batch: &Batch| {
                batch.tasks.iter().any(|task| node_of(ledger, *task).is_some_and(|node| nodes.contains(&node)))
            };
            scenarios.push(self.with_potential(|_, batch| touches(batch)));
            if length == order.len() {
                return scenarios;
            }
            step = 2 * step + 1;
        }
    }
}

fn shortest_prefix(order: &[(i64, usize, NodeId)], demand: i64) -> Option<usize> {
    let mut sum = 0;
    if demand == 0 {
        return Some(0);
    }
    order
        .iter()
        .position(|(cap, _, _)| {
            sum += cap;
            sum >= demand
        })
        .map(|index| index + 1)
}

/// Where a victim is.
pub fn node_of(ledger: &Ledger<'_>, task: TaskId) -> Option<NodeId> {
    ledger.standing(task).spot().map(|spot| spot.node)
}

/// GPUs that a pod asks for, as queues count them; memory requests count nothing.
pub fn gpu_demand(ledger: &Ledger<'_>, task: TaskId) -> i64 {
    debug_assert!(matches!(ledger.snapshot.columns[2], Column::Gpu));
    ledger.snapshot.shape(ledger.snapshot.task(task).shape).quota_gpu
}
