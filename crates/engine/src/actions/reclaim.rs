//! A queue below its share takes back from queues above theirs.

use super::making_room::{Barred, MakingRoom, run as make_room};
use crate::gang::{self, Gang};
use crate::ids::{JobId, QueueId, TaskId};
use crate::order::jobs::requested;
use crate::policy::Action;
use crate::queues::QueueBook;
use crate::session::Session;
use crate::solve::min_runtime;
use crate::solve::rules::{self, Reclaimer};
use crate::solve::search::Trial;
use crate::solve::victims::Candidate;
use crate::units::Triple;

/// Runs the action.
pub fn run(session: &mut Session<'_>) {
    if session.policy.proportion.is_none() {
        return;
    }
    let action = MakingRoom {
        action: Action::Reclaim,
        depth: session.policy.depth.reclaim,
        budget: session.policy.budget.reclaim,
        concerns: |_, _| true,
        barred,
        candidates,
        accept,
        shared_failures: false,
    };
    make_room(session, &action);
}

fn reclaimer(session: &Session<'_>, job: JobId, chunk: &[TaskId]) -> Option<Reclaimer> {
    let row = session.snapshot.job(job);
    let smallest = session.snapshot.device_memory_range().0;
    let required = requested(&session.ledger, chunk, smallest);
    Some(Reclaimer { queue: row.queue?, preemptible: row.preemptible, required })
}

fn barred(session: &mut Session<'_>, job: JobId, chunk: &[TaskId]) -> Option<Barred> {
    let may = reclaimer(session, job, chunk).is_some_and(|own| rules::can_reclaim(&session.ledger.book, own));
    (!may).then_some(Barred { counts_as_failure: false })
}

fn candidates(session: &Session<'_>, job: JobId, chunk: &[TaskId]) -> Vec<Candidate> {
    let Some(own) = reclaimer(session, job, chunk) else { return Vec::new() };
    // Whether a queue may lose something does not depend on the job.
    let may_lose: Vec<bool> = (0..session.snapshot.queues.len())
        .map(|queue| rules::may_lose(&session.ledger.book, own, QueueId::at(queue)))
        .collect();
    let eligible = |other: &JobId| {
        let victim = session.snapshot.job(*other);
        victim.preemptible
            && victim.queue.is_some_and(|queue| queue != own.queue && may_lose[queue.index()])
            && gang::has_active(&session.ledger, *other)
    };
    let protect = |job: JobId| {
        let surplus_only = min_runtime::protected_from_reclaim(session, own.queue, job);
        (!surplus_only || Gang::new(&session.ledger, job).is_elastic()).then_some(Candidate { job, surplus_only })
    };
    session.snapshot.job_ids().filter(eligible).filter_map(protect).collect()
}

fn accept(session: &Session<'_>, job: JobId, trial: &Trial<'_>, before: &QueueBook) -> bool {
    let Some(own) = reclaimer(session, job, trial.pending) else { return false };
    let multiplier = session.policy.proportion.map_or(crate::units::ONE, |rules| rules.saturation_multiplier);
    rules::reclaimable(before, own, &units(session, trial), multiplier)
}

/// What each victim queue loses, batch by batch; pods that found another place are not lost.
fn units(session: &Session<'_>, trial: &Trial<'_>) -> Vec<(QueueId, Triple)> {
    let counted = |task: &TaskId| !session.policy.consolidating_reclaim || !session.ledger.standing(*task).is_active();
    let mut units = Vec::new();
    for batch in &trial.batches {
        let lost: Vec<_> = batch.tasks.iter().copied().filter(counted).collect();
        let Some(queue) = session.snapshot.job(batch.job).queue else { continue };
        if !lost.is_empty() {
            let amount = lost.iter().fold(Triple::ZERO, |sum, task| sum + session.cost_before(*task));
            units.push((queue, amount));
        }
    }
    units
}
