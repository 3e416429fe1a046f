//! Truths about several cycles in a row, for as long as nothing happens from outside.
//!
//! Left alone, the scheduler comes to rest: two workloads do not evict each other in turn, whoever others made way for
//! gets a place, and whoever was moved by consolidation has as many places as before.

use std::collections::{BTreeMap, BTreeSet};

use kai_control::scheduler::Effect;
use kai_engine::policy::Action;

use super::Violation;
use crate::amounts::is_allocated;
use crate::cluster::Cluster;
use crate::manifest::Id;
use kai_engine::units::Span;

/// What the scheduler has done since something last happened from outside, by workload.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Who was evicted for whom, by reclaim or preemption.
    made_way: BTreeSet<(Id, Id)>,
    /// For whom somebody was evicted that has not got any place since.
    owed: BTreeSet<Id>,
    /// Whom consolidation moved, and how many places it had before.
    moved: BTreeMap<Id, usize>,
}

impl Memory {
    /// Something happened that the scheduler has not done: all bets are off.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Looks at a cycle that has just been performed.
    pub(crate) fn see(&mut self, cluster: &Cluster, effects: &[Effect], at: Span) -> Result<(), Violation> {
        let mut moved_now: BTreeMap<Id, usize> = BTreeMap::new();
        for effect in effects {
            match effect {
                Effect::Evict { job, action: Action::Consolidate, .. } => {
                    *moved_now.entry(cluster.workload_of(job)).or_default() += 1;
                }
                Effect::Evict { job, beneficiary: Some(beneficiary), .. } => {
                    let (victim, winner) = (cluster.workload_of(job), cluster.workload_of(beneficiary));
                    self.moved.remove(&victim);
                    if victim == winner {
                        continue;
                    }
                    if self.made_way.contains(&(winner.clone(), victim.clone())) {
                        let what = format!("{victim} is evicted for {winner}, which was evicted for it before");
                        return Err(Violation { truth: "no two workloads evict each other in turn", what, at });
                    }
                    self.owed.insert(winner.clone());
                    self.made_way.insert((victim, winner));
                }
                Effect::Evict { job, .. } => {
                    self.moved.remove(&cluster.workload_of(job));
                }
                _ => {}
            }
        }
        for effect in effects {
            if let Effect::Bind { job, .. } = effect {
                self.owed.remove(&cluster.workload_of(job));
            }
        }
        if !moved_now.is_empty() {
            let places = places(cluster);
            for (workload, pods) in moved_now {
                let before = places.get(&workload).copied().unwrap_or(0) + pods;
                self.moved.entry(workload).or_insert(before);
            }
        }
        Ok(())
    }

    /// Looks at a cluster in which nothing happens any more.
    pub(crate) fn rest(&self, cluster: &Cluster, at: Span) -> Result<(), Violation> {
        if let Some(winner) = self.owed.first() {
            let what = format!("others were evicted for {winner}, but it never got a place");
            return Err(Violation { truth: "evictions serve whom they are made for", what, at });
        }
        let places = places(cluster);
        for (workload, before) in &self.moved {
            let now = places.get(workload).copied().unwrap_or(0);
            if now < *before {
                let what = format!("{workload} had {before} places before it was moved, and {now} in the end");
                return Err(Violation { truth: "consolidation costs nobody a place", what, at });
            }
        }
        Ok(())
    }
}

/// Pods that hold a place, by workload.
fn places(cluster: &Cluster) -> BTreeMap<Id, usize> {
    let mut places = BTreeMap::new();
    for pod in cluster.world().pods.values().filter(|pod| is_allocated(pod)) {
        if let Some(group) = pod.group() {
            *places.entry(cluster.workload_of(&group)).or_default() += 1;
        }
    }
    places
}
