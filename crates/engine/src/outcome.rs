//! What a cycle decided and why: plain data. Wording, events and API objects are made outside.

use std::sync::Arc;

use crate::ids::{ClaimId, DeviceId, JobId, NodeId, PodMatcherId, PodSetId, QueueId, TaskId};
use crate::policy::Action;
use crate::snapshot::{Grant, NodeRule, ZoneAllocation};
use crate::units::{QueueResource, ResourceQuantities, Span, Timestamp};

/// The result of one cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What to do, in order; decisions about one gang are neighbours.
    pub decisions: Vec<Decision>,
    /// Why jobs still wait, by job.
    pub verdicts: Vec<Verdict>,
    /// What each queue is entitled to and holds, by queue.
    pub queue_states: Vec<QueueState>,
    /// Times that changed and must be persisted, by job.
    pub job_timestamps: Vec<JobTimestamps>,
    /// Nominations that changed and must be persisted, by pod.
    pub nominations: Vec<Nomination>,
    /// The earliest time at which the next cycle may decide otherwise though nothing has happened: a delay, a grace
    /// period, a minimum runtime or a cooldown ends. `None`: only an event can change anything.
    pub next_change_at: Option<Timestamp>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Bind the pod now.
    Bind {
        /// The pod.
        task: TaskId,
        /// Its place.
        assignment: Assignment,
    },
    /// The pod is pipelined: it gets this place once it is free. Beyond the cycle only a [`Nomination`] keeps it.
    Pipeline {
        /// The pod.
        task: TaskId,
        /// Its place.
        assignment: Assignment,
    },
    /// Remove the pod from its node.
    Evict {
        /// The pod.
        task: TaskId,
        /// For whom and by which rule.
        cause: EvictionCause,
    },
}

impl Decision {
    /// The pod it is about.
    pub fn task(&self) -> TaskId {
        match self {
            Self::Bind { task, .. } | Self::Pipeline { task, .. } | Self::Evict { task, .. } => *task,
        }
    }
}

/// A node and, for shared GPUs, the devices on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The node.
    pub node: NodeId,
    /// Shared devices.
    pub devices: Vec<DeviceRef>,
    /// NUMA zones that its resources are expected to come from.
    pub zones: Vec<ZoneAllocation>,
    /// Devices of its resource claims.
    pub grants: Vec<Grant>,
}

/// A shared GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceRef {
    /// Shared before this cycle.
    Existing(DeviceId),
    /// Opened in this cycle; equal numbers are the same device.
    Fresh(u32),
}

/// Why a pod is evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionCause {
    /// The action.
    pub action: Action,
    /// The job for which it is evicted, unless the gang was stale.
    pub preemptor: Option<JobId>,
    /// Pods evicted or moved together with this one, itself included.
    pub gang_size: u32,
    /// For reclaim: the two queues as they stood before this batch.
    pub reclaim_sides: Option<(ReclaimSide, ReclaimSide)>,
}

/// One side of a reclaim, as it stood before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimSide {
    /// The queue that is compared.
    pub queue: QueueId,
    /// What it held.
    pub allocated: ResourceQuantities,
    /// What it is entitled to.
    pub fair_share: ResourceQuantities,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The job.
    pub job: JobId,
    /// The obstacles, in the order in which they were found.
    pub reasons: Vec<Reason>,
}

/// One obstacle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its queue does not exist, or hangs from one that does not.
    QueueMissing,
    /// Its queue has children, so that it holds no jobs itself.
    QueueNotLeaf {
        /// The queue.
        queue: QueueId,
    },
    /// Too few pods exist for its minimum.
    NotReady {
        /// Each pod set that is short.
        short: Vec<PodSetShortage>,
    },
    /// It was given a place in this cycle, which then went to a job that comes first.
    PlacementRevoked,
    /// It was not tried: the action looks at a few jobs of each queue only.
    NotReached,
    /// A queue limit would be exceeded.
    OverLimit(CapacityExceeded),
    /// Work that cannot be preempted must stay within quota.
    NonPreemptibleOverQuota(CapacityExceeded),
    /// A pod found no node.
    NoRoom {
        /// The pod.
        task: TaskId,
        /// Pods of its pod set that found room in the same attempt.
        placed: u32,
        /// Pods of its pod set that had to.
        wanted: u32,
        /// Why each node was refused; pods that are alike share one.
        nodes: Arc<ObstacleCounts>,
    },
    /// No domain of a topology holds the group.
    NoDomain {
        /// The constraint, an index into the snapshot's.
        constraint: u32,
        /// Pods to place.
        wanted: u32,
        /// Each domain that was looked at; none if all of them together are too small.
        domains: Vec<DomainFit>,
    },
    /// A topology, or a level of it, does not exist.
    UnknownTopology {
        /// The constraint, an index into the snapshot's.
        constraint: u32,
    },
    /// Others may not be evicted for it yet.
    PreemptionDelay {
        /// The delay.
        delay: Span,
        /// When it ends.
        until: Timestamp,
    },
    /// A search for victims ended without success.
    NoVictims {
        /// The action that searched.
        action: Action,
        /// How it ended.
        stop: SearchStop,
        /// Victim scenarios tried.
        scenarios: u32,
        /// Most pods of the job that a scenario made room for.
        placed: u32,
        /// Pods it needs.
        wanted: u32,
        /// Why scenarios were refused.
        refused: ScenarioRejections,
        /// Jobs protected by their minimum runtime.
        protected: Option<Protection>,
    },
}

/// Why scenarios of a search were refused, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScenarioRejections {
    /// The job did not fit, even without the victims.
    pub unplaced: u32,
    /// The action's rules: a victim would lose what it may not lose.
    pub by_rules: u32,
    /// Unstable: in the next cycle another job would have the place, or a victim would have none.
    pub unstable: u32,
    /// It would take more from running jobs than they may lose now.
    pub too_costly: u32,
}

/// Jobs that may not be evicted because they have not run for their minimum time, or were evicted a short time ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// How many.
    pub jobs: u32,
    /// The job that may be evicted first.
    pub next: JobId,
    /// When.
    pub until: Timestamp,
    /// Its minimum runtime, or the cooldown.
    pub span: Span,
    /// The queue that sets the minimum runtime; `None` is the scheduler's default.
    pub queue: Option<QueueId>,
    /// It was evicted recently.
    pub after_eviction: bool,
}

/// How much of a group a topology domain could take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainFit {
    /// Level of the topology.
    pub level: u32,
    /// The domain.
    pub domain: u32,
    /// Pods that it could take, where the pods are alike.
    pub fits: Option<u32>,
}

/// How a search for victims ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchStop {
    /// The job may not search at all.
    Ineligible(Ineligibility),
    /// No job may be evicted for this one.
    NoCandidates,
    /// Evicting all that may be evicted is not enough, or the rules refuse it.
    Exhausted,
    /// This job is ahead of it in its queue and asks for so much that every possible victim would be scheduled first.
    HeadOfLineBlocked(JobId),
    /// The step budget was used up.
    Budget,
    /// A job that is no harder failed before.
    NoEasierThan(JobId),
    /// No scenario generator is enabled.
    NoGenerator,
}

/// Why a search does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ineligibility {
    /// All GPUs that are free now or later are fewer than the job asks for, in millionths.
    FreeGpus {
        /// What it asks for.
        asked: i64,
        /// What is free.
        free: i64,
    },
    /// The same for GPU memory, in MiB.
    FreeMemory {
        /// What it asks for.
        asked: i64,
        /// What is free.
        free: i64,
    },
    /// The queue would exceed its fair share.
    FairShare(CapacityExceeded),
    /// Work that cannot be preempted would exceed a quota.
    Quota(CapacityExceeded),
    /// Consolidation has moved as many pods as it may for now.
    MoveBudgetSpent,
}

/// A pod set with too few pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSetShortage {
    /// The pod set.
    pub pod_set: PodSetId,
    /// Pods it needs.
    pub required: u32,
    /// Pods that exist, gated ones included.
    pub existing: u32,
    /// Pods held back by gates.
    pub gated: u32,
}

/// A limit, quota or fair share of a queue that would be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityExceeded {
    /// The queue whose bound it is.
    pub queue: QueueId,
    /// The resource.
    pub resource: QueueResource,
    /// The bound.
    pub cap: i64,
    /// What counts against it already.
    pub allocated: i64,
    /// What the job asks for, of every resource.
    pub request: ResourceQuantities,
}

impl CapacityExceeded {
    /// What the job asks for of the resource.
    pub fn requested(&self) -> i64 {
        self.request.get(self.resource)
    }
}

/// Why nodes were refused: each node counts once, for its first obstacle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObstacleCounts {
    /// Obstacles with the number of nodes.
    pub counts: Vec<(NodeObstacle, u32)>,
}

/// Why a node was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeObstacle {
    /// Not enough of a column.
    Short {
        /// The column.
        column: u32,
        /// The smallest amount by which a node falls short.
        least: i64,
    },
    /// A GPU of the node has less memory than asked for.
    DeviceTooSmall {
        /// The largest memory of a GPU seen, in MiB.
        largest: i64,
    },
    /// No GPU has enough memory left.
    DeviceMemory,
    /// A placement rule.
    Rule(NodeRule),
    /// A queue bound, with what the pod costs on this node.
    Queue(QueueId, QueueResource),
    /// No pod slot left.
    PodSlots,
    /// A host port is taken.
    Ports,
    /// Another pod, or the lack of one.
    InterPod(InterPodObstacle),
    /// It cannot take the pod's volumes.
    Volumes(VolumeObstacle),
    /// Its NUMA zones cannot be aligned as the node's policy demands.
    Numa,
    /// It cannot serve the pod's resource claims.
    Claim(ClaimObstacle),
    /// Not among the nodes offered (another domain).
    OutsideDomain,
}

/// Why inter-pod rules refuse a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterPodObstacle {
    /// No matching pod is there.
    NoMatchingPod(PodMatcherId),
    /// A pod that its anti-affinity matches is there.
    AntiAffinity(PodMatcherId),
    /// A pod whose anti-affinity matches it is there.
    ExistingAntiAffinity(PodMatcherId),
    /// The domain has too many matching pods already.
    Skew(PodMatcherId),
    /// The node is in no domain.
    NoDomain(PodMatcherId),
}

/// Why a node cannot serve the claims of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimObstacle {
    /// The claim's devices cannot be used from there.
    Elsewhere(ClaimId),
    /// Too few devices that match are free; the claim is the first that could not be served.
    Devices(ClaimId),
    /// A selector fails on a device: an index into [`crate::snapshot::Claims::selector_matches`].
    Selector(u32),
    /// The search ran out of steps.
    Steps(ClaimId),
}

/// What a node has too many or too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeObstacle {
    /// It takes no more volumes of this driver.
    Driver(u32),
    /// Nothing, or too little, is left where it takes this kind of storage from.
    Storage(u32),
}

/// What a queue is entitled to and holds, at the end of the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueState {
    /// Its fair share.
    pub fair_share: ResourceQuantities,
    /// What it holds, pipelined pods included.
    pub allocated: ResourceQuantities,
    /// The part that cannot be preempted.
    pub allocated_non_preemptible: ResourceQuantities,
    /// What it holds plus what it waits for, when the cycle began.
    pub request: ResourceQuantities,
}

/// Times of a job that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTimestamps {
    /// The job.
    pub job: JobId,
    /// It started running.
    pub last_start: Option<Timestamp>,
    /// It lacks its minimum since; `None` clears it.
    pub stale_since: Option<Timestamp>,
    /// One of its pods was evicted.
    pub last_eviction: Option<Timestamp>,
}

/// The nomination of a waiting pod for a node on which pods were evicted for it: in the next cycle it comes first
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nomination {
    /// The pod.
    pub task: TaskId,
    /// The node; `None` ends the nomination.
    pub node: Option<NodeId>,
}
