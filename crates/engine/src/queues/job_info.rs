//! What orders ask about a job, remembered until one of its pods is shifted.

use std::cmp::Reverse;

use super::job_order::{JobInfo, JobKey};
use crate::gang::{Gang, GangStatus};
use crate::ids::{JobId, TaskId};
use crate::ledger::Ledger;
use crate::policy::Policy;
use crate::units::ResourceQuantities;

/// Facts about all jobs, computed when asked for.
#[derive(Debug)]
pub struct JobInfoCache {
    what_if: bool,
    by_priority: bool,
    by_gang_status: bool,
    reference: i64,
    known: Vec<Option<(u32, ResourceQuantities)>>,
}

impl JobInfoCache {
    /// For real placements, or for what-ifs, in which evicted pods may be placed again.
    pub fn new(ledger: &Ledger<'_>, policy: &Policy, what_if: bool) -> Self {
        Self {
            what_if,
            by_priority: policy.order_by_priority,
            by_gang_status: policy.order_below_min_first,
            reference: ledger.snapshot.device_memory_range().0,
            known: vec![None; ledger.snapshot.jobs.len()],
        }
    }

    /// A job's place in its queue if it were this complete.
    pub fn key_with(&self, ledger: &Ledger<'_>, job: JobId, need: GangStatus) -> JobKey {
        key(ledger, job, need, self.by_priority, self.by_gang_status)
    }

    /// What pods ask for together, with memory requests as they count for orders and shares.
    pub fn requested(&self, ledger: &Ledger<'_>, tasks: &[TaskId]) -> ResourceQuantities {
        requested(ledger, tasks, self.reference)
    }
}

impl JobInfo for JobInfoCache {
    fn required(&mut self, ledger: &Ledger<'_>, job: JobId) -> ResourceQuantities {
        let version = ledger.job_version(job);
        match self.known[job.index()] {
            Some((known, required)) if known == version => required,
            _ => {
                let chunk = Gang::new(ledger, job).chunk(self.what_if);
                let required = requested(ledger, &chunk, self.reference);
                self.known[job.index()] = Some((version, required));
                required
            }
        }
    }

    fn key(&mut self, ledger: &Ledger<'_>, job: JobId) -> JobKey {
        self.key_with(ledger, job, Gang::new(ledger, job).state())
    }
}

/// A job's place in its queue.
pub fn key_of(ledger: &Ledger<'_>, policy: &Policy, job: JobId) -> JobKey {
    key_with(ledger, policy, job, Gang::new(ledger, job).state())
}

/// A job's place in its queue if it were this complete.
pub fn key_with(ledger: &Ledger<'_>, policy: &Policy, job: JobId, need: GangStatus) -> JobKey {
    key(ledger, job, need, policy.order_by_priority, policy.order_below_min_first)
}

fn key(ledger: &Ledger<'_>, job: JobId, need: GangStatus, by_priority: bool, by_gang_status: bool) -> JobKey {
    let row = ledger.snapshot.job(job);
    let priority = if by_priority { row.priority } else { 0 };
    (Reverse(priority), if by_gang_status { need } else { GangStatus::BelowMin }, row.created, job)
}

/// What pods ask for together; memory requests are turned into GPUs of `reference` MiB.
pub fn requested(ledger: &Ledger<'_>, tasks: &[TaskId], reference: i64) -> ResourceQuantities {
    let snapshot = ledger.snapshot;
    tasks.iter().fold(ResourceQuantities::ZERO, |sum, task| {
        sum + snapshot.shape(snapshot.task(*task).shape).requested_with_memory(reference)
    })
}
