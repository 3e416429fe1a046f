//! Why pods are bound, pipelined and evicted.

use kai_engine::units::{Ceiling, QueueResource, Span};
use serde::{Deserialize, Serialize};

use super::{QueueRef, wire};
use crate::key::GroupKey;

/// Why a pod was bound now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindReason {
    /// Pods of its job that were bound in this cycle, itself included.
    pub together: u32,
    /// What its queue holds now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueHolding>,
}

/// What a queue holds of a resource, and what it is entitled to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueHolding {
    pub queue: QueueRef,
    #[serde(with = "wire::resource")]
    pub resource: QueueResource,
    pub allocated: i64,
    pub fair_share: i64,
}

/// Why a pod is pipelined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PipelineReason {
    /// It starts when terminating pods release the resources.
    Waits,
    /// It moves: it runs elsewhere, and starts here when that pod has terminated.
    Moves,
}

/// Why a pod is evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum EvictionReason {
    /// For a job of higher priority in its queue.
    Preemption { preemptor: GroupKey, preemptor_priority: i32, priority: i32 },
    /// It moves to another node, so that a job has room.
    Consolidation { preemptor: GroupKey },
    /// For a job of another queue. The queues as they stood before, where their shares are known.
    Reclaim {
        preemptor: GroupKey,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        victim_queue: Option<ReclaimSide>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preemptor_queue: Option<ReclaimSide>,
    },
    /// Its job runs without the pods it needs.
    StaleGang {
        #[serde(rename = "forMicros", default, with = "wire::maybe_micros", skip_serializing_if = "Option::is_none")]
        since: Option<Span>,
    },
    /// For a job, by another action.
    Other {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preemptor: Option<GroupKey>,
    },
}

/// One of the two queues of a reclaim, as it stood before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimSide {
    #[serde(flatten)]
    pub holding: QueueHolding,
    #[serde(with = "wire::ceiling")]
    pub quota: Ceiling,
    pub priority: i32,
}

/// Why a bind request is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum StaleBindRequest {
    /// It was made for an earlier pod of the name.
    EarlierPod,
    /// The pod could not be bound.
    Failed {
        node: String,
    },
    NodeGone {
        node: String,
    },
}
