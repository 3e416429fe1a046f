//! How much could be lost of some victims, known before anything is tried: an upper bound that no scenario exceeds.
//!
//! Victims that cannot be lost must find another place, so they make no room.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::ids::{JobId, QueueId, TaskId};
use crate::ledger::Ledger;
use crate::ledger::{QueueAccounts, QueueRow};
use crate::queues::job_order::JobTree;
use crate::queues::order::{QueueOrderInput, QueueOrderKey};
use crate::queues::reclaim_rules::{self, Reclaimer};
use crate::snapshot::GpuAsk;
use crate::units::{QueueResource, ResourceQuantities};

/// Pods of one job that leave together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VictimLoss {
    /// The job's queue.
    pub queue: QueueId,
    /// What is lost if all of them are.
    pub max: ResourceQuantities,
    /// What is lost if any of them is.
    pub min: ResourceQuantities,
    /// See [`super::queue_backlog::QueueBacklog::max_request_up_to`]. `None`: unknown, so the victim cannot be assumed
    /// to be scheduled first.
    pub max_request: Option<ResourceQuantities>,
}

impl VictimLoss {
    /// These pods of a job.
    pub(crate) fn of(ledger: &Ledger<'_>, job: JobId, tasks: &[TaskId]) -> Self {
        let queue = ledger.snapshot.job(job).queue.expect("victims have a queue");
        let costs = || tasks.iter().map(|task| cost(ledger, *task));
        let most = costs().fold(ResourceQuantities::ZERO, |sum, (most, _)| sum + most);
        let least = if is_all_or_none(ledger, job, tasks) {
            costs().fold(ResourceQuantities::ZERO, |sum, (_, least)| sum + least)
        } else {
            costs().map(|(_, least)| least).reduce(ResourceQuantities::min_each).unwrap_or_default()
        };
        Self { queue, max: most, min: least, max_request: None }
    }
}

/// What a pod costs its queue, at most and at least: memory requests cost something else on each kind of node.
fn cost(ledger: &Ledger<'_>, task: TaskId) -> (ResourceQuantities, ResourceQuantities) {
    let row = ledger.snapshot.task(task);
    let places = [ledger.state(task).placement().map(|placement| placement.node), row.node];
    let costs = places.into_iter().flatten().map(|node| ledger.cost(task, node));
    let most = costs.max_by_key(|cost| cost.0[2]).unwrap_or_default();
    let mut least = most;
    if matches!(ledger.snapshot.shape(row.shape).gpu, GpuAsk::Memory { .. }) {
        least.0[2] = 0;
    }
    (most, least)
}

/// Whether the pods are a whole gang, of which no part can be placed again.
fn is_all_or_none(ledger: &Ledger<'_>, job: JobId, tasks: &[TaskId]) -> bool {
    let mut pod_sets = ledger.snapshot.pod_sets_of(job);
    let (Some(only), None) = (pod_sets.next(), pod_sets.next()) else { return false };
    let row = &ledger.snapshot.pod_sets[only.index()];
    row.tasks.len() == tasks.len() && row.min as usize >= tasks.len()
}

/// What may be lost for a job.
#[derive(Debug)]
pub(crate) enum LossBound {
    /// Every pod keeps a place.
    MoveOnly,
    /// All victims.
    Unlimited,
    /// Other queues, as far as shares allow.
    ByQueueShares(QueueShareBound),
}

/// Where the paths of the reclaimer and of each other queue part.
#[derive(Debug)]
pub(crate) struct QueueShareBound {
    reclaimer: QueueId,
    multiplier: i64,
    /// For each queue: at which depth, the reclaimer's side and the other.
    diverging_ancestors: Vec<(usize, QueueId, QueueId)>,
}

impl QueueShareBound {
    /// For a job of this queue.
    pub(crate) fn new(accounts: &QueueAccounts, reclaimer: QueueId, multiplier: i64) -> Self {
        let depth = |queue: QueueId| accounts.path(queue).count();
        let diverging_ancestors = (0..accounts.rows.len()).map(QueueId::at).map(|queue| {
            let (ours, theirs) = accounts.diverging_ancestors(reclaimer, queue);
            (depth(ours), ours, theirs)
        });
        Self { reclaimer, multiplier, diverging_ancestors: diverging_ancestors.collect() }
    }
}

/// A pending job, or the first of its pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingDemand {
    /// What the pods ask for.
    pub required: ResourceQuantities,
    /// Largest request of a job ahead of them in their own queue, if any: the queue may be ordered by that instead.
    pub before: Option<ResourceQuantities>,
}

/// What could be lost of some victims.
#[derive(Clone, Debug)]
pub(crate) struct LossEstimate {
    /// Whether each victim could be lost.
    pub evictable: Vec<bool>,
    /// Whether each victim would be scheduled before the pending pods, so that it must not be lost for them.
    pub scheduled_first: Vec<bool>,
    /// GPUs that could be lost together.
    pub gpus: i64,
}

impl LossEstimate {
    fn new(victims: usize, could_be: bool, gpus: i64) -> Self {
        Self { evictable: vec![could_be; victims], scheduled_first: vec![false; victims], gpus }
    }
}

impl LossBound {
    /// What could be lost of these victims for the demand, if nothing else is lost.
    pub(crate) fn of(
        &self,
        accounts: &QueueAccounts,
        tree: &JobTree,
        demand: PendingDemand,
        victims: &[VictimLoss],
    ) -> LossEstimate {
        match self {
            Self::MoveOnly => LossEstimate::new(victims.len(), false, 0),
            Self::Unlimited => {
                LossEstimate::new(victims.len(), true, victims.iter().map(|victim| victim.max.0[2]).sum())
            }
            Self::ByQueueShares(shares) => shares.of(accounts, tree, demand, victims),
        }
    }

    /// Whether no job of these queues could lose anything, whatever it holds.
    pub(crate) fn none_possible(
        &self,
        accounts: &QueueAccounts,
        required: ResourceQuantities,
        queues: &[QueueId],
    ) -> bool {
        match self {
            Self::MoveOnly => true,
            Self::Unlimited => false,
            Self::ByQueueShares(shares) => shares.none_possible(accounts, required, queues),
        }
    }

    /// Searches the levels of the queue tree from the job's leaf upwards and returns the queues of the first level that
    /// could lose `gpus` by itself. Nearby queues are the ones that borrow the job's share. `None` where distance does
    /// not matter (no reclaim, or no GPU missing).
    pub(crate) fn closest_sufficient(
        &self,
        accounts: &QueueAccounts,
        required: ResourceQuantities,
        gpus: i64,
        queues: &[QueueId],
    ) -> Option<Vec<QueueId>> {
        match self {
            Self::ByQueueShares(shares) if gpus > 0 => shares.closest_sufficient(accounts, required, gpus, queues),
            Self::ByQueueShares(_) | Self::MoveOnly | Self::Unlimited => None,
        }
    }
}

impl QueueShareBound {
    /// If nothing below is lost, nothing is lost beside the reclaimer on the levels above.
    fn none_possible(&self, accounts: &QueueAccounts, required: ResourceQuantities, queues: &[QueueId]) -> bool {
        let reclaimer = Reclaimer { queue: self.reclaimer, preemptible: true, required };
        queues.iter().all(|queue| {
            let (_, ours, theirs) = self.diverging_ancestors[queue.index()];
            reclaim_rules::max_reclaimable(
                accounts,
                reclaimer,
                (ours, theirs),
                ResourceQuantities::ZERO,
                self.multiplier,
            )
            .is_none()
        })
    }

    fn closest_sufficient(
        &self,
        accounts: &QueueAccounts,
        required: ResourceQuantities,
        gpus: i64,
        queues: &[QueueId],
    ) -> Option<Vec<QueueId>> {
        let reclaimer = Reclaimer { queue: self.reclaimer, preemptible: true, required };
        let mut sides: BTreeMap<(Reverse<usize>, QueueId), Vec<QueueId>> = BTreeMap::new();
        for queue in queues {
            let (depth, _, theirs) = self.diverging_ancestors[queue.index()];
            sides.entry((Reverse(depth), theirs)).or_default().push(*queue);
        }
        let sides: Vec<_> = sides.into_iter().collect();
        sides.chunk_by(|left, right| left.0.0 == right.0.0).find_map(|level| {
            let could_lose = |queue: QueueId| {
                let (_, ours, theirs) = self.diverging_ancestors[queue.index()];
                let most = reclaim_rules::max_reclaimable(
                    accounts,
                    reclaimer,
                    (ours, theirs),
                    ResourceQuantities::ZERO,
                    self.multiplier,
                )?;
                Some(most.get(QueueResource::Gpu).min(accounts.row(theirs).allocated.get(QueueResource::Gpu)))
            };
            let able = level.iter().filter_map(|(_, queues)| Some((could_lose(queues[0])?, queues)));
            let able: Vec<_> = able.filter(|(most, _)| *most > 0).collect();
            let enough = able.iter().map(|(most, _)| most).sum::<i64>() >= gpus;
            enough.then(|| able.iter().flat_map(|(_, queues)| queues.iter().copied()).collect())
        })
    }

    fn of(
        &self,
        accounts: &QueueAccounts,
        tree: &JobTree,
        demand: PendingDemand,
        victims: &[VictimLoss],
    ) -> LossEstimate {
        let side = |index: usize| self.diverging_ancestors[victims[index].queue.index()];
        // From the bottom up: what is lost beside the reclaimer makes its own side less saturated.
        let mut order: Vec<usize> = (0..victims.len()).collect();
        order.sort_unstable_by_key(|index| (Reverse(side(*index).0), side(*index).2));
        let reclaimer = Reclaimer { queue: self.reclaimer, preemptible: true, required: demand.required };
        let mut estimate = LossEstimate::new(victims.len(), false, 0);
        let mut lost = LossByDepth::default();
        // Of victims that have no place yet when the pending pods are scheduled.
        let mut late = LossByDepth::default();
        let known = victims.iter().all(|victim| victim.max_request.is_some());
        for group in order.chunk_by(|left, right| side(*left).2 == side(*right).2) {
            let (at, ours, theirs) = side(group[0]);
            let (late_beside, lost_beside) = (late.at(at), lost.at(at));
            let first = |these: &[usize]| {
                let these = these.iter().map(|index| victims[*index]);
                known && would_be_scheduled_first(accounts, tree, demand, (ours, theirs), late_beside, these)
            };
            // Victims of the compared queue itself are tested one by one. Victims from several leaf queues below it are
            // tested together, because one leaf may delay another.
            let alone = group.iter().all(|index| victims[*index].queue == theirs);
            for part in group.chunks(if alone { 1 } else { group.len() }) {
                let first = first(part);
                for index in part {
                    estimate.scheduled_first[*index] = first;
                }
            }
            let rest: Vec<usize> = group.iter().copied().filter(|index| !estimate.scheduled_first[*index]).collect();
            late.sum += rest.iter().fold(ResourceQuantities::ZERO, |sum, index| sum + victims[*index].max);
            let Some(most) =
                reclaim_rules::max_reclaimable(accounts, reclaimer, (ours, theirs), lost_beside, self.multiplier)
            else {
                continue;
            };
            let mut sum = ResourceQuantities::ZERO;
            for index in rest.into_iter().filter(|index| victims[*index].min.fits_in(most)) {
                estimate.evictable[index] = true;
                sum += victims[index].max;
            }
            let bound = |resource| most.get(resource).min(sum.get(resource)).max(0);
            lost.sum += ResourceQuantities(QueueResource::ALL.map(bound));
        }
        estimate.gpus = lost.sum.get(QueueResource::Gpu);
        estimate
    }
}

/// Whether these victims, whichever of them are evicted, would be scheduled before the pending pods: evicting them is
/// futile then, they take their places back. A queue that loses more is ordered earlier, so the smallest loss is the
/// hardest case, and is tested.
fn would_be_scheduled_first(
    accounts: &QueueAccounts,
    tree: &JobTree,
    demand: PendingDemand,
    (ours, theirs): (QueueId, QueueId),
    beside: ResourceQuantities,
    victims: impl Iterator<Item = VictimLoss>,
) -> bool {
    let (our_row, their_row) = (accounts.row(ours), accounts.row(theirs));
    let (mut least, mut growth) = (ResourceQuantities([i64::MAX; 3]), ResourceQuantities([i64::MIN; 3]));
    for victim in victims {
        let Some(request) = victim.max_request else { return false };
        if !accounts.path(victim.queue).map(|queue| accounts.row(queue)).all(|row| row.allocated.within(row.limit)) {
            // It would not get its place back, whenever it is scheduled.
            return false;
        }
        least = least.min_each(victim.min);
        growth = growth.max_each(request - victim.min);
    }
    let order_key = |row: &QueueRow, allocated: ResourceQuantities, required: ResourceQuantities| {
        let row = QueueRow { allocated, ..row.clone() };
        QueueOrderKey::of(QueueOrderInput { row: &row, required, victims: ResourceQuantities::ZERO }, accounts.total)
    };
    let last_of_theirs = order_key(their_row, their_row.allocated - least, growth + least);
    let mut requests = [Some(demand.required), demand.before].into_iter().flatten();
    requests.any(|required| {
        let demand = order_key(our_row, our_row.allocated - beside, required);
        tree.is_ahead((theirs, &last_of_theirs), (ours, &demand))
    })
}

/// What falls to queues beside the reclaimer, level by level from the bottom up.
#[derive(Debug)]
struct LossByDepth {
    /// Of all levels so far.
    sum: ResourceQuantities,
    /// Of levels below the current one.
    below: ResourceQuantities,
    depth: usize,
}

impl Default for LossByDepth {
    fn default() -> Self {
        Self { sum: ResourceQuantities::ZERO, below: ResourceQuantities::ZERO, depth: usize::MAX }
    }
}

impl LossByDepth {
    /// What is below this level.
    fn at(&mut self, depth: usize) -> ResourceQuantities {
        if depth < self.depth {
            (self.below, self.depth) = (self.sum, depth);
        }
        self.below
    }
}
