//! Why the scheduler did something, or nothing: data with names instead of ids. [`explain`](super::explain) makes
//! sentences of it; nothing else does, and nothing reads them back.
//!
//! Unless a field names another unit, amounts are milli-cores, bytes and millionths of a GPU.

mod decisions;
mod nodes;
mod objects;
mod searches;
mod shared;
mod volumes;
pub(in crate::scheduler) mod wire;

pub use decisions::{BindReason, EvictionReason, PipelineReason, QueueHolding, ReclaimSide, StaleBindRequest};
pub use nodes::{
    Amount, ClaimRefusal, GpuRequest, InterPodRule, NodeCount, NodeObstacle, NodeObstacles, NodeRule, OtherPods, Unit,
};
pub use objects::{IgnoredPod, ProblemReason, QueueFault, SubGroupFault};
pub use searches::{ProtectedJobs, Rejections, SearchResult, SearchStop};
pub use shared::Shared;
pub use volumes::{MissingObject, UnboundClaim, VolumeNote};

use kai_api::keys::reason;
use kai_engine::units::{QueueResource, ResourceQuantities, Span, Timestamp};
use serde::{Deserialize, Serialize};

use crate::key::PodKey;

/// KAI's reason for a topology domain that is too small.
const DOMAIN_TOO_SMALL: &str = "Not enough resources for the workload";

/// A job in a queue that holds queues.
const QUEUE_NOT_LEAF: &str = "QueueIsNotLeaf";

/// The reason of a pod group whose sub-groups are no tree.
pub(in crate::scheduler) const INVALID_POD_GROUP: &str = "InvalidPodGroup";

/// Why a job is pending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PendingReason {
    /// Some or all of its waiting pods start when terminating pods release their nodes.
    Pipelined { pipelined: u32, waiting: u32 },
    /// Nothing was tried for it in this cycle.
    NotAttempted,
    /// Its sub-groups are no tree.
    InvalidPodGroup { fault: SubGroupFault },
    /// Its queue cannot be used.
    QueueMissing { queue: String, cause: MissingQueue },
    /// Its queue, or one above it, is for other namespaces only.
    NamespaceNotAllowed { namespace: String, queue: String, allowed: String },
    /// Its queue has queues below it.
    QueueNotLeaf { queue: QueueRef, children: Vec<String> },
    /// Too few of the pods exist that must start together; nothing listed if whole sub-groups are missing.
    NotReady { short: Vec<PodShortage> },
    /// A queue limit would be exceeded.
    OverLimit { limit: QueueBound },
    /// Work that cannot be preempted would exceed the quota of a queue.
    NonPreemptibleOverQuota { quota: QueueBound },
    /// A pod refers to objects without which it can run nowhere.
    MissingObjects { pod: PodKey, missing: Vec<MissingObject> },
    /// A pod found no node.
    NoNode {
        pod: PodKey,
        /// Set if several pods must start together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gang: Option<GangPlacement>,
        nodes: Shared<NodeObstacles>,
        /// What its volumes have to do with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        volumes: Vec<VolumeNote>,
    },
    /// No domain of a topology has room for all pods that must stay together.
    NoDomain {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        constraint: Option<TopologyLevel>,
        pods: u32,
        /// Domains that were looked at; none if all of them together are too small.
        domains: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        best: Option<DomainRoom>,
    },
    /// A topology constraint cannot be understood.
    UnknownTopology { fault: TopologyFault },
    /// Nothing may be evicted for the job yet.
    PreemptionDelay {
        #[serde(rename = "delayMicros", with = "wire::micros")]
        delay: Span,
        #[serde(with = "wire::time")]
        until: Timestamp,
    },
    /// Its placement of this cycle was given to a job with precedence.
    PlacementRevoked,
    /// The limit of jobs per queue and cycle was reached before its turn.
    NotReached,
    /// No capacity can be freed for it: what consolidation, reclaim and preemption found.
    NoVictims { searches: Shared<Vec<SearchResult>> },
}

impl PendingReason {
    /// The reason as KAI writes it in conditions and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Pipelined { .. } => reason::PIPELINED,
            Self::NotAttempted | Self::NoVictims { .. } => reason::UNSCHEDULABLE,
            Self::InvalidPodGroup { .. } => INVALID_POD_GROUP,
            Self::QueueMissing { .. } => reason::QUEUE_DOES_NOT_EXIST,
            Self::NamespaceNotAllowed { .. } => reason::NAMESPACE_NOT_ALLOWED,
            Self::QueueNotLeaf { .. } => QUEUE_NOT_LEAF,
            Self::NotReady { .. } => reason::NOT_READY,
            Self::OverLimit { .. } => reason::OVER_LIMIT,
            Self::NonPreemptibleOverQuota { .. } => reason::NON_PREEMPTIBLE_OVER_QUOTA,
            Self::MissingObjects { .. }
            | Self::NoNode { .. }
            | Self::UnknownTopology { .. }
            | Self::PlacementRevoked
            | Self::NotReached => reason::POD_SCHEDULING_ERRORS,
            Self::NoDomain { .. } => DOMAIN_TOO_SMALL,
            Self::PreemptionDelay { .. } => reason::PREEMPTION_DELAY_NOT_ELAPSED,
        }
    }
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRef {
    pub name: String,
    /// What people call it, if that is not its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

impl QueueRef {
    /// What people call it.
    pub fn shown(&self) -> &str {
        self.display_name.as_deref().unwrap_or(&self.name)
    }
}

/// A bound of a queue that is in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueBound {
    pub queue: QueueRef,
    #[serde(with = "wire::resource")]
    pub resource: QueueResource,
    pub bound: i64,
    /// What counts against it already.
    pub allocated: i64,
    /// What the job asks for, of every resource.
    #[serde(with = "wire::triple")]
    pub request: ResourceQuantities,
}

impl QueueBound {
    /// What the job asks for of the resource.
    pub fn requested(&self) -> i64 {
        self.request.get(self.resource)
    }
}

/// Why the queue of a job cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum MissingQueue {
    /// The job names none.
    NotNamed,
    /// The queue cannot be used as it is written.
    Faulty { fault: QueueFault },
    /// It belongs to another node pool.
    OtherNodePool,
    /// There is none of that name.
    Unknown {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        similar: Option<String>,
    },
}

/// A pod set with too few pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodShortage {
    /// Absent if the job has no sub-groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_group: Option<String>,
    pub required: u32,
    /// Gated ones included.
    pub existing: u32,
    pub gated: u32,
}

/// How many of the pods that must start together found room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GangPlacement {
    /// Absent if the job has no sub-groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_group: Option<String>,
    pub placed: u32,
    pub wanted: u32,
}

/// A level of a topology, as a job names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    pub topology: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

/// A topology domain and how many of the pods it has room for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainRoom {
    pub domain: String,
    pub pods: u32,
}

/// What is wrong with a topology constraint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum TopologyFault {
    /// The constraint itself is no longer known.
    Unknown,
    NoTopology {
        topology: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        similar: Option<String>,
    },
    NoLevel {
        topology: String,
        level: String,
        /// Required, or merely preferred.
        required: bool,
        levels: Vec<String>,
    },
    /// It names no level.
    NoLevelNamed { topology: String, levels: Vec<String> },
    /// The required level is narrower than the preferred one.
    LevelsSwapped { topology: String, levels: Vec<String> },
}
