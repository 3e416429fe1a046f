//! What taking from running jobs may cost, beyond the rules of each action: a job that was just evicted is left alone and
//! takes no more than it has lost, and consolidation has a budget of moves and of lost work.

use fixedbitset::FixedBitSet;

use super::victim_scope::{VictimRule, VictimScope};
use crate::gang;
use crate::ids::{JobId, TaskId};
use crate::ledger::TaskState;
use crate::outcome::Protection;
use crate::session::Session;
use crate::snapshot::Status;
use crate::units::{GPU, Span, Timestamp};

/// How long the rule leaves a job alone after an eviction.
fn cooldown(session: &Session<'_>, rule: VictimRule) -> Span {
    let disruption = &session.policy.disruption;
    match rule {
        VictimRule::Move if session.policy.repairs.stable_moves => disruption.move_cooldown,
        VictimRule::Move => Span(0),
        VictimRule::LowerPriority | VictimRule::OtherQueue => disruption.eviction_cooldown,
    }
}

/// When the rule may evict the job again; `None` if it may already. A job that has not started anew since was not evicted
/// after all, because a disruption budget forbids it, or it lost only a part; consolidation moves parts, too.
fn cooldown_end(session: &Session<'_>, rule: VictimRule, job: JobId) -> Option<Timestamp> {
    let row = session.snapshot.job(job);
    let last = row.last_eviction?;
    let counts = rule == VictimRule::Move || row.last_start.is_some_and(|start| start >= last);
    ends_after(session, last, cooldown(session, rule)).filter(|_| counts)
}

/// The end of a time that has begun, while it lasts.
fn ends_after(session: &Session<'_>, since: Timestamp, span: Span) -> Option<Timestamp> {
    (Span(0)..span).contains(&session.now.since(since)).then(|| since.plus(span))
}

/// Whether the job was evicted so recently that it is no victim by this rule. A moved pod may land elsewhere than
/// planned, and an evicted job comes back as one of the first to be evicted: the cooldown ends such chains. A job that was
/// just moved may move others that were.
pub(super) fn in_cooldown(session: &Session<'_>, rule: VictimRule, victim: JobId, preemptor: JobId) -> bool {
    let recently = |job: JobId| cooldown_end(session, rule, job).is_some();
    recently(victim) && !(rule == VictimRule::Move && recently(preemptor))
}

/// Jobs in scope that run and are left alone for now only because they were evicted recently.
pub(super) fn protection(session: &Session<'_>, scope: &VictimScope) -> Option<Protection> {
    if session.recently_evicted.is_empty() {
        return None;
    }
    let mut queues = FixedBitSet::with_capacity(session.snapshot.queues.len());
    queues.extend(scope.queues.iter().map(|queue| queue.index()));
    let in_scope = |job: &JobId| {
        let row = session.snapshot.job(*job);
        let lower =
            scope.rule != VictimRule::LowerPriority || row.priority < session.snapshot.job(scope.preemptor).priority;
        let queue = row.queue.is_some_and(|queue| queues.contains(queue.index()));
        lower && queue && row.preemptible && gang::has_active(&session.ledger, *job)
    };
    let jobs = session.recently_evicted.iter().copied().filter(in_scope);
    let mut found: Option<Protection> = None;
    let span = cooldown(session, scope.rule);
    for (job, until) in jobs.filter_map(|job| Some((job, cooldown_end(session, scope.rule, job)?))) {
        let jobs = found.map_or(0, |found| found.jobs) + 1;
        let first = found.filter(|found| (found.until, found.next) < (until, job));
        let first = first.unwrap_or(Protection { jobs, next: job, until, span, queue: None, after_eviction: true });
        found = Some(Protection { jobs, ..first });
    }
    found
}

/// Run time since the job last started × GPUs: what is lost with the pod. In microseconds and millionths of a GPU.
pub(super) fn lost_work(session: &Session<'_>, task: TaskId) -> i128 {
    let job = session.snapshot.task(task).job;
    let ran = session.times.last_start[job.index()].map_or(0, |start| session.now.since(start).0.max(0));
    i128::from(session.cost_before(task).0[2]) * i128::from(ran)
}

/// Whether what a scenario takes from its victims is within bounds. The ledger holds its result.
pub(super) fn is_affordable(session: &Session<'_>, scope: &VictimScope, chunk: &[TaskId], victims: &[TaskId]) -> bool {
    let disruption = &session.policy.disruption;
    let is_move = scope.rule == VictimRule::Move;
    let price_max = is_move.then_some(disruption.lost_work_per_gpu_max).flatten();
    let lost_max = work_before_eviction(session, scope.preemptor, chunk);
    let moves_left = disruption.moves_left.filter(|_| is_move);
    if price_max.is_none() && lost_max.is_none() && moves_left.is_none() {
        return true;
    }
    let out = victims.iter().filter(|task| is_out(session, **task));
    let (mut count, mut lost) = (0, 0);
    for task in out {
        count += 1;
        lost += lost_work(session, *task);
    }
    let started: i128 = chunk.iter().map(|task| i128::from(asked_gpus(session, *task))).sum();
    moves_left.is_none_or(|left| moved_before(session) + count <= left as usize)
        && lost_max.is_none_or(|most| lost <= most)
        && price_max.is_none_or(|span| lost <= started * i128::from(span.0))
}

/// What the preemptor lost itself, if it was evicted recently.
fn work_before_eviction(session: &Session<'_>, job: JobId, chunk: &[TaskId]) -> Option<i128> {
    let row = session.snapshot.job(job);
    let last = row.last_eviction?;
    ends_after(session, last, session.policy.disruption.eviction_cooldown)?;
    let ran = last.since(row.last_start?).0.max(0);
    let gpus: i128 = chunk.iter().map(|task| i128::from(asked_gpus(session, *task))).sum();
    Some(gpus * i128::from(ran))
}

fn asked_gpus(session: &Session<'_>, task: TaskId) -> i64 {
    let shape = session.snapshot.shape(session.snapshot.task(task).shape);
    shape.requested_with_memory(session.device_memory.0).0[2]
}

/// Pods that consolidation moves already in this cycle.
fn moved_before(session: &Session<'_>) -> usize {
    let moves = |task: &&TaskId| matches!(session.ledger.state(**task), TaskState::Moving { .. });
    session.preemptors.moves.values().flatten().filter(moves).count()
}

/// Ran before this cycle, and loses or changes its place.
pub(super) fn is_out(session: &Session<'_>, task: TaskId) -> bool {
    let ran = session.snapshot.task(task).status != Status::Pending;
    ran && matches!(session.ledger.state(task), TaskState::Releasing(_) | TaskState::Moving { .. })
}

/// What the job loses if it is evicted whole, in GPU-seconds.
pub(super) fn lost_work_of(session: &Session<'_>, job: JobId) -> i64 {
    let active = session.snapshot.job_tasks(job).filter(|task| session.ledger.state(*task).is_active());
    let lost: i128 = active.map(|task| lost_work(session, task)).sum();
    i64::try_from(lost / i128::from(GPU) / 1_000_000).unwrap_or(i64::MAX)
}
