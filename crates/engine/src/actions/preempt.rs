//! Inside one queue, a job takes the place of others of strictly lower priority.

use super::victim_action::{IneligibleJob, VictimAction, run as run_victim_action};
use crate::ids::{JobId, TaskId};
use crate::outcome::Ineligibility;
use crate::policy::Action;
use crate::queues::capacity;
use crate::queues::job_info::requested;
use crate::session::Session;
use crate::solve::loss_bound::LossBound;
use crate::solve::min_runtime;
use crate::solve::victim_scope::{VictimRule, VictimScope};
use crate::solve::victims;

/// Runs the action.
pub fn run(session: &mut Session<'_>) {
    let action = VictimAction {
        action: Action::Preempt,
        depth: session.policy.depth.preempt,
        budget: session.policy.budget.preempt,
        considers: |_, _| true,
        check_eligible,
        victim_scope,
        loss_bound: |_, _| LossBound::Unlimited,
        accept: |session, _, trial, _| {
            victims::keeps_min_members(session, &trial.batches, |job| min_runtime::protected_from_preempt(session, job))
        },
        victims_have_lower_priority: true,
        shared_failures: false,
    };
    run_victim_action(session, &action);
}

/// A job that cannot be preempted itself must stay within quota, whatever the victims.
fn check_eligible(session: &mut Session<'_>, job: JobId, chunk: &[TaskId]) -> Option<IneligibleJob> {
    let row = session.snapshot.job(job);
    session.policy.proportion?;
    let largest = session.device_memory.1;
    let asked = requested(&session.ledger, chunk, largest);
    let over = if row.preemptible { None } else { capacity::over_quota(&session.ledger.queues, row.queue?, asked) };
    over.map(|block| IneligibleJob { why: Ineligibility::Quota(block), counts_as_failure: true })
}

fn victim_scope(session: &Session<'_>, job: JobId, _: &[TaskId]) -> VictimScope {
    let queues = session.snapshot.job(job).queue.into_iter().collect();
    VictimScope { preemptor: job, queues, rule: VictimRule::LowerPriority }
}
