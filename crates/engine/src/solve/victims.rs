//! Victims: which jobs may lose pods for another, and in which order: least entitled queue first, then lowest priority,
//! surplus and newest first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::disruption::lost_work_of;
use super::loss_bound::VictimLoss;
use super::victim_scope::{VictimRule, VictimScope};
use super::{disruption, min_runtime};
use crate::gang::Gang;
use crate::ids::{JobId, NodeId, PodSetId, QueueId, TaskId};
use crate::ledger::{Ledger, TaskState};
use crate::outcome::Protection;
use crate::queues::job_index::JobIndex;
use crate::queues::job_order::{JobKey, JobOrder};
use crate::queues::order::{QueueOrderInput, QueueOrderKey};
use crate::session::Session;
use crate::snapshot::{GpuAsk, Queue};
use crate::units::ResourceQuantities;

/// How a job may be used as a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionMode {
    /// It may lose all its pods.
    Whole,
    /// It may lose what it has beyond its minimum.
    SurplusOnly,
}

impl VictimScope {
    /// How the job may be used; `None` if not at all.
    fn eviction_mode(&self, session: &Session<'_>, victim: JobId) -> Option<EvictionMode> {
        let is_preemptor = session.policy.repairs.drop_placements && session.preemptors.evicted_for.contains(&victim);
        if victim == self.preemptor || is_preemptor {
            return None;
        }
        let preemptor = session.snapshot.job(self.preemptor);
        match self.rule {
            VictimRule::Move => {
                let protected = disruption::in_cooldown(session, self.rule, victim, self.preemptor);
                (!protected).then_some(EvictionMode::Whole)
            }
            VictimRule::LowerPriority => {
                let lower = session.snapshot.job(victim).priority < preemptor.priority;
                let protected = lower
                    && (min_runtime::protected_from_preempt(session, victim)
                        || disruption::in_cooldown(session, self.rule, victim, self.preemptor));
                eviction_mode(session, victim, protected).filter(|_| lower)
            }
            VictimRule::OtherQueue => {
                let protected = min_runtime::protected_from_reclaim(session, preemptor.queue?, victim)
                    || disruption::in_cooldown(session, self.rule, victim, self.preemptor);
                eviction_mode(session, victim, protected)
            }
        }
    }
}

/// How a job that is protected or not may be used as a victim; `None` if not at all.
fn eviction_mode(session: &Session<'_>, job: JobId, protected: bool) -> Option<EvictionMode> {
    if !protected {
        return Some(EvictionMode::Whole);
    }
    let elastic = Gang::new(&session.ledger, job).is_elastic();
    let mode = if session.policy.repairs.gang_trees { EvictionMode::SurplusOnly } else { EvictionMode::Whole };
    elastic.then_some(mode)
}

/// Jobs that may not be evicted for the preemptor, because they are young or were evicted recently; of elastic ones the
/// surplus may. If there are both, those whose protection ends first.
pub(crate) fn protection(session: &Session<'_>, scope: &VictimScope, index: &JobIndex) -> Option<Protection> {
    let protections = [by_min_runtime(session, scope, index), disruption::protection(session, scope)];
    protections.into_iter().flatten().min_by_key(|protection| protection.until)
}

fn by_min_runtime(session: &Session<'_>, scope: &VictimScope, index: &JobIndex) -> Option<Protection> {
    let rules = session.policy.min_runtime?;
    let set = |queue: &Queue| queue.preempt_min_runtime.is_some() || queue.reclaim_min_runtime.is_some();
    if rules.preempt_default.0 <= 0 && rules.reclaim_default.0 <= 0 && !session.snapshot.queues.iter().any(set) {
        return None;
    }
    let own = session.snapshot.job(scope.preemptor);
    let protection_of = |victim: JobId| match scope.rule {
        VictimRule::Move => None,
        VictimRule::LowerPriority if session.snapshot.job(victim).priority >= own.priority => None,
        VictimRule::LowerPriority => min_runtime::preempt_protection(session, victim),
        VictimRule::OtherQueue => min_runtime::reclaim_protection(session, own.queue?, victim),
    };
    let jobs = scope.queues.iter().flat_map(|queue| index.evictable(*queue)).map(|key| key.job);
    let mut found: Option<Protection> = None;
    for (job, (span, queue, until)) in jobs.filter_map(|job| Some((job, protection_of(job)?))) {
        let jobs = found.map_or(0, |found| found.jobs) + 1;
        let earlier = found.filter(|found| (found.until, found.next) < (until, job));
        found = Some(earlier.unwrap_or(Protection { jobs, next: job, until, span, queue, after_eviction: false }));
        found = found.map(|found| Protection { jobs, ..found });
    }
    found
}

/// Pods of one job that are evicted together.
#[derive(Clone, Debug)]
pub(crate) struct VictimBatch {
    /// The job.
    pub job: JobId,
    /// Its pods.
    pub tasks: Vec<TaskId>,
    /// What each of them costs the queue; kept here, because the cost of pods placed in this cycle is unknown once they
    /// are evicted.
    pub costs: Vec<ResourceQuantities>,
    /// Pods that an earlier search of this cycle moves in favour of this job. If the job loses its place the moves are
    /// pointless, so these pods are simulated again: each stays, or moves in favour of the new preemptor.
    pub dependent_moves: Vec<TaskId>,
    /// Where its pods are, those that are on a node.
    pub places: Vec<FreedGpus>,
    /// Where the dependent moves would go.
    pub dependent_targets: Vec<FreedGpus>,
    /// What the job's queue would lose.
    pub loss: VictimLoss,
}

/// Where a victim is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreedGpus {
    /// The node.
    pub node: NodeId,
    /// GPUs that it would give back, as queues count them.
    pub gpus: i64,
    /// Whether these are whole ones.
    pub whole: bool,
}

impl VictimBatch {
    /// These pods of a job, in their present state.
    pub(crate) fn new(session: &Session<'_>, job: JobId, tasks: Vec<TaskId>) -> Self {
        let ledger = &session.ledger;
        let place = |task: &TaskId| {
            let node = ledger.state(*task).placement()?.node;
            let whole = ledger.snapshot.shape(ledger.snapshot.task(*task).shape).gpu == GpuAsk::Whole;
            Some(FreedGpus { node, gpus: ledger.cost(*task, node).0[2], whole })
        };
        let dependent_moves = dependent_moves(session, job, &tasks);
        let places = |tasks: &[TaskId]| tasks.iter().filter_map(place).collect();
        let (places, dependent_targets) = (places(&tasks), places(&dependent_moves));
        let loss = VictimLoss::of(ledger, job, &tasks);
        let costs = tasks.iter().map(|task| session.cost_before(*task)).collect();
        Self { job, tasks, costs, dependent_moves, places, dependent_targets, loss }
    }

    /// Its pods and the dependent moves.
    pub(crate) fn all(&self) -> impl Iterator<Item = TaskId> {
        self.tasks.iter().chain(&self.dependent_moves).copied()
    }

    /// GPUs that its pods would give back.
    pub(crate) fn gpus(&self) -> i64 {
        self.places.iter().map(|place| place.gpus).sum()
    }

    /// Places of its pods and of the dependent moves.
    pub(crate) fn all_places(&self) -> impl Iterator<Item = FreedGpus> {
        self.places.iter().chain(&self.dependent_targets).copied()
    }
}

/// KAI takes the core of a protected job into its scenarios and then refuses them.
pub(crate) fn keeps_min_members(
    session: &Session<'_>,
    batches: &[&Arc<VictimBatch>],
    protected: impl Fn(JobId) -> bool,
) -> bool {
    if session.policy.repairs.gang_trees {
        return true;
    }
    let mut lost: BTreeMap<PodSetId, u32> = BTreeMap::new();
    for batch in batches.iter().filter(|batch| protected(batch.job)) {
        for task in &batch.tasks {
            *lost.entry(session.snapshot.task(*task).pod_set).or_insert(0) += 1;
        }
    }
    lost.into_iter().all(|(pod_set, lost)| {
        session.ledger.counts(pod_set).used() >= session.snapshot.pod_sets[pod_set.index()].min + lost
    })
}

/// All pods that a search may take away, job by job, in no particular order.
pub(crate) fn all_victims(session: &Session<'_>, index: &JobIndex, scope: &VictimScope) -> Vec<VictimBatch> {
    let jobs = scope.queues.iter().flat_map(|queue| index.evictable(*queue)).map(|key| key.job);
    let jobs = jobs.filter(|job| scope.eviction_mode(session, *job).is_some());
    let active = |task: &TaskId| session.ledger.state(*task).is_active();
    jobs.map(|job| VictimBatch::new(session, job, session.snapshot.job_tasks(job).filter(active).collect())).collect()
}

/// The batches of a [`VictimTree`], kept so that several probes can go through them from the start.
#[derive(Debug)]
pub(crate) struct VictimOrder<'p> {
    tree: VictimTree<'p>,
    known: Vec<Arc<VictimBatch>>,
}

impl<'p> VictimOrder<'p> {
    /// The order of these victims.
    pub(crate) fn new(session: &Session<'_>, index: &'p JobIndex, scope: &'p VictimScope) -> Self {
        Self { tree: VictimTree::new(session, index, scope), known: Vec::new() }
    }

    /// The batch at a position.
    pub(crate) fn get(&mut self, session: &Session<'_>, position: usize) -> Option<Arc<VictimBatch>> {
        while self.known.len() <= position {
            let batch = self.tree.advance(session, &BTreeSet::new())?;
            self.known.push(Arc::new(batch));
        }
        Some(Arc::clone(&self.known[position]))
    }
}

/// Victims of one probe, in order, without those that are recorded already.
#[derive(Debug)]
pub(crate) struct Victims<'p> {
    recorded: BTreeSet<TaskId>,
    source: Source<'p>,
}

#[derive(Debug)]
enum Source<'p> {
    /// Walk the shared victim order from this position and skip recorded batches.
    Common(usize),
    /// A separate tree, where a job was recorded in several batches (its next batch depends on them) or only some
    /// queues are asked.
    Own(Box<VictimTree<'p>>),
}

impl<'p> Victims<'p> {
    /// All victims in scope, or only those within another.
    pub(crate) fn new(
        session: &Session<'_>,
        index: &'p JobIndex,
        recorded: &[Arc<VictimBatch>],
        among: Option<&'p VictimScope>,
        all: &'p VictimScope,
    ) -> Self {
        let mut jobs = BTreeSet::new();
        let once_each = among.is_none() && recorded.iter().all(|batch| jobs.insert(batch.job));
        let source = if once_each {
            Source::Common(0)
        } else {
            Source::Own(Box::new(VictimTree::new(session, index, among.unwrap_or(all))))
        };
        Self { recorded: recorded.iter().flat_map(|batch| batch.tasks.iter().copied()).collect(), source }
    }

    /// The next batch; the ledger must be as it was when the search began.
    pub(crate) fn next(&mut self, session: &Session<'_>, order: &mut VictimOrder<'_>) -> Option<Arc<VictimBatch>> {
        match &mut self.source {
            Source::Common(next) => loop {
                let batch = order.get(session, *next)?;
                *next += 1;
                if !batch.tasks.iter().any(|task| self.recorded.contains(task)) {
                    return Some(batch);
                }
            },
            Source::Own(tree) => tree.advance(session, &self.recorded).map(Arc::new),
        }
    }
}

/// Victims in order, one batch at a time. The ledger must be as it was when the tree was made.
#[derive(Debug)]
pub(crate) struct VictimTree<'p> {
    index: &'p JobIndex,
    scope: &'p VictimScope,
    /// One for each queue; inner ones stay empty.
    leaves: Vec<Leaf>,
    /// Queues that still have victims, by parent.
    children: Vec<Vec<QueueId>>,
    top: Vec<QueueId>,
    taken: BTreeMap<JobId, BTreeSet<TaskId>>,
    /// The rank of each queue, and the leaf that its next victim comes from.
    rankings: Vec<Option<(QueueOrderKey, QueueId)>>,
    by_age: bool,
    /// Victims of each leaf by what they lose, if that comes before their age.
    by_lost_work: Option<Vec<BTreeSet<JobKey>>>,
}

#[derive(Debug, Default)]
struct Leaf {
    /// The next victim.
    next: Option<(JobKey, EvictionMode)>,
    /// Everything from here on was looked at.
    seen: Option<JobKey>,
    /// Jobs that lost a part and go on with the rest.
    returned: BTreeMap<JobKey, EvictionMode>,
    /// What pods taken from here asked for.
    lost: ResourceQuantities,
}

impl<'p> VictimTree<'p> {
    /// A tree of these victims.
    pub(crate) fn new(session: &Session<'_>, index: &'p JobIndex, scope: &'p VictimScope) -> Self {
        let accounts = &session.ledger.queues;
        let mut tree = Self {
            index,
            scope,
            leaves: accounts.rows.iter().map(|_| Leaf::default()).collect(),
            children: vec![Vec::new(); accounts.rows.len()],
            top: Vec::new(),
            taken: BTreeMap::new(),
            rankings: vec![None; accounts.rows.len()],
            by_age: session.policy.proportion.is_none(),
            by_lost_work: None,
        };
        if session.policy.disruption.least_work_first {
            let mut leaves = vec![BTreeSet::new(); accounts.rows.len()];
            for queue in &scope.queues {
                let keys = index.evictable(*queue).iter();
                leaves[queue.index()] = keys.map(|key| key.by_lost_work(lost_work_of(session, key.job))).collect();
            }
            tree.by_lost_work = Some(leaves);
        }
        let mut has_victims = vec![false; accounts.rows.len()];
        for queue in &scope.queues {
            let mut leaf = Leaf::default();
            tree.find_next(session, *queue, &mut leaf);
            if leaf.next.is_some() {
                accounts.path(*queue).for_each(|queue| has_victims[queue.index()] = true);
                tree.leaves[queue.index()] = leaf;
            }
        }
        for queue in (0..has_victims.len()).filter(|queue| has_victims[*queue]).map(QueueId::at) {
            match accounts.row(queue).parent {
                Some(parent) => tree.children[parent.index()].push(queue),
                None => tree.top.push(queue),
            }
        }
        tree
    }

    /// The next pods to lose; pods that are victims already are passed over.
    pub(crate) fn advance(&mut self, session: &Session<'_>, recorded: &BTreeSet<TaskId>) -> Option<VictimBatch> {
        let ledger = &session.ledger;
        let nothing = BTreeSet::new();
        loop {
            let (queue, job, mode) = self.pop(session)?;
            let taken = self.taken.get(&job).unwrap_or(&nothing);
            let chunk = Gang::new(ledger, job).without(taken).eviction_chunk();
            if chunk.is_core && mode == EvictionMode::SurplusOnly {
                self.refill(session, queue, None);
                continue;
            }
            if chunk.tasks.iter().any(|task| recorded.contains(task)) {
                let known: Vec<_> = ledger.snapshot.job_tasks(job).filter(|task| recorded.contains(task)).collect();
                self.take(ledger, queue, job, &known);
                let rest = !Gang::new(ledger, job).without(&self.taken[&job]).eviction_chunk().tasks.is_empty();
                self.refill(session, queue, rest.then_some((job, mode)));
                continue;
            }
            self.take(ledger, queue, job, &chunk.tasks);
            self.refill(session, queue, chunk.leaves_some.then_some((job, mode)));
            return Some(VictimBatch::new(session, job, chunk.tasks));
        }
    }

    fn take(&mut self, ledger: &Ledger<'_>, queue: QueueId, job: JobId, tasks: &[TaskId]) {
        let lost = held_requests(ledger, tasks.iter().copied());
        self.leaves[queue.index()].lost += lost;
        self.taken.entry(job).or_default().extend(tasks);
    }

    /// Removes the next victim from its queue; [`Self::refill`] must follow.
    fn pop(&mut self, session: &Session<'_>) -> Option<(QueueId, JobId, EvictionMode)> {
        let top = std::mem::take(&mut self.top);
        let worst = self.worst(&session.ledger, &top);
        self.top = top;
        let queue = self.ranking(worst?).1;
        let leaf = &mut self.leaves[queue.index()];
        let (key, mode) = leaf.next.take().expect("ranked leaves have victims");
        leaf.returned.remove(&key);
        Some((queue, key.job, mode))
    }

    /// Finds the queue's next victim, after one was taken and perhaps goes on with the rest of its pods.
    fn refill(&mut self, session: &Session<'_>, queue: QueueId, back: Option<(JobId, EvictionMode)>) {
        let mut leaf = std::mem::take(&mut self.leaves[queue.index()]);
        if let Some((job, mode)) = back {
            let status = Gang::new(&session.ledger, job).without(&self.taken[&job]).state();
            let key = JobOrder::new(session.policy).key(&session.ledger, job, status);
            let by_work = self.by_lost_work.is_some();
            let key = if by_work { key.by_lost_work(lost_work_of(session, job)) } else { key };
            leaf.returned.insert(key, mode);
        }
        self.find_next(session, queue, &mut leaf);
        let empty = leaf.next.is_none();
        self.leaves[queue.index()] = leaf;
        for queue in session.ledger.queues.path(queue) {
            self.rankings[queue.index()] = None;
        }
        if empty {
            self.prune(&session.ledger, queue);
        }
    }

    fn find_next(&self, session: &Session<'_>, queue: QueueId, leaf: &mut Leaf) {
        let jobs = self.by_lost_work.as_ref().map_or(self.index.evictable(queue), |leaves| &leaves[queue.index()]);
        let unseen = match leaf.seen {
            Some(seen) => jobs.range(..seen),
            None => jobs.range(..),
        };
        let mut best = leaf.returned.last_key_value().map(|(key, mode)| (*key, *mode));
        for key in unseen.rev() {
            if best.is_some_and(|(best, _)| best > *key) {
                break;
            }
            leaf.seen = Some(*key);
            if let Some(mode) = self.scope.eviction_mode(session, key.job) {
                best = Some((*key, mode));
                break;
            }
        }
        leaf.next = best;
    }

    /// Removes a leaf without victims, and what is empty above it.
    fn prune(&mut self, ledger: &Ledger<'_>, leaf: QueueId) {
        for queue in ledger.queues.path(leaf) {
            if !self.children[queue.index()].is_empty() {
                return;
            }
            let siblings = match ledger.queues.row(queue).parent {
                Some(parent) => &mut self.children[parent.index()],
                None => &mut self.top,
            };
            siblings.retain(|sibling| *sibling != queue);
        }
    }

    /// The least entitled queue; of equals the last by name.
    fn worst(&mut self, ledger: &Ledger<'_>, siblings: &[QueueId]) -> Option<QueueId> {
        let mut worst: Option<QueueId> = None;
        for queue in siblings {
            self.rank(ledger, *queue);
            if worst.is_none_or(|worst| !self.comes_before(ledger, *queue, worst)) {
                worst = Some(*queue);
            }
        }
        worst
    }

    fn ranking(&self, queue: QueueId) -> &(QueueOrderKey, QueueId) {
        self.rankings[queue.index()].as_ref().expect("ranked before")
    }

    fn comes_before(&self, ledger: &Ledger<'_>, left: QueueId, right: QueueId) -> bool {
        if self.by_age {
            return ledger.queues.row(left).created < ledger.queues.row(right).created;
        }
        self.ranking(left).0.compare(&self.ranking(right).0).is_lt()
    }

    fn rank(&mut self, ledger: &Ledger<'_>, queue: QueueId) {
        if self.rankings[queue.index()].is_some() {
            return;
        }
        let children = std::mem::take(&mut self.children[queue.index()]);
        let child = self.worst(ledger, &children);
        self.children[queue.index()] = children;
        let leaf = child.map_or(queue, |child| self.ranking(child).1);
        let next = self.leaves[leaf.index()].next.expect("empty leaves are pruned").0.job;
        let nothing = BTreeSet::new();
        let taken = self.taken.get(&next).unwrap_or(&nothing);
        let rest = held_requests(ledger, ledger.snapshot.job_tasks(next).filter(|task| !taken.contains(task)));
        let victims = self.leaves[leaf.index()].lost + rest;
        let input = QueueOrderInput { row: ledger.queues.row(queue), required: ResourceQuantities::ZERO, victims };
        self.rankings[queue.index()] = Some((QueueOrderKey::of(input, ledger.queues.total), leaf));
    }
}

fn dependent_moves(session: &Session<'_>, job: JobId, tasks: &[TaskId]) -> Vec<TaskId> {
    let Some(moved) = session.preemptors.moves.get(&job).filter(|_| session.policy.repairs.drop_placements) else {
        return Vec::new();
    };
    let state = |task: TaskId| session.ledger.state(task);
    let loses_pipelined = tasks.iter().any(|task| matches!(state(*task), TaskState::Pipelined(_)));
    let moves = |task: &TaskId| loses_pipelined && matches!(state(*task), TaskState::Moving { .. });
    moved.iter().copied().filter(moves).collect()
}

/// What pods that hold a place ask for by their specification: a memory request asks for no GPUs, whatever it occupies.
fn held_requests(ledger: &Ledger<'_>, tasks: impl Iterator<Item = TaskId>) -> ResourceQuantities {
    let held = tasks.filter(|task| matches!(ledger.state(*task), TaskState::Allocated(_)));
    held.fold(ResourceQuantities::ZERO, |sum, task| {
        sum + ledger.snapshot.shape(ledger.snapshot.task(task).shape).requested()
    })
}
