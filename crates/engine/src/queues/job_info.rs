//! What orders ask about a job, remembered until one of its pods is shifted.

use super::job_order::{JobInfo, JobKey, JobOrder};
use crate::gang::Gang;
use crate::ids::{JobId, TaskId};
use crate::ledger::Ledger;
use crate::policy::Policy;
use crate::units::ResourceQuantities;

/// Facts about all jobs, computed when asked for.
#[derive(Debug)]
pub(crate) struct JobInfoCache {
    what_if: bool,
    /// How jobs of a queue are ordered.
    pub order: JobOrder,
    reference: i64,
    known: Vec<Option<(u32, ResourceQuantities)>>,
}

impl JobInfoCache {
    /// For real placements, or for what-ifs, in which evicted pods may be placed again.
    pub(crate) fn new(ledger: &Ledger<'_>, policy: &Policy, what_if: bool) -> Self {
        Self {
            what_if,
            order: JobOrder::new(policy),
            reference: ledger.snapshot.device_memory_range().0,
            known: vec![None; ledger.snapshot.jobs.len()],
        }
    }

    /// What pods ask for together, with memory requests as they count for orders and shares.
    pub(crate) fn requested(&self, ledger: &Ledger<'_>, tasks: &[TaskId]) -> ResourceQuantities {
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
        self.order.key(ledger, job, Gang::new(ledger, job).state())
    }
}

/// What pods ask for together; memory requests are turned into GPUs of `reference` MiB.
pub(crate) fn requested(ledger: &Ledger<'_>, tasks: &[TaskId], reference: i64) -> ResourceQuantities {
    let snapshot = ledger.snapshot;
    tasks.iter().fold(ResourceQuantities::ZERO, |sum, task| {
        sum + snapshot.shape(snapshot.task(*task).shape).requested_with_memory(reference)
    })
}
