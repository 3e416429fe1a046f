//! Inside one queue, a job takes the place of others of strictly lower priority.

use super::making_room::{Barred, MakingRoom, run as make_room};
use crate::capacity;
use crate::ids::{JobId, TaskId};
use crate::order::jobs::requested;
use crate::outcome::Bar;
use crate::policy::Action;
use crate::session::Session;
use crate::solve::losses::Losses;
use crate::solve::min_runtime;
use crate::solve::victims::{Eligible, VictimRule};

/// Runs the action.
pub fn run(session: &mut Session<'_>) {
    let action = MakingRoom {
        action: Action::Preempt,
        depth: session.policy.depth.preempt,
        budget: session.policy.budget.preempt,
        concerns: |_, _| true,
        barred,
        eligible,
        losses: |_, _| Losses::Anybody,
        accept: |session, _, trial, _| {
            min_runtime::spares_minimum(session, trial, |job| min_runtime::protected_from_preempt(session, job))
        },
        of_lower_priority: true,
        shared_failures: false,
    };
    make_room(session, &action);
}

/// A job that cannot be preempted itself must stay within quota, whoever leaves.
fn barred(session: &mut Session<'_>, job: JobId, chunk: &[TaskId]) -> Option<Barred> {
    let row = session.snapshot.job(job);
    session.policy.proportion?;
    let largest = session.device_memory.1;
    let asked = requested(&session.ledger, chunk, largest);
    let over = if row.preemptible { None } else { capacity::over_quota(&session.ledger.book, row.queue?, asked) };
    over.map(|block| Barred { bar: Bar::Quota(block), counts_as_failure: true })
}

fn eligible(session: &Session<'_>, job: JobId, _: &[TaskId]) -> Eligible {
    let queues = session.snapshot.job(job).queue.into_iter().collect();
    Eligible { beneficiary: job, queues, rule: VictimRule::LowerPriority }
}
