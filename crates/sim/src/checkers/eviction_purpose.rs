//! No pod is evicted unless the preemptor is placed in the same cycle, with all that it needs to start;
//! and a pod that consolidation moves has its new place in the same cycle.

use std::collections::BTreeSet;

use kai_control::key::{GroupKey, PodKey};
use kai_control::scheduler::Effect;
use kai_engine::policy::Action;

use super::{CycleObservation, gangs};

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let mut served: BTreeSet<&GroupKey> = BTreeSet::new();
    let mut placed: BTreeSet<&PodKey> = BTreeSet::new();
    for effect in &observation.cycle.effects {
        if let Effect::Bind { pod, job, .. } | Effect::Pipeline { pod, job, .. } = effect {
            served.insert(job);
            placed.insert(pod);
        }
    }
    let mut wrong = Vec::new();
    for eviction in observation.evictions() {
        let pod = eviction.pod;
        match eviction.preemptor {
            None => wrong.push(format!("pod {pod} was evicted without a preemptor")),
            Some(job) if !served.contains(job) => {
                wrong.push(format!("pod {pod} was evicted for {job}, which gets no place"));
            }
            Some(job) if !gangs::will_be_whole(observation, job) => {
                wrong.push(format!("pod {pod} was evicted for {job}, which gets too little to start"));
            }
            Some(_) if eviction.action == Action::Consolidate && !placed.contains(pod) => {
                wrong.push(format!("pod {pod} was moved, but to nowhere"));
            }
            Some(_) => {}
        }
    }
    wrong
}
