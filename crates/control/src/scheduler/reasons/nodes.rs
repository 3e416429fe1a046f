//! Why nodes do not take a pod.

use kai_engine::units::QueueResource;
use serde::{Deserialize, Serialize};

use super::{QueueRef, wire};
use crate::devices::{ClaimFault, SelectorError};
use crate::key::{Key, PodKey};

/// Why no node takes a pod: each node counts once, for its first obstacle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeObstacles {
    /// Nodes of the node pool.
    pub nodes: u32,
    pub counts: Vec<NodeCount>,
}

/// An obstacle and on how many nodes it is the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCount {
    pub nodes: u32,
    pub obstacle: NodeObstacle,
}

/// An amount of a resource of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Unit {
    MilliCores,
    Bytes,
    MicroGpus,
    /// Thousandths.
    Milli,
    /// Whole ones.
    One,
}

/// An amount of a resource of nodes, by Kubernetes' name of the resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Amount {
    pub resource: String,
    pub value: i64,
    pub unit: Unit,
}

/// Why a node was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum NodeObstacle {
    /// Not enough of a resource is free.
    Short {
        /// The smallest amount by which a node falls short.
        least: Amount,
        /// What the pod asks for.
        requested: i64,
        /// The most that any node has, when empty.
        largest: i64,
        /// The pod shares GPUs, so that what it asks for is no number of this resource.
        shares_gpus: bool,
    },
    /// The GPUs have too little memory; absent if it is unknown.
    GpuTooSmall {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        largest_mib: Option<i64>,
    },
    /// No GPU has enough left.
    GpuMemory {
        requested: GpuRequest,
    },
    Rule {
        rule: NodeRule,
    },
    /// A resource claim of the pod cannot be used anywhere.
    ClaimFault {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fault: Option<ClaimFault>,
    },
    /// A queue would exceed what it may use.
    QueueBound {
        queue: QueueRef,
        #[serde(with = "wire::resource")]
        resource: QueueResource,
    },
    PodSlots,
    HostPorts,
    /// Another pod, or the lack of one.
    InterPod {
        rule: InterPodRule,
    },
    /// As many volumes of a CSI driver as it takes.
    VolumeLimit {
        driver: String,
    },
    /// Too little capacity of a storage class.
    StorageCapacity {
        class: String,
    },
    /// Its NUMA zones cannot be aligned.
    Numa,
    /// It cannot serve the resource claims of the pod.
    Claims {
        refusal: ClaimRefusal,
    },
    /// It is in another topology domain than the one that was tried.
    OutsideDomain,
}

/// What a pod asks for of shared GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum GpuRequest {
    Memory {
        devices: u32,
        mib: i64,
    },
    /// Millionths of each GPU.
    Fraction {
        devices: u32,
        portion: i64,
    },
    Other,
}

macro_rules! node_rules {
    ($($(#[$doc:meta])* $rule:ident,)*) => {
        /// A property of a node, or its lack, that keeps a pod away.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub enum NodeRule {
            $($(#[$doc])* $rule,)*
        }

        impl NodeRule {
            /// `None` for a fault of a resource claim, which is an obstacle of its own.
            pub(in crate::scheduler) fn of(rule: kai_engine::snapshot::NodeRule) -> Option<Self> {
                match rule {
                    $(kai_engine::snapshot::NodeRule::$rule => Some(Self::$rule),)*
                    kai_engine::snapshot::NodeRule::Claim(_) => None,
                }
            }
        }
    };
}

node_rules! {
    /// It cannot take pods that ask for MIG by annotation.
    LegacyMig,
    /// It has no MIG.
    MigOnly,
    /// It has pods that asked for MIG by annotation.
    LegacyMigNeighbour,
    /// MIG strategy single: for pods with whole GPUs only.
    MigSingle,
    /// MIG strategy mixed: for pods with MIG profiles only.
    MigMixed,
    /// It has no GPUs of known memory.
    DeviceMemoryUnknown,
    /// It cannot share GPUs.
    SharingUnsupported,
    Cordoned,
    NotReady,
    MemoryPressure,
    DiskPressure,
    PidPressure,
    NetworkUnavailable,
    /// A taint that the pod does not tolerate.
    Taint,
    /// Node selector or node affinity of the pod.
    Affinity,
    /// Objects that the pod refers to are missing.
    Prerequisite,
    VolumeUnreachable,
    VolumeZone,
    NoVolume,
    StorageFull,
    NotGpuWorker,
    NotCpuWorker,
    /// Its GPUs are for resource claims only.
    ClaimsOnly,
}

/// A rule about other pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum InterPodRule {
    /// Pod affinity finds no pod in the same domain.
    Affinity {
        topology_key: String,
        selector: String,
        /// No pod that runs matches, on whatever node.
        no_match_anywhere: bool,
    },
    /// The pod's anti-affinity.
    AntiAffinity { topology_key: String, pods: OtherPods },
    /// The anti-affinity of pods that are there.
    ExistingAntiAffinity { topology_key: String, pods: OtherPods },
    /// Pods that use a `ReadWriteOncePod` claim.
    ExclusiveClaim { claim: Key, pods: OtherPods },
    /// A topology spread constraint.
    Spread { topology_key: String, selector: String },
    /// The node lacks the label.
    NoTopologyLabel { topology_key: String },
}

/// Pods, of which one is named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherPods {
    /// Absent if they were placed in this very cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<PodKey>,
    /// How many besides.
    pub more: u32,
}

/// Why a node cannot serve resource claims. A claim is absent if it is the one for extended resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ClaimRefusal {
    /// The devices of the claim cannot be used from there.
    Elsewhere { claim: Option<Key> },
    /// Too few devices are free.
    Devices { claim: Option<Key> },
    /// The search took too long.
    Steps { claim: Option<Key> },
    /// A selector fails on a device.
    Selector { error: Option<SelectorError> },
    /// Nothing more is known.
    Unknown,
}
