//! Which victims to try together: the scenario generators.
//!
//! Victims are accumulated one batch at a time; after each step a generator offers sets of them, small ones first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::victims::Batch;
use crate::ids::{JobId, NodeId, TaskId};
use crate::ledger::Ledger;

/// Victims gathered so far for one prefix of a pending job, with what the generators ask about them.
#[derive(Debug)]
pub struct Gathered {
    /// Victims of the last prefix that worked out.
    pub recorded: Vec<Arc<Batch>>,
    /// Victims found for this prefix, in order.
    pub potential: Vec<Arc<Batch>>,
    batches_of: BTreeMap<JobId, Vec<usize>>,
    at: BTreeMap<NodeId, AtNode>,
    /// Nodes with potential victims by what they could offer, then by first appearance.
    by_gain: BTreeSet<(i64, usize, NodeId)>,
    /// GPUs free on feasible nodes without potential victims, recorded ones gone.
    elsewhere: i64,
    free: Vec<i64>,
    is_feasible: Vec<bool>,
}

#[derive(Debug, Default)]
struct AtNode {
    appeared: usize,
    gain: i64,
    jobs: Vec<JobId>,
    batches: Vec<usize>,
}

/// Victims to try: all recorded batches and these potential ones.
pub type Scenario = Vec<usize>;

impl Gathered {
    /// Starts with recorded victims. `free` is what each node has, now or later.
    pub fn new(
        ledger: &Ledger<'_>,
        recorded: Vec<Arc<Batch>>,
        free: &[i64],
        feasible: impl Iterator<Item = NodeId>,
    ) -> Self {
        let mut free = free.to_vec();
        for task in recorded.iter().flat_map(|batch| &batch.tasks) {
            if let Some(node) = node_of(ledger, *task) {
                free[node.index()] += ledger.cost(*task, node).0[2];
            }
        }
        let mut is_feasible = vec![false; free.len()];
        let mut elsewhere = 0;
        for node in feasible {
            is_feasible[node.index()] = true;
            elsewhere += free[node.index()];
        }
        Self {
            recorded,
            potential: Vec::new(),
            batches_of: BTreeMap::new(),
            at: BTreeMap::new(),
            by_gain: BTreeSet::new(),
            elsewhere,
            free,
            is_feasible,
        }
    }

    /// Adds a batch of potential victims.
    pub fn push(&mut self, ledger: &Ledger<'_>, batch: Arc<Batch>) {
        let index = self.potential.len();
        self.batches_of.entry(batch.job).or_default().push(index);
        for task in &batch.tasks {
            let Some(node) = node_of(ledger, *task) else { continue };
            let appeared = self.at.len();
            let at = self.at.entry(node).or_insert_with(|| {
                if self.is_feasible[node.index()] {
                    self.elsewhere -= self.free[node.index()];
                }
                AtNode { appeared, gain: self.free[node.index()], ..AtNode::default() }
            });
            self.by_gain.remove(&(at.gain, at.appeared, node));
            at.gain += ledger.cost(*task, node).0[2];
            self.by_gain.insert((at.gain, at.appeared, node));
            if !at.jobs.contains(&batch.job) {
                at.jobs.push(batch.job);
            }
            if at.batches.last() != Some(&index) {
                at.batches.push(index);
            }
        }
        self.potential.push(batch);
    }

    /// For each node of the newest victim's job: all victims of every job that would lose a pod there.
    pub fn node_local(&self, ledger: &Ledger<'_>) -> Vec<Scenario> {
        let Some(newest) = self.potential.last() else { return Vec::new() };
        let hosts: BTreeSet<_> =
            ledger.snapshot.job_tasks(newest.job).filter_map(|task| node_of(ledger, task)).collect();
        let mut scenarios: Vec<Scenario> = Vec::new();
        for at in hosts.iter().filter_map(|node| self.at.get(node)) {
            let mut batches: Vec<usize> = at.jobs.iter().flat_map(|job| self.batches_of[job].iter().copied()).collect();
            batches.sort_unstable();
            if !scenarios.contains(&batches) {
                scenarios.push(batches);
            }
        }
        scenarios
    }

    /// Growing sets of nodes, those with least to gain first, with all batches that touch them.
    pub fn multi_node(&self, demands: &[i64]) -> Vec<Scenario> {
        let smallest = demands.iter().copied().min().unwrap_or(0);
        let demand = (demands.iter().sum::<i64>() - self.elsewhere).max(0);
        let useful = || self.by_gain.range((smallest, 0, NodeId(0))..);
        let Some(first) = shortest_prefix(useful().map(|(gain, _, _)| *gain), demand) else { return Vec::new() };
        let nodes: Vec<NodeId> = useful().map(|(_, _, node)| *node).collect();
        let mut scenarios = Vec::new();
        let mut step = 0;
        loop {
            let length = (first + step).min(nodes.len());
            let batches: BTreeSet<usize> =
                nodes[..length].iter().flat_map(|node| self.at[node].batches.iter().copied()).collect();
            scenarios.push(batches.into_iter().collect());
            if length == nodes.len() {
                return scenarios;
            }
            step = 2 * step + 1;
        }
    }
}

fn shortest_prefix(gains: impl Iterator<Item = i64>, demand: i64) -> Option<usize> {
    if demand == 0 {
        return Some(0);
    }
    let mut sum = 0;
    let mut enough = |gain: i64| {
        sum += gain;
        sum >= demand
    };
    gains.enumerate().find(|(_, gain)| enough(*gain)).map(|(index, _)| index + 1)
}

/// Where a victim is.
pub fn node_of(ledger: &Ledger<'_>, task: TaskId) -> Option<NodeId> {
    ledger.standing(task).spot().map(|spot| spot.node)
}

/// GPUs that a pod asks for, as queues count them; memory requests count nothing.
pub fn gpu_demand(ledger: &Ledger<'_>, task: TaskId) -> i64 {
    ledger.snapshot.shape(ledger.snapshot.task(task).shape).quota_gpu
}
