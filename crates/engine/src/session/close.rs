//! The end of a cycle: what was decided and still holds, why jobs wait, and what must be remembered.

use std::collections::{BTreeMap, BTreeSet};

use super::Session;
use crate::gang::{self, Gang};
use crate::ids::{JobId, NodeId, TaskId};
use crate::ledger::TaskState;
use crate::outcome::{
    Assignment, Decision, JobTimestamps, Nomination, Outcome, PodSetShortage, QueueState, Reason, Verdict,
};
use crate::snapshot::Status;

impl Session<'_> {
    /// The result. Decisions that a later action revoked are dropped.
    pub fn close(mut self) -> Outcome {
        let decisions = std::mem::take(&mut self.log.decisions);
        let placed: BTreeSet<JobId> =
            decisions.iter().map(|decision| self.snapshot.task(decision.task()).job).collect();
        let decisions = self.not_revoked(decisions);
        let verdicts = self.waiting.clone().into_iter().filter_map(|job| self.verdict(job, &placed)).collect();
        let evicted = decisions.iter().filter_map(|decision| match decision {
            // Only evictions in favour of others restart a job's preemption delay.
            Decision::Evict { task, cause } if cause.preemptor.is_some() => Some(self.snapshot.task(*task).job),
            _ => None,
        });
        let evicted: BTreeSet<JobId> = evicted.collect();
        let job_timestamps = self.snapshot.job_ids().filter_map(|job| self.note(job, evicted.contains(&job))).collect();
        let queue_states = self.ledger.queues.rows.iter().map(|row| QueueState {
            fair_share: row.fair_share,
            allocated: row.allocated,
            allocated_non_preemptible: row.allocated_non_preemptible,
            request: row.request,
        });
        Outcome {
            decisions,
            verdicts,
            queue_states: queue_states.collect(),
            job_timestamps,
            nominations: self.nominations(),
            next_change_at: self.log.next_change_at,
        }
    }

    /// Nominations of pending pods for which victims were evicted or moved, where they changed.
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

    /// Whether pods were moved or evicted for the job.
    fn is_preemptor(&self, job: JobId) -> bool {
        self.preemptors.evicted_for.contains(&job) || self.preemptors.moves.contains_key(&job)
    }

    fn not_revoked(&self, decisions: Vec<Decision>) -> Vec<Decision> {
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
            // Gated pods wait until their gate is removed.
            Some(_) if !gang::has_pending(&self.ledger, job) => Vec::new(),
            Some(_) if self.log.reasons[job.index()].is_empty() => {
                // It runs with what it needs; an optional sub-group may lack pods.
                let short = self.shortages(job);
                vec![match (short.is_empty(), placed.contains(&job)) {
                    (false, _) => Reason::NotReady { short },
                    (true, true) => Reason::PlacementRevoked,
                    (true, false) => Reason::NotReached,
                }]
            }
            Some(_) => std::mem::take(&mut self.log.reasons[job.index()]),
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

    fn note(&self, job: JobId, evicted: bool) -> Option<JobTimestamps> {
        let row = self.snapshot.job(job);
        let index = job.index();
        if !evicted
            && (self.times.last_start[index], self.times.stale_since[index]) == (row.last_start, row.stale_since)
        {
            return None;
        }
        // A job whose placement was revoked in the same cycle never started.
        let started = gang::holds(&self.ledger, job);
        let note = JobTimestamps {
            job,
            last_start: if started { self.times.last_start[index] } else { row.last_start },
            stale_since: self.times.stale_since[index],
            last_eviction: if evicted { Some(self.now) } else { row.last_eviction },
        };
        let changed = note.last_start != row.last_start
            || note.stale_since != row.stale_since
            || note.last_eviction != row.last_eviction;
        changed.then_some(note)
    }
}
