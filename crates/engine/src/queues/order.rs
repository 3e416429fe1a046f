//! Which of two sibling queues is more entitled to the next placement.

use std::cmp::Ordering;

use crate::ledger::QueueRow;
use crate::units::{Ceiling, GPU, QueueResource, Ratio, ResourceQuantities, Timestamp};

/// A queue's place among its siblings, computed once and compared often.
#[derive(Clone, Debug)]
pub struct QueueOrderKey {
    over: bool,
    starved: bool,
    priority: i32,
    violating: bool,
    share_after: Ratio,
    share_now: Ratio,
    allocatable: [Ceiling; 3],
    created: Timestamp,
}

/// A queue to be compared, with what it would take on or give up.
#[derive(Clone, Copy, Debug)]
pub struct QueueOrderInput<'a> {
    /// The queue.
    pub row: &'a QueueRow,
    /// What its next job asks for.
    pub required: ResourceQuantities,
    /// What its victims hold.
    pub victims: ResourceQuantities,
}

impl QueueOrderKey {
    /// The key of a queue. `total` stands in for what an unlimited queue may hold.
    pub fn of(input: QueueOrderInput<'_>, total: ResourceQuantities) -> Self {
        let QueueOrderInput { row, required, victims } = input;
        let allocatable = row.allocatable();
        let after = row.allocated + required;
        let zero_share = |index: usize| allocatable[index] == Ceiling::At(0) && after.0[index] > 0;
        Self {
            over: (0..3).all(|index| row.fair_share.0[index] < row.allocated.0[index]),
            starved: after.within(row.quota),
            priority: row.priority,
            violating: (0..3).any(zero_share),
            share_after: dominant(after - victims, allocatable, total),
            share_now: dominant(row.allocated, allocatable, total),
            allocatable,
            created: row.created,
        }
    }

    /// Whether this queue comes first whatever its other siblings: by the transitive criteria only.
    pub fn is_ahead_of(&self, other: &Self) -> bool {
        self.cmp_by_share(other).is_lt()
    }

    fn cmp_by_share(&self, other: &Self) -> Ordering {
        self.over
            .cmp(&other.over)
            .then_with(|| other.starved.cmp(&self.starved))
            .then_with(|| other.priority.cmp(&self.priority))
            .then_with(|| self.violating.cmp(&other.violating))
            .then_with(|| self.share_after.cmp(&other.share_after))
            .then_with(|| self.share_now.cmp(&other.share_now))
    }

    /// `Less` if this queue comes first. Between equal queues the name decides.
    pub fn compare(&self, other: &Self) -> Ordering {
        self.cmp_by_share(other)
            .then_with(|| smaller_entitlement(self.allocatable, other.allocatable))
            .then_with(|| self.created.cmp(&other.created))
    }
}

/// Whether the siblings' allocatable amounts form a chain under component-wise ≤. Only then is `compare` transitive;
/// otherwise a < b < c < a is possible, and siblings are compared one after the other in name order instead of in a
/// tournament.
pub fn all_comparable<'a>(rows: impl Iterator<Item = &'a QueueRow>) -> bool {
    let mut held: Vec<_> = rows.map(QueueRow::allocatable).collect();
    let key = |ceilings: &[Ceiling; 3]| ceilings.map(|ceiling| ceiling.cap(i64::MAX));
    held.sort_by_key(key);
    held.windows(2).all(|pair| at_most(pair[0], pair[1]))
}

fn at_most(left: [Ceiling; 3], right: [Ceiling; 3]) -> bool {
    left.iter().zip(right).all(|(left, right)| match left {
        Ceiling::Unlimited => right == Ceiling::Unlimited,
        Ceiling::At(amount) => right.allows(*amount),
    })
}

fn smaller_entitlement(left: [Ceiling; 3], right: [Ceiling; 3]) -> Ordering {
    match (at_most(left, right), at_most(right, left)) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

/// The largest share of any resource, at least zero.
fn dominant(held: ResourceQuantities, allocatable: [Ceiling; 3], total: ResourceQuantities) -> Ratio {
    let mut largest = Ratio::new(0, 1);
    for resource in QueueResource::ALL {
        let index = resource as usize;
        let whole = match allocatable[index] {
            Ceiling::Unlimited => total.get(resource),
            Ceiling::At(amount) => amount,
        };
        let share = if whole == 0 {
            // Anything is far too much of nothing; in GPUs, not in our finer unit.
            let unit = if resource == QueueResource::Gpu { GPU } else { 1 };
            Ratio::new(held.get(resource).saturating_mul(1000), unit)
        } else {
            Ratio::new(held.get(resource), whole)
        };
        largest = largest.max(share);
    }
    largest
}
