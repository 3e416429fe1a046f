//! Places waiting jobs on what is free, or about to be: the most entitled first, each gang as a whole.

use crate::finder::NodeSet;
use crate::gang::{self, Gang};
use crate::ids::TaskId;
use crate::ledger::Standing;
use crate::order::jobs::JobFacts;
use crate::order::tree::JobTree;
use crate::place::Attempt;
use crate::session::Session;

/// Runs the action.
pub fn run(session: &mut Session<'_>) {
    let mut facts = JobFacts::new(&session.ledger, session.policy, false);
    let mut tree = JobTree::new(&session.ledger, session.policy);
    for job in session.snapshot.job_ids() {
        if gang::has_pending(&session.ledger, job) && Gang::new(&session.ledger, job).is_ready() {
            tree.push(&session.ledger, &mut facts, job, session.policy.depth.allocate);
        }
    }
    while let Some(job) = tree.pop(&session.ledger, &mut facts) {
        let held_before = gang::held(&session.ledger, job);
        let mark = session.ledger.mark();
        let Some(chunk) = session.place_job(job, NodeSet::All, Attempt::Real) else { continue };
        if Gang::new(&session.ledger, job).must_wait(&chunk) {
            promise_instead(session, &chunk);
        }
        session.commit(mark);
        if held_before == 0 && gang::held(&session.ledger, job) > 0 {
            session.last_start[job.index()] = Some(session.now);
        }
        // Growing step by step lets elastic jobs compete for each single pod.
        if gang::has_pending(&session.ledger, job) {
            tree.push(&session.ledger, &mut facts, job, None);
        }
    }
}

/// Part of the gang has to wait, so all of it does.
fn promise_instead(session: &mut Session<'_>, chunk: &[TaskId]) {
    for task in chunk {
        if let Standing::Held(spot) = session.ledger.standing(*task) {
            session.ledger.shift(*task, Standing::Promised(spot));
        }
    }
}
