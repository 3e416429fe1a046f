//! Jobs for which a search found no victims, so that jobs that are no easier to schedule need none.

use std::collections::BTreeMap;

use crate::ids::{JobId, QueueId, ShapeId, TaskId};
use crate::session::Session;
use crate::snapshot::{GpuAsk, Status};

/// Jobs whose search failed, by scheduling signature; a job no easier to schedule is skipped.
#[derive(Debug, Default)]
pub(super) struct FailedJobs {
    known: BTreeMap<(Option<QueueId>, u32), Failure>,
}

/// The easiest job of its kind that failed, with the requests of its waiting pods.
type Failure = (JobId, Vec<ShapeId>);

impl FailedJobs {
    /// The failed job than which this one is no easier, if there is one.
    pub(super) fn easier_failure(&self, session: &Session<'_>, table: Option<QueueId>, job: JobId) -> Option<JobId> {
        if !session.policy.skip_no_easier {
            return None;
        }
        let (other, theirs) = self.known.get(&(table, session.snapshot.job(job).signature))?;
        let ours = pending_requests(session, job);
        let smaller =
            |(left, right): (&ShapeId, &ShapeId)| at_most(session, *left, *right) && !at_most(session, *right, *left);
        let easier = theirs.len() > ours.len() || ours.iter().zip(theirs).any(smaller);
        (!easier).then_some(*other)
    }

    /// Notes that the search for a job failed.
    pub(super) fn add(&mut self, session: &Session<'_>, table: Option<QueueId>, job: JobId) {
        let ours = pending_requests(session, job);
        let key = (table, session.snapshot.job(job).signature);
        let replaces = self.known.get(&key).is_none_or(|(_, theirs)| {
            ours.len() <= theirs.len() && ours.iter().zip(theirs).all(|(left, right)| at_most(session, *left, *right))
        });
        if replaces {
            self.known.insert(key, (job, ours));
        }
    }
}

/// Whether a request asks for no more than another of anything.
fn at_most(session: &Session<'_>, left: ShapeId, right: ShapeId) -> bool {
    left == right || amounts(session, left).zip(amounts(session, right)).all(|(left, right)| left <= right)
}

/// Amounts of a request; GPU shares and memory are columns of their own.
fn amounts<'s>(session: &Session<'s>, shape: ShapeId) -> impl Iterator<Item = i64> + use<'s> {
    let shape = session.snapshot.shape(shape);
    let memory = match shape.gpu {
        GpuAsk::Memory { devices, mib } => i64::from(devices) * mib,
        _ => 0,
    };
    shape.need.iter().copied().chain([shape.quota_gpu, memory])
}

/// Requests of waiting pods, smallest first.
fn pending_requests(session: &Session<'_>, job: JobId) -> Vec<ShapeId> {
    let snapshot = session.snapshot;
    let waits =
        |task: &TaskId| snapshot.task(*task).status == Status::Pending && session.ledger.is_placeable(*task, false);
    let mut requests: Vec<_> = snapshot.job_tasks(job).filter(waits).map(|task| snapshot.task(task).shape).collect();
    if requests.iter().any(|shape| *shape != requests[0]) {
        requests.sort_by(|left, right| amounts(session, *left).cmp(amounts(session, *right)));
    }
    requests
}
