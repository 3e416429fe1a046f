//! Invariants of inter-pod rules, by counting pods one by one.

use kai_engine::ids::{NodeId, PodMatcherId, TaskId};
use kai_engine::outcome::Decision;
use kai_engine::snapshot::{InterPodRules, SpreadConstraint};
use kai_engine::snapshot::{Snapshot, Status};

use super::outcome_view::{CheckResult, OutcomeView, ensure};

fn inter_pod(snapshot: &Snapshot, task: TaskId) -> Option<&InterPodRules> {
    snapshot.task(task).inter_pod.map(|inter_pod| &snapshot.inter_pod[inter_pod as usize])
}

fn is_part_of(snapshot: &Snapshot, task: TaskId, matcher: PodMatcherId) -> bool {
    snapshot.task(task).matchers.is_some_and(|list| snapshot.matcher_lists[list as usize].contains(&matcher))
}

/// Whether both nodes are in one domain of the matcher.
fn together(snapshot: &Snapshot, matcher: PodMatcherId, left: NodeId, right: NodeId) -> bool {
    snapshot.domain(matcher, left).is_some_and(|domain| snapshot.domain(matcher, right) == Some(domain))
}

/// A placed pod shares no domain with a pod that matches its anti-affinity, or whose anti-affinity matches it; a bound one
/// not even with a pod that is being released.
pub(super) fn pods_keep_apart(after: &OutcomeView<'_>) -> CheckResult {
    let snapshot = after.snapshot;
    for (task, place) in after.tasks().filter_map(|task| Some((task, after.placed(task)?))) {
        let Some(inter_pod) = inter_pod(snapshot, task) else { continue };
        for other in after.tasks().filter(|other| *other != task) {
            let leaves = after.is_evicted(other) || after.status(other) == Status::Releasing;
            let before = after.place_before(other).filter(|_| {
                let there =
                    after.ran(other) || matches!(after.status(other), Status::Releasing | Status::StuckInReleasing);
                there && (!leaves || after.bound(task).is_some())
            });
            let nodes = before.into_iter().chain(after.placed(other).cloned()).map(|place| place.node);
            for node in nodes {
                let matchers = inter_pod.anti_affinity.iter().chain(&inter_pod.existing_anti_affinity);
                let near = |matcher: &&PodMatcherId| {
                    is_part_of(snapshot, other, **matcher) && together(snapshot, **matcher, place.node, node)
                };
                let found = matchers.clone().find(near);
                ensure!(found.is_none(), "{} is placed beside {}", after.name(task), after.name(other));
            }
        }
    }
    Ok(())
}

/// Where pods stand, in order of decisions.
struct Replay<'a, 'w> {
    after: &'a OutcomeView<'w>,
    /// Node, and whether the pod is there now, will be, or leaves.
    places: Vec<Option<(NodeId, Stay)>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Stay {
    Here,
    Coming,
    Going,
}

impl Replay<'_, '_> {
    fn count(&self, task: TaskId, matcher: PodMatcherId, node: NodeId, stays: &[Stay]) -> usize {
        let snapshot = self.after.snapshot;
        let counts = |other: &TaskId| {
            *other != task
                && is_part_of(snapshot, *other, matcher)
                && self.places[other.index()]
                    .is_some_and(|(place, stay)| stays.contains(&stay) && together(snapshot, matcher, place, node))
        };
        self.after.tasks().filter(counts).count()
    }

    fn check(&self, task: TaskId, node: NodeId, now: bool) -> CheckResult {
        let (snapshot, name) = (self.after.snapshot, self.after.name(task));
        let Some(inter_pod) = inter_pod(snapshot, task) else { return Ok(()) };
        let nowhere = |matcher: &PodMatcherId| {
            snapshot
                .nodes
                .ids()
                .all(|node| self.count(task, *matcher, node, &[Stay::Here, Stay::Coming, Stay::Going]) == 0)
        };
        let founds = inter_pod.matches_own_affinity && inter_pod.affinity.iter().all(nowhere);
        for matcher in &inter_pod.affinity {
            let stays = if now { &[Stay::Here, Stay::Going][..] } else { &[Stay::Here, Stay::Coming, Stay::Going][..] };
            let near = founds || self.count(task, *matcher, node, stays) > 0;
            ensure!(near && snapshot.domain(*matcher, node).is_some(), "{name} is not near {matcher:?}");
        }
        for matcher in inter_pod.anti_affinity.iter().chain(&inter_pod.existing_anti_affinity) {
            let mut stays = vec![Stay::Here, Stay::Coming];
            stays.extend(now.then_some(Stay::Going));
            ensure!(self.count(task, *matcher, node, &stays) == 0, "{name} is not apart from {matcher:?}");
        }
        inter_pod.spread_required.iter().try_for_each(|spread| self.check_even(task, node, spread))
    }

    fn check_even(&self, task: TaskId, node: NodeId, spread: &SpreadConstraint) -> CheckResult {
        let snapshot = self.after.snapshot;
        let staying = |node: NodeId| self.count(task, spread.matcher, node, &[Stay::Here, Stay::Coming]);
        let counted: Vec<NodeId> =
            snapshot.nodes.ids().filter(|node| snapshot.domain(spread.matcher, *node).is_some()).collect();
        let mut domains: Vec<_> = counted.iter().map(|node| snapshot.domain(spread.matcher, *node)).collect();
        domains.sort_unstable();
        domains.dedup();
        let few = domains.len() < spread.domains_min as usize;
        let fewest = if few { 0 } else { counted.iter().map(|node| staying(*node)).min().unwrap_or(0) };
        let count = staying(node) + usize::from(spread.counts_itself);
        let even = counted.contains(&node) && count <= fewest + spread.skew_max as usize;
        ensure!(even, "{} is one of {count}, {fewest} elsewhere", self.after.name(task));
        Ok(())
    }
}

/// Each pod was placed where its inter-pod rules hold, given the pods placed before.
pub(super) fn inter_pod_rules_are_obeyed(after: &OutcomeView<'_>) -> CheckResult {
    let before = |task: TaskId| {
        let stay = match after.status(task) {
            Status::Running | Status::Bound | Status::Binding | Status::StuckInReleasing => Stay::Here,
            Status::Releasing => Stay::Going,
            _ => return None,
        };
        Some((after.place_before(task)?.node, stay))
    };
    let mut replay = Replay { after, places: after.tasks().map(before).collect() };
    for decision in &after.outcome.decisions {
        let (task, node, stay) = match decision {
            Decision::Bind { task, assignment } => (*task, assignment.node, Stay::Here),
            Decision::Pipeline { task, assignment } => (*task, assignment.node, Stay::Coming),
            Decision::Evict { .. } => continue,
        };
        replay.check(task, node, stay == Stay::Here)?;
        replay.places[task.index()] = Some((node, stay));
    }
    Ok(())
}
