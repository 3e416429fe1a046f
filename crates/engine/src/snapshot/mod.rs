//! What the engine sees of a cluster: numbers in columns, immutable for a whole cycle.
//!
//! Everything that is known of a pod whatever else runs is stated here: requests are interned as [`Shape`]s, rules
//! about nodes as [`NodeFilter`]s. Names stay outside; ids follow name order.

pub mod builder;
mod claims;
mod inter_pod;
mod numa;
mod topology;
mod validate;
mod volumes;

use fixedbitset::FixedBitSet;

pub use claims::{
    Allocation, AllocationMode, Claim, ClaimAsk, ClaimDevice, ClaimRequest, Claims, Grant, MatchAttribute, Pick,
    SelectorMatches, SubRequest,
};
pub use inter_pod::{InterPodRules, PodMatcher, SpreadConstraint, TopologyKey, UnmanagedPod};
pub use numa::{
    Numa, NumaAsk, NumaNode, NumaUnit, NumaZone, TopologyManagerPolicy, TopologyManagerScope, ZoneAllocation,
};
pub use topology::{Constraint, LevelRef, Topology};
pub use volumes::{VolumeNeed, Volumes};

use crate::ids::{
    DeviceId, GroupId, IdRange, JobId, NodeFilterId, NodeId, PodMatcherId, PodSetId, PortId, QueueId, ShapeId, TaskId,
};
use crate::units::compat::DEVICE_MEMORY_DEFAULT;
use crate::units::{Ceiling, GPU, ResourceQuantities, Span, Timestamp};

/// A cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// What each column of a resource vector counts; the first four are fixed, see [`ResourceKind`].
    pub resources: Vec<ResourceKind>,
    /// Nodes, by name.
    pub nodes: Nodes,
    /// Queues that may hold work, by name; every parent named here exists and there are no cycles.
    pub queues: Vec<Queue>,
    /// Jobs, by name.
    pub jobs: Vec<Job>,
    /// Inner groups of all jobs; a job's root comes first.
    pub groups: Vec<Group>,
    /// Direct members of all groups, in name order within a group.
    pub members: Vec<Member>,
    /// Leaves of all sub-group trees.
    pub pod_sets: Vec<PodSet>,
    /// Pods of all jobs, grouped by pod set, in task order.
    pub tasks: Vec<Task>,
    /// Distinct requests.
    pub shapes: Vec<Shape>,
    /// Distinct placement rules.
    pub node_filters: Vec<NodeFilter>,
    /// Shared GPUs that exist before the cycle.
    pub devices: Vec<Device>,
    /// Device lists of tasks that hold shared GPUs; a task points at one.
    pub device_lists: Vec<Vec<DeviceId>>,
    /// Distinct sets of host ports; a task points at one.
    pub port_sets: Vec<Vec<PortId>>,
    /// For each host port, the ports it conflicts with, itself included.
    pub port_conflicts: Vec<Vec<PortId>>,
    /// Domain trees.
    pub topologies: Vec<Topology>,
    /// Distinct topology constraints of groups and pod sets.
    pub constraints: Vec<Constraint>,
    /// Node labels that inter-pod rules use.
    pub topology_keys: Vec<TopologyKey>,
    /// Pods that inter-pod rules count.
    pub matchers: Vec<PodMatcher>,
    /// Distinct lists of matchers; a task points at one.
    pub matcher_lists: Vec<Vec<PodMatcherId>>,
    /// Distinct rules about other pods; a task points at one.
    pub inter_pod: Vec<InterPodRules>,
    /// Pods of no job here, which others must respect.
    pub unmanaged_pods: Vec<UnmanagedPod>,
    /// NUMA zones of nodes, and what pods ask of them.
    pub numa: Numa,
    /// What pods hold beyond amounts and shared GPUs; a task points at one.
    pub extras: Vec<Extras>,
    /// Resource claims and the devices that they may be given.
    pub claims: Claims,
    /// Volumes that nodes or stores may run out of.
    pub volumes: Volumes,
}

/// What one column of a resource vector counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// Milli-cores. Always column 0.
    Cpu,
    /// Bytes. Always column 1.
    Memory,
    /// Millionths of a GPU. Always column 2.
    Gpu,
    /// Pod slots. Always column 3.
    Pods,
    /// Instances of a MIG profile, each worth this many slices to a queue.
    Mig {
        /// Compute slices of the profile.
        slices: u32,
        /// Memory units of the profile, for the estimate that precedes consolidation.
        memory: u32,
    },
    /// Any other counted resource, in thousandths.
    Scalar,
    /// The same where a device class provides it on nodes that have none of it otherwise.
    DeviceClassBacked,
}

/// Index of the CPU column.
pub const CPU: usize = 0;
/// Index of the memory column.
pub const MEMORY: usize = 1;
/// Index of the GPU column.
pub const GPUS: usize = 2;
/// Index of the pod-slot column.
pub const PODS: usize = 3;

/// Node columns. Vectors hold one row of `resources.len()` amounts per node.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    /// What can be used.
    pub allocatable: Vec<i64>,
    /// Held by pods that belong to no job here.
    pub unmanaged_used: Vec<i64>,
    /// The part of `unmanaged_used` that is being released.
    pub unmanaged_releasing: Vec<i64>,
    /// What pods of other schedulers ask for: not divided among queues.
    pub other_schedulers_requested: Vec<ResourceQuantities>,
    /// Whether the node counts towards the capacity that queues divide.
    pub ready: Vec<bool>,
    /// MiB of each GPU.
    pub device_memory: Vec<i64>,
    /// Host ports held by pods that belong to no job here.
    pub ports: Vec<Vec<PortId>>,
}

impl Nodes {
    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// All ids, in name order.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.ready.len()).map(NodeId::at)
    }
}

/// A queue, as users wrote it.
#[derive(Clone, Debug)]
pub struct Queue {
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
    /// Weight in what is left above quotas, in millionths.
    pub weight: [i64; 3],
    /// Past usage as a share of the cluster, in millionths.
    pub usage: [i64; 3],
    /// How long a job runs before a job of the same queue may take its place.
    pub preempt_min_runtime: Option<Span>,
    /// How long a job runs before another queue may take its place.
    pub reclaim_min_runtime: Option<Span>,
}

/// A job: pods that start together.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its queue, unless that does not exist.
    pub queue: Option<QueueId>,
    /// Higher first, inside a queue.
    pub priority: i32,
    /// Whether it may be moved or evicted, and may exceed its queue's quota.
    pub preemptible: bool,
    /// Older first.
    pub created: Timestamp,
    /// When it last went from nothing running to something running.
    pub last_start: Option<Timestamp>,
    /// Since when it lacks its minimum.
    pub stale_since: Option<Timestamp>,
    /// When one of its pods was last evicted.
    pub last_eviction: Option<Timestamp>,
    /// How long it waits before others may be evicted for it.
    pub preemption_delay: Span,
    /// How long it may lack its minimum; `None` takes the policy's, `Some(None)` is for ever.
    pub staleness_grace: Option<Option<Span>>,
    /// Inner groups; the first is the root.
    pub groups: IdRange,
    /// Leaves.
    pub pod_sets: IdRange,
    /// Jobs with equal numbers are alike in everything but amounts, queue and priority.
    pub signature: u32,
}

/// More than the clocks of schedulers and of the API server may differ.
const CLOCK_DIFFERENCE_MAX: Span = Span::seconds(60);

/// A time noted on a job, unless it lies in the future. It then counts as absent: it would protect its job for ever. One
/// before the job was created, as after a restore from a backup, protects no pod.
pub fn possible_time(noted: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    noted.filter(|noted| *noted <= now.plus(CLOCK_DIFFERENCE_MAX))
}

/// An inner group of a sub-group tree.
#[derive(Clone, Debug)]
pub struct Group {
    /// How many direct members must be satisfied; `None` is all of them.
    pub min_members: Option<u32>,
    /// Its direct members, in [`Snapshot::members`].
    pub members: IdRange,
    /// Where it must stay together.
    pub constraint: Option<u32>,
}

/// A direct member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// An inner group.
    Group(GroupId),
    /// A leaf.
    PodSet(PodSetId),
}

/// A leaf of a sub-group tree.
#[derive(Clone, Debug)]
pub struct PodSet {
    /// The job it belongs to.
    pub job: JobId,
    /// How many pods must run.
    pub min: u32,
    /// Its pods, in task order.
    pub tasks: IdRange,
    /// Where it must stay together.
    pub constraint: Option<u32>,
}

/// A pod.
#[derive(Clone, Debug)]
pub struct Task {
    /// The job it belongs to.
    pub job: JobId,
    /// Its leaf in the job's tree.
    pub pod_set: PodSetId,
    /// What it asks for.
    pub shape: ShapeId,
    /// Where it may run.
    pub node_filter: NodeFilterId,
    /// Its state when the cycle begins.
    pub status: Status,
    /// Its node, if that is part of this snapshot.
    pub node: Option<NodeId>,
    /// The shared GPUs it holds: an index into [`Snapshot::device_lists`].
    pub devices: Option<u32>,
    /// The host ports it asks for: an index into [`Snapshot::port_sets`].
    pub ports: Option<u32>,
    /// What it asks of other pods, and they of it: an index into [`Snapshot::inter_pod`].
    pub inter_pod: Option<u32>,
    /// The matchers that it is part of: an index into [`Snapshot::matcher_lists`].
    pub matchers: Option<u32>,
    /// A node nominated for it in an earlier cycle, mostly because pods were evicted for it there.
    pub nominated: Option<NodeId>,
    /// What it holds beyond amounts and shared GPUs: an index into [`Snapshot::extras`].
    pub extras: Option<u32>,
    /// Its resource claims: an index into [`Claims::lists`].
    pub claims: Option<u32>,
    /// What its volumes take: an index into [`Volumes::needs`].
    pub volumes: Option<u32>,
}

/// State of a pod when the cycle begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Waits for a node.
    Pending,
    /// Waits, and must not be scheduled yet.
    Gated,
    /// It is being bound.
    Binding,
    /// Has a node, does not run yet.
    Bound,
    /// Runs.
    Running,
    /// Assigned to a node, waits for resources there; input only in tests.
    Pipelined,
    /// Terminates; what it holds will be free.
    Releasing,
    /// Terminates for far too long; what it holds cannot be counted on.
    StuckInReleasing,
    /// Ended well.
    Succeeded,
    /// Ended otherwise, or nothing is known of it.
    FailedOrUnknown,
}

/// A distinct resource request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Amount per column, as tested against a node. The GPU column holds whole GPUs only.
    pub need: Vec<i64>,
    /// GPU part.
    pub gpu: GpuAsk,
    /// What it costs its queue, in millionths of a GPU. Nothing for a memory request: that depends on the node.
    pub quota_gpu: i64,
    /// What it asks of NUMA zones: an index into [`Numa::asks`].
    pub numa: Option<u32>,
}

/// GPU part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuAsk {
    /// Needs no GPU.
    None,
    /// Whole GPUs, counted in the GPU column.
    Whole,
    /// Instances of MIG profiles, counted in their columns. GPUs asked for beside them are not charged.
    Mig,
    /// A part of each of several GPUs.
    Fraction {
        /// How many devices.
        devices: u32,
        /// Millionths of each.
        portion: i64,
    },
    /// Memory on each of several GPUs.
    Memory {
        /// How many devices.
        devices: u32,
        /// MiB on each.
        mib: i64,
    },
}

impl GpuAsk {
    /// Number of devices, if the request shares GPUs.
    pub fn shared_devices(self) -> Option<u32> {
        match self {
            Self::Fraction { devices, .. } | Self::Memory { devices, .. } => Some(devices),
            Self::None | Self::Whole | Self::Mig => None,
        }
    }
}

impl Shape {
    /// CPU, memory and GPUs as asked for; a memory request asks for no GPUs.
    pub fn requested(&self) -> ResourceQuantities {
        ResourceQuantities::new(self.need[CPU], self.need[MEMORY], self.quota_gpu)
    }

    /// The request with a memory request turned into GPUs of `reference` MiB each.
    pub fn requested_with_memory(&self, reference: i64) -> ResourceQuantities {
        let mut triple = self.requested();
        if let GpuAsk::Memory { devices, mib } = self.gpu {
            triple.0[2] += (i128::from(devices) * i128::from(mib) * i128::from(GPU) / i128::from(reference)) as i64;
        }
        triple
    }

    /// Whether it needs a GPU of any kind.
    pub fn needs_gpu(&self) -> bool {
        self.gpu != GpuAsk::None
    }
}

/// Rules about nodes that hold whatever else runs there: the nodes that pass all static filters.
#[derive(Clone, Debug, Default)]
pub struct NodeFilter {
    /// Nodes that pass every rule.
    pub feasible: FixedBitSet,
    /// The first rule that each other node fails.
    pub excluded: Vec<(NodeRule, FixedBitSet)>,
}

/// A rule of a [`NodeFilter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeRule {
    /// Pods of the retired MIG mechanism can no longer be placed.
    LegacyMig,
    /// A MIG request on a node without MIG.
    MigOnly,
    /// The node still holds pods of the retired MIG mechanism.
    LegacyMigNeighbour,
    /// MIG strategy `single` takes whole GPUs only.
    MigSingle,
    /// MIG strategy `mixed` takes MIG requests only.
    MigMixed,
    /// GPU memory of the node is unknown.
    DeviceMemoryUnknown,
    /// Shared GPUs are not offered by the node's driver.
    SharingUnsupported,
    /// Cordoned.
    Cordoned,
    /// Ready condition is not true.
    NotReady,
    /// Memory pressure.
    MemoryPressure,
    /// Disk pressure.
    DiskPressure,
    /// Process-id pressure.
    PidPressure,
    /// Network unavailable.
    NetworkUnavailable,
    /// Untolerated taint.
    Taint,
    /// Node selector or required node affinity.
    Affinity,
    /// Something that the pod needs is not there, whatever the node.
    Prerequisite,
    /// A volume of the pod cannot be reached from the node.
    VolumeUnreachable,
    /// A volume of the pod is in another zone.
    VolumeZone,
    /// No volume is free for a claim of the pod, and none can be made.
    NoVolume,
    /// Too little space to make a volume for a claim of the pod.
    StorageFull,
    /// Not labelled as a GPU worker.
    NotGpuWorker,
    /// Not labelled as a CPU worker.
    NotCpuWorker,
    /// GPUs of the node are given out through resource claims only.
    ClaimsOnly,
    /// A resource claim of the pod cannot be used anywhere; the number is the caller's.
    Claim(u32),
}

/// A shared GPU.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// The node it is in.
    pub node: NodeId,
}

/// What a pod holds at its place beyond amounts and shared GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extras {
    /// Amounts of NUMA zones, in order of zone and column.
    pub zones: Vec<ZoneAllocation>,
    /// Devices of its resource claims, one entry per claim in the pod's order.
    pub grants: Vec<Grant>,
}

impl Extras {
    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        self.zones.is_empty() && self.grants.is_empty()
    }
}

impl Snapshot {
    /// Amounts per column of a shape.
    pub fn shape(&self, id: ShapeId) -> &Shape {
        &self.shapes[id.index()]
    }

    /// A pod.
    pub fn task(&self, id: TaskId) -> &Task {
        &self.tasks[id.index()]
    }

    /// A job.
    pub fn job(&self, id: JobId) -> &Job {
        &self.jobs[id.index()]
    }

    /// All jobs, in name order.
    pub fn job_ids(&self) -> impl Iterator<Item = JobId> + use<> {
        (0..self.jobs.len()).map(JobId::at)
    }

    /// Pod sets of a job.
    pub fn pod_sets_of(&self, job: JobId) -> impl Iterator<Item = PodSetId> + use<> {
        self.jobs[job.index()].pod_sets.indices().map(PodSetId::at)
    }

    /// Pods of a pod set, in task order.
    pub fn tasks_of(&self, pod_set: PodSetId) -> impl DoubleEndedIterator<Item = TaskId> + use<> {
        self.pod_sets[pod_set.index()].tasks.indices().map(TaskId::at)
    }

    /// Pods of a job: its pod sets one after the other.
    pub fn job_tasks(&self, job: JobId) -> impl Iterator<Item = TaskId> + use<> {
        let sets = self.jobs[job.index()].pod_sets;
        let range = if sets.is_empty() {
            0..0
        } else {
            self.pod_sets[sets.start as usize].tasks.start..self.pod_sets[sets.end as usize - 1].tasks.end
        };
        range.map(TaskId)
    }

    /// The root of a job's tree.
    pub fn root(&self, job: JobId) -> GroupId {
        GroupId(self.jobs[job.index()].groups.start)
    }

    /// The domain in which a matcher counts pods of the node.
    pub fn domain(&self, matcher: PodMatcherId, node: NodeId) -> Option<u32> {
        self.topology_keys[self.matchers[matcher.index()].topology_key.index()].domains[node.index()]
    }

    /// A node's row of a column vector.
    pub fn row<'a>(&self, column: &'a [i64], node: NodeId) -> &'a [i64] {
        let width = self.resources.len();
        &column[node.index() * width..(node.index() + 1) * width]
    }

    /// Smallest and largest GPU memory over nodes where it is known, for turning memory into GPUs.
    pub fn device_memory_range(&self) -> (i64, i64) {
        let known = || self.nodes.device_memory.iter().copied().filter(|mib| *mib > DEVICE_MEMORY_DEFAULT);
        // Where it is known nowhere, memory is written in percent of a device.
        let percent = DEVICE_MEMORY_DEFAULT;
        (known().min().unwrap_or(percent), known().max().unwrap_or(percent))
    }

    /// What the queues divide: ready nodes, less what pods of other schedulers ask for.
    pub fn capacity(&self) -> ResourceQuantities {
        let mut total = ResourceQuantities::ZERO;
        for node in self.nodes.ids().filter(|node| self.nodes.ready[node.index()]) {
            let row = self.row(&self.nodes.allocatable, node);
            let gpus: i64 = row.iter().zip(&self.resources).map(|(amount, column)| column.quota_gpu(*amount)).sum();
            total += ResourceQuantities::new(row[CPU], row[MEMORY], gpus)
                - self.nodes.other_schedulers_requested[node.index()];
        }
        total
    }
}

impl ResourceKind {
    /// What an amount of this column is worth to a queue, in millionths of a GPU.
    pub fn quota_gpu(self, amount: i64) -> i64 {
        match self {
            Self::Gpu => amount,
            Self::Mig { slices, .. } => amount * i64::from(slices) * GPU,
            Self::Cpu | Self::Memory | Self::Pods | Self::Scalar | Self::DeviceClassBacked => 0,
        }
    }
}
