//! Which jobs a search may take pods from, before it is asked whether each may lose them now.

use crate::ids::{JobId, QueueId};

/// Which jobs may lose pods for a job.
#[derive(Clone, Debug)]
pub(crate) struct VictimScope {
    /// The job that needs the room.
    pub preemptor: JobId,
    /// Leaf queues of victims.
    pub queues: Vec<QueueId>,
    /// By which rule.
    pub rule: VictimRule,
}

/// The rule by which victims are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VictimRule {
    /// Any job, since all keep a place.
    Move,
    /// Jobs of lower priority.
    LowerPriority,
    /// Jobs of other queues.
    OtherQueue,
}
