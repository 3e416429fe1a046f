//! Removes what is left of gangs that lack their minimum for too long.

use crate::gang::Gang;
use crate::ids::{JobId, TaskId};
use crate::ledger::TaskState;
use crate::outcome::EvictionCause;
use crate::policy::Action;
use crate::session::Session;

/// Runs the action.
pub fn run(session: &mut Session<'_>) {
    for job in session.snapshot.job_ids() {
        if !Gang::new(&session.ledger, job).is_stale() {
            session.times.stale_since[job.index()] = None;
            continue;
        }
        session.stats.job_attempts += 1;
        let since = *session.times.stale_since[job.index()].get_or_insert(session.now);
        let grace = session.snapshot.job(job).staleness_grace.unwrap_or(session.policy.staleness_grace);
        match grace {
            Some(grace) if session.now.since(since) >= grace => evict(session, job),
            Some(grace) => session.may_change_at(since.plus(grace)),
            None => {}
        }
    }
}

fn evict(session: &mut Session<'_>, job: JobId) {
    let mark = session.ledger.mark();
    let tasks: Vec<TaskId> = session.snapshot.job_tasks(job).collect();
    for task in tasks {
        let state = match session.ledger.state(task) {
            TaskState::Allocated(placement) | TaskState::Moving { from: placement, .. } => {
                TaskState::Releasing(placement)
            }
            TaskState::Pipelined(_) => TaskState::Unplaced,
            _ => continue,
        };
        session.ledger.shift(task, state);
    }
    let gang_size = session.ledger.changes_since(mark).len() as u32;
    let before = session.times.last_eviction[job.index()];
    session.commit_evictions(mark, |_, _| EvictionCause {
        action: Action::EvictStale,
        preemptor: None,
        gang_size,
        reclaim_sides: None,
    });
    // Only evictions in favour of others restart a job's preemption delay.
    session.times.last_eviction[job.index()] = before;
}
