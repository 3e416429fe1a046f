//! The tree through which every action takes its next job: best top queue, best child, …, best job of the leaf.
//!
//! A queue is judged with the job that would come next from it. Judgements are kept until the queue's counters or
//! its jobs change.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::queues::{Contender, Entitlement};
use crate::gang::Need;
use crate::ids::{JobId, QueueId};
use crate::ledger::Ledger;
use crate::policy::Policy;
use crate::units::{Timestamp, Triple};

/// A job's place in its queue.
pub type JobKey = (Reverse<i32>, Need, Timestamp, JobId);

/// What the tree asks about a job.
pub trait Jobs {
    /// What the job would take on next.
    fn required(&mut self, ledger: &Ledger<'_>, job: JobId) -> Triple;
    /// Where it stands in its queue.
    fn key(&mut self, ledger: &Ledger<'_>, job: JobId) -> JobKey;
}

/// Jobs waiting for their turn.
#[derive(Debug)]
pub struct JobTree {
    waiting: Vec<BTreeSet<JobKey>>,
    children: Vec<Vec<QueueId>>,
    top: Vec<QueueId>,
    judged: Vec<Option<Judged>>,
    /// Queues that were given jobs.
    touched: Vec<QueueId>,
    by_age: bool,
}

#[derive(Debug)]
struct Judged {
    version: u32,
    head: JobId,
    entitlement: Entitlement,
}

impl JobTree {
    /// A tree without jobs.
    pub fn new(ledger: &Ledger<'_>, policy: &Policy) -> Self {
        let rows = &ledger.book.rows;
        let mut children = vec![Vec::new(); rows.len()];
        let mut top = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            match row.parent {
                Some(parent) => children[parent.index()].push(QueueId::at(index)),
                None => top.push(QueueId::at(index)),
            }
        }
        Self {
            waiting: vec![BTreeSet::new(); rows.len()],
            children,
            top,
            judged: (0..rows.len()).map(|_| None).collect(),
            touched: Vec::new(),
            by_age: policy.proportion.is_none(),
        }
    }

    /// Takes all jobs out, to start anew.
    pub fn clear(&mut self) {
        for queue in self.touched.drain(..) {
            self.waiting[queue.index()].clear();
        }
        self.judged.iter_mut().for_each(|judged| *judged = None);
    }

    /// Adds a job; with a depth only the best so many of each queue stay. Jobs of inner queues are left out.
    pub fn push(&mut self, ledger: &Ledger<'_>, jobs: &mut impl Jobs, job: JobId, depth: Option<u32>) {
        let Some(queue) = ledger.snapshot.job(job).queue else { return };
        if !self.children[queue.index()].is_empty() {
            return;
        }
        let waiting = &mut self.waiting[queue.index()];
        if waiting.is_empty() {
            self.touched.push(queue);
        }
        waiting.insert(jobs.key(ledger, job));
        if depth.is_some_and(|depth| waiting.len() > depth as usize) {
            waiting.pop_last();
        }
        self.forget(ledger, queue);
    }

    /// Takes the next job.
    pub fn pop(&mut self, ledger: &Ledger<'_>, jobs: &mut impl Jobs) -> Option<JobId> {
        let top = std::mem::take(&mut self.top);
        let best = self.best(ledger, jobs, &top);
        self.top = top;
        let job = self.judged[best?.index()].as_ref().expect("just judged").head;
        let queue = ledger.snapshot.job(job).queue.expect("only jobs with a queue are added");
        // Keys may have changed since; find the job by its place at insertion.
        let first = self.waiting[queue.index()].pop_first();
        debug_assert_eq!(first.map(|key| key.3), Some(job));
        self.forget(ledger, queue);
        Some(job)
    }

    fn forget(&mut self, ledger: &Ledger<'_>, queue: QueueId) {
        for queue in ledger.book.path(queue) {
            self.judged[queue.index()] = None;
        }
    }

    fn best(&mut self, ledger: &Ledger<'_>, jobs: &mut impl Jobs, siblings: &[QueueId]) -> Option<QueueId> {
        let mut best: Option<QueueId> = None;
        for queue in siblings {
            if !self.judge(ledger, jobs, *queue) {
                continue;
            }
            if best.is_none_or(|best| self.comes_before(ledger, *queue, best)) {
                best = Some(*queue);
            }
        }
        best
    }

    /// Makes sure that the judgement is current; false if the queue has no job left.
    fn judge(&mut self, ledger: &Ledger<'_>, jobs: &mut impl Jobs, queue: QueueId) -> bool {
        let row = ledger.book.row(queue);
        if self.judged[queue.index()].as_ref().is_some_and(|judged| judged.version == row.version) {
            return true;
        }
        let head = if self.children[queue.index()].is_empty() {
            self.waiting[queue.index()].first().map(|key| key.3)
        } else {
            let children = std::mem::take(&mut self.children[queue.index()]);
            let best = self.best(ledger, jobs, &children);
            self.children[queue.index()] = children;
            best.map(|child| self.judged[child.index()].as_ref().expect("just judged").head)
        };
        self.judged[queue.index()] = head.map(|head| {
            let contender = Contender { row, required: jobs.required(ledger, head), victims: Triple::ZERO };
            Judged { version: row.version, head, entitlement: Entitlement::of(contender, ledger.book.total) }
        });
        self.judged[queue.index()].is_some()
    }

    fn comes_before(&self, ledger: &Ledger<'_>, left: QueueId, right: QueueId) -> bool {
        if self.by_age {
            return ledger.book.row(left).created < ledger.book.row(right).created;
        }
        let judged = |queue: QueueId| &self.judged[queue.index()].as_ref().expect("judged above").entitlement;
        judged(left).compare(judged(right)).is_lt()
    }
}
