//! Which victims to try together: the scenario generators.
//!
//! Victims are accumulated one batch at a time; after each step a generator offers sets of them, small ones first.

use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::iter::Peekable;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

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
    /// GPUs of the smallest pending pod: nodes that could not even offer these are of no use.
    smallest: i64,
    /// GPUs of all pending pods.
    demand: i64,
    /// Whether [`Self::multi_node`] would offer anything that it did not offer before.
    news: bool,
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
    /// Starts with recorded victims. `free` is what each node has, now or later; `demands` what each pod asks for.
    pub fn new(
        recorded: Vec<Arc<Batch>>,
        free: &[i64],
        feasible: impl Iterator<Item = NodeId>,
        demands: &[i64],
    ) -> Self {
        let mut free = free.to_vec();
        for place in recorded.iter().flat_map(|batch| &batch.places) {
            free[place.node.index()] += place.gpus;
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
            smallest: demands.iter().copied().min().unwrap_or(0),
            demand: demands.iter().sum(),
            news: true,
        }
    }

    /// Adds a batch of potential victims.
    pub fn push(&mut self, batch: Arc<Batch>) {
        let index = self.potential.len();
        self.batches_of.entry(batch.job).or_default().push(index);
        for place in &batch.places {
            let node = place.node;
            let appeared = self.at.len();
            let at = self.at.entry(node).or_insert_with(|| {
                if self.is_feasible[node.index()] {
                    self.elsewhere -= self.free[node.index()];
                    self.news = true;
                }
                AtNode { appeared, gain: self.free[node.index()], ..AtNode::default() }
            });
            self.by_gain.remove(&(at.gain, at.appeared, node));
            at.gain += place.gpus;
            self.by_gain.insert((at.gain, at.appeared, node));
            self.news |= at.gain >= self.smallest;
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

    /// Whether [`Self::multi_node`] could offer anything new since this was asked last.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Growing sets of nodes, those with least to gain first, with all batches that touch them; sets in `seen` were
    /// offered before and are left out.
    pub fn multi_node<'g>(&'g self, ledger: &Ledger<'_>, seen: &'g mut BTreeSet<u128>) -> Option<Prefixes<'g>> {
        let demand = (self.demand - self.elsewhere).max(0);
        let useful = || self.by_gain.range((self.smallest, 0, NodeId(0))..);
        let first = shortest_prefix(useful().map(|(gain, _, _)| *gain), demand)?;
        Some(Prefixes {
            gathered: self,
            seen,
            nodes: useful().peekable(),
            missing: first,
            step: 0,
            batches: FixedBitSet::with_capacity(self.potential.len()),
            signature: 0,
            whole_jobs: ledger.repairs.gang_trees,
            done: false,
        })
    }
}

/// Scenarios of [`Gathered::multi_node`], made when asked for.
pub struct Prefixes<'g> {
    gathered: &'g Gathered,
    seen: &'g mut BTreeSet<u128>,
    nodes: Peekable<btree_set::Range<'g, (i64, usize, NodeId)>>,
    /// Nodes to add for the next scenario.
    missing: usize,
    step: usize,
    batches: FixedBitSet,
    /// Tells apart sets of nodes and what is known to be there.
    signature: u128,
    /// A job that loses its core loses its surplus as well.
    whole_jobs: bool,
    done: bool,
}

impl Iterator for Prefixes<'_> {
    type Item = Scenario;

    fn next(&mut self) -> Option<Scenario> {
        while !self.done {
            for (_, _, node) in self.nodes.by_ref().take(self.missing) {
                let at = &self.gathered.at[node];
                // Odd factors spread node and count over all bits; the sum does not depend on the order of nodes.
                let (node, count) = (u128::from(node.0) + 1, at.batches.len() as u128 + 1);
                self.signature = self.signature.wrapping_add(
                    node.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
                        ^ count.wrapping_mul(0xc2b2_ae3d_27d4_eb4f_1656_67b1_9e37_79f9),
                );
                for batch in &at.batches {
                    self.batches.insert(*batch);
                    if self.whole_jobs {
                        let earlier = &self.gathered.batches_of[&self.gathered.potential[*batch].job];
                        earlier.iter().take_while(|other| *other < batch).for_each(|other| self.batches.insert(*other));
                    }
                }
            }
            self.done = self.nodes.peek().is_none();
            // Lengths grow by 1, 2, 4 … nodes.
            self.missing = self.step + 1;
            self.step = 2 * self.step + 1;
            if self.seen.insert(self.signature) {
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
pub fn node_of(ledger: &Ledger<'_>, task: TaskId) -> Option<NodeId> {
    ledger.standing(task).spot().map(|spot| spot.node)
}

/// GPUs that a pod asks for, as queues count them; memory requests count nothing.
pub fn gpu_demand(ledger: &Ledger<'_>, task: TaskId) -> i64 {
    ledger.snapshot.shape(ledger.snapshot.task(task).shape).quota_gpu
}
