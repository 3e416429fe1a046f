//! Gives a job's next pods their places, all or none.

use std::collections::BTreeMap;

use crate::capacity;
use crate::explain;
use crate::finder::{DomainMerit, NodeSet};
use crate::fit::{self, When};
use crate::gang::Gang;
use crate::ids::{GroupId, JobId, NodeId, PodSetId, TaskId};
use crate::ledger::{Spot, Standing};
use crate::order::jobs::requested;
use crate::outcome::Reason;
use crate::session::Session;
use crate::snapshot::Member;

/// Pods to place, by pod set.
type Chunk = BTreeMap<PodSetId, Vec<TaskId>>;

/// What an attempt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Places are taken, and failures explained.
    Real,
    /// Places are only promised, evicted pods may come back, and nothing is explained.
    WhatIf,
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
        if let Some(reason) = self.over_capacity(job, tasks) {
            if attempt == Attempt::Real {
                self.explain(job, reason);
            }
            return false;
        }
        let mut chunk = Chunk::new();
        for task in tasks {
            chunk.entry(self.snapshot.task(*task).pod_set).or_default().push(*task);
        }
        self.place_group(job, self.snapshot.root(job), &chunk, nodes, attempt)
    }

    /// The queue bound that the pods together would break.
    pub fn over_capacity(&self, job: JobId, tasks: &[TaskId]) -> Option<Reason> {
        self.policy.proportion?;
        let row = self.snapshot.job(job);
        // The least that memory requests can cost; the node decides what they really do.
        let reference = self.snapshot.device_memory_range().map(|(_, largest)| largest);
        capacity::check(&self.ledger.book, row.queue?, row.preemptible, requested(&self.ledger, tasks, reference))
    }

    fn place_group(&mut self, job: JobId, group: GroupId, chunk: &Chunk, nodes: NodeSet<'_>, attempt: Attempt) -> bool {
        let mark = self.ledger.mark();
        for member in Gang::new(&self.ledger, job).ordered_members(group) {
            let placed = match member {
                Member::Group(group) => self.place_group(job, group, chunk, nodes, attempt),
                Member::PodSet(pod_set) => {
                    chunk.get(&pod_set).is_none_or(|tasks| self.place_pod_set(job, tasks, nodes, attempt))
                }
            };
            if !placed {
                self.ledger.rollback(mark);
                return false;
            }
        }
        true
    }

    fn place_pod_set(&mut self, job: JobId, tasks: &[TaskId], nodes: NodeSet<'_>, attempt: Attempt) -> bool {
        let mark = self.ledger.mark();
        for (index, task) in tasks.iter().enumerate() {
            if self.place_task(*task, nodes, None, attempt) {
                continue;
            }
            if attempt == Attempt::Real {
                let tally = explain::tally(&self.ledger, self.policy, *task, nodes);
                let (placed, wanted) = (index as u32, tasks.len() as u32);
                self.explain(job, Reason::NoRoom { task: *task, placed, wanted, nodes: tally });
            }
            self.ledger.rollback(mark);
            return false;
        }
        true
    }

    fn place_task(&mut self, task: TaskId, nodes: NodeSet<'_>, merit: Option<&DomainMerit>, attempt: Attempt) -> bool {
        let Some(node) = self.finder.best(&self.ledger, self.policy, task, nodes, merit) else { return false };
        let (spot, now) = self.spot_on(task, node);
        let standing = match self.ledger.standing(task) {
            // Back to where it was: it never left.
            Standing::Leaving(from) if from.node == node && self.same_devices(from, spot) => Standing::Held(from),
            Standing::Leaving(from) => Standing::Moving { from, to: spot },
            _ if now && attempt == Attempt::Real => Standing::Held(spot),
            _ => Standing::Promised(spot),
        };
        self.ledger.shift(task, standing);
        true
    }

    fn same_devices(&self, from: Spot, to: Spot) -> bool {
        self.ledger.devices_of(from) == self.ledger.devices_of(to)
    }

    /// The place on the node and whether it is free right now.
    fn spot_on(&mut self, task: TaskId, node: NodeId) -> (Spot, bool) {
        let shape = self.snapshot.shape(self.snapshot.task(task).shape);
        if shape.gpu.shared_devices().is_none() {
            return (Spot { node, devices: None }, fit::fits(&self.ledger, shape, node, When::Now));
        }
        let choice = fit::choose_devices(&self.ledger, shape, node, self.policy.device_order)
            .expect("the finder offers only nodes with enough devices");
        let mut devices = choice.existing;
        for _ in 0..choice.fresh {
            devices.push(self.ledger.open_device(node));
        }
        (Spot { node, devices: Some(self.ledger.list(devices)) }, choice.now)
    }
}
