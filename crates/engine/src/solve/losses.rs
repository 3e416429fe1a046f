//! How much could be lost of some victims, known before anything is tried: an upper bound that no scenario exceeds.
//!
//! Victims that cannot be lost must find another place, so they make no room.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::rules::{self, Reclaimer};
use crate::ids::{JobId, QueueId, TaskId};
use crate::ledger::Ledger;
use crate::order::queues::{Contender, Entitlement};
use crate::order::tree::JobTree;
use crate::queues::{QueueBook, QueueRow};
use crate::snapshot::GpuAsk;
use crate::units::{QueueResource, Triple};

/// Pods of one job that leave together.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// The job's queue.
    pub queue: QueueId,
    /// What is lost if all of them are.
    pub most: Triple,
    /// What is lost if any of them is.
    pub least: Triple,
    /// What the job, or one that waits before it in its queue, would ask for at most, when its turn comes; `None` if that
    /// is not known, so that somebody else may come before it.
    pub turn: Option<Triple>,
}

impl Unit {
    /// These pods of a job.
    pub fn of(ledger: &Ledger<'_>, job: JobId, tasks: &[TaskId]) -> Self {
        let queue = ledger.snapshot.job(job).queue.expect("victims have a queue");
        let costs = || tasks.iter().map(|task| cost(ledger, *task));
        let most = costs().fold(Triple::ZERO, |sum, (most, _)| sum + most);
        let least = if is_all_or_none(ledger, job, tasks) {
            costs().fold(Triple::ZERO, |sum, (_, least)| sum + least)
        } else {
            costs().map(|(_, least)| least).reduce(Triple::smallest).unwrap_or_default()
        };
        Self { queue, most, least, turn: None }
    }
}

/// What a pod costs its queue, at most and at least: memory requests cost something else on each kind of node.
fn cost(ledger: &Ledger<'_>, task: TaskId) -> (Triple, Triple) {
    let row = ledger.snapshot.task(task);
    let places = [ledger.standing(task).spot().map(|spot| spot.node), row.node];
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

/// Who may lose what for a job.
#[derive(Debug)]
pub enum Losses {
    /// Everybody keeps a place.
    Nobody,
    /// All victims.
    Anybody,
    /// Other queues, as far as shares allow.
    Sides(Sides),
}

/// Where the paths of the reclaimer and of each other queue part.
#[derive(Debug)]
pub struct Sides {
    reclaimer: QueueId,
    multiplier: i64,
    /// For each queue: at which depth, the reclaimer's side and the other.
    parting: Vec<(usize, QueueId, QueueId)>,
}

impl Sides {
    /// For a job of this queue.
    pub fn new(book: &QueueBook, reclaimer: QueueId, multiplier: i64) -> Self {
        let depth = |queue: QueueId| book.path(queue).count();
        let parting = (0..book.rows.len()).map(QueueId::at).map(|queue| {
            let (ours, theirs) = book.parting(reclaimer, queue);
            (depth(ours), ours, theirs)
        });
        Self { reclaimer, multiplier, parting: parting.collect() }
    }
}

/// A job that wants room, or the first of its pods.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// What the pods ask for.
    pub required: Triple,
    /// The largest request that must have its turn before them, in their queue.
    pub before: Option<Triple>,
}

/// What could be lost of some units.
#[derive(Clone, Debug)]
pub struct Losable {
    /// Whether each unit could be lost.
    pub units: Vec<bool>,
    /// Whether each unit has its turn before those who want room, so that it must not be lost for them.
    pub earlier: Vec<bool>,
    /// GPUs that could be lost together.
    pub gpus: i64,
}

impl Losable {
    fn new(units: usize, could_be: bool, gpus: i64) -> Self {
        Self { units: vec![could_be; units], earlier: vec![false; units], gpus }
    }
}

impl Losses {
    /// What could be lost of these units for the wish, if nothing else is lost.
    pub fn of(&self, book: &QueueBook, tree: &JobTree, wish: Wish, units: &[Unit]) -> Losable {
        match self {
            Self::Nobody => Losable::new(units.len(), false, 0),
            Self::Anybody => Losable::new(units.len(), true, units.iter().map(|unit| unit.most.0[2]).sum()),
            Self::Sides(sides) => sides.of(book, tree, wish, units),
        }
    }

    /// Whether nobody in these queues could lose anything, whatever they hold.
    pub fn nobody(&self, book: &QueueBook, required: Triple, queues: &[QueueId]) -> bool {
        match self {
            Self::Nobody => true,
            Self::Anybody => false,
            Self::Sides(sides) => sides.nobody(book, required, queues),
        }
    }

    /// Of these queues, those closest to the job that together could lose so many GPUs, and nobody else: a job is helped
    /// best by those who hold what belongs to it. `None` if closeness does not matter.
    pub fn nearest(&self, book: &QueueBook, required: Triple, gpus: i64, queues: &[QueueId]) -> Option<Vec<QueueId>> {
        match self {
            Self::Sides(sides) if gpus > 0 => sides.nearest(book, required, gpus, queues),
            Self::Sides(_) | Self::Nobody | Self::Anybody => None,
        }
    }
}

impl Sides {
    /// If nobody below loses anything, nothing is lost beside the reclaimer on the levels above.
    fn nobody(&self, book: &QueueBook, required: Triple, queues: &[QueueId]) -> bool {
        let reclaimer = Reclaimer { queue: self.reclaimer, preemptible: true, required };
        queues.iter().all(|queue| {
            let (_, ours, theirs) = self.parting[queue.index()];
            rules::most_lost(book, reclaimer, (ours, theirs), Triple::ZERO, self.multiplier).is_none()
        })
    }

    fn nearest(&self, book: &QueueBook, required: Triple, gpus: i64, queues: &[QueueId]) -> Option<Vec<QueueId>> {
        let reclaimer = Reclaimer { queue: self.reclaimer, preemptible: true, required };
        let mut sides: BTreeMap<(Reverse<usize>, QueueId), Vec<QueueId>> = BTreeMap::new();
        for queue in queues {
            let (depth, _, theirs) = self.parting[queue.index()];
            sides.entry((Reverse(depth), theirs)).or_default().push(*queue);
        }
        let sides: Vec<_> = sides.into_iter().collect();
        sides.chunk_by(|left, right| left.0.0 == right.0.0).find_map(|level| {
            let could_lose = |queue: QueueId| {
                let (_, ours, theirs) = self.parting[queue.index()];
                let most = rules::most_lost(book, reclaimer, (ours, theirs), Triple::ZERO, self.multiplier)?;
                Some(most.get(QueueResource::Gpu).min(book.row(theirs).allocated.get(QueueResource::Gpu)))
            };
            let able = level.iter().filter_map(|(_, queues)| Some((could_lose(queues[0])?, queues)));
            let able: Vec<_> = able.filter(|(most, _)| *most > 0).collect();
            let enough = able.iter().map(|(most, _)| most).sum::<i64>() >= gpus;
            enough.then(|| able.iter().flat_map(|(_, queues)| queues.iter().copied()).collect())
        })
    }

    fn of(&self, book: &QueueBook, tree: &JobTree, wish: Wish, units: &[Unit]) -> Losable {
        let side = |index: usize| self.parting[units[index].queue.index()];
        // From the bottom up: what is lost beside the reclaimer makes its own side less saturated.
        let mut order: Vec<usize> = (0..units.len()).collect();
        order.sort_unstable_by_key(|index| (Reverse(side(*index).0), side(*index).2));
        let reclaimer = Reclaimer { queue: self.reclaimer, preemptible: true, required: wish.required };
        let mut losable = Losable::new(units.len(), false, 0);
        let mut lost = Beside::default();
        // Of those who have no place yet when the wish has its turn.
        let mut late = Beside::default();
        let known = units.iter().all(|unit| unit.turn.is_some());
        for group in order.chunk_by(|left, right| side(*left).2 == side(*right).2) {
            let (at, ours, theirs) = side(group[0]);
            let (late_beside, lost_beside) = (late.at(at), lost.at(at));
            let first = |these: &[usize]| {
                let these = these.iter().map(|index| units[*index]);
                known && comes_first(book, tree, wish, (ours, theirs), late_beside, these)
            };
            // Inside one queue each has its own turn; of several queues one may have to wait for the other.
            let alone = group.iter().all(|index| units[*index].queue == theirs);
            for part in group.chunks(if alone { 1 } else { group.len() }) {
                let first = first(part);
                for index in part {
                    losable.earlier[*index] = first;
                }
            }
            let rest: Vec<usize> = group.iter().copied().filter(|index| !losable.earlier[*index]).collect();
            late.sum += rest.iter().fold(Triple::ZERO, |sum, index| sum + units[*index].most);
            let Some(most) = rules::most_lost(book, reclaimer, (ours, theirs), lost_beside, self.multiplier) else {
                continue;
            };
            let mut sum = Triple::ZERO;
            for index in rest.into_iter().filter(|index| units[*index].least.fits_in(most)) {
                losable.units[index] = true;
                sum += units[index].most;
            }
            let bound = |resource| most.get(resource).min(sum.get(resource)).max(0);
            lost.sum += Triple(QueueResource::ALL.map(bound));
        }
        losable.gpus = lost.sum.get(QueueResource::Gpu);
        losable
    }
}

/// Whether everyone on the other side has its turn before the wish, however many of them are evicted together: then
/// they take their places back. The more of a queue is evicted, the earlier its turn.
fn comes_first(
    book: &QueueBook,
    tree: &JobTree,
    wish: Wish,
    (ours, theirs): (QueueId, QueueId),
    beside: Triple,
    units: impl Iterator<Item = Unit>,
) -> bool {
    let (our_row, their_row) = (book.row(ours), book.row(theirs));
    let (mut least, mut growth) = (Triple([i64::MAX; 3]), Triple([i64::MIN; 3]));
    for unit in units {
        let Some(turn) = unit.turn else { return false };
        if !book.path(unit.queue).map(|queue| book.row(queue)).all(|row| row.allocated.within(row.limit)) {
            // It would not get its place back, whenever its turn comes.
            return false;
        }
        least = least.smallest(unit.least);
        growth = growth.largest(turn - unit.least);
    }
    let judged = |row: &QueueRow, allocated: Triple, required: Triple| {
        let row = QueueRow { allocated, ..row.clone() };
        Entitlement::of(Contender { row: &row, required, victims: Triple::ZERO }, book.total)
    };
    let last_of_theirs = judged(their_row, their_row.allocated - least, growth + least);
    let mut wishes = [Some(wish.required), wish.before].into_iter().flatten();
    wishes.any(|required| {
        let wish = judged(our_row, our_row.allocated - beside, required);
        tree.is_ahead((theirs, &last_of_theirs), (ours, &wish))
    })
}

/// What falls to queues beside the reclaimer, level by level from the bottom up.
#[derive(Debug)]
struct Beside {
    /// Of all levels so far.
    sum: Triple,
    /// Of levels below the current one.
    below: Triple,
    depth: usize,
}

impl Default for Beside {
    fn default() -> Self {
        Self { sum: Triple::ZERO, below: Triple::ZERO, depth: usize::MAX }
    }
}

impl Beside {
    /// What is below this level.
    fn at(&mut self, depth: usize) -> Triple {
        if depth < self.depth {
            (self.below, self.depth) = (self.sum, depth);
        }
        self.below
    }
}
