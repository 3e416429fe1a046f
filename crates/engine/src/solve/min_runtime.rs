//! Minimum runtimes: how long jobs are protected after their start, and whether one still is.

use crate::ids::{JobId, QueueId};
use crate::policy::{MinRuntime, ReclaimMethod};
use crate::session::Session;
use crate::snapshot::Queue;
use crate::units::{Span, Timestamp};

/// Whether a job of the same queue must not take the victim's place yet.
pub(crate) fn protected_from_preempt(session: &Session<'_>, victim: JobId) -> bool {
    preempt_protection(session, victim).is_some()
}

/// The protection against jobs of the same queue, while it lasts.
pub(crate) fn preempt_protection(session: &Session<'_>, victim: JobId) -> Option<ProtectedUntil> {
    let rules = session.policy.min_runtime?;
    let queue = session.snapshot.job(victim).queue;
    let own = queue.and_then(|queue| first_set(session, queue, |queue| queue.preempt_min_runtime));
    protection(session, victim, own, rules.preempt_default)
}

/// Whether a job of queue `reclaimer` must not take the victim's place yet.
pub(crate) fn protected_from_reclaim(session: &Session<'_>, reclaimer: QueueId, victim: JobId) -> bool {
    reclaim_protection(session, reclaimer, victim).is_some()
}

/// The protection against jobs of queue `reclaimer`, while it lasts.
pub(crate) fn reclaim_protection(session: &Session<'_>, reclaimer: QueueId, victim: JobId) -> Option<ProtectedUntil> {
    let rules = session.policy.min_runtime?;
    let queue = session.snapshot.job(victim).queue;
    let own = queue.and_then(|queue| reclaim_setting(session, rules, reclaimer, queue));
    protection(session, victim, own, rules.reclaim_default)
}

/// How long a job is protected, by which queue's setting, and until when.
pub(crate) type ProtectedUntil = (Span, Option<QueueId>, Timestamp);

fn reclaim_setting(
    session: &Session<'_>,
    rules: MinRuntime,
    reclaimer: QueueId,
    victim: QueueId,
) -> Option<(Span, QueueId)> {
    let setting = |queue: &Queue| queue.reclaim_min_runtime;
    if rules.reclaim_method == ReclaimMethod::Queue {
        return first_set(session, victim, setting);
    }
    let accounts = &session.ledger.queues;
    let (ours, theirs) = (accounts.path_from_top(reclaimer), accounts.path_from_top(victim));
    let common = ours.iter().zip(&theirs).take_while(|(left, right)| left == right).count();
    if common == 0 {
        return setting(&session.snapshot.queues[theirs[0].index()]).map(|span| (span, theirs[0]));
    }
    // One step below the deepest common queue, on the victim's side.
    let start = theirs[common.min(theirs.len() - 1)];
    first_set(session, start, setting)
}

fn first_set(session: &Session<'_>, queue: QueueId, setting: fn(&Queue) -> Option<Span>) -> Option<(Span, QueueId)> {
    let own = |queue: QueueId| setting(&session.snapshot.queues[queue.index()]).map(|span| (span, queue));
    session.ledger.queues.path(queue).find_map(own)
}

fn protection(
    session: &Session<'_>,
    job: JobId,
    set: Option<(Span, QueueId)>,
    default: Span,
) -> Option<ProtectedUntil> {
    let (span, queue) = set.map_or((default, None), |(span, queue)| (span, Some(queue)));
    let until = session.times.last_start[job.index()]?.plus(span);
    (session.now < until).then_some((span, queue, until))
}
