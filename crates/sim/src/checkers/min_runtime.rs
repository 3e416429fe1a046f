//! A workload that has not run for its minimum runtime keeps its minimum of pods.

use kai_control::objects::{PodGroup, Queue};
use kai_engine::policy::{Action, MinRuntime, ReclaimMethod};
use kai_engine::snapshot::possible_time;
use kai_engine::units::Span;

use super::{CycleObservation, Eviction, gangs};

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let Some(rules) = observation.settings.policy.min_runtime else { return Vec::new() };
    let mut wrong = Vec::new();
    for eviction in observation.evictions() {
        let Some(group) = observation.world.pod_groups.get(eviction.job) else { continue };
        let Some(span) = protection(observation, rules, &eviction, group) else { continue };
        let started = possible_time(group.last_start, observation.now);
        let young = started.is_some_and(|start| observation.now < start.plus(span));
        if young && gangs::lost_its_minimum(observation, eviction.job) {
            wrong.push(format!("pod {} was evicted, though its job has run for too short a time", eviction.pod));
        }
    }
    wrong
}

/// How long a victim is protected from this eviction; `None` where no protection exists.
fn protection(
    observation: &CycleObservation<'_>,
    rules: MinRuntime,
    eviction: &Eviction<'_>,
    group: &PodGroup,
) -> Option<Span> {
    let theirs = observation.chain(&group.queue);
    match eviction.action {
        Action::Preempt => {
            Some(first_set(observation, &theirs, |queue| queue.preempt_min_runtime).unwrap_or(rules.preempt_default))
        }
        Action::Reclaim => {
            let reclaimer = observation.world.pod_groups.get(eviction.preemptor?)?;
            let ours = observation.chain(&reclaimer.queue);
            let counted = match rules.reclaim_method {
                ReclaimMethod::Queue => &theirs[..],
                ReclaimMethod::LowestCommonAncestor => below_common(&ours, &theirs),
            };
            Some(first_set(observation, counted, |queue| queue.reclaim_min_runtime).unwrap_or(rules.reclaim_default))
        }
        _ => None,
    }
}

/// The part of the victim's chain whose setting counts: from just below the deepest common queue upwards, or the top
/// queue alone where nothing is common. Chains begin at the leaf.
fn below_common<'c>(ours: &[&str], theirs: &'c [&'c str]) -> &'c [&'c str] {
    let common = ours.iter().rev().zip(theirs.iter().rev()).take_while(|(left, right)| left == right).count();
    if common == 0 {
        return &theirs[theirs.len().saturating_sub(1)..];
    }
    &theirs[theirs.len().saturating_sub(common + 1)..]
}

fn first_set(observation: &CycleObservation<'_>, chain: &[&str], setting: fn(&Queue) -> Option<Span>) -> Option<Span> {
    chain.iter().find_map(|name| setting(observation.world.queues.get(*name)?))
}

#[cfg(test)]
mod tests {
    use super::below_common;

    #[test]
    fn the_setting_beside_the_reclaimer_counts() {
        let (v1, v2) = (["v1", "vision", "lab", "org"], ["v2", "vision", "lab", "org"]);
        let s1 = ["s1", "speech", "lab", "org"];
        assert_eq!(below_common(&v1, &s1), ["speech", "lab", "org"]);
        assert_eq!(below_common(&v1, &v2), ["v2", "vision", "lab", "org"]);
        assert_eq!(below_common(&s1, &v1), ["vision", "lab", "org"]);
        assert_eq!(below_common(&["x", "other"], &v1), ["org"]);
    }
}
