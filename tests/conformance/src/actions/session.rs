//! One round: build a snapshot, run the engine, read its decisions back into task placements.

use std::collections::BTreeSet;

use kai_engine::ids::{JobId, TaskId};
use kai_engine::outcome::{Assignment, Decision, DeviceRef, Outcome, Reason};
use kai_engine::policy::Repairs;
use kai_engine::units::Timestamp;

use super::case::{Case, Counters, Job, Status};
use super::lower::{Lowered, NOW, lower};
use super::policy::policy;
use super::state::State;
use super::{claims, numa};
use crate::verdict::{Difference, Fault};

/// A cluster before and after the actions of one round.
pub(super) struct Session<'a> {
    case: &'a Case,
    pub(super) lowered: Lowered<'a>,
    pub(super) before: &'a State,
    pub(super) after: State,
    pub(super) outcome: Outcome,
    pub(super) counters: Counters,
    /// Decisions that contradict each other.
    pub(super) contradictions: Vec<Difference>,
}

impl<'a> Session<'a> {
    /// Opens a session and runs no action.
    pub(super) fn open(case: &'a Case, before: &'a State) -> Result<Self, Fault> {
        Ok(Self {
            case,
            lowered: lower(case, before)?,
            before,
            after: before.clone(),
            outcome: Outcome::default(),
            counters: Counters::default(),
            contradictions: Vec::new(),
        })
    }

    /// Opens a session and runs the actions; `round` keeps labels of new devices apart.
    pub(super) fn run(case: &'a Case, before: &'a State, repairs: Repairs, round: u32) -> Result<Self, Fault> {
        let mut session = Self::open(case, before)?;
        session.outcome = kai_engine::cycle(&session.lowered.snapshot, &policy(case, repairs)?, NOW);
        session.apply(round);
        Ok(session)
    }

    fn apply(&mut self, round: u32) {
        let decisions = std::mem::take(&mut self.outcome.decisions);
        let mut placed = BTreeSet::new();
        let mut evicted = BTreeSet::new();
        let mut granted = Vec::new();
        for decision in &decisions {
            let (task, fresh) = match decision {
                Decision::Bind { task, assignment } => {
                    self.counters.binds += 1;
                    self.place(*task, Status::Binding, assignment, round);
                    (task, placed.insert(*task))
                }
                Decision::Pipeline { task, assignment } => {
                    self.counters.pipelines += 1;
                    self.place(*task, Status::Pipelined, assignment, round);
                    (task, placed.insert(*task))
                }
                Decision::Evict { task, .. } => {
                    self.counters.evictions += 1;
                    (task, evicted.insert(*task))
                }
            };
            if let Decision::Bind { assignment, .. } | Decision::Pipeline { assignment, .. } = decision {
                granted.push((assignment.node, &assignment.grants[..]));
            }
            if !fresh {
                let uid = &self.lowered.tasks[task.index()].uid;
                self.contradictions.push(Difference::new(uid.as_str(), "one decision of a kind", "two"));
            }
        }
        // A moved pod is evicted here and pipelined there: only the latter is recorded.
        for task in evicted.difference(&placed) {
            let uid = &self.lowered.tasks[task.index()].uid;
            self.after.placements.get_mut(uid).expect("the state holds every task").status = Status::Releasing;
        }
        if let (Some(objects), Some(claims)) = (&self.lowered.objects, &self.lowered.claims) {
            claims::after(self.case, objects, claims, &self.lowered.nodes, &granted, &mut self.after);
        }
        self.outcome.decisions = decisions;
    }

    fn place(&mut self, task: TaskId, status: Status, place: &Assignment, round: u32) {
        let label = |device: &DeviceRef| match device {
            DeviceRef::Existing(id) => self.lowered.devices[id.index()].to_string(),
            DeviceRef::Fresh(number) => format!("{FRESH}{round}-{number}"),
        };
        let groups = place.devices.iter().map(label).collect();
        let node = self.lowered.nodes[place.node.index()];
        let uid = &self.lowered.tasks[task.index()].uid;
        let placement = self.after.placements.get_mut(uid).expect("the state holds every task");
        placement.status = status;
        placement.node = Some(node.name.clone());
        placement.groups = groups;
        placement.zones = numa::placement(node, &place.zones);
    }

    /// The job with this uid.
    pub(super) fn job(&self, uid: &str) -> Option<(JobId, &'a Job)> {
        let index = self.lowered.jobs.iter().position(|job| job.uid == uid)?;
        Some((JobId::at(index), self.lowered.jobs[index]))
    }

    /// The job of a task, and the task's id.
    pub(super) fn task(&self, uid: &str) -> Option<(JobId, TaskId)> {
        let id = TaskId::at(self.lowered.tasks.iter().position(|task| task.uid == uid)?);
        Some((self.lowered.snapshot.task(id).job, id))
    }

    /// When the job last went from nothing running to something running.
    pub(super) fn last_start(&self, job: JobId) -> Option<Timestamp> {
        let noted = self.outcome.job_timestamps.iter().find(|note| note.job == job).and_then(|note| note.last_start);
        noted.or(self.lowered.snapshot.job(job).last_start)
    }

    /// Why the job waits.
    pub(super) fn reasons(&self, job: JobId) -> &[Reason] {
        self.outcome.verdicts.iter().find(|verdict| verdict.job == job).map_or(&[], |verdict| &verdict.reasons)
    }
}

/// How labels of devices that were opened in a round begin.
pub(super) const FRESH: &str = "opened-";
