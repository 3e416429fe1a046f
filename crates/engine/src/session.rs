//! One cycle in progress: the ledger, what was decided so far, and why jobs wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::finder::{DomainScores, Finder};
use crate::free_bounds::ScarceRequest;
use crate::gang::{self, Gang};
use crate::ids::{ClassId, JobId, NodeId, QueueId, ShapeId, TaskId};
use crate::ledger::{Ledger, Mark, Placement, TaskState};
use crate::outcome::{
    Assignment, Cause, Decision, DeviceRef, JobNote, Nomination, ObstacleCounts, Outcome, PodSetShortage, QueueState,
    Reason, Verdict,
};
use crate::policy::Policy;
use crate::snapshot::{Member, Snapshot, Status};
use crate::solve::index::Scratch;
use crate::topology::{Rooms, Tree};
use crate::units::{Timestamp, Triple};

/// What an action has done, whatever came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Turns of jobs; a job may have several.
    pub turns: u64,
    /// Victim scenarios that were simulated.
    pub simulated: u64,
    /// Victim scenarios that could not work, and were not simulated.
    pub filtered: u64,
}

/// A cycle in progress.
pub struct Session<'s> {
    /// The input.
    pub snapshot: &'s Snapshot,
    /// How to decide.
    pub policy: &'s Policy,
    /// The time, for the whole cycle.
    pub now: Timestamp,
    /// Where every pod stands.
    pub ledger: Ledger<'s>,
    /// Finds nodes.
    pub finder: Finder,
    /// When each job last started, as far as known now.
    pub last_start: Vec<Option<Timestamp>>,
    /// When each job last lost a pod.
    pub last_eviction: Vec<Option<Timestamp>>,
    /// Since when each job lacks its minimum.
    pub stale_since: Vec<Option<Timestamp>>,
    /// What searches for victims keep between them; `None` until the first one.
    pub(crate) scratch: Option<Scratch>,
    /// Search for victims without the bounds that say what cannot work, to compare results in tests.
    pub no_loss_bounds: bool,
    /// Smallest and largest memory of a GPU, which turn memory requests into GPUs.
    pub(crate) device_memory: (i64, i64),
    /// Jobs for which somebody was evicted: they keep what was made free for them.
    pub(crate) preemptors: BTreeSet<JobId>,
    /// Pods that consolidation moves, by the job for which it does: if that job gives way, they are asked again.
    pub(crate) moves_by_preemptor: BTreeMap<JobId, Vec<TaskId>>,
    /// Jobs with pods that waited for a place or behind a gate when the cycle began: no other can have any now.
    pub(crate) waiting: Vec<JobId>,
    /// Leaf queues.
    pub(crate) leaves: Vec<QueueId>,
    /// Why no node will do for a shape and class, and when that was found out.
    pub(crate) obstacle_cache: BTreeMap<(ShapeId, ClassId), (usize, Arc<ObstacleCounts>)>,
    /// The same for all shapes that differ only in what every node has enough of.
    pub(crate) obstacles_by_scarce_request: BTreeMap<(ScarceRequest, ClassId), (usize, Arc<ObstacleCounts>)>,
    /// Domain trees of the snapshot's topologies.
    pub(crate) trees: Vec<Tree>,
    /// Room in domains of the topologies.
    pub rooms: Rooms,
    /// Score of nodes for groups and pod sets of the job being placed.
    pub(crate) domain_scores: Vec<(Member, Arc<DomainScores>)>,
    /// What the current action has done so far.
    pub(crate) effort: Effort,
    /// By job.
    reasons: Vec<Vec<Reason>>,
    decisions: Vec<Decision>,
}

impl<'s> Session<'s> {
    /// The cycle before its first action.
    pub fn open(snapshot: &'s Snapshot, policy: &'s Policy, now: Timestamp) -> Self {
        Self {
            snapshot,
            policy,
            now,
            ledger: Ledger::open(snapshot, policy),
            finder: Finder::default(),
            last_start: snapshot.jobs.iter().map(|job| job.last_start).collect(),
            last_eviction: snapshot.jobs.iter().map(|job| job.last_eviction).collect(),
            stale_since: snapshot.jobs.iter().map(|job| job.stale_since).collect(),
            scratch: None,
            no_loss_bounds: false,
            obstacle_cache: BTreeMap::new(),
            obstacles_by_scarce_request: BTreeMap::new(),
            device_memory: snapshot.device_memory_range(),
            preemptors: BTreeSet::new(),
            moves_by_preemptor: BTreeMap::new(),
            waiting: waiting(snapshot),
            leaves: leaves(snapshot),
            trees: snapshot.topologies.iter().map(|topology| Tree::new(topology, snapshot.nodes.len())).collect(),
            rooms: Rooms::default(),
            domain_scores: Vec::new(),
            effort: Effort::default(),
            reasons: vec![Vec::new(); snapshot.jobs.len()],
            decisions: Vec::new(),
        }
    }

    /// Notes why a job waits.
    pub fn explain(&mut self, job: JobId, reason: Reason) {
        self.reasons[job.index()].push(reason);
    }

    /// Notes why a job waits, unless that was said before.
    pub fn explain_once(&mut self, job: JobId, reason: Reason) {
        if !self.reasons[job.index()].contains(&reason) {
            self.explain(job, reason);
        }
    }

    /// What the pod cost its queue when the cycle began, or would where it stands now.
    pub fn cost_before(&self, task: TaskId) -> Triple {
        let row = self.snapshot.task(task);
        let node = row.node.or_else(|| self.ledger.state(task).placement().map(|placement| placement.node));
        node.map_or(Triple::ZERO, |node| self.ledger.cost(task, node))
    }

    /// Makes placements since the mark final.
    pub fn commit(&mut self, mark: Mark) {
        self.commit_evictions(mark, |_, _| unreachable!("placing does not evict"));
    }

    /// Makes everything since the mark final and returns the jobs concerned; `cause` says why a pod is evicted.
    pub fn commit_evictions(&mut self, mark: Mark, cause: impl Fn(&Self, TaskId) -> Cause) -> BTreeSet<JobId> {
        let changes = self.ledger.changes_since(mark);
        let jobs: BTreeSet<JobId> = changes.iter().map(|(task, _)| self.snapshot.task(*task).job).collect();
        for (task, before) in changes {
            let after = self.ledger.state(task);
            // A pod that was to move and now only leaves is evicted for another reason.
            let evicted = match after {
                TaskState::Releasing(_) => !matches!(before, TaskState::Releasing(_)),
                TaskState::Moving { .. } => !matches!(before, TaskState::Releasing(_) | TaskState::Moving { .. }),
                _ => false,
            };
            match after {
                TaskState::Releasing(_) | TaskState::Moving { .. } if evicted => {
                    let cause = cause(self, task);
                    self.decisions.push(Decision::Evict { task, cause });
                    self.last_eviction[self.snapshot.task(task).job.index()] = Some(self.now);
                }
                _ => {}
            }
            match after {
                TaskState::Allocated(placement)
                    if before != after && self.snapshot.task(task).status == Status::Pending =>
                {
                    self.decisions.push(Decision::Bind { task, assignment: self.assignment(placement) });
                }
                TaskState::Pipelined(placement) | TaskState::Moving { to: placement, .. } if before != after => {
                    self.decisions.push(Decision::Pipeline { task, assignment: self.assignment(placement) });
                }
                _ => {}
            }
        }
        self.ledger.commit(mark);
        if let Some(mut scratch) = self.scratch.take() {
            for job in &jobs {
                scratch.index.update(self, *job);
            }
            self.scratch = Some(scratch);
        }
        jobs
    }

    /// The pod is evicted for another reason than was decided before.
    pub(crate) fn evicted_for(&mut self, task: TaskId, new: Cause) {
        let evicted = self.decisions.iter_mut().rev().find_map(|decision| match decision {
            Decision::Evict { task: known, cause } if *known == task => Some(cause),
            _ => None,
        });
        *evicted.expect("it was evicted before") = new;
    }

    fn assignment(&self, placement: Placement) -> Assignment {
        let existing = self.snapshot.devices.len() as u32;
        let name = |device: &crate::ids::DeviceId| {
            if device.0 < existing { DeviceRef::Existing(*device) } else { DeviceRef::Fresh(device.0 - existing) }
        };
        Assignment {
            node: placement.node,
            devices: self.ledger.devices_of(placement).iter().map(name).collect(),
            zones: self.ledger.extras_of(placement).map_or_else(Vec::new, |extras| extras.zones.clone()),
            grants: self.ledger.extras_of(placement).map_or_else(Vec::new, |extras| extras.grants.clone()),
        }
    }

    /// The result. Decisions that later actions took back do not leave.
    pub fn close(mut self) -> Outcome {
        let decisions = std::mem::take(&mut self.decisions);
        let placed: BTreeSet<JobId> =
            decisions.iter().map(|decision| self.snapshot.task(decision.task()).job).collect();
        let decisions = self.still_true(decisions);
        let verdicts = self.waiting.clone().into_iter().filter_map(|job| self.verdict(job, &placed)).collect();
        let evicted = decisions.iter().filter_map(|decision| match decision {
            // Only evictions in favour of others restart a job's preemption delay.
            Decision::Evict { task, cause } if cause.preemptor.is_some() => Some(self.snapshot.task(*task).job),
            _ => None,
        });
        let evicted: BTreeSet<JobId> = evicted.collect();
        let notes = self.snapshot.job_ids().filter_map(|job| self.note(job, evicted.contains(&job))).collect();
        let shares = self.ledger.queues.rows.iter().map(|row| QueueState {
            fair_share: row.fair_share,
            allocated: row.allocated,
            allocated_non_preemptible: row.allocated_non_preemptible,
            request: row.request,
        });
        Outcome { decisions, verdicts, shares: shares.collect(), notes, nominations: self.nominations() }
    }

    /// Claims of waiting pods for which others were moved or evicted, as far as they changed.
    fn nominations(&self) -> Vec<Nomination> {
        if !self.policy.repairs.stable_moves {
            return Vec::new();
        }
        let waits = |task: &TaskId| self.snapshot.task(*task).status == Status::Pending;
        let nomination = |task: TaskId| {
            let row = self.snapshot.task(task);
            let node = match self.ledger.state(task) {
                TaskState::Allocated(_) => return None,
                TaskState::Pipelined(placement) => self.is_preemptor(row.job).then_some(placement.node),
                _ => None,
            };
            (node != row.nominated).then_some(Nomination { task, node })
        };
        let tasks = self.waiting.iter().flat_map(|job| self.snapshot.job_tasks(*job));
        tasks.filter(waits).filter_map(nomination).collect()
    }

    /// Whether others were moved or evicted for the job.
    fn is_preemptor(&self, job: JobId) -> bool {
        self.preemptors.contains(&job) || self.moves_by_preemptor.contains_key(&job)
    }

    fn still_true(&self, decisions: Vec<Decision>) -> Vec<Decision> {
        let at = |assignment: &Assignment, node: NodeId| assignment.node == node;
        // Of several decisions of a kind about one pod the last one counts.
        let mut last = BTreeMap::new();
        for (index, decision) in decisions.iter().enumerate() {
            let (task, kind) = match decision {
                Decision::Bind { task, .. } | Decision::Pipeline { task, .. } => (*task, 1),
                Decision::Evict { task, .. } => (*task, 0),
            };
            last.insert((task, kind), index);
        }
        let mut index = 0;
        decisions
            .into_iter()
            .filter(|decision| {
                index += 1;
                let (task, kind, holds) = match decision {
                    Decision::Bind { task, assignment } => (
                        *task,
                        1,
                        matches!(self.ledger.state(*task), TaskState::Allocated(now) if at(assignment, now.node)),
                    ),
                    Decision::Pipeline { task, assignment } => (
                        *task,
                        1,
                        match self.ledger.state(*task) {
                            TaskState::Pipelined(now) | TaskState::Moving { to: now, .. } => at(assignment, now.node),
                            _ => false,
                        },
                    ),
                    Decision::Evict { task, .. } => (
                        *task,
                        0,
                        matches!(self.ledger.state(*task), TaskState::Releasing(_) | TaskState::Moving { .. }),
                    ),
                };
                holds && last[&(task, kind)] == index - 1
            })
            .collect()
    }

    fn verdict(&mut self, job: JobId, placed: &BTreeSet<JobId>) -> Option<Verdict> {
        let waits = |task: TaskId| {
            let waiting = matches!(self.ledger.state(task), TaskState::Unplaced);
            waiting && matches!(self.snapshot.task(task).status, Status::Pending | Status::Gated)
        };
        if !self.snapshot.job_tasks(job).any(waits) {
            return None;
        }
        let row = self.snapshot.job(job);
        let has_children = |queue| self.leaves.binary_search(&queue).is_err();
        let reasons = match row.queue {
            None => vec![Reason::QueueMissing],
            Some(queue) if has_children(queue) => vec![Reason::QueueNotLeaf { queue }],
            Some(_) if !Gang::new(&self.ledger, job).is_ready() => {
                vec![Reason::NotReady { short: self.shortages(job) }]
            }
            // Pods behind a gate wait for whoever opens it.
            Some(_) if !gang::has_pending(&self.ledger, job) => Vec::new(),
            Some(_) if self.reasons[job.index()].is_empty() => {
                // It runs with what it needs; an optional sub-group may lack pods.
                let short = self.shortages(job);
                vec![match (short.is_empty(), placed.contains(&job)) {
                    (false, _) => Reason::NotReady { short },
                    (true, true) => Reason::GaveWay,
                    (true, false) => Reason::NotReached,
                }]
            }
            Some(_) => std::mem::take(&mut self.reasons[job.index()]),
        };
        Some(Verdict { job, reasons })
    }

    fn shortages(&self, job: JobId) -> Vec<PodSetShortage> {
        let gated = |task: &TaskId| self.snapshot.task(*task).status == Status::Gated;
        let shortage = |pod_set| {
            let counts = self.ledger.counts(pod_set);
            let gated = self.snapshot.tasks_of(pod_set).filter(gated).count() as u32;
            let existing = counts.active() + counts.pending + gated;
            let required = self.snapshot.pod_sets[pod_set.index()].min;
            PodSetShortage { pod_set, required, existing, gated }
        };
        let sets = self.snapshot.pod_sets_of(job).map(shortage);
        sets.filter(|short| short.existing - short.gated < short.required).collect()
    }

    fn note(&self, job: JobId, evicted: bool) -> Option<JobNote> {
        let row = self.snapshot.job(job);
        let index = job.index();
        if !evicted && (self.last_start[index], self.stale_since[index]) == (row.last_start, row.stale_since) {
            return None;
        }
        // A job that started and was taken back in the same cycle never started.
        let started = gang::holds(&self.ledger, job);
        let note = JobNote {
            job,
            last_start: if started { self.last_start[index] } else { row.last_start },
            stale_since: self.stale_since[index],
            last_eviction: if evicted { Some(self.now) } else { row.last_eviction },
        };
        let changed = note.last_start != row.last_start
            || note.stale_since != row.stale_since
            || note.last_eviction != row.last_eviction;
        changed.then_some(note)
    }
}

/// Jobs with pods that wait for a place or behind a gate, by name.
fn waiting(snapshot: &Snapshot) -> Vec<JobId> {
    let waits = snapshot.tasks.iter().filter(|task| matches!(task.status, Status::Pending | Status::Gated));
    let mut jobs: Vec<JobId> = waits.map(|task| task.job).collect();
    // Pods of a job are neighbours.
    jobs.dedup();
    jobs
}

/// Queues without children, by name.
fn leaves(snapshot: &Snapshot) -> Vec<QueueId> {
    let parents: BTreeSet<_> = snapshot.queues.iter().filter_map(|queue| queue.parent).collect();
    (0..snapshot.queues.len()).map(QueueId::at).filter(|queue| !parents.contains(queue)).collect()
}
