//! What a cycle's decisions lead to, replayed by plain counting: no ledger, no running sums.

use std::collections::BTreeMap;

use kai_engine::ids::{JobId, NodeId, PodSetId, QueueId, TaskId};
use kai_engine::outcome::{Assignment, Decision, DeviceRef, EvictionCause, Outcome};
use kai_engine::snapshot::{GpuAsk, Member, Snapshot, Status};
use kai_engine::units::{GPU, ResourceQuantities};

use crate::support::World;

/// A cluster, what was decided about it, and what was decided about each pod.
pub(super) struct OutcomeView<'w> {
    pub(super) world: &'w World,
    pub(super) snapshot: &'w Snapshot,
    pub(super) outcome: &'w Outcome,
    evicted: BTreeMap<TaskId, &'w EvictionCause>,
    bound: BTreeMap<TaskId, &'w Assignment>,
    pipelined: BTreeMap<TaskId, &'w Assignment>,
}

/// The result of an invariant: nothing, or how the outcome violates it.
pub(super) type CheckResult = Result<(), String>;

/// Fails with a message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(super) use ensure;

impl<'w> OutcomeView<'w> {
    /// Replays the decisions; there may be one of a kind about each pod.
    pub(super) fn of(world: &'w World, outcome: &'w Outcome) -> Result<Self, String> {
        let mut after = Self {
            world,
            snapshot: &world.snapshot,
            outcome,
            evicted: BTreeMap::new(),
            bound: BTreeMap::new(),
            pipelined: BTreeMap::new(),
        };
        for decision in &outcome.decisions {
            let (task, twice) = match decision {
                Decision::Bind { task, assignment } => (*task, after.bound.insert(*task, assignment).is_some()),
                Decision::Pipeline { task, assignment } => (*task, after.pipelined.insert(*task, assignment).is_some()),
                Decision::Evict { task, cause } => (*task, after.evicted.insert(*task, cause).is_some()),
            };
            ensure!(!twice, "{} has two decisions of a kind", after.name(task));
        }
        Ok(after)
    }

    pub(super) fn name(&self, task: TaskId) -> &str {
        &self.world.names.pods[task.index()]
    }

    pub(super) fn job_name(&self, job: JobId) -> &str {
        &self.world.names.jobs[job.index()]
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> + use<> {
        (0..self.snapshot.tasks.len()).map(TaskId::at)
    }

    pub(super) fn status(&self, task: TaskId) -> Status {
        self.snapshot.task(task).status
    }

    /// Evicted pods, with the cause.
    pub(super) fn evictions(&self) -> impl Iterator<Item = (TaskId, &'w EvictionCause)> {
        self.evicted.iter().map(|(task, cause)| (*task, *cause))
    }

    pub(super) fn bound(&self, task: TaskId) -> Option<&'w Assignment> {
        self.bound.get(&task).copied()
    }

    pub(super) fn pipelined(&self, task: TaskId) -> Option<&'w Assignment> {
        self.pipelined.get(&task).copied()
    }

    /// The place the pod gets, now or later.
    pub(super) fn placed(&self, task: TaskId) -> Option<&'w Assignment> {
        self.bound(task).or(self.pipelined(task))
    }

    pub(super) fn is_evicted(&self, task: TaskId) -> bool {
        self.evicted.contains_key(&task)
    }

    /// Ran, or was about to, when the cycle began.
    pub(super) fn ran(&self, task: TaskId) -> bool {
        matches!(self.status(task), Status::Running | Status::Bound | Status::Binding)
    }

    /// Stays where it is, or is bound: no other pod has to end first.
    pub(super) fn runs_now(&self, task: TaskId) -> bool {
        self.ran(task) && !self.is_evicted(task) || self.bound(task).is_some()
    }

    /// Runs once everything that was decided has happened.
    pub(super) fn runs_later(&self, task: TaskId) -> bool {
        self.runs_now(task) || self.pipelined(task).is_some()
    }

    /// Where it is when the cycle begins.
    pub(super) fn place_before(&self, task: TaskId) -> Option<Assignment> {
        let row = self.snapshot.task(task);
        let devices = row.devices.map_or(&[][..], |list| &self.snapshot.device_lists[list as usize]);
        let devices = devices.iter().map(|device| DeviceRef::Existing(*device)).collect();
        row.node.map(|node| Assignment { node, devices, zones: Vec::new(), grants: Vec::new() })
    }

    /// Where it runs once everything that was decided has happened.
    pub(super) fn place_after(&self, task: TaskId) -> Option<Assignment> {
        match self.placed(task) {
            Some(place) => Some(place.clone()),
            None if self.runs_later(task) => self.place_before(task),
            None => None,
        }
    }

    /// What the pod costs its queue on a node.
    pub(super) fn cost(&self, task: TaskId, node: NodeId) -> ResourceQuantities {
        let shape = self.snapshot.shape(self.snapshot.task(task).shape);
        let gpus = match shape.gpu {
            GpuAsk::Memory { devices, mib } => {
                let hundredths = (mib * 100 + self.device_memory(node) - 1) / self.device_memory(node);
                i64::from(devices) * hundredths * (GPU / 100)
            }
            _ => shape.quota_gpu,
        };
        ResourceQuantities::new(shape.need[0], shape.need[1], gpus)
    }

    pub(super) fn device_memory(&self, node: NodeId) -> i64 {
        self.snapshot.nodes.device_memory[node.index()]
    }

    /// What a queue and all below it hold: before, or once everything has happened; all pods, or those that cannot be
    /// preempted.
    pub(super) fn held(&self, queue: QueueId, after: bool, only_fixed: bool) -> ResourceQuantities {
        let mut sum = ResourceQuantities::ZERO;
        for task in self.tasks() {
            let job = self.snapshot.job(self.snapshot.task(task).job);
            let concerned = job.queue.is_some_and(|own| self.path(own).contains(&queue));
            if !concerned || only_fixed && job.preemptible {
                continue;
            }
            let place = if after { self.place_after(task) } else { self.place_before(task).filter(|_| self.ran(task)) };
            if let Some(place) = place {
                sum += self.cost(task, place.node);
            }
        }
        sum
    }

    /// A queue and all above it.
    pub(super) fn path(&self, queue: QueueId) -> Vec<QueueId> {
        let mut path = vec![queue];
        while let Some(parent) = self.snapshot.queues[path[path.len() - 1].index()].parent {
            path.push(parent);
        }
        path
    }

    /// Whether enough pods of the job stand in this way for its whole tree.
    pub(super) fn is_whole(&self, job: JobId, keeps_place: &dyn Fn(TaskId) -> bool) -> bool {
        self.is_met(Member::Group(self.snapshot.root(job)), keeps_place)
    }

    /// Whether enough pods below a member keep a place.
    pub(super) fn is_met(&self, member: Member, keeps_place: &dyn Fn(TaskId) -> bool) -> bool {
        match member {
            Member::PodSet(set) => self.count(set, keeps_place) >= self.snapshot.pod_sets[set.index()].min,
            Member::Group(group) => {
                let members = self.members(member);
                let min = self.snapshot.groups[group.index()].min_members.map_or(members.len(), |min| min as usize);
                members.iter().filter(|member| self.is_met(**member, keeps_place)).count() >= min
            }
        }
    }

    /// Direct members of a group.
    pub(super) fn members(&self, member: Member) -> &'w [Member] {
        match member {
            Member::PodSet(_) => &[],
            Member::Group(group) => &self.snapshot.members[self.snapshot.groups[group.index()].members.indices()],
        }
    }

    pub(super) fn count(&self, set: PodSetId, keeps_place: &dyn Fn(TaskId) -> bool) -> u32 {
        self.snapshot.tasks_of(set).filter(|task| keeps_place(*task)).count() as u32
    }
}
