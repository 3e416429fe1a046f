//! Calls of the scheduler.

use std::collections::BTreeMap;

use kai_api::{BindRequest, SchedulingCondition};

use crate::key::{GroupKey, Key, PodKey};

/// One call of the scheduler. All are idempotent.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    CreateBindRequest(Box<BindRequest>),
    /// One object with the requests of all these pods.
    CreateBindBatch {
        batch: Box<BindRequest>,
        pods: Vec<PodKey>,
    },
    /// A request of its own, or one in a batch.
    DeleteBindRequest(Key),
    /// Put the pod into the shard that bound it.
    LabelPod {
        pod: PodKey,
        key: String,
        value: String,
    },
    Evict {
        pod: PodKey,
        uid: String,
        message: String,
    },
    /// `status.nominatedNodeName`; `None` removes it.
    Nominate {
        pod: PodKey,
        node: Option<String>,
    },
    /// The annotations with the group's times; `None` removes one.
    PatchGroupTimestamps {
        group: GroupKey,
        annotations: BTreeMap<String, Option<String>>,
    },
    /// The group's scheduling conditions, all of them.
    SetGroupConditions {
        group: GroupKey,
        conditions: Vec<SchedulingCondition>,
        /// The object has such a condition already: low priority.
        is_update: bool,
    },
    /// `PodScheduled=False`. Autoscalers add nodes for reason `Unschedulable`, and for no other.
    SetUnschedulable {
        pod: PodKey,
        reason: &'static str,
        message: String,
        /// The object has such a condition already: low priority.
        is_update: bool,
    },
    Emit(Event),
}

/// An event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub about: InvolvedObject,
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
    pub annotations: BTreeMap<String, String>,
}

/// The object that an event is about, with its uid: `involvedObject` in core/v1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InvolvedObject {
    Pod(PodKey, String),
    PodGroup(GroupKey, String),
}
