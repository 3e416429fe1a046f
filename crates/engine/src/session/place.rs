//! Gives a job's next pods their places, all or none.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Session;
use crate::gang::Gang;
use crate::ids::{GroupId, JobId, NodeId, NodeSet, PodSetId, TaskId};
use crate::ledger::{Placement, TaskState, When};
use crate::nodes::filter::PodFilters;
use crate::nodes::numa::{self, Zones};
use crate::nodes::score::DomainScores;
use crate::nodes::topology::{self, DomainChoice};
use crate::nodes::{claims, resources};
use crate::outcome::Reason;
use crate::queues::capacity;
use crate::queues::job_info::requested;
use crate::snapshot::{Extras, Member};

/// Pods to place, by pod set.
type Chunk = BTreeMap<PodSetId, Vec<TaskId>>;

/// What an attempt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Places are taken, and failures explained.
    Real,
    /// Places are taken; a failure is not final, so it is not explained.
    Quiet,
    /// Pods are only pipelined, evicted pods may come back, and nothing is explained.
    WhatIf,
}

/// What is known of a job before any of its pods is placed.
#[derive(Clone, Debug)]
pub(crate) enum Precheck {
    /// It has no pods to place.
    NothingToPlace,
    /// It cannot be placed.
    Refused(Reason),
    /// It may find a place.
    MayFit,
}

impl Session<'_> {
    /// Places the job's next pods on these nodes; on failure nothing has changed.
    pub fn place_job(&mut self, job: JobId, nodes: NodeSet<'_>, attempt: Attempt) -> Option<Vec<TaskId>> {
        let chunk = Gang::new(&self.ledger, job).chunk(attempt == Attempt::WhatIf);
        self.place_chunk(job, &chunk, nodes, attempt).then_some(chunk)
    }

    /// Places these pods of the job; on failure nothing has changed.
    pub fn place_chunk(&mut self, job: JobId, tasks: &[TaskId], nodes: NodeSet<'_>, attempt: Attempt) -> bool {
        if tasks.is_empty() {
            return false;
        }
        if let Some(exceeded) = self.over_capacity(job, tasks) {
            if attempt == Attempt::Real {
                self.explain(job, exceeded.into());
            }
            return false;
        }
        self.topologies.domain_scores.clear();
        if self.is_free_leaf(job) {
            let mark = self.ledger.mark();
            let placed = self.place_tasks(job, tasks, nodes, None, attempt);
            if !placed {
                self.ledger.rollback(mark);
            }
            return placed;
        }
        let mut chunk = Chunk::new();
        for task in tasks {
            chunk.entry(self.snapshot.task(*task).pod_set).or_default().push(*task);
        }
        self.place_group(job, self.snapshot.root(job), &chunk, nodes, attempt)
    }

    /// Whether the job is one pod set that may be spread over all nodes: nothing to be divided or put in order.
    fn is_free_leaf(&self, job: JobId) -> bool {
        let row = self.snapshot.job(job);
        let (groups, pod_sets) =
            (&self.snapshot.groups[row.groups.indices()], &self.snapshot.pod_sets[row.pod_sets.indices()]);
        match (groups, pod_sets) {
            ([root], [leaf]) => !self.policy.topology || root.constraint.or(leaf.constraint).is_none(),
            _ => false,
        }
    }

    /// Whether the job's next pods are refused as things stand, as far as that is known without placing any.
    /// [`Self::place_job`] would give the same reason.
    pub(crate) fn precheck(&mut self, job: JobId) -> Precheck {
        let chunk = Gang::new(&self.ledger, job).chunk(false);
        let Some(first) = chunk.first().copied() else { return Precheck::NothingToPlace };
        if let Some(exceeded) = self.over_capacity(job, &chunk) {
            return Precheck::Refused(exceeded.into());
        }
        if !self.is_free_leaf(job) || self.finder.best(&self.ledger, self.policy, first, NodeSet::All, None).is_some() {
            return Precheck::MayFit;
        }
        let nodes = self.obstacles(first, NodeSet::All);
        Precheck::Refused(Reason::NoRoom { task: first, placed: 0, wanted: chunk.len() as u32, nodes })
    }

    /// The queue bound that the pods together would break.
    pub fn over_capacity(&self, job: JobId, tasks: &[TaskId]) -> Option<capacity::Exceeded> {
        self.policy.proportion?;
        let row = self.snapshot.job(job);
        // The least that memory requests can cost; the node decides what they really do.
        let reference = self.device_memory.1;
        capacity::check(&self.ledger.queues, row.queue?, row.preemptible, requested(&self.ledger, tasks, reference))
    }

    /// Tries the group's members on each node set that its constraint allows.
    fn place_group(&mut self, job: JobId, group: GroupId, chunk: &Chunk, nodes: NodeSet<'_>, attempt: Attempt) -> bool {
        if self.pod_sets_below(group).iter().all(|pod_set| !chunk.contains_key(pod_set)) {
            return true;
        }
        let constraint = self.snapshot.groups[group.index()].constraint;
        self.on_each_set(job, Member::Group(group), constraint, chunk, nodes, attempt, |session, nodes| {
            Gang::new(&session.ledger, job).ordered_members(group).into_iter().all(|member| match member {
                Member::Group(group) => session.place_group(job, group, chunk, nodes, attempt),
                Member::PodSet(pod_set) => session.place_pod_set(job, pod_set, chunk, nodes, attempt),
            })
        })
    }

    /// Runs `place` on each allowed node set until it succeeds; undoes what failed.
    #[expect(clippy::too_many_arguments, reason = "one attempt, spelled out")]
    fn on_each_set(
        &mut self,
        job: JobId,
        member: Member,
        constraint: Option<u32>,
        chunk: &Chunk,
        nodes: NodeSet<'_>,
        attempt: Attempt,
        place: impl Fn(&mut Self, NodeSet<'_>) -> bool,
    ) -> bool {
        let Some(constraint) = constraint.filter(|_| self.policy.topology) else {
            return self.or_undone(|session| place(session, nodes));
        };
        let Some(choice) = self.node_sets(job, member, constraint, chunk, nodes, attempt) else { return false };
        let topology = self.snapshot.constraints[constraint as usize].topology.expect("chosen from").index();
        let placed = (0..choice.len()).any(|index| {
            let set = choice.set(&self.topologies.trees[topology], index);
            self.or_undone(|session| place(session, NodeSet::Only(&set)))
        });
        // Only pods below the member ask for these scores, and there may be thousands of members.
        self.topologies.domain_scores.retain(|(known, _)| *known != member);
        placed
    }

    /// Undoes what failed.
    fn or_undone(&mut self, place: impl FnOnce(&mut Self) -> bool) -> bool {
        let mark = self.ledger.mark();
        let placed = place(self);
        if !placed {
            self.ledger.rollback(mark);
        }
        placed
    }

    /// The node sets that a constraint allows; `None`, explained, if there are none.
    fn node_sets(
        &mut self,
        job: JobId,
        member: Member,
        constraint: u32,
        chunk: &Chunk,
        nodes: NodeSet<'_>,
        attempt: Attempt,
    ) -> Option<DomainChoice> {
        let pod_sets = match member {
            Member::Group(group) => self.pod_sets_below(group),
            Member::PodSet(pod_set) => vec![pod_set],
        };
        let concerned: Vec<_> = pod_sets.into_iter().filter(|pod_set| chunk.contains_key(pod_set)).collect();
        let tasks: Vec<_> = concerned.iter().flat_map(|pod_set| chunk[pod_set].iter().copied()).collect();
        let running: Vec<NodeId> = concerned
            .iter()
            .flat_map(|pod_set| self.snapshot.tasks_of(*pod_set))
            .map(|task| self.ledger.state(task))
            .filter(|state| state.is_active())
            .filter_map(|state| state.placement().map(|placement| placement.node))
            .collect();
        let row = &self.snapshot.constraints[constraint as usize];
        let wanted = tasks.len() as u32;
        match topology::choose(
            &self.ledger,
            &self.topologies.trees,
            &mut self.topologies.capacities,
            row,
            &tasks,
            nodes,
            &running,
        ) {
            Ok(mut choice) => {
                if let Some(scores) = choice.scores.take() {
                    self.topologies.domain_scores.retain(|(known, _)| *known != member);
                    self.topologies.domain_scores.push((member, Arc::new(scores)));
                }
                Some(choice)
            }
            Err(refusal) => {
                if attempt == Attempt::Real {
                    self.explain(
                        job,
                        match refusal {
                            topology::DomainRefusal::Unknown => Reason::UnknownTopology { constraint },
                            topology::DomainRefusal::TooSmall(domains) => {
                                Reason::NoDomain { constraint, wanted, domains }
                            }
                        },
                    );
                }
                None
            }
        }
    }

    fn pod_sets_below(&self, group: GroupId) -> Vec<PodSetId> {
        let members = &self.snapshot.members[self.snapshot.groups[group.index()].members.indices()];
        let below = members.iter().map(|member| match member {
            Member::Group(group) => self.pod_sets_below(*group),
            Member::PodSet(pod_set) => vec![*pod_set],
        });
        below.flatten().collect()
    }

    /// Score of nodes for pods of a pod set: its own, or that of the nearest group above.
    fn domain_scores_for(&self, job: JobId, pod_set: PodSetId) -> Option<Arc<DomainScores>> {
        if self.topologies.domain_scores.is_empty() {
            return None;
        }
        let mut member = Member::PodSet(pod_set);
        loop {
            if let Some((_, scores)) = self.topologies.domain_scores.iter().find(|(known, _)| *known == member) {
                return Some(Arc::clone(scores));
            }
            let groups = self.snapshot.job(job).groups.indices().map(GroupId::at);
            let holds = |group: &GroupId| {
                self.snapshot.members[self.snapshot.groups[group.index()].members.indices()].contains(&member)
            };
            member = Member::Group(groups.into_iter().find(holds)?);
        }
    }

    fn place_pod_set(
        &mut self,
        job: JobId,
        pod_set: PodSetId,
        chunk: &Chunk,
        nodes: NodeSet<'_>,
        attempt: Attempt,
    ) -> bool {
        let Some(tasks) = chunk.get(&pod_set) else { return true };
        let constraint = self.snapshot.pod_sets[pod_set.index()].constraint;
        self.on_each_set(job, Member::PodSet(pod_set), constraint, chunk, nodes, attempt, |session, nodes| {
            let scores = session.domain_scores_for(job, pod_set);
            session.place_tasks(job, tasks, nodes, scores.as_deref(), attempt)
        })
    }

    fn place_tasks(
        &mut self,
        job: JobId,
        tasks: &[TaskId],
        nodes: NodeSet<'_>,
        scores: Option<&DomainScores>,
        attempt: Attempt,
    ) -> bool {
        for (index, task) in tasks.iter().enumerate() {
            if self.place_task(*task, nodes, scores, attempt) {
                continue;
            }
            if attempt == Attempt::Real {
                let obstacles = self.obstacles(*task, nodes);
                let (placed, wanted) = (index as u32, tasks.len() as u32);
                self.explain_once(job, Reason::NoRoom { task: *task, placed, wanted, nodes: obstacles });
            }
            return false;
        }
        true
    }

    fn place_task(
        &mut self,
        task: TaskId,
        nodes: NodeSet<'_>,
        scores: Option<&DomainScores>,
        attempt: Attempt,
    ) -> bool {
        let Some(node) = self.finder.best(&self.ledger, self.policy, task, nodes, scores) else { return false };
        let others_allow_now = PodFilters::new(&self.ledger, self.policy, task).accept_pod(node) == Some(When::Now);
        let (placement, now) = self.placement_on(task, node, attempt);
        let now = now && others_allow_now;
        let state = match self.ledger.state(task) {
            // Back to where it was: it never left.
            TaskState::Releasing(from) if from.node == node && self.same_devices(from, placement) => {
                self.back_to(task, from)
            }
            TaskState::Releasing(from) => TaskState::Moving { from, to: placement },
            _ if now && attempt != Attempt::WhatIf => TaskState::Allocated(placement),
            _ => TaskState::Pipelined(placement),
        };
        self.ledger.shift(task, state);
        true
    }

    /// The state of a pod that is not evicted after all.
    fn back_to(&self, task: TaskId, from: Placement) -> TaskState {
        // KAI returns a pod that was moved earlier in the cycle to where it was going.
        let previous = self.ledger.previous(task).filter(|_| !self.policy.repairs.drop_placements);
        previous.filter(|state| state.is_active()).unwrap_or(TaskState::Allocated(from))
    }

    fn same_devices(&self, from: Placement, to: Placement) -> bool {
        self.ledger.devices_of(from) == self.ledger.devices_of(to)
            && self.ledger.extras_of(from) == self.ledger.extras_of(to)
    }

    /// The place on the node and whether it is free right now.
    fn placement_on(&mut self, task: TaskId, node: NodeId, attempt: Attempt) -> (Placement, bool) {
        let shape = self.snapshot.shape(self.snapshot.task(task).shape);
        let (devices, mut now) = if shape.gpu.shared_devices().is_none() {
            (None, resources::fits(&self.ledger, shape, node, When::Now))
        } else {
            let choice = resources::choose_devices(&self.ledger, shape, node, self.policy.device_order)
                .expect("the finder offers only nodes with enough devices");
            let mut devices = choice.existing;
            for _ in 0..choice.fresh {
                devices.push(self.ledger.open_device(node));
            }
            (Some(self.ledger.list(devices)), choice.now)
        };
        // A what-if only pipelines, and what it evicted counts as free.
        let when = if now && attempt != Attempt::WhatIf { When::Now } else { When::Later };
        let mut extras = Extras::default();
        now &= self.choose_claims(task, node, when, &mut extras);
        now &= self.choose_zones(task, node, when, &mut extras);
        (Placement { node, devices, extras: self.ledger.keep(extras) }, now)
    }

    /// Chooses devices for resource claims; false if they are not free right now.
    fn choose_claims(&self, task: TaskId, node: NodeId, when: When, extras: &mut Extras) -> bool {
        if self.snapshot.task(task).claims.is_none() {
            return true;
        }
        let at_once = if when == When::Now { claims::choose(&self.ledger, task, node, When::Now).ok() } else { None };
        let now = at_once.is_some();
        let choice = at_once
            .or_else(|| claims::choose(&self.ledger, task, node, When::Later).ok())
            .expect("the finder offers only nodes that can serve the claims");
        extras.grants = choice.grants;
        now && choice.now
    }

    /// Chooses NUMA zones; false if they are not free right now.
    fn choose_zones(&self, task: TaskId, node: NodeId, when: When, extras: &mut Extras) -> bool {
        let shape = self.snapshot.shape(self.snapshot.task(task).shape);
        if !self.policy.numa || shape.numa.is_none() {
            return true;
        }
        if let TaskState::Releasing(from) = self.ledger.state(task)
            && from.node == node
        {
            // Where it was is as good as any, and it need not move.
            let own = self.ledger.extras_of(from).map_or(&[][..], |extras| &extras.zones);
            if numa::still_free(&self.ledger, node, own) {
                extras.zones = own.to_vec();
                return true;
            }
        }
        let mut choice = numa::choose(&self.ledger, shape, node, when);
        let mut now = true;
        if choice == Zones::Refused {
            now = false;
            choice = numa::choose(&self.ledger, shape, node, When::Later);
        }
        if let Zones::From(shares) = choice {
            extras.zones = shares;
        }
        now
    }
}
