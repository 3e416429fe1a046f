//! What each queue may have, wants and holds, during one cycle.
//!
//! Fair shares and requests are fixed when the cycle begins; `allocated` follows every placement and eviction,
//! up the chain to the top.

use crate::ids::QueueId;
use crate::snapshot::Queue;
use crate::units::{Ceiling, QueueResource, ResourceQuantities, Timestamp};

/// All queues of a cycle, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueAccounts {
    /// One row per queue.
    pub rows: Vec<QueueRow>,
    /// What the top queues divide.
    pub total: ResourceQuantities,
    /// Changes whenever a row's does.
    pub version: u64,
}

/// One queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRow {
    /// The queue above, if any.
    pub parent: Option<QueueId>,
    /// Higher first.
    pub priority: i32,
    /// Older first.
    pub created: Timestamp,
    /// Guaranteed amounts.
    pub quota: [Ceiling; 3],
    /// Amounts never to be exceeded.
    pub limit: [Ceiling; 3],
    /// Over-quota weights, in millionths.
    pub weight: [i64; 3],
    /// Past usage, in millionths of the cluster.
    pub usage: [i64; 3],
    /// What it held and waited for when the cycle began.
    pub request: ResourceQuantities,
    /// What it holds.
    pub allocated: ResourceQuantities,
    /// The part of `allocated` that cannot be preempted.
    pub allocated_non_preemptible: ResourceQuantities,
    /// What it is entitled to.
    pub fair_share: ResourceQuantities,
    /// Changes whenever `allocated` does, so that orders know what to recompute.
    pub version: u32,
}

impl QueueRow {
    /// A queue that holds and wants nothing yet.
    pub fn new(queue: &Queue) -> Self {
        Self {
            parent: queue.parent,
            priority: queue.priority,
            created: queue.created,
            quota: queue.quota,
            limit: queue.limit,
            weight: queue.weight,
            usage: queue.usage,
            request: ResourceQuantities::ZERO,
            allocated: ResourceQuantities::ZERO,
            allocated_non_preemptible: ResourceQuantities::ZERO,
            fair_share: ResourceQuantities::ZERO,
            version: 0,
        }
    }

    /// What it wants, cut down to its limit.
    pub fn requestable(&self, resource: QueueResource) -> i64 {
        self.limit[resource as usize].cap(self.request.get(resource))
    }

    /// What it may hold without being over its share: quota or fair share, whichever is more, up to the limit.
    pub fn allocatable(&self) -> [Ceiling; 3] {
        QueueResource::ALL.map(|resource| {
            let index = resource as usize;
            let Ceiling::At(quota) = self.quota[index] else { return self.limit[index] };
            let entitled = quota.max(self.fair_share.get(resource));
            Ceiling::At(self.limit[index].cap(entitled))
        })
    }
}

impl QueueAccounts {
    /// Books nothing yet for each queue.
    pub fn new(queues: &[Queue], total: ResourceQuantities) -> Self {
        Self { rows: queues.iter().map(QueueRow::new).collect(), total, version: 0 }
    }

    /// One queue.
    pub fn row(&self, queue: QueueId) -> &QueueRow {
        &self.rows[queue.index()]
    }

    /// The queue, its parent, and so on to the top.
    pub fn path(&self, queue: QueueId) -> impl Iterator<Item = QueueId> + '_ {
        std::iter::successors(Some(queue), |queue| self.row(*queue).parent)
    }

    /// The same path from the top down.
    pub fn path_from_top(&self, queue: QueueId) -> Vec<QueueId> {
        let mut path: Vec<_> = self.path(queue).collect();
        path.reverse();
        path
    }

    /// Adds to what the queue and all above it hold; negative amounts take away.
    pub fn charge(&mut self, queue: QueueId, amount: ResourceQuantities, preemptible: bool) {
        self.version += 1;
        let mut next = Some(queue);
        while let Some(queue) = next {
            let row = &mut self.rows[queue.index()];
            row.allocated += amount;
            if !preemptible {
                row.allocated_non_preemptible += amount;
            }
            row.version = row.version.wrapping_add(1);
            next = row.parent;
        }
    }

    /// Adds to what the queue and all above it want.
    pub fn ask(&mut self, queue: QueueId, amount: ResourceQuantities) {
        let mut next = Some(queue);
        while let Some(queue) = next {
            let row = &mut self.rows[queue.index()];
            row.request += amount;
            next = row.parent;
        }
    }

    /// The two queues at which the paths of `left` and `right` part, seen from the top; the ends if one path
    /// contains the other.
    pub fn diverging_ancestors(&self, left: QueueId, right: QueueId) -> (QueueId, QueueId) {
        let (left, right) = (self.path_from_top(left), self.path_from_top(right));
        left.iter().copied().zip(right.iter().copied()).find(|(left, right)| left != right).unwrap_or_else(|| {
            let last = left.len().min(right.len()) - 1;
            (left[last], right[last])
        })
    }
}
