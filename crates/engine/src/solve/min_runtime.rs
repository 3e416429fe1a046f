//! Young jobs are left alone for a while: how long, and whether a job is still protected.

use std::collections::BTreeMap;

use super::search::Trial;
use super::victims::Candidate;
use crate::gang::Gang;
use crate::ids::{JobId, PodSetId, QueueId};
use crate::policy::{MinRuntime, ReclaimMethod};
use crate::session::Session;
use crate::snapshot::Queue;
use crate::units::Span;

/// Whether a job of the same queue must not take the victim's place yet.
pub fn protected_from_preempt(session: &Session<'_>, victim: JobId) -> bool {
    let Some(rules) = session.policy.min_runtime else { return false };
    let queue = session.snapshot.job(victim).queue;
    let own = queue.and_then(|queue| first_set(session, queue, |queue| queue.preempt_min_runtime));
    is_young(session, victim, own.unwrap_or(rules.preempt_default))
}

/// Whether a job of queue `reclaimer` must not take the victim's place yet.
pub fn protected_from_reclaim(session: &Session<'_>, reclaimer: QueueId, victim: JobId) -> bool {
    let Some(rules) = session.policy.min_runtime else { return false };
    let span = match session.snapshot.job(victim).queue {
        None => rules.reclaim_default,
        Some(queue) => reclaim_span(session, rules, reclaimer, queue),
    };
    is_young(session, victim, span)
}

/// How a job that is protected or not may be used as a victim; `None` if not at all.
pub fn candidate(session: &Session<'_>, job: JobId, protected: bool) -> Option<Candidate> {
    if !protected {
        return Some(Candidate { surplus_only: false });
    }
    let elastic = Gang::new(&session.ledger, job).is_elastic();
    let surplus_only = session.policy.repairs.gang_trees;
    elastic.then_some(Candidate { surplus_only })
}

/// KAI takes the core of a protected job into its scenarios and then refuses them.
pub fn spares_minimum(session: &Session<'_>, trial: &Trial<'_>, protected: impl Fn(JobId) -> bool) -> bool {
    if session.policy.repairs.gang_trees {
        return true;
    }
    let mut lost: BTreeMap<PodSetId, u32> = BTreeMap::new();
    for batch in trial.batches.iter().filter(|batch| protected(batch.job)) {
        for task in &batch.tasks {
            *lost.entry(session.snapshot.task(*task).pod_set).or_insert(0) += 1;
        }
    }
    lost.into_iter().all(|(pod_set, lost)| {
        session.ledger.counts(pod_set).used() >= session.snapshot.pod_sets[pod_set.index()].min + lost
    })
}

fn reclaim_span(session: &Session<'_>, rules: MinRuntime, reclaimer: QueueId, victim: QueueId) -> Span {
    let setting = |queue: &Queue| queue.reclaim_min_runtime;
    if rules.reclaim_method == ReclaimMethod::Queue {
        return first_set(session, victim, setting).unwrap_or(rules.reclaim_default);
    }
    let book = &session.ledger.book;
    let (ours, theirs) = (book.path_from_top(reclaimer), book.path_from_top(victim));
    let common = ours.iter().zip(&theirs).take_while(|(left, right)| left == right).count();
    if common == 0 {
        return setting(&session.snapshot.queues[theirs[0].index()]).unwrap_or(rules.reclaim_default);
    }
    // One step below the deepest common queue, on the victim's side.
    let start = theirs[common.min(theirs.len() - 1)];
    first_set(session, start, setting).unwrap_or(rules.reclaim_default)
}

fn first_set(session: &Session<'_>, queue: QueueId, setting: fn(&Queue) -> Option<Span>) -> Option<Span> {
    session.ledger.book.path(queue).find_map(|queue| setting(&session.snapshot.queues[queue.index()]))
}

fn is_young(session: &Session<'_>, job: JobId, span: Span) -> bool {
    session.last_start[job.index()].is_some_and(|start| session.now < start.plus(span))
}
