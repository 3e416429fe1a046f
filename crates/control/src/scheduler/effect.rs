//! What a cycle decides and explains: plain data for the shell.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use kai_engine::policy::Action;
use kai_engine::units::{Ceiling, ResourceQuantities, Timestamp};
use kai_workloads::brief;
use serde::{Deserialize, Serialize};

use super::reasons::{
    BindReason, EvictionReason, IgnoredPod, PendingReason, PipelineReason, ProblemReason, StaleBindRequest, wire,
};
pub use crate::devices::{ClaimedDevices, ExtendedDevices};
use crate::key::{GroupKey, Key, PodKey};
use crate::kinds::ObjectId;

/// Effects and explanations of a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CycleResult {
    /// What to do, in order; effects of one gang are neighbours.
    pub effects: Vec<Effect>,
    /// Jobs that still wait, by name, and why.
    pub pending: Vec<Arc<PendingJob>>,
    /// Queues that take part, by name.
    pub queues: Vec<QueueView>,
    /// Objects that could not be used as written.
    pub problems: Vec<Problem>,
    /// The earliest time at which the next cycle may decide otherwise though nothing has changed in the cluster: a delay,
    /// a grace period, a minimum runtime or a cooldown ends, or a terminating pod counts as stuck. `None`: only a change
    /// in the cluster, new usage data or the end of an assumption can make a difference.
    pub next_change_at: Option<Timestamp>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Effect {
    /// Bind the pod to the node now.
    Bind {
        pod: PodKey,
        job: GroupKey,
        node: String,
        received: Received,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        gpu_groups: Vec<GpuGroup>,
        #[serde(default, skip_serializing_if = "BindExtras::is_empty")]
        extras: BindExtras,
        #[serde(rename = "reason")]
        why: BindReason,
    },
    /// The pod is pipelined: it will get this node once terminating pods release the resources. Beyond the cycle only
    /// [`Effect::Nominate`] keeps the node for it.
    Pipeline {
        pod: PodKey,
        job: GroupKey,
        node: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        gpu_groups: Vec<GpuGroup>,
        #[serde(rename = "reason")]
        why: PipelineReason,
    },
    /// Delete the pod.
    Evict {
        pod: PodKey,
        job: GroupKey,
        /// Where it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        #[serde(with = "wire::action")]
        action: Action,
        /// The job for which it is evicted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preemptor: Option<GroupKey>,
        /// Pods evicted or moved together with this one, itself included.
        gang_size: u32,
        #[serde(rename = "reason")]
        why: EvictionReason,
    },
    /// Store the three times of a job on its pod group; `None` removes one.
    SetGroupTimestamps {
        job: GroupKey,
        #[serde(default, with = "wire::maybe_time", skip_serializing_if = "Option::is_none")]
        last_start: Option<Timestamp>,
        #[serde(default, with = "wire::maybe_time", skip_serializing_if = "Option::is_none")]
        stale_since: Option<Timestamp>,
        #[serde(default, with = "wire::maybe_time", skip_serializing_if = "Option::is_none")]
        last_eviction: Option<Timestamp>,
    },
    /// Set or remove `status.nominatedNodeName` of a pending pod: pods are evicted for it on this node, where it comes
    /// first in the next cycle.
    Nominate {
        pod: PodKey,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
    },
    /// Delete a bind request that failed for good or names a node that no longer exists.
    DeleteBindRequest {
        request: Key,
        #[serde(rename = "reason")]
        why: StaleBindRequest,
    },
    /// Report on a pod that the scheduler ignores it, and why.
    MarkPod { pod: PodKey, reason: IgnoredPod },
}

impl Effect {
    /// Whether a pod is bound, pipelined or evicted.
    pub fn is_placement(&self) -> bool {
        match self {
            Self::Bind { .. } | Self::Pipeline { .. } | Self::Evict { .. } => true,
            Self::SetGroupTimestamps { .. }
            | Self::Nominate { .. }
            | Self::DeleteBindRequest { .. }
            | Self::MarkPod { .. } => false,
        }
    }
}

/// A shared GPU, which has its name as long as pods share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GpuGroup {
    pub name: String,
    /// Opened by this cycle.
    pub fresh: bool,
}

/// What a bound pod gets beyond its node and GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BindExtras {
    /// NUMA zones that its resources are expected to come from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub numa_zones: Vec<NumaZone>,
    /// Devices of its resource claims.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimedDevices>,
    /// Devices for extended resources that a device class provides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended: Option<ExtendedDevices>,
}

impl BindExtras {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Amounts of one NUMA zone: quantities by resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NumaZone {
    pub zone: String,
    pub amount: BTreeMap<String, String>,
}

/// What a bound pod gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Received {
    pub kind: ResourceType,
    pub devices: u32,
    /// Millionths of each device.
    pub portion: i64,
}

/// Kind of resource a bound pod gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceType {
    Regular,
    Fraction,
    MigInstance,
}

/// A reason for programs and a message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub reason: &'static str,
    pub message: String,
}

/// Characters of a message: some paragraphs. Longer ones repeat what users wrote.
const MESSAGE_CHARS_MAX: usize = 1_500;

impl Explanation {
    pub fn new(reason: &'static str, message: String) -> Self {
        let message = match brief(&message, MESSAGE_CHARS_MAX) {
            Cow::Borrowed(_) => message,
            Cow::Owned(short) => short,
        };
        Self { reason, message }
    }
}

/// A pending job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingJob {
    pub job: GroupKey,
    /// As its owner wrote it, existing or not.
    pub queue: String,
    /// In the order in which they were met.
    pub reasons: Vec<PendingReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Blocked>,
    /// The reasons in sentences, made when they are first read.
    #[serde(skip)]
    pub(super) explanations: OnceLock<Vec<Explanation>>,
}

impl PendingJob {
    pub fn new(job: GroupKey, queue: String, reasons: Vec<PendingReason>, blocked: Option<Blocked>) -> Self {
        Self { job, queue, reasons, blocked, explanations: OnceLock::new() }
    }
}

impl PartialEq for PendingJob {
    fn eq(&self, other: &Self) -> bool {
        let Self { job, queue, reasons, blocked, explanations: _ } = self;
        (job, queue, reasons, blocked) == (&other.job, &other.queue, &other.reasons, &other.blocked)
    }
}

impl Eq for PendingJob {}

/// A queue whose limit or quota keeps a job waiting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Blocked {
    /// The queue of the job, or one above it.
    pub queue: String,
    /// What the job asks for.
    #[serde(with = "wire::triple")]
    pub request: ResourceQuantities,
    pub preemptible: bool,
}

/// A queue at the end of the cycle: milli-cores, bytes, millionths of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueView {
    pub name: String,
    pub display_name: String,
    pub parent: Option<String>,
    pub priority: i32,
    #[serde(with = "wire::ceilings")]
    pub quota: [Ceiling; 3],
    #[serde(with = "wire::ceilings")]
    pub limit: [Ceiling; 3],
    /// Over-quota weights in millionths: CPU, memory, GPU.
    pub weight: [i64; 3],
    #[serde(with = "wire::triple")]
    pub fair_share: ResourceQuantities,
    #[serde(with = "wire::triple")]
    pub allocated: ResourceQuantities,
    #[serde(with = "wire::triple")]
    pub allocated_non_preemptible: ResourceQuantities,
    #[serde(with = "wire::triple")]
    pub request: ResourceQuantities,
}

/// An object that could not be used as written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    pub object: ObjectId,
    pub reason: ProblemReason,
}
