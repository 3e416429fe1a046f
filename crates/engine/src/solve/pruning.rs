//! Pruning: bounds on what victims could lose, and by that the scenarios that are left out and the victims that are
//! tried first.

use std::collections::BTreeSet;

use super::filters::{NodeGpuCheck, TotalGpuCheck};
use super::loss_bound::{LossBound, LossEstimate, PendingDemand, VictimLoss};
use super::scenario::{Scenario, VictimPool};
use super::search::Search;
use super::simulate::sizes;
use super::victims::{VictimBatch, VictimScope, all_victims};
use crate::gang::{Gang, GangStatus};
use crate::ids::{JobId, TaskId};
use crate::session::Session;
use crate::units::ResourceQuantities;

impl Search<'_> {
    /// Queues that could lose what these pods lack, see [`LossBound::closest_sufficient`].
    pub(super) fn relatives(&mut self, session: &Session<'_>, pending: &[TaskId]) -> Option<VictimScope> {
        let total_check = TotalGpuCheck::new(&session.ledger, self.free_in_all, self.parts, pending);
        let required = self.facts.requested(&session.ledger, pending);
        let eligible = self.problem.eligible;
        let queues = &eligible.queues;
        let nearest = self.problem.loss_bound.closest_sufficient(
            &session.ledger.queues,
            required,
            total_check.missing(),
            queues,
        )?;
        (nearest.len() < queues.len()).then(|| VictimScope { queues: nearest, ..eligible.clone() })
    }

    /// Whether all victims would have to be moved.
    pub(super) fn no_loss_possible(&self, session: &Session<'_>, required: ResourceQuantities) -> bool {
        self.problem.loss_bound.none_possible(&session.ledger.queues, required, &self.problem.eligible.queues)
    }

    /// Whether all victims must find another place.
    pub(super) fn all_stay(&self) -> bool {
        self.use_loss_bounds && matches!(self.problem.loss_bound, LossBound::MoveOnly)
    }

    /// What could be lost of these victims for the first so many pods; the ledger must be as it was when the search began.
    pub(super) fn losable(
        &mut self,
        session: &Session<'_>,
        pending: &[TaskId],
        batches: &[&VictimBatch],
    ) -> LossEstimate {
        let required = self.facts.requested(&session.ledger, pending);
        let mut demand = PendingDemand { required, before: None };
        let mut units: Vec<VictimLoss> = batches.iter().map(|batch| batch.unit).collect();
        // Dependent moves are simulated as well, in whatever queue they are.
        if self.minds_turns(session) && batches.iter().all(|batch| batch.dependent_moves.is_empty()) {
            let queue = session.snapshot.job(self.problem.job).queue.expect("reclaimers have a queue");
            let place = self.facts.key_with(&session.ledger, self.problem.job, self.need(session, pending));
            let ahead = self.backlog.before(session, self.index, self.facts, queue, place);
            demand.before = ahead.map(|front| front.largest);
            self.blocking_job = ahead.map(|front| front.job);
            for (unit, batch) in units.iter_mut().zip(batches) {
                unit.max_request = self.backlog.max_request_up_to(session, self.index, self.facts, batch.job);
            }
        }
        self.problem.loss_bound.of(&session.ledger.queues, self.tree, demand, &units)
    }

    /// Whether no victim may be evicted that would be scheduled before the job: it would take its place back.
    pub(super) fn minds_turns(&self, session: &Session<'_>) -> bool {
        session.policy.repairs.stable_moves && matches!(self.problem.loss_bound, LossBound::ByQueueShares(_))
    }

    /// How complete the job would be with these pods.
    pub(super) fn need(&self, session: &Session<'_>, pending: &[TaskId]) -> GangStatus {
        Gang::new(&session.ledger, self.problem.job).only(&sizes(session, pending)).state()
    }

    /// Prunes a scenario by its loss bound: `None` if the victims that may be lost cannot free enough GPUs on usable
    /// nodes. Otherwise, for each batch, whether it would be scheduled before the pending pods and must therefore keep
    /// a place.
    pub(super) fn weigh(
        &mut self,
        session: &Session<'_>,
        pending: &[TaskId],
        total_check: TotalGpuCheck,
        least: &mut NodeGpuCheck,
        pool: &VictimPool,
        scenario: &Scenario,
    ) -> Option<Vec<bool>> {
        let is_short = self.use_loss_bounds && total_check.is_short();
        if !is_short && !self.minds_turns(session) {
            return Some(Vec::new());
        }
        let potential = scenario.iter().map(|index| &pool.potential[*index]);
        let batches: Vec<&VictimBatch> = pool.recorded.iter().chain(potential).map(AsRef::as_ref).collect();
        let losable = self.losable(session, pending, &batches);
        if !is_short {
            return Some(losable.scheduled_first);
        }
        let lost = batches.iter().zip(&losable.evictable).filter(|(_, losable)| **losable);
        if !total_check.suffices(losable.gpus, lost.map(|(batch, _)| batch.tasks.len()).sum()) {
            return None;
        }
        if total_check.has_parts() {
            return Some(losable.scheduled_first);
        }
        let change = |least: &mut NodeGpuCheck, sign: i64| {
            for (index, (batch, losable)) in batches.iter().zip(&losable.evictable).enumerate() {
                let is_recorded = index < pool.recorded.len();
                match (is_recorded, *losable) {
                    (true, true) => {}
                    (false, losable) => least.give_back(batch, !losable, sign),
                    (true, false) => {
                        least.give_back(batch, false, -sign);
                        least.give_back(batch, true, sign);
                    }
                }
            }
        };
        change(least, 1);
        let enough = least.suffice();
        change(least, -1);
        enough.then_some(losable.scheduled_first)
    }

    /// Bound over all victims: `None` if evicting everything that may be evicted would not be enough. Otherwise the
    /// jobs that can only be moved, which frees nothing.
    pub(super) fn must_be_moved(
        &mut self,
        session: &Session<'_>,
        pending: &[TaskId],
        total_check: TotalGpuCheck,
        demands: &[i64],
    ) -> Option<BTreeSet<JobId>> {
        let problem = self.problem;
        let all_victims = self.all_victims.take().unwrap_or_else(|| all_victims(session, self.index, problem.eligible));
        let losable = self.losable(session, pending, &all_victims.iter().collect::<Vec<_>>());
        self.only_earlier_victims = !losable.evictable.contains(&true) && losable.scheduled_first.contains(&true);
        let mut most = NodeGpuCheck::new(&self.free, demands, &mut self.rooms);
        let mut kept = BTreeSet::new();
        let mut lost = 0;
        for (batch, losable) in all_victims.iter().zip(&losable.evictable) {
            most.give_back(batch, !losable && !total_check.has_parts(), 1);
            if *losable {
                lost += batch.tasks.len();
            } else {
                kept.insert(batch.job);
            }
        }
        self.all_victims = Some(all_victims);
        (total_check.suffices(losable.gpus, lost) && most.suffice()).then_some(kept)
    }
}

/// Whether this scenario alone would free enough GPUs.
pub(super) fn gives_enough(least: &mut NodeGpuCheck, pool: &VictimPool, scenario: &Scenario, stays: bool) -> bool {
    let batches = || scenario.iter().map(|index| &pool.potential[*index]);
    batches().for_each(|batch| least.give_back(batch, stays, 1));
    let enough = least.suffice();
    batches().for_each(|batch| least.give_back(batch, stays, -1));
    enough
}
