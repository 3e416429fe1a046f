//! Which victims to try together: the scenario generators.
//!
//! Victims are accumulated one batch at a time; after each step a generator offers sets of them, small ones first.

use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::iter::Peekable;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::filters::NodeGpuCheck;
use super::victims::VictimBatch;
use crate::ids::{JobId, NodeId, PodSetId, TaskId};
use crate::ledger::Ledger;

/// Victims collected so far for one prefix of a pending job, with what the generators ask about them.
#[derive(Debug)]
pub(super) struct VictimPool {
    /// Victims of the last prefix that worked out.
    pub recorded: Vec<Arc<VictimBatch>>,
    /// Victims found for this prefix, in order.
    pub potential: Vec<Arc<VictimBatch>>,
    /// For each potential batch the one before it of the same job, and GPUs of all up to it that could be lost.
    earlier: Vec<(Option<usize>, i64)>,
    /// The last batch of jobs that are known.
    last_of: BTreeMap<JobId, usize>,
    /// Nodes with potential victims, by first appearance.
    nodes: Vec<AtNode>,
    /// Where each node is in `at`.
    slots: Vec<u32>,
    /// Nodes of use by what they could offer, then by first appearance.
    nodes_by_free_gpus: BTreeSet<(i64, usize)>,
    /// GPUs free on feasible nodes without potential victims, recorded ones gone.
    free_on_other_nodes: i64,
    free: Vec<i64>,
    is_feasible: Vec<bool>,
    /// GPUs of the smallest pending pod: nodes that could not even offer these are of no use.
    smallest: i64,
    /// GPUs of all pending pods.
    demand: i64,
    /// Whether [`Self::multi_node`] would offer anything that it did not offer before.
    has_new_candidates: bool,
}

#[derive(Debug)]
struct AtNode {
    node: NodeId,
    gain: i64,
    batches: Vec<usize>,
    /// GPUs, here and on other nodes, that jobs with victims here could lose, at most.
    losable: i64,
}

const NOWHERE: u32 = u32::MAX;

/// Victims to try: all recorded batches and these potential ones.
pub(super) type Scenario = Vec<usize>;

impl VictimPool {
    /// Starts with recorded victims. `free` is what each node has, now or later; `demands` what each pod asks for.
    pub(super) fn new(
        recorded: Vec<Arc<VictimBatch>>,
        free: &[i64],
        feasible: impl Iterator<Item = NodeId>,
        demands: &[i64],
    ) -> Self {
        let mut free = free.to_vec();
        for place in recorded.iter().flat_map(|batch| &batch.places) {
            free[place.node.index()] += place.gpus;
        }
        let mut is_feasible = vec![false; free.len()];
        let mut free_on_other_nodes = 0;
        for node in feasible {
            is_feasible[node.index()] = true;
            free_on_other_nodes += free[node.index()];
        }
        Self {
            recorded,
            potential: Vec::new(),
            earlier: Vec::new(),
            last_of: BTreeMap::new(),
            nodes: Vec::new(),
            slots: vec![NOWHERE; free.len()],
            nodes_by_free_gpus: BTreeSet::new(),
            free_on_other_nodes,
            free,
            is_feasible,
            smallest: demands.iter().copied().min().unwrap_or(0),
            demand: demands.iter().sum(),
            has_new_candidates: true,
        }
    }

    /// Adds a batch of potential victims, who could be lost or must be moved.
    pub(super) fn push(&mut self, batch: Arc<VictimBatch>, could_be_lost: bool) {
        let index = self.potential.len();
        let before = self.last_of.insert(batch.job, index);
        let gpus = if could_be_lost { batch.gpus() } else { 0 };
        let known = before.map_or(0, |before| self.earlier[before].1);
        self.earlier.push((before, known + gpus));
        for place in &batch.places {
            let slot = self.slot(place.node);
            let at = &mut self.nodes[slot];
            let gain = at.gain;
            at.gain += place.gpus;
            if at.batches.last() != Some(&index) {
                at.batches.push(index);
                // What the job loses on other nodes may be counted twice; it is an upper bound.
                at.losable += known + gpus;
            }
            if at.gain >= self.smallest {
                self.nodes_by_free_gpus.remove(&(gain, slot));
                self.nodes_by_free_gpus.insert((at.gain, slot));
                self.has_new_candidates = true;
            }
        }
        // Nodes where only earlier pods of the job are.
        let mut older = before;
        while let Some(batch) = older.filter(|_| gpus > 0) {
            for place in &self.potential[batch].places {
                self.nodes[self.slots[place.node.index()] as usize].losable += gpus;
            }
            older = self.earlier[batch].0;
        }
        self.potential.push(batch);
    }

    fn slot(&mut self, node: NodeId) -> usize {
        if self.slots[node.index()] == NOWHERE {
            self.slots[node.index()] = self.nodes.len() as u32;
            if self.is_feasible[node.index()] {
                self.free_on_other_nodes -= self.free[node.index()];
                self.has_new_candidates = true;
            }
            self.nodes.push(AtNode { node, gain: self.free[node.index()], batches: Vec::new(), losable: 0 });
        }
        self.slots[node.index()] as usize
    }

    /// For each node of the newest victim's job: all victims of every job that would lose a pod there. Left out are
    /// those that could not lose as many GPUs as are `missing`.
    pub(super) fn node_local(&self, ledger: &Ledger<'_>, missing: i64) -> Vec<Scenario> {
        let Some(newest) = self.potential.last() else { return Vec::new() };
        let mut hosts: Vec<_> =
            ledger.snapshot.job_tasks(newest.job).filter_map(|task| node_of(ledger, task)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let mut scenarios: Vec<Scenario> = Vec::new();
        let slots = hosts.iter().map(|node| self.slots[node.index()]).filter(|slot| *slot != NOWHERE);
        for at in slots.map(|slot| &self.nodes[slot as usize]).filter(|at| at.losable >= missing) {
            let mut batches: Vec<usize> = at.batches.iter().flat_map(|batch| self.siblings(*batch)).collect();
            batches.sort_unstable();
            batches.dedup();
            if !scenarios.contains(&batches) {
                scenarios.push(batches);
            }
        }
        scenarios
    }

    /// All batches of the job that a batch belongs to.
    fn siblings(&self, batch: usize) -> impl Iterator<Item = usize> + '_ {
        self.and_earlier(self.last_of[&self.potential[batch].job])
    }

    /// A batch and those before it of the same job.
    fn and_earlier(&self, batch: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(batch), |batch| self.earlier[*batch].0)
    }

    /// Whether the scenario alone would free enough GPUs; `check` has what recorded victims free already.
    pub(super) fn frees_enough(&self, scenario: &Scenario, check: &mut NodeGpuCheck, stays: bool) -> bool {
        let batches = || scenario.iter().map(|index| &self.potential[*index]);
        batches().for_each(|batch| check.give_back(batch, stays, 1));
        let enough = check.suffice();
        batches().for_each(|batch| check.give_back(batch, stays, -1));
        enough
    }

    /// Whether [`Self::multi_node`] could offer anything new since this was asked last.
    pub(super) fn take_new_candidates(&mut self) -> bool {
        std::mem::take(&mut self.has_new_candidates)
    }

    /// Growing sets of nodes, those with least to gain first, with all batches that touch them; sets in `seen` were
    /// offered before and are left out.
    pub(super) fn multi_node<'g>(
        &'g self,
        ledger: &Ledger<'_>,
        seen: &'g mut BTreeSet<u128>,
    ) -> Option<NodePrefixes<'g>> {
        let demand = (self.demand - self.free_on_other_nodes).max(0);
        let first = shortest_prefix(self.nodes_by_free_gpus.iter().map(|(gain, _)| *gain), demand)?;
        Some(NodePrefixes {
            pool: self,
            seen,
            nodes: self.nodes_by_free_gpus.iter().peekable(),
            missing: first,
            step: 0,
            batches: FixedBitSet::with_capacity(self.potential.len()),
            fingerprint: 0,
            whole_jobs: ledger.repairs.gang_trees,
            done: false,
        })
    }
}

/// Scenarios of [`VictimPool::multi_node`], made when asked for.
pub(super) struct NodePrefixes<'g> {
    pool: &'g VictimPool,
    seen: &'g mut BTreeSet<u128>,
    nodes: Peekable<btree_set::Iter<'g, (i64, usize)>>,
    /// Nodes to add for the next scenario.
    missing: usize,
    step: usize,
    batches: FixedBitSet,
    /// Tells apart sets of nodes and what is known to be there.
    fingerprint: u128,
    /// A job that loses its core loses its surplus as well.
    whole_jobs: bool,
    done: bool,
}

impl Iterator for NodePrefixes<'_> {
    type Item = Scenario;

    fn next(&mut self) -> Option<Scenario> {
        while !self.done {
            for (_, slot) in self.nodes.by_ref().take(self.missing) {
                let at = &self.pool.nodes[*slot];
                // Odd factors spread node and count over all bits; the sum does not depend on the order of nodes.
                let (node, count) = (u128::from(at.node.0) + 1, at.batches.len() as u128 + 1);
                self.fingerprint = self.fingerprint.wrapping_add(
                    node.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
                        ^ count.wrapping_mul(0xc2b2_ae3d_27d4_eb4f_1656_67b1_9e37_79f9),
                );
                for batch in &at.batches {
                    let with = if self.whole_jobs { usize::MAX } else { 1 };
                    self.pool.and_earlier(*batch).take(with).for_each(|batch| self.batches.insert(batch));
                }
            }
            self.done = self.nodes.peek().is_none();
            // Lengths grow by 1, 2, 4 … nodes.
            self.missing = self.step + 1;
            self.step = 2 * self.step + 1;
            if self.seen.insert(self.fingerprint) {
                return Some(self.batches.ones().collect());
            }
        }
        None
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
pub(super) fn node_of(ledger: &Ledger<'_>, task: TaskId) -> Option<NodeId> {
    ledger.state(task).placement().map(|placement| placement.node)
}

/// How many of these pods are in each pod set.
pub(super) fn pods_by_set(ledger: &Ledger<'_>, pending: &[TaskId]) -> BTreeMap<PodSetId, u32> {
    let mut counts: BTreeMap<PodSetId, u32> = BTreeMap::new();
    for task in pending {
        *counts.entry(ledger.snapshot.task(*task).pod_set).or_insert(0) += 1;
    }
    counts
}

/// GPUs that a pod asks for, as queues count them; memory requests count nothing.
pub(super) fn gpu_demand(ledger: &Ledger<'_>, task: TaskId) -> i64 {
    ledger.snapshot.shape(ledger.snapshot.task(task).shape).quota_gpu
}
