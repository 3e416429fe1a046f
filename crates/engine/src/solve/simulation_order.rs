//! The order in which the jobs of a simulation are placed: the pending job and its victims.

use std::collections::{BTreeMap, BTreeSet};

use crate::gang::GangStatus;
use crate::ids::{JobId, QueueId};
use crate::ledger::Ledger;
use crate::queues::job_index::JobIndex;
use crate::queues::job_info::JobInfoCache;
use crate::queues::job_order::{JobInfo, JobKey, JobTree};
use crate::session::Session;
use crate::units::ResourceQuantities;

/// Adds the simulated jobs to the tree, and in their queues those that come before them.
pub(super) fn fill_job_order(
    tree: &mut JobTree,
    session: &Session<'_>,
    jobs: &mut PartialJobInfo<'_>,
    simulated_jobs: &BTreeSet<JobId>,
    index: &JobIndex,
) {
    let mut last: BTreeMap<QueueId, JobKey> = BTreeMap::new();
    for job in simulated_jobs {
        let queue = session.snapshot.job(*job).queue.expect("simulated jobs have a queue");
        let key = jobs.key(&session.ledger, *job);
        tree.push(&session.ledger, jobs, *job, None);
        let entry = last.entry(queue).or_insert(key);
        *entry = (*entry).max(key);
    }
    for (queue, last) in last {
        for key in index.waiting(queue).range(..last) {
            if !simulated_jobs.contains(&key.job) {
                tree.push(&session.ledger, jobs, key.job, None);
            }
        }
    }
}

/// Job facts in which the pending job is only as large as the prefix that is tried.
pub(super) struct PartialJobInfo<'f> {
    /// The job.
    pub job: JobId,
    /// How complete it would be.
    pub status: GangStatus,
    /// What the prefix asks for.
    pub required: ResourceQuantities,
    /// Facts about all others.
    pub facts: &'f mut JobInfoCache,
}

impl JobInfo for PartialJobInfo<'_> {
    fn required(&mut self, ledger: &Ledger<'_>, job: JobId) -> ResourceQuantities {
        if job == self.job { self.required } else { self.facts.required(ledger, job) }
    }

    fn key(&mut self, ledger: &Ledger<'_>, job: JobId) -> JobKey {
        if job == self.job { self.facts.order.key(ledger, job, self.status) } else { self.facts.key(ledger, job) }
    }
}
