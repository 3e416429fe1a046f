//! The order in which jobs lose pods: least entitled queue first, then lowest priority, surplus and newest first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::gang::Gang;
use crate::ids::{JobId, QueueId, TaskId};
use crate::ledger::{Ledger, Standing};
use crate::order::jobs::JobFacts;
use crate::order::queues::{Contender, Entitlement};
use crate::order::tree::JobKey;
use crate::policy::Policy;
use crate::units::Triple;

/// A job that may lose pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The job.
    pub job: JobId,
    /// Whether it may lose its surplus only.
    pub surplus_only: bool,
}

/// Pods of one job that are evicted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The job.
    pub job: JobId,
    /// Its pods.
    pub tasks: Vec<TaskId>,
}

/// The batches of a [`VictimTree`], kept so that several probes can go through them from the start.
#[derive(Debug)]
pub struct VictimOrder {
    tree: VictimTree,
    known: Vec<Arc<Batch>>,
}

impl VictimOrder {
    /// The order of these candidates.
    pub fn new(ledger: &Ledger<'_>, policy: &Policy, candidates: &[Candidate]) -> Self {
        Self { tree: VictimTree::new(ledger, policy, candidates), known: Vec::new() }
    }

    /// The batch at a position.
    pub fn get(&mut self, ledger: &Ledger<'_>, index: usize) -> Option<Arc<Batch>> {
        while self.known.len() <= index {
            let batch = self.tree.advance(ledger, &BTreeSet::new())?;
            self.known.push(Arc::new(batch));
        }
        Some(Arc::clone(&self.known[index]))
    }
}

/// Candidates in the order in which they lose pods, one batch at a time.
#[derive(Debug)]
pub struct VictimTree {
    facts: JobFacts,
    surplus_only: BTreeSet<JobId>,
    waiting: BTreeMap<QueueId, BTreeSet<JobKey>>,
    children: BTreeMap<Option<QueueId>, BTreeSet<QueueId>>,
    taken: BTreeMap<JobId, BTreeSet<TaskId>>,
    /// What pods taken from a leaf held.
    lost: BTreeMap<QueueId, Triple>,
    judged: BTreeMap<QueueId, (Entitlement, QueueId)>,
    by_age: bool,
}

impl VictimTree {
    /// A tree of these candidates.
    pub fn new(ledger: &Ledger<'_>, policy: &Policy, candidates: &[Candidate]) -> Self {
        let mut tree = Self {
            facts: JobFacts::new(ledger, policy, false),
            surplus_only: candidates.iter().filter(|one| one.surplus_only).map(|one| one.job).collect(),
            waiting: BTreeMap::new(),
            children: BTreeMap::new(),
            taken: BTreeMap::new(),
            lost: BTreeMap::new(),
            judged: BTreeMap::new(),
            by_age: policy.proportion.is_none(),
        };
        for candidate in candidates {
            tree.push(ledger, candidate.job);
        }
        tree
    }

    /// The next pods to lose; the ledger must be as it was when the tree was made. Pods that are victims already are passed over.
    pub fn advance(&mut self, ledger: &Ledger<'_>, recorded: &BTreeSet<TaskId>) -> Option<Batch> {
        let nothing = BTreeSet::new();
        loop {
            let job = self.pop(ledger)?;
            let taken = self.taken.get(&job).unwrap_or(&nothing);
            let chunk = Gang::new(ledger, job).without(taken).eviction_chunk();
            if chunk.is_core && self.surplus_only.contains(&job) {
                continue;
            }
            if chunk.tasks.iter().any(|task| recorded.contains(task)) {
                let known: Vec<_> = ledger.snapshot.job_tasks(job).filter(|task| recorded.contains(task)).collect();
                self.take(ledger, job, &known);
                if !Gang::new(ledger, job).without(&self.taken[&job]).eviction_chunk().tasks.is_empty() {
                    self.push(ledger, job);
                }
                continue;
            }
            self.take(ledger, job, &chunk.tasks);
            if chunk.leaves_some {
                self.push(ledger, job);
            }
            return Some(Batch { job, tasks: chunk.tasks });
        }
    }

    fn take(&mut self, ledger: &Ledger<'_>, job: JobId, tasks: &[TaskId]) {
        let queue = queue_of(ledger, job);
        let held: Vec<_> = tasks.iter().copied().filter(|task| holds(ledger, *task)).collect();
        *self.lost.entry(queue).or_default() += held_requests(ledger, &held);
        self.taken.entry(job).or_default().extend(tasks);
        self.forget(ledger, queue);
    }

    fn push(&mut self, ledger: &Ledger<'_>, job: JobId) {
        let queue = queue_of(ledger, job);
        let nothing = BTreeSet::new();
        let taken = self.taken.get(&job).unwrap_or(&nothing);
        let need = Gang::new(ledger, job).without(taken).state();
        let key = self.facts.key_with(ledger, job, need);
        self.waiting.entry(queue).or_default().insert(key);
        for queue in ledger.book.path(queue) {
            self.children.entry(ledger.book.row(queue).parent).or_default().insert(queue);
        }
        self.forget(ledger, queue);
    }

    fn forget(&mut self, ledger: &Ledger<'_>, queue: QueueId) {
        for queue in ledger.book.path(queue) {
            self.judged.remove(&queue);
        }
    }

    fn pop(&mut self, ledger: &Ledger<'_>) -> Option<JobId> {
        let top = self.worst(ledger, None)?;
        let leaf = self.judged[&top].1;
        let waiting = self.waiting.get_mut(&leaf).expect("judged leaves have jobs");
        let key = waiting.pop_last().expect("judged leaves have jobs");
        if waiting.is_empty() {
            self.waiting.remove(&leaf);
            self.prune(ledger, leaf);
        }
        self.forget(ledger, leaf);
        Some(key.3)
    }

    /// Removes a leaf without jobs, and what is empty above it.
    fn prune(&mut self, ledger: &Ledger<'_>, leaf: QueueId) {
        for queue in ledger.book.path(leaf) {
            if self.children.get(&Some(queue)).is_some_and(|below| !below.is_empty()) {
                return;
            }
            if let Some(siblings) = self.children.get_mut(&ledger.book.row(queue).parent) {
                siblings.remove(&queue);
            }
        }
    }

    /// The least entitled child; of equals the last by name.
    fn worst(&mut self, ledger: &Ledger<'_>, parent: Option<QueueId>) -> Option<QueueId> {
        let siblings: Vec<_> = self.children.get(&parent)?.iter().copied().collect();
        let mut worst: Option<QueueId> = None;
        for queue in siblings {
            self.judge(ledger, queue);
            if worst.is_none_or(|worst| !self.comes_before(ledger, queue, worst)) {
                worst = Some(queue);
            }
        }
        worst
    }

    fn comes_before(&self, ledger: &Ledger<'_>, left: QueueId, right: QueueId) -> bool {
        if self.by_age {
            return ledger.book.row(left).created < ledger.book.row(right).created;
        }
        self.judged[&left].0.compare(&self.judged[&right].0).is_lt()
    }

    fn judge(&mut self, ledger: &Ledger<'_>, queue: QueueId) {
        if self.judged.contains_key(&queue) {
            return;
        }
        let leaf = if self.waiting.contains_key(&queue) {
            queue
        } else {
            let child = self.worst(ledger, Some(queue)).expect("empty branches are pruned");
            self.judged[&child].1
        };
        let next = self.waiting[&leaf].last().expect("judged leaves have jobs").3;
        let nothing = BTreeSet::new();
        let taken = self.taken.get(&next).unwrap_or(&nothing);
        let rest: Vec<_> =
            ledger.snapshot.job_tasks(next).filter(|task| holds(ledger, *task) && !taken.contains(task)).collect();
        let victims = self.lost.get(&leaf).copied().unwrap_or_default() + held_requests(ledger, &rest);
        let contender = Contender { row: ledger.book.row(queue), required: Triple::ZERO, victims };
        self.judged.insert(queue, (Entitlement::of(contender, ledger.book.total), leaf));
    }
}

fn holds(ledger: &Ledger<'_>, task: TaskId) -> bool {
    matches!(ledger.standing(task), Standing::Held(_))
}

fn queue_of(ledger: &Ledger<'_>, job: JobId) -> QueueId {
    ledger.snapshot.job(job).queue.expect("candidates have a queue")
}

/// What pods ask for by their specification: a memory request asks for no GPUs, whatever it occupies.
fn held_requests(ledger: &Ledger<'_>, tasks: &[TaskId]) -> Triple {
    let shape = |task: &TaskId| ledger.snapshot.shape(ledger.snapshot.task(*task).shape);
    tasks.iter().fold(Triple::ZERO, |sum, task| sum + shape(task).requested())
}
