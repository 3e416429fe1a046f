//! Whether a queue, and every queue above it, may take on more.
//!
//! Limits bind all work; quota binds work that cannot be preempted. Exactly reaching a bound is allowed.

use crate::ids::QueueId;
use crate::outcome::{QueueBlock, Reason};
use crate::queues::QueueBook;
use crate::units::{Ceiling, QueueResource, Triple};

/// The first bound that `requested` would break: limits of the whole path, then quotas.
pub fn check(book: &QueueBook, queue: QueueId, preemptible: bool, requested: Triple) -> Option<Reason> {
    over_limit(book, queue, requested).map(Reason::OverLimit).or_else(|| {
        let block = if preemptible { None } else { over_quota(book, queue, requested) };
        block.map(Reason::NonPreemptibleOverQuota)
    })
}

/// The first limit that `requested` would break.
pub fn over_limit(book: &QueueBook, queue: QueueId, requested: Triple) -> Option<QueueBlock> {
    first_block(book, queue, requested, |row| (row.limit, row.allocated))
}

/// The first quota that `requested` would break if it cannot be preempted.
pub fn over_quota(book: &QueueBook, queue: QueueId, requested: Triple) -> Option<QueueBlock> {
    first_block(book, queue, requested, |row| (row.quota, row.allocated_non_preemptible))
}

fn first_block(
    book: &QueueBook,
    queue: QueueId,
    requested: Triple,
    bounds: fn(&crate::queues::QueueRow) -> ([Ceiling; 3], Triple),
) -> Option<QueueBlock> {
    for queue in book.path(queue) {
        let (ceilings, allocated) = bounds(book.row(queue));
        for resource in QueueResource::ALL {
            let allocated = allocated.get(resource);
            if let Ceiling::At(bound) = ceilings[resource as usize]
                && requested.get(resource) > 0
                && allocated + requested.get(resource) > bound
            {
                return Some(QueueBlock { queue, resource, bound, allocated, request: requested });
            }
        }
    }
    None
}
