//! Pruning: bounds on what victims could lose, and by that the scenarios that are left out and the victims that are
//! tried first.

use std::collections::BTreeSet;

use super::filters::{NodeGpuCheck, TotalGpuCheck};
use super::loss_bound::{LossBound, LossEstimate, PendingDemand, VictimLoss};
use super::scenario::{Scenario, VictimPool, pods_by_set};
use super::search::Search;
use super::victim_scope::VictimScope;
use super::victims::{VictimBatch, all_victims};
use crate::gang::{Gang, GangStatus};
use crate::ids::{JobId, TaskId};
use crate::session::Session;
use crate::units::ResourceQuantities;

impl Search<'_> {
    /// Queues that could lose what these pods lack, see [`LossBound::closest_sufficient`].
    pub(super) fn closest_scope(&mut self, session: &Session<'_>, pending: &[TaskId]) -> Option<VictimScope> {
        let total_check = TotalGpuCheck::new(&session.ledger, self.gpus.free, self.gpus.shared_totals, pending);
        let required = self.jobs.info.requested(&session.ledger, pending);
        let victim_scope = self.problem.victim_scope;
        let queues = &victim_scope.queues;
        let closest = self.problem.loss_bound.closest_sufficient(
            &session.ledger.queues,
            required,
            total_check.missing(),
            queues,
        )?;
        (closest.len() < queues.len()).then(|| VictimScope { queues: closest, ..victim_scope.clone() })
    }

    /// Whether all victims would have to be moved.
    pub(super) fn no_loss_possible(&self, session: &Session<'_>, required: ResourceQuantities) -> bool {
        self.problem.loss_bound.none_possible(&session.ledger.queues, required, &self.problem.victim_scope.queues)
    }

    /// Whether all victims must find another place.
    pub(super) fn all_stay(&self) -> bool {
        self.pruning.use_loss_bounds && matches!(self.problem.loss_bound, LossBound::MoveOnly)
    }

    /// What could be lost of these victims for the first so many pods; the ledger must be as it was when the search began.
    pub(super) fn losable(
        &mut self,
        session: &Session<'_>,
        pending: &[TaskId],
        batches: &[&VictimBatch],
    ) -> LossEstimate {
        let required = self.jobs.info.requested(&session.ledger, pending);
        let mut demand = PendingDemand { required, before: None };
        let mut losses: Vec<VictimLoss> = batches.iter().map(|batch| batch.loss).collect();
        // Dependent moves are simulated as well, in whatever queue they are.
        if self.excludes_victims_scheduled_first(session)
            && batches.iter().all(|batch| batch.dependent_moves.is_empty())
        {
            let queue = session.snapshot.job(self.problem.job).queue.expect("reclaimers have a queue");
            let place = self.jobs.info.order.key(&session.ledger, self.problem.job, self.status_with(session, pending));
            let ahead = self.pruning.backlog.before(session, self.jobs.index, self.jobs.info, queue, place);
            demand.before = ahead.map(|prefix| prefix.largest);
            self.pruning.blocking_job = ahead.map(|prefix| prefix.job);
            for (loss, batch) in losses.iter_mut().zip(batches) {
                loss.max_request =
                    self.pruning.backlog.max_request_up_to(session, self.jobs.index, self.jobs.info, batch.job);
            }
        }
        self.problem.loss_bound.of(&session.ledger.queues, self.jobs.tree, demand, &losses)
    }

    /// Whether no victim may be evicted that would be scheduled before the job: it would take its place back.
    pub(super) fn excludes_victims_scheduled_first(&self, session: &Session<'_>) -> bool {
        session.policy.repairs.stable_moves && matches!(self.problem.loss_bound, LossBound::ByQueueShares(_))
    }

    /// How complete the job would be with these pods.
    pub(super) fn status_with(&self, session: &Session<'_>, pending: &[TaskId]) -> GangStatus {
        Gang::new(&session.ledger, self.problem.job).only(&pods_by_set(&session.ledger, pending)).state()
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
        let is_short = self.pruning.use_loss_bounds && total_check.is_short();
        if !is_short && !self.excludes_victims_scheduled_first(session) {
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
        let all_victims = self
            .pruning
            .all_victims
            .take()
            .unwrap_or_else(|| all_victims(session, self.jobs.index, problem.victim_scope));
        let losable = self.losable(session, pending, &all_victims.iter().collect::<Vec<_>>());
        self.pruning.only_earlier_victims =
            !losable.evictable.contains(&true) && losable.scheduled_first.contains(&true);
        let mut most = NodeGpuCheck::new(&self.gpus.free_by_node, demands, &mut self.gpus.pods_by_size);
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
        self.pruning.all_victims = Some(all_victims);
        (total_check.suffices(losable.gpus, lost) && most.suffice()).then_some(kept)
    }
}
