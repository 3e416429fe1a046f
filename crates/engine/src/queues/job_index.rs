//! Jobs by leaf queue, in job order: those that wait, and those that may lose pods. Kept up to date as decisions are
//! made, so that a search looks only at the jobs it needs.

use std::collections::BTreeSet;

use crate::gang::{self, Gang};
use crate::ids::{JobId, QueueId};
use crate::ledger::Ledger;
use crate::policy::Policy;
use crate::queues::job_info::JobInfoCache;
use crate::queues::job_order::{JobKey, JobOrder, JobTree};

/// Jobs by leaf queue.
#[derive(Debug, Default)]
pub(crate) struct JobIndex {
    waiting: Vec<BTreeSet<JobKey>>,
    evictable: Vec<BTreeSet<JobKey>>,
    /// The key of each job in the two lists.
    known: Vec<(Option<JobKey>, Option<JobKey>)>,
}

impl JobIndex {
    /// All jobs in their present state.
    pub(crate) fn new(ledger: &Ledger<'_>, policy: &Policy) -> Self {
        let queues = ledger.snapshot.queues.len();
        let mut index = Self {
            waiting: vec![BTreeSet::new(); queues],
            evictable: vec![BTreeSet::new(); queues],
            known: vec![(None, None); ledger.snapshot.jobs.len()],
        };
        for job in ledger.snapshot.job_ids() {
            index.update(ledger, policy, job);
        }
        index
    }

    /// Looks at a job again.
    pub(crate) fn update(&mut self, ledger: &Ledger<'_>, policy: &Policy, job: JobId) {
        let row = ledger.snapshot.job(job);
        let Some(queue) = row.queue else { return };
        let waits = gang::has_pending(ledger, job);
        let evictable = row.preemptible && gang::has_active(ledger, job);
        let key = (waits || evictable).then(|| JobOrder::new(policy).key(ledger, job, Gang::new(ledger, job).state()));
        let (was_waiting, was_evictable) =
            std::mem::replace(&mut self.known[job.index()], (key.filter(|_| waits), key.filter(|_| evictable)));
        replace(&mut self.waiting[queue.index()], was_waiting, key.filter(|_| waits));
        replace(&mut self.evictable[queue.index()], was_evictable, key.filter(|_| evictable));
    }

    /// A job's place among those of its queue that could be preempted.
    pub(crate) fn place(&self, job: JobId) -> Option<JobKey> {
        self.known[job.index()].1
    }

    /// Jobs of a queue with waiting pods.
    pub(crate) fn waiting(&self, queue: QueueId) -> &BTreeSet<JobKey> {
        &self.waiting[queue.index()]
    }

    /// Jobs of a queue that could be preempted and run.
    pub(crate) fn evictable(&self, queue: QueueId) -> &BTreeSet<JobKey> {
        &self.evictable[queue.index()]
    }
}

fn replace(list: &mut BTreeSet<JobKey>, old: Option<JobKey>, new: Option<JobKey>) {
    if old != new {
        old.map(|old| list.remove(&old));
        new.map(|new| list.insert(new));
    }
}

/// What a search needs beside the session, kept between searches.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Jobs by queue.
    pub index: JobIndex,
    /// Facts about jobs in what-ifs.
    pub facts: JobInfoCache,
    /// The order in which the jobs of a simulation are placed.
    pub tree: JobTree,
}

impl Scratch {
    /// For the state as it is.
    pub(crate) fn new(ledger: &Ledger<'_>, policy: &Policy) -> Self {
        Self {
            index: JobIndex::new(ledger, policy),
            facts: JobInfoCache::new(ledger, policy, true),
            tree: JobTree::new(ledger, policy),
        }
    }
}
