//! Invariants of evictions: who may be a victim, what for, and what is left of its gang.

use std::collections::BTreeMap;

use kai_engine::ids::{JobId, NodeId, QueueId, TaskId};
use kai_engine::outcome::{Decision, EvictionCause, ReclaimSide};
use kai_engine::policy::{Action, ReclaimMethod};
use kai_engine::snapshot::{GpuAsk, Status};
use kai_engine::units::{Ceiling, QueueResource, ResourceQuantities, Span};

use super::outcome_view::{CheckResult, OutcomeView, ensure};
use crate::support::NOW;

/// Evictions in favour of a job: the victim pod, the cause and the job.
fn in_favour<'a>(after: &'a OutcomeView<'_>) -> impl Iterator<Item = (TaskId, &'a EvictionCause, JobId)> {
    after.evictions().filter_map(|(task, cause)| Some((task, cause, cause.preemptor?)))
}

fn victim(after: &OutcomeView<'_>, task: TaskId) -> JobId {
    after.snapshot.task(task).job
}

/// Each action takes only from those it may: never from jobs that cannot be preempted, nor from the preemptor.
pub(super) fn victims_may_be_taken(after: &OutcomeView<'_>) -> CheckResult {
    for (task, cause, preemptor) in in_favour(after) {
        let (name, theirs, ours) = (after.name(task), victim(after, task), preemptor);
        let (row, own) = (after.snapshot.job(theirs), after.snapshot.job(ours));
        ensure!(row.preemptible, "{name} cannot be preempted");
        ensure!(theirs != ours, "{name} is evicted for its own job");
        match cause.action {
            Action::Consolidate => ensure!(own.preemptible, "{name} is moved for a job that cannot be preempted"),
            Action::Reclaim => ensure!(row.queue != own.queue, "{name} is reclaimed inside its queue"),
            Action::Preempt => {
                ensure!(row.queue == own.queue, "{name} is preempted by another queue");
                ensure!(row.priority < own.priority, "{name} is preempted by priority {}", own.priority);
            }
            Action::Allocate | Action::EvictStale => return Err(format!("{name} is evicted by {:?}", cause.action)),
        }
    }
    Ok(())
}

/// No pod is evicted for a job during its preemption delay.
pub(super) fn preemption_delays_are_kept(after: &OutcomeView<'_>) -> CheckResult {
    for (task, _, preemptor) in in_favour(after) {
        let row = after.snapshot.job(preemptor);
        let since = row.last_eviction.map_or(row.created, |last| last.max(row.created));
        let over = NOW >= since.plus(row.preemption_delay);
        ensure!(over, "{} is evicted for {} too early", after.name(task), after.job_name(preemptor));
    }
    Ok(())
}

/// A job for which a pod lost its place is placed in the same outcome, with all it needs.
pub(super) fn losses_help_someone(after: &OutcomeView<'_>) -> CheckResult {
    let lost = in_favour(after).filter(|(task, ..)| after.pipelined(*task).is_none());
    lost.into_iter().try_for_each(|(task, _, preemptor)| is_helped(after, task, preemptor))
}

/// So is a job for which a pod was moved.
pub(super) fn moves_help_someone(after: &OutcomeView<'_>) -> CheckResult {
    let moved = in_favour(after).filter(|(task, ..)| after.pipelined(*task).is_some());
    moved.into_iter().try_for_each(|(task, _, preemptor)| is_helped(after, task, preemptor))
}

fn is_helped(after: &OutcomeView<'_>, task: TaskId, preemptor: JobId) -> CheckResult {
    let (name, job) = (after.name(task), after.job_name(preemptor));
    let helped = after.snapshot.job_tasks(preemptor).any(|task| after.placed(task).is_some());
    ensure!(helped, "{name} is evicted for {job}, which gets nothing");
    ensure!(after.is_whole(preemptor, &|task| after.runs_later(task)), "{name} is evicted for a part of {job}");
    Ok(())
}

/// Every pod that consolidation moves gets another place; it moves no more of them than allowed.
pub(super) fn pods_keep_a_place_in_consolidation(after: &OutcomeView<'_>) -> CheckResult {
    let mut moved: BTreeMap<JobId, u32> = BTreeMap::new();
    for (task, cause, preemptor) in in_favour(after) {
        if cause.action == Action::Consolidate {
            ensure!(after.pipelined(task).is_some(), "{} lost its place to consolidation", after.name(task));
            *moved.entry(preemptor).or_insert(0) += 1;
        }
    }
    for (job, moved) in moved {
        let most = after.world.policy.consolidation_moves_max.unwrap_or(u32::MAX);
        ensure!(moved <= most, "{moved} pods move for {}, {most} may", after.job_name(job));
    }
    Ok(())
}

/// A job that had all it needs still has it after losing pods to others, or loses all of them.
pub(super) fn gangs_keep_their_minimum_or_go(after: &OutcomeView<'_>) -> CheckResult {
    for (task, ..) in in_favour(after) {
        let job = victim(after, task);
        let runs_on = after.snapshot.job_tasks(job).any(|task| after.runs_later(task));
        let broken = after.is_whole(job, &|task| after.ran(task))
            && runs_on
            && !after.is_whole(job, &|task| after.runs_later(task));
        ensure!(!broken, "{} is left with less than it needs", after.job_name(job));
    }
    Ok(())
}

/// A job loses nothing that it needs to those who must spare it because it is young. What it loses to others does not
/// count: it may be young for one action and not for the other.
pub(super) fn young_jobs_keep_what_they_need(after: &OutcomeView<'_>) -> CheckResult {
    let spared: Vec<TaskId> = in_favour(after)
        .filter(|(task, cause, preemptor)| must_spare(after, victim(after, *task), cause.action, *preemptor))
        .map(|(task, ..)| task)
        .collect();
    for task in &spared {
        let job = victim(after, *task);
        let stays = |task: TaskId| !spared.contains(&task) && (after.ran(task) || after.bound(task).is_some());
        let broken = after.is_whole(job, &|task| after.ran(task)) && !after.is_whole(job, &stays);
        ensure!(!broken, "{} is young and loses what it needs", after.job_name(job));
    }
    Ok(())
}

fn must_spare(after: &OutcomeView<'_>, victim: JobId, action: Action, preemptor: JobId) -> bool {
    let span = match action {
        Action::Preempt => preempt_span(after, victim),
        Action::Reclaim => reclaim_span(after, preemptor, victim),
        Action::Allocate | Action::Consolidate | Action::EvictStale => return false,
    };
    after.snapshot.job(victim).last_start.is_some_and(|start| NOW < start.plus(span))
}

fn preempt_span(after: &OutcomeView<'_>, victim: JobId) -> Span {
    let rules = after.world.policy.min_runtime.expect("on by default");
    let queue = after.snapshot.job(victim).queue.expect("victims have a queue");
    let set = after.path(queue).into_iter().find_map(|queue| after.snapshot.queues[queue.index()].preempt_min_runtime);
    set.unwrap_or(rules.preempt_default)
}

fn reclaim_span(after: &OutcomeView<'_>, preemptor: JobId, victim: JobId) -> Span {
    let rules = after.world.policy.min_runtime.expect("on by default");
    let queue_of = |job: JobId| after.snapshot.job(job).queue.expect("both have a queue");
    let setting = |queue: &QueueId| after.snapshot.queues[queue.index()].reclaim_min_runtime;
    let (ours, theirs) = (after.path(queue_of(preemptor)), after.path(queue_of(victim)));
    // Paths run from leaf to top; queues of the victim that are not above the reclaimer as well.
    let own: Vec<_> = theirs.iter().filter(|queue| !ours.contains(queue)).copied().collect();
    let asked = match rules.reclaim_method {
        ReclaimMethod::Queue => theirs,
        // Different tops: nothing but the victim's top is asked.
        ReclaimMethod::LowestCommonAncestor if own.len() == theirs.len() => theirs[theirs.len() - 1..].to_vec(),
        // From just below the common queue up.
        ReclaimMethod::LowestCommonAncestor => theirs[own.len().saturating_sub(1)..].to_vec(),
    };
    asked.iter().find_map(setting).unwrap_or(rules.reclaim_default)
}

/// Reclaim takes from a side only while that holds more than it may, or more than its quota for a job within its own: what
/// is left may fall below with the last job that loses something, never before.
pub(super) fn reclaim_leaves_what_is_protected(after: &OutcomeView<'_>) -> CheckResult {
    let queue_of = |job: JobId| after.snapshot.job(job).queue.expect("both have a queue");
    // What each side has lost so far to each job.
    let mut lost: BTreeMap<(JobId, QueueId), ResourceQuantities> = BTreeMap::new();
    for (winner, loser, (theirs, ours), amount) in losses(after) {
        // The outcome tells how parents of the leaves stood; the rules compare where the paths part.
        if diverging_ancestors(after, queue_of(winner), queue_of(loser)) != (ours.queue, theirs.queue) {
            continue;
        }
        let gets = gains(after, winner);
        // What memory costs depends on the node, which the rules do not know yet.
        let by_memory =
            |task: TaskId| matches!(after.snapshot.shape(after.snapshot.task(task).shape).gpu, GpuAsk::Memory { .. });
        if gets.iter().any(|(task, _)| by_memory(*task)) {
            continue;
        }
        let required = gets.iter().fold(ResourceQuantities::ZERO, |sum, (task, node)| sum + after.cost(*task, *node));
        let before = lost.entry((winner, theirs.queue)).or_default();
        let holds = theirs.allocated - *before;
        *before += amount;
        let quota = |queue: QueueId| after.snapshot.queues[queue.index()].quota;
        let rich = !holds.within(may_hold(after, theirs.queue))
            || (ours.allocated + required).within(quota(ours.queue)) && !holds.within(quota(theirs.queue));
        let (winner, loser) = (after.job_name(winner), after.job_name(loser));
        ensure!(rich, "{winner} takes from {loser}, whose side holds no more than {holds:?}");
    }
    Ok(())
}

/// Where pods of a job are pipelined together with the evictions that reclaim decides for it; it may have got more before.
fn gains(after: &OutcomeView<'_>, winner: JobId) -> Vec<(TaskId, NodeId)> {
    let is_own = |decision: &Decision| match decision {
        Decision::Evict { cause, .. } => cause.action == Action::Reclaim && cause.preemptor == Some(winner),
        _ => false,
    };
    let decisions = after.outcome.decisions.iter().skip_while(|decision| !is_own(decision));
    let decisions = decisions.take_while(|decision| !matches!(decision, Decision::Evict { .. }) || is_own(decision));
    let own = |task: &TaskId| after.snapshot.task(*task).job == winner;
    let pipelined = decisions.filter_map(|decision| match decision {
        Decision::Pipeline { task, assignment } if own(task) => Some((*task, assignment.node)),
        _ => None,
    });
    pipelined.collect()
}

/// Who takes what from whom by reclaim, job by job, in the order in which that was decided.
fn losses(after: &OutcomeView<'_>) -> Vec<(JobId, JobId, (ReclaimSide, ReclaimSide), ResourceQuantities)> {
    let mut losses: Vec<(JobId, JobId, (ReclaimSide, ReclaimSide), ResourceQuantities)> = Vec::new();
    for decision in &after.outcome.decisions {
        let Decision::Evict { task, cause } = decision else { continue };
        let (Some(winner), Some(sides), None) = (cause.preemptor, cause.reclaim_sides, after.pipelined(*task)) else {
            continue;
        };
        let loser = victim(after, *task);
        let cost = after.place_before(*task).map_or(ResourceQuantities::ZERO, |place| after.cost(*task, place.node));
        match losses.last_mut() {
            Some((last, same, _, sum)) if (*last, *same) == (winner, loser) => *sum += cost,
            _ => losses.push((winner, loser, sides, cost)),
        }
    }
    losses
}

/// What a queue may hold before others may take from it.
fn may_hold(after: &OutcomeView<'_>, queue: QueueId) -> [Ceiling; 3] {
    let (row, state) = (&after.snapshot.queues[queue.index()], &after.outcome.queue_states[queue.index()]);
    QueueResource::ALL.map(|resource| {
        let index = resource as usize;
        match row.quota[index] {
            Ceiling::Unlimited => row.limit[index],
            Ceiling::At(quota) => Ceiling::At(row.limit[index].cap(quota.max(state.fair_share.get(resource)))),
        }
    })
}

fn diverging_ancestors(after: &OutcomeView<'_>, ours: QueueId, theirs: QueueId) -> (QueueId, QueueId) {
    let (ours, theirs) = (after.path(ours), after.path(theirs));
    let pairs = || ours.iter().rev().copied().zip(theirs.iter().rev().copied());
    pairs().find(|(left, right)| left != right).or(pairs().next_back()).expect("paths are not empty")
}

/// A gang is removed as stale exactly if it lacks its minimum at the end, for as long as it may, and then as a whole.
pub(super) fn stale_gangs_go_after_their_grace(after: &OutcomeView<'_>) -> CheckResult {
    for job in after.snapshot.job_ids() {
        let row = after.snapshot.job(job);
        let tasks = || after.snapshot.job_tasks(job);
        let removed: Vec<_> = after
            .evictions()
            .filter(|(task, cause)| cause.action == Action::EvictStale && victim(after, *task) == job)
            .collect();
        if removed.is_empty() {
            continue;
        }
        let name = after.job_name(job);
        let leaves = |task: TaskId| matches!(after.status(task), Status::Releasing | Status::StuckInReleasing);
        let present = |task: TaskId| after.ran(task) || leaves(task);
        ensure!(!after.is_whole(job, &present), "{name} is removed although it is whole");
        ensure!(tasks().all(|task| after.status(task) != Status::Succeeded), "{name} is removed although it ends well");
        let since = row.stale_since.unwrap_or(NOW);
        let grace = row.staleness_grace.unwrap_or(after.world.policy.staleness_grace);
        ensure!(grace.is_some_and(|grace| NOW.since(since) >= grace), "{name} is removed too early");
        ensure!(!tasks().any(|task| after.runs_later(task)), "{name} is removed in part");
    }
    Ok(())
}
