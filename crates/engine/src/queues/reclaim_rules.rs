//! Reclaim: from which queues a queue may take.
//!
//! All functions compare counters; none looks at jobs or nodes.

use std::collections::BTreeMap;

use crate::ids::QueueId;
use crate::ledger::QueueAccounts;
use crate::outcome::{CapacityExceeded, Ineligibility};
use crate::units::{Ceiling, ONE, QueueResource, ResourceQuantities};

/// A pending job that reclaims, as the rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Reclaimer {
    /// Its queue.
    pub queue: QueueId,
    /// Whether it could be preempted itself.
    pub preemptible: bool,
    /// What it asks for.
    pub required: ResourceQuantities,
}

/// Whether the job may try to reclaim at all: its queue stays within fair share, and within quota if the job cannot
/// be preempted.
pub fn can_reclaim(accounts: &QueueAccounts, reclaimer: Reclaimer) -> bool {
    ineligibility(accounts, reclaimer).is_none()
}

/// The bound that forbids the job to reclaim.
pub fn ineligibility(accounts: &QueueAccounts, reclaimer: Reclaimer) -> Option<Ineligibility> {
    let Reclaimer { queue, preemptible, required } = reclaimer;
    let row = accounts.row(queue);
    let block = |resource: QueueResource, allocated: ResourceQuantities, cap: i64| {
        let (allocated, requested) = (allocated.get(resource), required.get(resource));
        let block = CapacityExceeded { queue, resource, cap, allocated, request: required };
        (allocated + requested > cap).then_some(block)
    };
    let over_share = |resource| block(resource, row.allocated, row.fair_share.get(resource));
    let over_quota = |resource| match row.quota[resource as usize] {
        Ceiling::At(quota) if !preemptible => block(resource, row.allocated_non_preemptible, quota),
        _ => None,
    };
    // GPUs are what jobs wait for, so they are named before the others.
    let all = || QueueResource::ALL.into_iter().rev();
    all()
        .find_map(over_share)
        .map(Ineligibility::FairShare)
        .or_else(|| all().find_map(over_quota).map(Ineligibility::Quota))
}

/// The victim's side holds more than its share.
pub fn over_fair_share(accounts: &QueueAccounts, victim: QueueId, remaining: ResourceQuantities) -> bool {
    !remaining.within(accounts.row(victim).allocatable())
}

/// The reclaimer's side stays within quota while the victim's side is above its own.
pub fn quota_guaranteed(
    accounts: &QueueAccounts,
    reclaimer: QueueId,
    victim: QueueId,
    required: ResourceQuantities,
    remaining: ResourceQuantities,
) -> bool {
    let row = accounts.row(reclaimer);
    (row.allocated + required).within(row.quota) && !remaining.within(accounts.row(victim).quota)
}

/// Whether jobs of `victim` are worth looking at: a cheap test before the search.
pub fn may_be_reclaimed(accounts: &QueueAccounts, reclaimer: Reclaimer, victim: QueueId) -> bool {
    let (ours, theirs) = accounts.diverging_ancestors(reclaimer.queue, victim);
    let (ours, theirs) = (accounts.row(ours), accounts.row(theirs));
    if !(ours.allocated + reclaimer.required).within(ours.quota) {
        return !theirs.allocated.within(theirs.allocatable());
    }
    let mut below = false;
    for resource in QueueResource::ALL {
        let Ceiling::At(quota) = theirs.quota[resource as usize] else { continue };
        if reclaimer.required.get(resource) > 0 {
            let held = theirs.allocated.get(resource);
            if held > quota {
                return true;
            }
            below |= held < quota;
        }
    }
    !below
}

/// Whether the rules allow taking these units, in this order, for the reclaimer.
///
/// `units` are what each victim queue loses, one unit at a time. The multiplier is in millionths.
pub fn reclaimable(
    accounts: &QueueAccounts,
    reclaimer: Reclaimer,
    units: &[(QueueId, ResourceQuantities)],
    multiplier: i64,
) -> bool {
    let mut remaining: BTreeMap<QueueId, ResourceQuantities> = BTreeMap::new();
    let mut taken: BTreeMap<QueueId, ResourceQuantities> = BTreeMap::new();
    for (victim, unit) in units {
        let (ours, theirs) = accounts.diverging_ancestors(reclaimer.queue, *victim);
        let left = remaining.get(&theirs).copied().unwrap_or(accounts.row(theirs).allocated);
        if !over_fair_share(accounts, theirs, left)
            && !quota_guaranteed(accounts, ours, theirs, reclaimer.required, left)
        {
            return false;
        }
        for queue in accounts.path(*victim) {
            *remaining.entry(queue).or_insert(accounts.row(queue).allocated) -= *unit;
            *taken.entry(queue).or_default() += *unit;
        }
    }
    accounts
        .path(reclaimer.queue)
        .all(|queue| stays_less_saturated(accounts, reclaimer, queue, &remaining, &taken, multiplier))
}

/// Upper bound on what `theirs` may lose, if at most `beside` is reclaimed inside the reclaimer's own subtree; `None`:
/// nothing. Follows from [`reclaimable`]: afterwards `theirs` must still be more saturated than `ours`.
///
/// A side that becomes no more saturated than the reclaimer's never passes [`reclaimable`].
pub fn max_reclaimable(
    accounts: &QueueAccounts,
    reclaimer: Reclaimer,
    (ours, theirs): (QueueId, QueueId),
    beside: ResourceQuantities,
    multiplier: i64,
) -> Option<ResourceQuantities> {
    let (our_row, their_row) = (accounts.row(ours), accounts.row(theirs));
    let held = their_row.allocated;
    if !over_fair_share(accounts, theirs, held) && !quota_guaranteed(accounts, ours, theirs, reclaimer.required, held) {
        return None;
    }
    let after = our_row.allocated - beside + reclaimer.required;
    let mut most = ResourceQuantities([i64::MAX; 3]);
    for resource in QueueResource::ALL.into_iter().filter(|resource| reclaimer.required.get(*resource) > 0) {
        let ours = (after.get(resource), our_row.fair_share.get(resource));
        let theirs = (held.get(resource), their_row.fair_share.get(resource));
        if ours.0 <= ours.1 || theirs.1 <= 0 {
            continue;
        }
        if as_saturated(ours, theirs, multiplier) {
            return None;
        }
        // The least that leaves it more saturated, see `as_saturated`.
        let left = i128::from(ours.0) * i128::from(theirs.1) * i128::from(multiplier) / i128::from(ONE);
        let left = i64::try_from(left / i128::from(ours.1) + 1).unwrap_or(i64::MAX);
        most.0[resource as usize] = theirs.0 - left;
    }
    Some(most)
}

/// On one level: the reclaimer's side must not end up above its share and as saturated as a sibling it took from.
fn stays_less_saturated(
    accounts: &QueueAccounts,
    reclaimer: Reclaimer,
    queue: QueueId,
    remaining: &BTreeMap<QueueId, ResourceQuantities>,
    taken: &BTreeMap<QueueId, ResourceQuantities>,
    multiplier: i64,
) -> bool {
    let row = accounts.row(queue);
    let after = remaining.get(&queue).copied().unwrap_or(row.allocated) + reclaimer.required;
    for (sibling, left) in remaining {
        let other = accounts.row(*sibling);
        if *sibling == queue || other.parent != row.parent {
            continue;
        }
        for resource in QueueResource::ALL {
            let involved = reclaimer.required.get(resource) > 0 || taken[sibling].get(resource) > 0;
            let ours = (after.get(resource), row.fair_share.get(resource));
            let theirs = (left.get(resource), other.fair_share.get(resource));
            if involved && ours.0 > ours.1 && theirs.1 > 0 && as_saturated(ours, theirs, multiplier) {
                return false;
            }
        }
    }
    reclaimer.preemptible || (row.allocated_non_preemptible + reclaimer.required).within(row.quota)
}

/// Whether `ours.0 / ours.1`, times the multiplier, reaches `theirs.0 / theirs.1`. Nothing of nothing is infinite.
fn as_saturated(ours: (i64, i64), theirs: (i64, i64), multiplier: i64) -> bool {
    let left = i128::from(ours.0) * i128::from(theirs.1) * i128::from(multiplier) / i128::from(ONE);
    ours.1 <= 0 || left >= i128::from(theirs.0) * i128::from(ours.1)
}
