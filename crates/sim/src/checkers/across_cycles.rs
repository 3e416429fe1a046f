//! Invariants of several cycles in a row, for as long as nothing changes from outside.
//!
//! Left alone, the scheduler converges: workloads do not evict each other in turn, the preemptor gets the
//! freed capacity and keeps it until it starts, and a workload moved by consolidation has as many pods placed as before.

use std::collections::{BTreeMap, BTreeSet};

use kai_control::World;
use kai_control::key::{GroupKey, PodKey};
use kai_control::scheduler::Effect;
use kai_engine::policy::Action;
use kai_engine::units::Span;

use super::Violation;
use crate::amounts::is_allocated;
use crate::manifest::Id;

/// Evictions for each pod of the cluster after which the scheduler counts as not converging.
const ROUNDS_MAX: usize = 4;

/// What the scheduler has done since something last happened from outside.
#[derive(Debug, Default)]
pub(crate) struct CycleHistory {
    /// Who was evicted for whom, by reclaim or preemption; workloads.
    evicted_for: BTreeMap<Id, BTreeSet<Id>>,
    /// Pods evicted or moved.
    evictions: usize,
    /// Waiting pods for which others were evicted or moved, and when.
    reserved_for_preemptor: BTreeMap<PodKey, Span>,
    /// Workloads that consolidation moved, and how many places they had before.
    moved: BTreeMap<Id, usize>,
}

/// A cluster after a cycle, with names for its workloads.
pub(crate) struct ClusterView<'a> {
    pub(crate) world: &'a World,
    /// What people call the owner of a pod group.
    pub(crate) workload_of: &'a dyn Fn(&GroupKey) -> Id,
    pub(crate) at: Span,
}

impl CycleHistory {
    /// Something happened that the scheduler has not done: what it did before does not count.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Looks at a cycle that has just been performed.
    pub(crate) fn observe(&mut self, seen: &ClusterView<'_>, effects: &[Effect]) -> Result<(), Violation> {
        self.collect(seen, effects)?;
        let mut winners: BTreeSet<&GroupKey> = BTreeSet::new();
        let mut moved_now: BTreeMap<Id, usize> = BTreeMap::new();
        for effect in effects {
            let Effect::Evict { job, action, preemptor, .. } = effect else { continue };
            self.evictions += 1;
            let victim = (seen.workload_of)(job);
            winners.extend(preemptor);
            match (action, preemptor) {
                (Action::Consolidate, _) => *moved_now.entry(victim).or_default() += 1,
                (_, Some(winner)) => {
                    self.moved.remove(&victim);
                    self.make_way(victim, (seen.workload_of)(winner), seen.at)?;
                }
                (_, None) => {
                    self.moved.remove(&victim);
                }
            }
        }
        for effect in effects {
            if let Effect::Pipeline { pod, job, .. } = effect
                && winners.contains(job)
                && seen.world.pods.get(pod).is_some_and(|pod| pod.node.is_none())
            {
                self.reserved_for_preemptor.insert(pod.clone(), seen.at);
            }
        }
        if !moved_now.is_empty() {
            let places = places(seen);
            for (workload, pods) in moved_now {
                let before = places.get(&workload).copied().unwrap_or(0) + pods;
                self.moved.entry(workload).or_insert(before);
            }
        }
        if self.evictions > ROUNDS_MAX * seen.world.pods.len() {
            let what = format!("{} evictions since something last happened from outside", self.evictions);
            return Err(Violation { invariant: "evictions come to an end", what, at: seen.at });
        }
        Ok(())
    }

    /// Pods for which others were evicted or moved are bound, or still pipelined.
    fn collect(&mut self, seen: &ClusterView<'_>, effects: &[Effect]) -> Result<(), Violation> {
        let mut pipelined: BTreeSet<&PodKey> = BTreeSet::new();
        for effect in effects {
            match effect {
                Effect::Bind { pod, .. } => {
                    self.reserved_for_preemptor.remove(pod);
                }
                Effect::Pipeline { pod, .. } => {
                    pipelined.insert(pod);
                }
                _ => {}
            }
        }
        match self.reserved_for_preemptor.iter().find(|(pod, _)| !pipelined.contains(pod)) {
            None => Ok(()),
            Some((pod, since)) => {
                let what = format!("others made way for pod {pod} at {}s, now it has no place", since.0 / 1_000_000);
                Err(Violation { invariant: "evictions serve whom they are made for", what, at: seen.at })
            }
        }
    }

    fn make_way(&mut self, victim: Id, winner: Id, at: Span) -> Result<(), Violation> {
        if victim == winner {
            return Ok(());
        }
        if self.made_way_for(&winner).contains(&victim) {
            let what = format!("{victim} is evicted for {winner}, which made way for it before");
            return Err(Violation { invariant: "workloads do not evict each other in turn", what, at });
        }
        self.evicted_for.entry(victim).or_default().insert(winner);
        Ok(())
    }

    /// Workloads for which this one was evicted, or those for which it was, and so on.
    fn made_way_for(&self, workload: &Id) -> BTreeSet<&Id> {
        let mut found: BTreeSet<&Id> = BTreeSet::new();
        let mut next: Vec<&Id> = self.evicted_for.get(workload).into_iter().flatten().collect();
        while let Some(winner) = next.pop() {
            if found.insert(winner) {
                next.extend(self.evicted_for.get(winner).into_iter().flatten());
            }
        }
        found
    }

    /// Looks at a cluster in which nothing happens any more.
    pub(crate) fn check_final(&self, seen: &ClusterView<'_>) -> Result<(), Violation> {
        if let Some(pod) = self.reserved_for_preemptor.keys().next() {
            let what = format!("others made way for pod {pod}, but it never got a place");
            return Err(Violation { invariant: "evictions serve whom they are made for", what, at: seen.at });
        }
        let places = places(seen);
        for (workload, before) in &self.moved {
            let now = places.get(workload).copied().unwrap_or(0);
            if now < *before {
                let what = format!("{workload} had {before} places before it was moved, and {now} in the end");
                return Err(Violation {
                    invariant: "a consolidated workload keeps as many placed pods as before",
                    what,
                    at: seen.at,
                });
            }
        }
        Ok(())
    }
}

/// Pods that hold a place, by workload.
fn places(seen: &ClusterView<'_>) -> BTreeMap<Id, usize> {
    let mut places = BTreeMap::new();
    for pod in seen.world.pods.values().filter(|pod| is_allocated(pod)) {
        if let Some(group) = pod.group() {
            *places.entry((seen.workload_of)(&group)).or_default() += 1;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use kai_control::Object;
    use serde_json::json;

    use super::super::tests::{eviction, pipelined};
    use super::*;
    use crate::manifest::Kind;

    /// A cluster of waiting pods `x-0`, `y-0`, … and one cycle after the other; the last error counts.
    fn story(cycles: &[Vec<Effect>]) -> Result<(), String> {
        let mut world = World::default();
        for group in ["x", "y", "z"] {
            let pod = json!({"kind": "Pod", "metadata": {"name": format!("{group}-0"), "namespace": "t",
                "annotations": {"pod-group-name": group}}, "spec": {"containers": [{}]}});
            world.apply(Object::parse(&pod).expect("well-formed").expect("kept"));
        }
        let mut history = CycleHistory::default();
        let workload_of = |job: &GroupKey| Id::namespaced(Kind::Job, job.namespace.clone(), job.name.clone());
        let seen = ClusterView { world: &world, workload_of: &workload_of, at: Span::seconds(1) };
        for effects in cycles {
            history.observe(&seen, effects).map_err(|violation| violation.to_string())?;
        }
        history.check_final(&seen).map_err(|violation| violation.to_string())
    }

    fn bind(name: &str, group: &str) -> Effect {
        let Effect::Pipeline { pod, job, node, gpu_groups, .. } = pipelined(name, group) else { unreachable!() };
        let received = kai_control::scheduler::Received {
            kind: kai_control::scheduler::ResourceType::Regular,
            devices: 1,
            portion: 1,
        };
        let extras = kai_control::scheduler::BindExtras::default();
        Effect::Bind {
            pod,
            job,
            node,
            received,
            gpu_groups,
            extras,
            why: kai_control::scheduler::reasons::BindReason::default(),
        }
    }

    fn preempt(victim: &str, winner: &str) -> Effect {
        eviction(&format!("{victim}-1"), victim, Action::Preempt, Some(winner))
    }

    fn moves(victim: &str, winner: &str) -> Effect {
        eviction(&format!("{victim}-1"), victim, Action::Consolidate, Some(winner))
    }

    #[test]
    fn a_pod_that_stays_pipelined_until_it_is_bound_is_fine() {
        let cycles =
            [vec![preempt("x", "y"), pipelined("y-0", "y")], vec![pipelined("y-0", "y")], vec![bind("y-0", "y")]];
        assert_eq!(story(&cycles), Ok(()));
    }

    #[test]
    fn a_place_that_is_lost_again() {
        let first = vec![preempt("x", "y"), pipelined("y-0", "y")];
        let lost = "evictions serve whom they are made for: others made way for pod t/y-0 at 1s, now it has no place";
        assert_eq!(story(&[first.clone(), vec![bind("z-0", "z")]]), Err(lost.to_owned()));
        let never = "evictions serve whom they are made for: others made way for pod t/y-0, but it never got a place";
        assert_eq!(story(&[first]), Err(never.to_owned()));
    }

    #[test]
    fn two_and_three_workloads_in_a_circle() {
        let turn = |victim: &str, winner: &str| {
            let pod = format!("{winner}-0");
            [vec![preempt(victim, winner), pipelined(&pod, winner)], vec![bind(&pod, winner)]]
        };
        let circle = |turns: &[(&str, &str)]| {
            let cycles: Vec<_> = turns.iter().flat_map(|(victim, winner)| turn(victim, winner)).collect();
            story(&cycles)
        };
        let error = |victim: &str, winner: &str| {
            Err(format!(
                "workloads do not evict each other in turn: Job t/{victim} is evicted for Job t/{winner}, which made way \
                 for it before"
            ))
        };
        assert_eq!(circle(&[("x", "y"), ("x", "z"), ("y", "z")]), Ok(()));
        assert_eq!(circle(&[("x", "y"), ("y", "x")]), error("y", "x"));
        assert_eq!(circle(&[("x", "y"), ("y", "z"), ("z", "x")]), error("z", "x"));
    }

    #[test]
    fn moves_without_end() {
        let turn = [vec![moves("x", "y"), pipelined("y-0", "y")], vec![bind("y-0", "y")]];
        let cycles: Vec<_> = turn.iter().cycle().take(40).cloned().collect();
        let error = "evictions come to an end: 13 evictions since something last happened from outside";
        assert_eq!(story(&cycles), Err(error.to_owned()));
    }

    #[test]
    fn a_workload_that_consolidation_costs_a_place() {
        let cycles = [vec![moves("x", "y"), pipelined("y-0", "y")], vec![bind("y-0", "y")]];
        let error = "a consolidated workload keeps as many placed pods as before: Job t/x had 1 places before it was moved, and 0 in the end";
        assert_eq!(story(&cycles), Err(error.to_owned()));
    }
}
