//! Nobody loses a place unless somebody gets it in the same cycle, and whoever is moved by consolidation has its new
//! place in the same cycle.
//!
//! A later action of the cycle may hand what an earlier one has promised to somebody else. Then the place that was freed
//! is taken by another than the one it was freed for, and a pod that was moved may end with nothing, as if the later
//! action had evicted it in the first place.

use std::collections::BTreeSet;

use kai_control::scheduler::Effect;
use kai_control::world::{GroupKey, PodKey};
use kai_engine::policy::Action;

use super::Evidence;

pub(super) fn check(evidence: &Evidence<'_>) -> Vec<String> {
    let mut served: BTreeSet<&GroupKey> = BTreeSet::new();
    let mut placed: BTreeSet<&PodKey> = BTreeSet::new();
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    for effect in &evidence.cycle.effects {
        if let Effect::Bind { pod, job, node, .. } | Effect::Promise { pod, job, node, .. } = effect {
            served.insert(job);
            taken.insert(node);
            placed.insert(pod);
        }
    }
    let overruled = evidence.evictions().any(|eviction| eviction.action != Action::Consolidate);
    let mut wrong = Vec::new();
    for eviction in evidence.evictions() {
        match eviction.beneficiary {
            None => wrong.push(format!("pod {} was evicted for nobody", eviction.pod)),
            Some(job) if !served.contains(job) && !eviction.node.is_some_and(|node| taken.contains(node)) => {
                wrong.push(format!("pod {} was evicted for {job}, which gets no place", eviction.pod));
            }
            Some(_) if eviction.action == Action::Consolidate && !placed.contains(eviction.pod) && !overruled => {
                wrong.push(format!("pod {} was moved, but to nowhere", eviction.pod));
            }
            Some(_) => {}
        }
    }
    wrong
}
