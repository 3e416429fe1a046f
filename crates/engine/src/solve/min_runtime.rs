//! Young jobs are left alone for a while: how long, and whether a job is still protected.

use std::collections::BTreeMap;

use super::index::JobIndex;
use super::search::Trial;
use super::victims::{Candidate, VictimRule, VictimScope};
use crate::gang::Gang;
use crate::ids::{JobId, PodSetId, QueueId};
use crate::outcome::Protection;
use crate::policy::{MinRuntime, ReclaimMethod};
use crate::session::Session;
use crate::snapshot::Queue;
use crate::units::{Span, Timestamp};

/// Whether a job of the same queue must not take the victim's place yet.
pub fn protected_from_preempt(session: &Session<'_>, victim: JobId) -> bool {
    preempt_shield(session, victim).is_some()
}

fn preempt_shield(session: &Session<'_>, victim: JobId) -> Option<Shield> {
    let rules = session.policy.min_runtime?;
    let queue = session.snapshot.job(victim).queue;
    let own = queue.and_then(|queue| first_set(session, queue, |queue| queue.preempt_min_runtime));
    shield(session, victim, own, rules.preempt_default)
}

/// Whether a job of queue `reclaimer` must not take the victim's place yet.
pub fn protected_from_reclaim(session: &Session<'_>, reclaimer: QueueId, victim: JobId) -> bool {
    reclaim_shield(session, reclaimer, victim).is_some()
}

fn reclaim_shield(session: &Session<'_>, reclaimer: QueueId, victim: JobId) -> Option<Shield> {
    let rules = session.policy.min_runtime?;
    let queue = session.snapshot.job(victim).queue;
    let own = queue.and_then(|queue| reclaim_setting(session, rules, reclaimer, queue));
    shield(session, victim, own, rules.reclaim_default)
}

/// How long a job is protected, by which queue's setting, and until when.
type Shield = (Span, Option<QueueId>, Timestamp);

/// Jobs that may not be evicted for the preemptor because they are young; of elastic ones the surplus may.
pub fn protection(session: &Session<'_>, eligible: &VictimScope, index: &JobIndex) -> Option<Protection> {
    let rules = session.policy.min_runtime?;
    let set = |queue: &Queue| queue.preempt_min_runtime.is_some() || queue.reclaim_min_runtime.is_some();
    if rules.preempt_default.0 <= 0 && rules.reclaim_default.0 <= 0 && !session.snapshot.queues.iter().any(set) {
        return None;
    }
    let own = session.snapshot.job(eligible.preemptor);
    let shield_of = |victim: JobId| match eligible.rule {
        VictimRule::Move => None,
        VictimRule::LowerPriority if session.snapshot.job(victim).priority >= own.priority => None,
        VictimRule::LowerPriority => preempt_shield(session, victim),
        VictimRule::OtherQueue => reclaim_shield(session, own.queue?, victim),
    };
    let jobs = eligible.queues.iter().flat_map(|queue| index.evictable(*queue)).map(|key| key.3);
    let mut found: Option<Protection> = None;
    for (job, (span, queue, until)) in jobs.filter_map(|job| Some((job, shield_of(job)?))) {
        let jobs = found.map_or(0, |found| found.jobs) + 1;
        let earlier = found.filter(|found| (found.until, found.next) < (until, job));
        found = Some(earlier.unwrap_or(Protection { jobs, next: job, until, span, queue }));
        found = found.map(|found| Protection { jobs, ..found });
    }
    found
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
pub fn keeps_min_members(session: &Session<'_>, trial: &Trial<'_>, protected: impl Fn(JobId) -> bool) -> bool {
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

fn shield(session: &Session<'_>, job: JobId, set: Option<(Span, QueueId)>, default: Span) -> Option<Shield> {
    let (span, queue) = set.map_or((default, None), |(span, queue)| (span, Some(queue)));
    let until = session.last_start[job.index()]?.plus(span);
    (session.now < until).then_some((span, queue, until))
}
