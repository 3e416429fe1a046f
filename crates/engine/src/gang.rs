//! Which pods of a job to place next, and which it could lose: rules of its sub-group tree.
//!
//! A pod set is satisfied at its minimum, a group when enough of its direct members are. A job that is not satisfied
//! asks for everything that is missing, as one unit; a satisfied one grows step by step and can lose its surplus
//! the same way.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{GroupId, JobId, PodSetId, TaskId};
use crate::ledger::{Ledger, PodSetCounts, TaskState};
use crate::snapshot::{Group, Member, Status};

/// How complete a job is; earlier ones are served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GangStatus {
    /// Lacks its minimum.
    BelowMin,
    /// Has exactly its minimum.
    AtMin,
    /// Has more than its minimum.
    AboveMin,
}

/// Pods of a job that are evicted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionChunk {
    /// The pods.
    pub tasks: Vec<TaskId>,
    /// Whether the job falls below its minimum without them.
    pub is_core: bool,
    /// Whether other pods of the job go on running.
    pub leaves_some: bool,
}

/// A job seen through the ledger, possibly without some of its pods or with lowered minima.
#[derive(Clone, Copy)]
pub struct Gang<'a> {
    ledger: &'a Ledger<'a>,
    job: JobId,
    without: Option<&'a BTreeSet<TaskId>>,
    only: Option<&'a BTreeMap<PodSetId, u32>>,
}

impl<'a> Gang<'a> {
    /// The job in its present state.
    pub fn new(ledger: &'a Ledger<'a>, job: JobId) -> Self {
        Self { ledger, job, without: None, only: None }
    }

    /// The job as if these pods were gone.
    #[must_use]
    pub fn without(mut self, tasks: &'a BTreeSet<TaskId>) -> Self {
        self.without = Some(tasks);
        self
    }

    /// The job as if it consisted of its running pods and this many more in each pod set; minima are lowered to what
    /// that can satisfy.
    #[must_use]
    pub fn only(mut self, pending: &'a BTreeMap<PodSetId, u32>) -> Self {
        self.only = Some(pending);
        self
    }

    fn counts(&self, pod_set: PodSetId) -> PodSetCounts {
        self.ledger.counts(pod_set)
    }

    /// The leaf of a job that is nothing else, as most are: its rules need no walk through a tree. A job seen
    /// without some of its pods takes the long way, which is also how tests compare the two.
    fn sole_leaf(&self) -> Option<PodSetId> {
        let row = self.ledger.snapshot.job(self.job);
        let alone = row.pod_sets.len() == 1 && row.groups.len() == 1 && self.without.is_none() && self.only.is_none();
        let min_members = self.ledger.snapshot.groups[row.groups.start as usize].min_members;
        (alone && matches!(min_members, None | Some(1))).then_some(PodSetId(row.pod_sets.start))
    }

    /// Pods that run or will.
    fn active(&self, pod_set: PodSetId) -> u32 {
        let all = self.counts(pod_set).active();
        let Some(without) = self.without else { return all };
        let range = self.ledger.snapshot.pod_sets[pod_set.index()].tasks;
        let gone = without.range(TaskId(range.start)..TaskId(range.end));
        all - gone.filter(|task| self.ledger.state(**task).is_active()).count() as u32
    }

    fn min(&self, pod_set: PodSetId) -> u32 {
        let min = self.ledger.snapshot.pod_sets[pod_set.index()].min;
        match self.size(pod_set) {
            Some(size) if size > 0 => min.min(size),
            _ => min,
        }
    }

    /// Number of pods of a lowered job.
    fn size(&self, pod_set: PodSetId) -> Option<u32> {
        self.only.map(|only| self.active(pod_set) + only.get(&pod_set).copied().unwrap_or(0))
    }

    fn group(&self, group: GroupId) -> &'a Group {
        &self.ledger.snapshot.groups[group.index()]
    }

    fn members(&self, group: GroupId) -> &'a [Member] {
        &self.ledger.snapshot.members[self.group(group).members.indices()]
    }

    fn is_empty(&self, member: Member) -> bool {
        match member {
            Member::PodSet(pod_set) => self.size(pod_set) == Some(0),
            Member::Group(group) => self.members(group).iter().all(|member| self.is_empty(*member)),
        }
    }

    fn min_members(&self, group: GroupId) -> u32 {
        match self.group(group).min_members {
            None => self.group(group).members.len() as u32,
            Some(min_members) if self.only.is_some() => {
                min_members.min(self.members(group).iter().filter(|member| !self.is_empty(**member)).count() as u32)
            }
            Some(min_members) => min_members,
        }
    }

    /// How far a member is, and how far it must be.
    fn progress(&self, member: Member, active: &dyn Fn(PodSetId) -> u32) -> (u32, u32) {
        match member {
            Member::PodSet(pod_set) => (active(pod_set), self.min(pod_set)),
            Member::Group(group) => {
                let satisfied = self.members(group).iter().filter(|member| self.is_met(**member, active)).count();
                (satisfied as u32, self.min_members(group))
            }
        }
    }

    fn is_met(&self, member: Member, active: &dyn Fn(PodSetId) -> u32) -> bool {
        let (count, threshold) = self.progress(member, active);
        count >= threshold
    }

    fn satisfied(&self, member: Member) -> bool {
        self.is_met(member, &|pod_set| self.active(pod_set))
    }

    fn root(&self) -> Member {
        Member::Group(self.ledger.snapshot.root(self.job))
    }

    /// Whether the job runs, or will, with all it needs.
    pub fn is_satisfied(&self) -> bool {
        self.satisfied(self.root())
    }

    /// KAI asks this of every pod set, optional ones included.
    fn every_pod_set(&self, test: impl Fn(PodSetId) -> bool) -> bool {
        self.ledger.snapshot.pod_sets_of(self.job).all(test)
    }

    fn by_tree(&self) -> bool {
        self.ledger.repairs.gang_trees
    }

    /// Whether the job has all it needs if pods on their way out still count.
    pub fn is_present(&self) -> bool {
        if let Some(leaf) = self.sole_leaf() {
            return self.counts(leaf).used() >= self.min(leaf);
        }
        if !self.by_tree() {
            return self.every_pod_set(|pod_set| self.counts(pod_set).used() >= self.min(pod_set));
        }
        self.is_met(self.root(), &|pod_set| self.counts(pod_set).used())
    }

    /// Whether enough pods exist that need no gate opened.
    pub fn is_ready(&self) -> bool {
        if let Some(leaf) = self.sole_leaf() {
            let counts = self.counts(leaf);
            return counts.active() + counts.pending >= self.min(leaf);
        }
        self.is_met(self.root(), &|pod_set| {
            let counts = self.counts(pod_set);
            counts.active() + counts.pending
        })
    }

    /// Some pods run and nothing has ended well, but the minimum is not there.
    pub fn is_stale(&self) -> bool {
        let snapshot = self.ledger.snapshot;
        let used: u32 = snapshot.pod_sets_of(self.job).map(|pod_set| self.counts(pod_set).used()).sum();
        used > 0
            && !self.is_present()
            && snapshot.job_tasks(self.job).all(|task| snapshot.task(task).status != Status::Succeeded)
    }

    /// Whether the job can run with less than all its pods.
    pub fn is_elastic(&self) -> bool {
        let snapshot = self.ledger.snapshot;
        let alive = |pod_set: PodSetId| {
            let counts = self.counts(pod_set);
            let gated = snapshot.tasks_of(pod_set).filter(|task| snapshot.task(*task).status == Status::Gated).count();
            counts.active() + counts.pending + gated as u32
        };
        if !self.by_tree() {
            let size = |pod_set: PodSetId| snapshot.pod_sets[pod_set.index()].tasks.len() as u32;
            return !self.every_pod_set(|pod_set| self.min(pod_set) >= size(pod_set));
        }
        let surplus_pods = snapshot.pod_sets_of(self.job).any(|pod_set| self.min(pod_set) < alive(pod_set));
        let populated = |member: &Member| match member {
            Member::PodSet(pod_set) => alive(*pod_set) > 0,
            Member::Group(group) => self.any_leaf(*group, &|pod_set| alive(pod_set) > 0),
        };
        surplus_pods
            || snapshot.jobs[self.job.index()].groups.indices().map(GroupId::at).any(|group| {
                self.members(group).iter().filter(|member| populated(member)).count() as u32 > self.min_members(group)
            })
    }

    fn any_leaf(&self, group: GroupId, test: &dyn Fn(PodSetId) -> bool) -> bool {
        self.members(group).iter().any(|member| match member {
            Member::PodSet(pod_set) => test(*pod_set),
            Member::Group(group) => self.any_leaf(*group, test),
        })
    }

    /// How complete the job is.
    pub fn state(&self) -> GangStatus {
        if let Some(leaf) = self.sole_leaf() {
            return match self.active(leaf).cmp(&self.min(leaf)) {
                Ordering::Less => GangStatus::BelowMin,
                Ordering::Equal => GangStatus::AtMin,
                Ordering::Greater => GangStatus::AboveMin,
            };
        }
        if !self.by_tree() {
            let at_least = |pod_set| self.active(pod_set) >= self.min(pod_set);
            let at_most = |pod_set| self.active(pod_set) <= self.min(pod_set);
            return match (self.every_pod_set(at_least), self.every_pod_set(at_most)) {
                (false, _) => GangStatus::BelowMin,
                (true, true) => GangStatus::AtMin,
                (true, false) => GangStatus::AboveMin,
            };
        }
        if !self.is_satisfied() {
            GangStatus::BelowMin
        } else if self.surplus(self.ledger.snapshot.root(self.job)).is_empty() {
            GangStatus::AtMin
        } else {
            GangStatus::AboveMin
        }
    }

    /// Whether binding must wait because part of what must start together is only pipelined.
    pub fn must_wait(&self, chunk: &[TaskId]) -> bool {
        let snapshot = self.ledger.snapshot;
        let held = |pod_set: PodSetId| self.counts(pod_set).allocated;
        if !self.by_tree() {
            return !self.every_pod_set(|set| self.counts(set).pipelined == 0 || held(set) >= self.min(set));
        }
        let pipelined = snapshot.pod_sets_of(self.job).any(|pod_set| self.counts(pod_set).pipelined > 0);
        if !pipelined {
            return false;
        }
        let placed: BTreeSet<PodSetId> = chunk.iter().map(|task| snapshot.task(*task).pod_set).collect();
        let groups = snapshot.job(self.job).groups.indices().map(GroupId::at);
        let mut concerned = groups.into_iter().filter(|group| self.any_leaf(*group, &|leaf| placed.contains(&leaf)));
        concerned.any(|group| !self.is_met(Member::Group(group), &held))
            || placed.iter().any(|set| self.counts(*set).pipelined > 0 && held(*set) < self.min(*set))
    }

    /// Members in the order in which they are served: those that lack something first.
    pub fn ordered_members(&self, group: GroupId) -> Vec<Member> {
        let mut members: Vec<_> = self
            .members(group)
            .iter()
            .map(|member| (*member, self.progress(*member, &|pod_set| self.active(pod_set))))
            .collect();
        members.sort_by(|(_, left), (_, right)| by_progress(*left, *right));
        members.into_iter().map(|(member, _)| member).collect()
    }

    /// The pods to place next, together; empty if there is nothing to do or the minimum cannot be completed.
    pub fn chunk(&self, what_if: bool) -> Vec<TaskId> {
        if let Some(leaf) = self.sole_leaf() {
            let lacks = self.min(leaf).saturating_sub(self.active(leaf)) as usize;
            let tasks = self.ledger.snapshot.tasks_of(leaf).filter(|task| self.placeable(*task, what_if));
            let chunk: Vec<_> = tasks.take(lacks.max(1)).collect();
            return if self.by_tree() && chunk.len() < lacks { Vec::new() } else { chunk };
        }
        self.contribution(self.ledger.snapshot.root(self.job), what_if).unwrap_or_default()
    }

    /// `None`: something required cannot be completed with the pods there are.
    fn contribution(&self, group: GroupId, what_if: bool) -> Option<Vec<TaskId>> {
        let members = self.ordered_members(group);
        let satisfied = members.iter().filter(|member| self.satisfied(**member)).count() as u32;
        let min_members = self.min_members(group);
        if !self.by_tree() {
            return self.contribution_by_order(&members, satisfied < min_members, min_members, what_if);
        }
        if satisfied < min_members {
            let mut chunk = Vec::new();
            let missing: Vec<_> = members
                .into_iter()
                .filter(|member| !self.satisfied(*member) && self.can_start(*member, what_if))
                .collect();
            if missing.len() < (min_members - satisfied) as usize {
                return None;
            }
            for member in missing.into_iter().take((min_members - satisfied) as usize) {
                chunk.extend(self.step(member, what_if)?);
            }
            return Some(chunk);
        }
        for member in members {
            if self.satisfied(member) || self.can_start(member, what_if) {
                let chunk = self.step(member, what_if)?;
                if !chunk.is_empty() {
                    return Some(chunk);
                }
            }
        }
        Some(Vec::new())
    }

    /// KAI takes the first members by order, whether or not they have pods.
    fn contribution_by_order(
        &self,
        members: &[Member],
        lacks: bool,
        min_members: u32,
        what_if: bool,
    ) -> Option<Vec<TaskId>> {
        let mut chunk = Vec::new();
        for member in members.iter().take(if lacks { min_members as usize } else { members.len() }) {
            if !lacks || !self.satisfied(*member) {
                chunk.extend(self.step(*member, what_if)?);
            }
            if !lacks && !chunk.is_empty() {
                break;
            }
        }
        Some(chunk)
    }

    fn step(&self, member: Member, what_if: bool) -> Option<Vec<TaskId>> {
        match member {
            Member::Group(group) => self.contribution(group, what_if),
            Member::PodSet(pod_set) => {
                let missing = self.min(pod_set).saturating_sub(self.active(pod_set)).max(1);
                let placeable = self.ledger.snapshot.tasks_of(pod_set).filter(|task| self.placeable(*task, what_if));
                Some(placeable.take(missing as usize).collect())
            }
        }
    }

    fn placeable(&self, task: TaskId, what_if: bool) -> bool {
        self.ledger.is_placeable(task, what_if)
    }

    /// Whether enough pods exist to satisfy the member.
    fn can_start(&self, member: Member, what_if: bool) -> bool {
        self.is_met(member, &|pod_set| {
            let missing = self.min(pod_set).saturating_sub(self.active(pod_set)) as usize;
            let tasks = self.ledger.snapshot.tasks_of(pod_set);
            self.active(pod_set) + tasks.filter(|task| self.placeable(*task, what_if)).take(missing).count() as u32
        })
    }

    /// The pods to evict next, together: surplus first, then all the rest at once.
    pub fn eviction_chunk(&self) -> EvictionChunk {
        let active: u32 = self.ledger.snapshot.pod_sets_of(self.job).map(|pod_set| self.active(pod_set)).sum();
        let root = self.ledger.snapshot.root(self.job);
        let surplus = self.surplus(root);
        let is_core = surplus.is_empty();
        let tasks = if is_core { self.active_tasks(Member::Group(root)) } else { surplus };
        let leaves_some = (tasks.len() as u32) < active;
        EvictionChunk { tasks, is_core, leaves_some }
    }

    /// What the group can lose without falling below its minimum: a single pod, or an optional member as a whole.
    fn surplus(&self, group: GroupId) -> Vec<TaskId> {
        let mut members = self.ordered_members(group);
        members.reverse();
        let satisfied = members.iter().filter(|member| self.satisfied(**member)).count() as u32;
        if satisfied == 0 {
            return Vec::new();
        }
        for member in &members {
            match member {
                Member::PodSet(pod_set) if self.active(*pod_set) > self.min(*pod_set) => {
                    return self.active_tasks(*member).into_iter().take(1).collect();
                }
                Member::PodSet(_) => {}
                Member::Group(group) => {
                    let below = self.surplus(*group);
                    if !below.is_empty() {
                        return below;
                    }
                }
            }
        }
        if satisfied > self.min_members(group) {
            return members
                .into_iter()
                .map(|member| self.active_tasks(member))
                .find(|tasks| !tasks.is_empty())
                .unwrap_or_default();
        }
        Vec::new()
    }

    /// Pods that run or will, last in task order first.
    fn active_tasks(&self, member: Member) -> Vec<TaskId> {
        match member {
            Member::Group(group) => self.members(group).iter().flat_map(|member| self.active_tasks(*member)).collect(),
            Member::PodSet(pod_set) => self
                .ledger
                .snapshot
                .tasks_of(pod_set)
                .rev()
                .filter(|task| self.ledger.state(*task).is_active())
                .filter(|task| self.without.is_none_or(|without| !without.contains(task)))
                .collect(),
        }
    }
}

/// Unsatisfied before satisfied; among satisfied ones the least filled first. Names decide ties.
fn by_progress(left: (u32, u32), right: (u32, u32)) -> Ordering {
    let met = |(count, threshold): (u32, u32)| count >= threshold;
    met(left).cmp(&met(right)).then_with(|| {
        if !met(left) {
            return Ordering::Equal;
        }
        Reverse(left.1 > 0).cmp(&Reverse(right.1 > 0)).then_with(|| {
            if left.1 == 0 {
                left.0.cmp(&right.0)
            } else {
                (u64::from(left.0) * u64::from(right.1)).cmp(&(u64::from(right.0) * u64::from(left.1)))
            }
        })
    })
}

/// Whether any pod of the job waits for a place and may be scheduled.
pub fn has_pending(ledger: &Ledger<'_>, job: JobId) -> bool {
    ledger.snapshot.pod_sets_of(job).any(|pod_set| ledger.counts(pod_set).pending > 0)
}

/// Whether any pod of the job runs or will.
pub fn has_active(ledger: &Ledger<'_>, job: JobId) -> bool {
    ledger.snapshot.pod_sets_of(job).any(|pod_set| ledger.counts(pod_set).active() > 0)
}

/// Whether a pod of the job holds a place, even if it is to move.
pub fn holds(ledger: &Ledger<'_>, job: JobId) -> bool {
    let holds = |task: TaskId| matches!(ledger.state(task), TaskState::Allocated(_) | TaskState::Moving { .. });
    ledger.snapshot.job_tasks(job).any(holds)
}
