//! Head-of-line requests. Queues are ordered by the request of their next job, so a small job behind a large one is
//! served when the large one would be. Answers: what do the jobs ahead of this one ask for at most?

use std::collections::BTreeMap;

use crate::ids::{JobId, QueueId};
use crate::queues::job_index::JobIndex;
use crate::queues::job_info::JobInfoCache;
use crate::queues::job_order::{JobInfo, JobKey};
use crate::session::Session;
use crate::units::ResourceQuantities;

/// Waiting jobs by queue, computed on demand. The ledger must be as it was when the first was computed.
#[derive(Debug, Default)]
pub(super) struct QueueBacklog {
    by_queue: BTreeMap<QueueId, Vec<(JobKey, BacklogPrefix)>>,
    max_requests: BTreeMap<JobId, Option<ResourceQuantities>>,
}

/// What a job and all jobs ahead of it in its queue ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct BacklogPrefix {
    /// Of each resource the most.
    pub most: ResourceQuantities,
    /// The request with most GPUs.
    pub largest: ResourceQuantities,
    /// The job with that request.
    pub job: JobId,
}

impl QueueBacklog {
    /// What jobs ask for that wait before this place in the queue; `None` if there are none.
    pub(super) fn before(
        &mut self,
        session: &Session<'_>,
        index: &JobIndex,
        facts: &mut JobInfoCache,
        queue: QueueId,
        place: JobKey,
    ) -> Option<BacklogPrefix> {
        let prefixes = self.by_queue.entry(queue).or_insert_with(|| {
            let mut prefixes: Vec<(JobKey, BacklogPrefix)> = Vec::new();
            for key in index.waiting(queue) {
                let asks = facts.required(&session.ledger, key.job);
                let own = BacklogPrefix { most: asks, largest: asks, job: key.job };
                let prefix = prefixes.last().map_or(own, |(_, before)| {
                    let largest = if asks.0[2] > before.largest.0[2] { own } else { *before };
                    BacklogPrefix { most: before.most.max_each(asks), ..largest }
                });
                prefixes.push((*key, prefix));
            }
            prefixes
        });
        let before = prefixes.partition_point(|(key, _)| *key < place);
        Some(prefixes[before.checked_sub(1)?].1)
    }

    /// Upper bound on the request by which the victim's queue would be ordered once the victim is pending again: its
    /// own pods, or a job ahead of it. `None` if the job is not in the index of evictable jobs.
    pub(super) fn max_request_up_to(
        &mut self,
        session: &Session<'_>,
        index: &JobIndex,
        facts: &mut JobInfoCache,
        job: JobId,
    ) -> Option<ResourceQuantities> {
        if let Some(max_request) = self.max_requests.get(&job) {
            return *max_request;
        }
        let queue = session.snapshot.job(job).queue;
        let max_request = queue.zip(index.place(job)).map(|(queue, place)| {
            let tasks: Vec<_> = session.snapshot.job_tasks(job).collect();
            let own = facts.requested(&session.ledger, &tasks);
            self.before(session, index, facts, queue, place).map_or(own, |prefix| prefix.most.max_each(own))
        });
        self.max_requests.insert(job, max_request);
        max_request
    }
}
