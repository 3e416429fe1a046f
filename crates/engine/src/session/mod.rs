//! One cycle in progress: the ledger, what was decided so far, and why jobs wait.

mod close;
mod obstacle_cache;
pub(crate) mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{JobId, QueueId, TaskId};
use crate::ledger::{Ledger, Mark, Placement, TaskState};
use crate::nodes::finder::Finder;
use crate::nodes::score::DomainScores;
use crate::nodes::topology::{DomainCapacityCache, Tree};
use crate::outcome::{Assignment, Decision, DeviceRef, EvictionCause, Reason};
use crate::policy::Policy;
use crate::queues::fair_share;
use crate::queues::job_index::Scratch;
use crate::snapshot::{Job, Member, Snapshot, Status, possible_time};
use crate::units::{ResourceQuantities, Span, Timestamp};
use obstacle_cache::ObstacleCache;

/// What an action has done, whatever came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActionStats {
    /// Attempts to place a job; a job may be tried several times.
    pub job_attempts: u64,
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
    /// The state of every pod.
    pub ledger: Ledger<'s>,
    /// Finds nodes.
    pub finder: Finder,
    /// Times of jobs, as far as known now.
    pub(crate) times: JobTimes,
    /// How victims are searched for.
    pub victim_search: VictimSearch,
    /// Smallest and largest memory of a GPU, which turn memory requests into GPUs.
    pub(crate) device_memory: (i64, i64),
    /// Jobs for which pods were evicted or moved.
    pub(crate) preemptors: Preemptors,
    /// Jobs with pods that waited for a place or behind a gate when the cycle began: no other can have any now.
    pub(crate) waiting: Vec<JobId>,
    /// Leaf queues.
    pub(crate) leaves: Vec<QueueId>,
    /// Obstacles that were counted before.
    obstacle_cache: ObstacleCache,
    /// Domains of topologies.
    pub topologies: Topologies,
    /// Jobs that were evicted so recently that some action leaves them alone.
    pub(crate) recently_evicted: Vec<JobId>,
    /// What was decided, and why jobs wait.
    log: Log,
    /// What the current action has done so far.
    pub(crate) stats: ActionStats,
}

/// How victims are searched for.
#[derive(Default)]
pub struct VictimSearch {
    /// What searches keep between them; `None` until the first one.
    pub(crate) scratch: Option<Scratch>,
    /// Try scenarios that the loss bounds rule out as well, to compare results in tests.
    pub no_loss_bounds: bool,
}

/// Times of jobs, by job.
pub(crate) struct JobTimes {
    /// When each job last started.
    pub(crate) last_start: Vec<Option<Timestamp>>,
    /// When each job last lost a pod.
    pub(crate) last_eviction: Vec<Option<Timestamp>>,
    /// Since when each job lacks its minimum.
    pub(crate) stale_since: Vec<Option<Timestamp>>,
}

/// Jobs for which pods were evicted or moved.
#[derive(Default)]
pub(crate) struct Preemptors {
    /// Those for which pods were evicted: they keep what was made free for them.
    pub(crate) evicted_for: BTreeSet<JobId>,
    /// Pods that consolidation moves, by the job for which it does: if that job loses its place, they are simulated again.
    pub(crate) moves: BTreeMap<JobId, Vec<TaskId>>,
}

/// Domains of topologies, and what was found out about them.
pub struct Topologies {
    /// Domain trees of the snapshot's topologies.
    pub(crate) trees: Vec<Tree>,
    /// What domains can hold.
    pub capacities: DomainCapacityCache,
    /// Scores of nodes for groups and pod sets of the job that is being placed.
    pub(crate) domain_scores: Vec<(Member, Arc<DomainScores>)>,
}

/// By job, without those in the future.
fn times(snapshot: &Snapshot, now: Timestamp, noted: fn(&Job) -> Option<Timestamp>) -> Vec<Option<Timestamp>> {
    snapshot.jobs.iter().map(|job| possible_time(noted(job), now)).collect()
}

/// What was decided, and why jobs wait.
struct Log {
    decisions: Vec<Decision>,
    /// By job.
    reasons: Vec<Vec<Reason>>,
    /// The earliest time at which something may change by itself.
    next_change_at: Option<Timestamp>,
}

impl<'s> Session<'s> {
    /// The cycle before its first action.
    pub fn open(snapshot: &'s Snapshot, policy: &'s Policy, now: Timestamp) -> Self {
        let mut ledger = Ledger::open(snapshot, policy);
        let k_value = policy.proportion.map_or(0, |proportion| proportion.k_value);
        fair_share::divide_tree(&mut ledger.queues, k_value);
        Self {
            snapshot,
            policy,
            now,
            ledger,
            finder: Finder::default(),
            times: JobTimes {
                last_start: times(snapshot, now, |job| job.last_start),
                last_eviction: times(snapshot, now, |job| job.last_eviction),
                stale_since: times(snapshot, now, |job| job.stale_since),
            },
            victim_search: VictimSearch::default(),
            device_memory: snapshot.device_memory_range(),
            preemptors: Preemptors::default(),
            waiting: waiting(snapshot),
            leaves: leaves(snapshot),
            obstacle_cache: ObstacleCache::default(),
            topologies: Topologies {
                trees: snapshot.topologies.iter().map(|topology| Tree::new(topology, snapshot.nodes.len())).collect(),
                capacities: DomainCapacityCache::default(),
                domain_scores: Vec::new(),
            },
            recently_evicted: recently_evicted(snapshot, policy, now),
            log: Log { decisions: Vec::new(), reasons: vec![Vec::new(); snapshot.jobs.len()], next_change_at: None },
            stats: ActionStats::default(),
        }
    }

    /// Notes that something may change at this time without any event.
    pub(crate) fn may_change_at(&mut self, time: Timestamp) {
        let earliest = self.log.next_change_at.map_or(time, |known| known.min(time));
        self.log.next_change_at = Some(earliest);
    }

    /// Notes why a job waits.
    pub fn explain(&mut self, job: JobId, reason: Reason) {
        self.log.reasons[job.index()].push(reason);
    }

    /// Notes why a job waits, once.
    pub fn explain_once(&mut self, job: JobId, reason: Reason) {
        if !self.log.reasons[job.index()].contains(&reason) {
            self.explain(job, reason);
        }
    }

    /// What the pod cost its queue when the cycle began, or would cost in its present state.
    pub fn cost_before(&self, task: TaskId) -> ResourceQuantities {
        let row = self.snapshot.task(task);
        let node = row.node.or_else(|| self.ledger.state(task).placement().map(|placement| placement.node));
        node.map_or(ResourceQuantities::ZERO, |node| self.ledger.cost(task, node))
    }

    /// Makes placements since the mark final.
    pub fn commit(&mut self, mark: Mark) {
        self.commit_evictions(mark, |_, _| unreachable!("placing does not evict"));
    }

    /// Makes everything since the mark final and returns the jobs concerned; `cause` says why a pod is evicted.
    pub fn commit_evictions(&mut self, mark: Mark, cause: impl Fn(&Self, TaskId) -> EvictionCause) -> BTreeSet<JobId> {
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
                    self.log.decisions.push(Decision::Evict { task, cause });
                    self.times.last_eviction[self.snapshot.task(task).job.index()] = Some(self.now);
                }
                _ => {}
            }
            match after {
                TaskState::Allocated(placement)
                    if before != after && self.snapshot.task(task).status == Status::Pending =>
                {
                    self.log.decisions.push(Decision::Bind { task, assignment: self.assignment(placement) });
                }
                TaskState::Pipelined(placement) | TaskState::Moving { to: placement, .. } if before != after => {
                    self.log.decisions.push(Decision::Pipeline { task, assignment: self.assignment(placement) });
                }
                _ => {}
            }
        }
        self.ledger.commit(mark);
        if let Some(mut scratch) = self.victim_search.scratch.take() {
            for job in &jobs {
                scratch.index.update(&self.ledger, self.policy, *job);
            }
            self.victim_search.scratch = Some(scratch);
        }
        jobs
    }

    /// The pod is evicted for another reason than was decided before.
    pub(crate) fn evicted_for(&mut self, task: TaskId, new: EvictionCause) {
        let evicted = self.log.decisions.iter_mut().rev().find_map(|decision| match decision {
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
}

/// Jobs with pods that wait for a place or behind a gate, by name.
fn waiting(snapshot: &Snapshot) -> Vec<JobId> {
    let waits = snapshot.tasks.iter().filter(|task| matches!(task.status, Status::Pending | Status::Gated));
    let mut jobs: Vec<JobId> = waits.map(|task| task.job).collect();
    // Pods of a job are neighbours.
    jobs.dedup();
    jobs
}

/// Jobs within the longest cooldown after an eviction, by name.
fn recently_evicted(snapshot: &Snapshot, policy: &Policy, now: Timestamp) -> Vec<JobId> {
    let longest = policy.disruption.eviction_cooldown.max(policy.disruption.move_cooldown);
    let recently = |last: Timestamp| (Span(0)..longest).contains(&now.since(last));
    snapshot.job_ids().filter(|job| snapshot.job(*job).last_eviction.is_some_and(recently)).collect()
}

/// Queues without children, by name.
fn leaves(snapshot: &Snapshot) -> Vec<QueueId> {
    let parents: BTreeSet<_> = snapshot.queues.iter().filter_map(|queue| queue.parent).collect();
    (0..snapshot.queues.len()).map(QueueId::at).filter(|queue| !parents.contains(queue)).collect()
}
