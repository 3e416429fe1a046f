//! Simulates one scenario: evicts the victims, places the job and then its victims, and checks the result.

use std::collections::BTreeSet;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::disruption;
use super::loss_bound::LossBound;
use super::reprieve;
use super::scenario::{Scenario, VictimPool, pods_by_set};
use super::search::{Problem, Search, Solution, Trial};
use super::simulation_order::{PartialJobInfo, fill_job_order};
use super::victims::VictimBatch;
use crate::gang::Gang;
use crate::ids::{JobId, NodeSet, TaskId};
use crate::ledger::{Ledger, TaskState};
use crate::outcome::SearchStop;
use crate::policy::Generator;
use crate::session::Session;
use crate::session::place::Attempt;
use crate::snapshot::Status;

impl Search<'_> {
    /// Evicts the victims, lets the job and then its victims find places, and asks the rules.
    pub(super) fn simulate(
        &mut self,
        session: &mut Session<'_>,
        pending: &[TaskId],
        pool: &VictimPool,
        scenario: &Scenario,
        earlier: &[bool],
        generator: Generator,
    ) -> Result<Option<Solution>, SearchStop> {
        let potential = scenario.iter().map(|index| &pool.potential[*index]);
        let batches: Vec<&Arc<VictimBatch>> = pool.recorded.iter().chain(potential).collect();
        let mut victims: Vec<TaskId> = batches.iter().flat_map(|batch| batch.tasks.iter().copied()).collect();
        let dependent_moves = dependent_moves(&batches, &victims);
        victims.extend(&dependent_moves);
        let key = (pending.len(), fingerprint(&victims));
        if victims.is_empty() || self.failed.contains(&key) {
            return Ok(None);
        }
        self.report.scenarios += 1;
        let earlier = batches.iter().zip(earlier).filter(|(_, earlier)| **earlier);
        let earlier = earlier.flat_map(|(batch, _)| batch.tasks.iter().copied()).collect();
        let starting = self.starting(session, &victims);
        let mark = session.ledger.mark();
        let nodes = self.nodes_with(session, &victims);
        if evict(&mut session.ledger, &victims) {
            let placed = self.attempt(session, pending, &batches, &nodes)?;
            let trial = Trial { pending, batches, earlier, starting };
            if !placed {
                self.report.refused.unplaced += 1;
            } else if !self.allows(session, &trial, &dependent_moves) {
                self.report.refused.by_rules += 1;
            } else if !self.reprieve_and_check_stable(session, &trial, &victims, &dependent_moves, &nodes)? {
                self.report.refused.unstable += 1;
            } else if !self.is_affordable(session, &trial, &victims) {
                self.report.refused.too_costly += 1;
            } else {
                let lost = lost_or_moved(session, &victims);
                self.report.victims = victims.len() as u32;
                let victims = remember(generator, &trial.batches, &lost);
                let is_all = victims.len() == trial.batches.len();
                return Ok(Some(Solution { victims, is_all }));
            }
        }
        session.ledger.rollback(mark);
        self.failed.insert(key);
        Ok(None)
    }

    /// Pods that were placed in this cycle and could be kept from starting by moving others.
    pub(super) fn starting(&self, session: &Session<'_>, victims: &[TaskId]) -> Vec<TaskId> {
        let may_delay = session.policy.repairs.stable_moves && matches!(self.problem.loss_bound, LossBound::MoveOnly);
        let starts = |task: &TaskId| session.snapshot.task(*task).status == Status::Pending && is_held(session, *task);
        victims.iter().copied().filter(|task| may_delay && starts(task)).collect()
    }

    /// Validates a simulated scenario: the action's own rules accept it; dependent moves and victims scheduled earlier
    /// keep a place; pods about to start still start; moves stay within the consolidation cap.
    pub(super) fn allows(&self, session: &Session<'_>, trial: &Trial<'_>, dependent_moves: &[TaskId]) -> bool {
        let moved = dependent_moves.len() - dependent_moves.iter().filter(|task| is_held(session, **task)).count();
        let most = session.policy.consolidation_moves_max.map_or(usize::MAX, |most| most as usize);
        let keeps_place = |task: &TaskId| session.ledger.state(*task).is_active();
        (self.problem.accept)(session, trial)
            && dependent_moves.iter().chain(&trial.earlier).all(keeps_place)
            && trial.starting.iter().all(|task| is_held(session, *task))
            && (moved == 0 || session.snapshot.job(self.problem.job).preemptible && moved <= most)
    }

    /// A part of the job is tried to find victims for the whole, which is then judged.
    fn is_affordable(&self, session: &Session<'_>, trial: &Trial<'_>, victims: &[TaskId]) -> bool {
        let Problem { victim_scope, chunk, .. } = self.problem;
        trial.pending.len() < chunk.len() || disruption::is_affordable(session, victim_scope, chunk, victims)
    }

    /// Reprieves victims, then checks that the result is stable.
    pub(super) fn reprieve_and_check_stable(
        &mut self,
        session: &mut Session<'_>,
        trial: &Trial<'_>,
        victims: &[TaskId],
        dependent_moves: &[TaskId],
        nodes: &FixedBitSet,
    ) -> Result<bool, SearchStop> {
        if trial.pending.len() < self.problem.chunk.len() {
            return Ok(true);
        }
        let mark = session.ledger.mark();
        if session.policy.repairs.reprieve_victims
            && reprieve::reprieve(session, &trial.batches, dependent_moves, nodes)
        {
            if self.allows(session, trial, dependent_moves)
                && self.is_stable(session, trial.pending, &trial.batches, victims)?
            {
                return Ok(true);
            }
            session.ledger.rollback(mark);
        }
        self.is_stable(session, trial.pending, &trial.batches, victims)
    }

    /// Stability: replays the next cycle, with the job and all victims that do not stay pending and what they free
    /// idle. True if the job is placed and no victim that keeps a place now loses it.
    pub(super) fn is_stable(
        &mut self,
        session: &mut Session<'_>,
        pending: &[TaskId],
        batches: &[&Arc<VictimBatch>],
        victims: &[TaskId],
    ) -> Result<bool, SearchStop> {
        if !session.policy.repairs.stable_moves {
            return Ok(true);
        }
        let mark = session.ledger.mark();
        let stays = |session: &Session<'_>, task: TaskId| session.ledger.state(task).is_active();
        let staying: Vec<TaskId> = victims.iter().copied().filter(|task| stays(session, *task)).collect();
        for task in victims.iter().chain(pending) {
            if !matches!(session.ledger.state(*task), TaskState::Allocated(_)) {
                session.ledger.shift(*task, TaskState::Unplaced);
            }
        }
        let mut everywhere = FixedBitSet::with_capacity(session.snapshot.nodes.len());
        everywhere.insert_range(..);
        let placed = self.attempt(session, pending, batches, &everywhere)?;
        let is_stable = placed && staying.iter().all(|task| stays(session, *task));
        session.ledger.rollback(mark);
        Ok(is_stable)
    }

    pub(super) fn nodes_with(&self, session: &Session<'_>, victims: &[TaskId]) -> FixedBitSet {
        let mut nodes = self.feasible.clone();
        for state in victims.iter().map(|task| session.ledger.state(*task)) {
            if let TaskState::Moving { from, .. } = state {
                nodes.insert(from.node.index());
            }
            if let Some(placement) = state.placement() {
                nodes.insert(placement.node.index());
            }
        }
        if let Some(only) = self.problem.nodes {
            nodes.intersect_with(only);
        }
        nodes
    }

    /// Places the job and its victims in the order of their queues and priorities.
    pub(super) fn attempt(
        &mut self,
        session: &mut Session<'_>,
        pending: &[TaskId],
        batches: &[&Arc<VictimBatch>],
        nodes: &FixedBitSet,
    ) -> Result<bool, SearchStop> {
        let job = self.problem.job;
        let status = self.status_with(session, pending);
        let required = self.jobs.info.requested(&session.ledger, pending);
        let mut jobs = PartialJobInfo { job, status, required, facts: self.jobs.info };
        let tasks = batches.iter().flat_map(|batch| batch.all());
        let mut simulated_jobs: BTreeSet<JobId> = tasks.map(|task| session.snapshot.task(task).job).collect();
        simulated_jobs.insert(job);
        self.jobs.tree.clear();
        fill_job_order(self.jobs.tree, session, &mut jobs, &simulated_jobs, self.jobs.index);
        let mut steps = 0;
        let mut placed = false;
        let mut left = simulated_jobs.len();
        while left > 0
            && let Some(next) = self.jobs.tree.pop(&session.ledger, &mut jobs)
        {
            if !simulated_jobs.contains(&next) {
                continue;
            }
            left -= 1;
            if next == job {
                steps += pending.len() as u64;
                let chunk = if session.policy.repairs.gang_trees {
                    pending.to_vec()
                } else {
                    Gang::new(&session.ledger, job).only(&pods_by_set(&session.ledger, pending)).chunk(true)
                };
                placed = session.place_chunk(job, &chunk, NodeSet::Only(nodes), Attempt::WhatIf);
                if !placed {
                    break;
                }
            } else {
                let chunk = session.place_job(next, NodeSet::Only(nodes), Attempt::WhatIf);
                steps += chunk.map_or(1, |chunk| chunk.len() as u64);
            }
        }
        self.step(steps)?;
        Ok(placed)
    }
}

/// Tells sets of pods apart; their order does not matter.
fn fingerprint(tasks: &[TaskId]) -> u128 {
    let mix = |task: &TaskId| {
        let spread = (u128::from(task.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        (spread ^ (spread >> 67)).wrapping_mul(0xc2b2_ae3d_27d4_eb4f_1656_67b1_9e37_79f9)
    };
    tasks.iter().fold(0, |sum, task| sum.wrapping_add(mix(task)))
}

/// Takes the victims' places away; false if one cannot be evicted.
fn evict(ledger: &mut Ledger<'_>, victims: &[TaskId]) -> bool {
    for task in victims {
        let was_placed_before = ledger.snapshot.task(*task).status != Status::Pending;
        let state = match ledger.state(*task) {
            TaskState::Allocated(placement) if was_placed_before => TaskState::Releasing(placement),
            TaskState::Allocated(placement) | TaskState::Pipelined(placement) if !ledger.repairs.drop_placements => {
                TaskState::Releasing(placement)
            }
            // Placed in this cycle: the placement is dropped, no pod is deleted.
            TaskState::Allocated(_) | TaskState::Pipelined(_) => TaskState::Unplaced,
            TaskState::Moving { from, .. } => TaskState::Releasing(from),
            TaskState::Unplaced
            | TaskState::Releasing(_)
            | TaskState::StuckReleasing(_)
            | TaskState::OutsideSnapshot { .. } => return false,
        };
        ledger.shift(*task, state);
    }
    true
}

/// Dependent moves of all batches, without pods that are victims themselves.
fn dependent_moves(batches: &[&Arc<VictimBatch>], victims: &[TaskId]) -> Vec<TaskId> {
    let mut dependent_moves: Vec<TaskId> =
        batches.iter().flat_map(|batch| batch.dependent_moves.iter().copied()).collect();
    dependent_moves.retain(|task| !victims.contains(task));
    dependent_moves.sort_unstable();
    dependent_moves.dedup();
    dependent_moves
}

fn is_held(session: &Session<'_>, task: TaskId) -> bool {
    matches!(session.ledger.state(task), TaskState::Allocated(_))
}

/// Victims that do not stay where they were.
fn lost_or_moved(session: &Session<'_>, victims: &[TaskId]) -> BTreeSet<TaskId> {
    victims.iter().copied().filter(|task| !is_held(session, *task)).collect()
}

/// Victims to start from when more pods are tried.
fn remember(generator: Generator, batches: &[&Arc<VictimBatch>], lost: &BTreeSet<TaskId>) -> Vec<Arc<VictimBatch>> {
    let hit = |batch: &VictimBatch| batch.tasks.iter().any(|task| lost.contains(task));
    let jobs: BTreeSet<_> = batches.iter().filter(|batch| hit(batch)).map(|batch| batch.job).collect();
    let keep = |batch: &VictimBatch| match generator {
        Generator::NodeLocalGreedy => jobs.contains(&batch.job),
        Generator::MultiNodeGang => hit(batch),
    };
    batches.iter().filter(|batch| keep(batch)).map(|batch| Arc::clone(batch)).collect()
}
