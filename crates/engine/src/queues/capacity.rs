//! Whether a queue, and every queue above it, may take on more.
//!
//! Limits bind all work; quota binds work that cannot be preempted. Exactly reaching a bound is allowed.

use crate::ids::QueueId;
use crate::ledger::QueueAccounts;
use crate::outcome::{CapacityExceeded, Reason};
use crate::units::{Ceiling, QueueResource, ResourceQuantities};

/// Which kind of bound would be exceeded, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// A limit, which binds all work.
    Limit(CapacityExceeded),
    /// A quota, which binds work that cannot be preempted.
    Quota(CapacityExceeded),
}

impl Exceeded {
    /// The bound.
    pub fn exceeded(self) -> CapacityExceeded {
        match self {
            Self::Limit(exceeded) | Self::Quota(exceeded) => exceeded,
        }
    }
}

impl From<Exceeded> for Reason {
    fn from(exceeded: Exceeded) -> Self {
        match exceeded {
            Exceeded::Limit(exceeded) => Self::OverLimit(exceeded),
            Exceeded::Quota(exceeded) => Self::NonPreemptibleOverQuota(exceeded),
        }
    }
}

/// The first bound that `requested` would exceed: limits of the whole path, then quotas.
pub fn check(
    accounts: &QueueAccounts,
    queue: QueueId,
    preemptible: bool,
    requested: ResourceQuantities,
) -> Option<Exceeded> {
    over_limit(accounts, queue, requested).map(Exceeded::Limit).or_else(|| {
        let exceeded = if preemptible { None } else { over_quota(accounts, queue, requested) };
        exceeded.map(Exceeded::Quota)
    })
}

/// The first limit that `requested` would break.
pub fn over_limit(accounts: &QueueAccounts, queue: QueueId, requested: ResourceQuantities) -> Option<CapacityExceeded> {
    first_block(accounts, queue, requested, |row| (row.limit, row.allocated))
}

/// The first quota that `requested` would break if it cannot be preempted.
pub fn over_quota(accounts: &QueueAccounts, queue: QueueId, requested: ResourceQuantities) -> Option<CapacityExceeded> {
    first_block(accounts, queue, requested, |row| (row.quota, row.allocated_non_preemptible))
}

fn first_block(
    accounts: &QueueAccounts,
    queue: QueueId,
    requested: ResourceQuantities,
    bounds: fn(&crate::ledger::QueueRow) -> ([Ceiling; 3], ResourceQuantities),
) -> Option<CapacityExceeded> {
    for queue in accounts.path(queue) {
        let (ceilings, allocated) = bounds(accounts.row(queue));
        for resource in QueueResource::ALL {
            let allocated = allocated.get(resource);
            if let Ceiling::At(cap) = ceilings[resource as usize]
                && requested.get(resource) > 0
                && allocated + requested.get(resource) > cap
            {
                return Some(CapacityExceeded { queue, resource, cap, allocated, request: requested });
            }
        }
    }
    None
}
