//! The recorded form of an action case, field by field.
//!
//! Fields that shape the result are read strictly: a case that says something unknown here fails on its own
//! instead of passing by accident.

#![allow(clippy::struct_field_names, reason = "fields are spelled as recorded")]

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    pub id: String,
    pub config: Config,
    pub rounds: Rounds,
    pub cluster: Cluster,
    pub expect: Expect,
    pub observed: Observed,
    /// `observed` where KAI's own result is the expectation.
    #[serde(default)]
    pub judge: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    pub actions: Vec<String>,
    pub plugins: Vec<Plugin>,
    #[serde(default)]
    pub queue_depth_per_action: BTreeMap<String, u32>,
    pub max_consolidation_preemptees: i64,
    pub allow_consolidating_reclaim: bool,
    pub use_scheduling_signatures: bool,
    pub staleness_grace_seconds: i64,
    pub last_start_age_seconds: i64,
    pub queue_label_key: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Plugin {
    pub name: String,
    #[serde(default)]
    pub arguments: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Rounds {
    pub mode: Mode,
    pub until_match: u32,
    pub after_match: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One round; what it leaves in the session is judged.
    Single,
    /// Rounds until the result should hold, then rounds in which it must stay.
    Multi,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub queues: Vec<Queue>,
    pub jobs: Vec<Job>,
    #[serde(default)]
    pub topologies: Vec<Topology>,
    #[serde(default)]
    pub dra: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub name: String,
    pub allocatable: Amounts,
    #[serde(default, rename = "capacity")]
    _capacity: Option<Amounts>,
    #[serde(default)]
    pub gpu_memory_mib: Option<i64>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub numa: Option<Numa>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numa {
    pub policy: String,
    pub scope: String,
    /// In the order of their numbers.
    pub zones: Vec<Zone>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    pub id: String,
    pub allocatable: BTreeMap<String, i64>,
    /// Recomputed from the tasks on the node.
    #[serde(default, rename = "available")]
    _available: BTreeMap<String, i64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amounts {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub gpus: i64,
    pub pods: i64,
    #[serde(default)]
    pub mig: BTreeMap<String, i64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    pub name: String,
    /// Empty at the top.
    pub parent: String,
    pub priority: i32,
    pub created_offset_seconds: i64,
    pub gpu: Grant,
    pub cpu_milli: Grant,
    pub memory_mb: Grant,
    #[serde(default)]
    pub preempt_min_runtime_seconds: Option<i64>,
    #[serde(default)]
    pub reclaim_min_runtime_seconds: Option<i64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    pub quota: f64,
    pub limit: f64,
    pub weight: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub uid: String,
    #[serde(rename = "name")]
    _name: String,
    pub namespace: String,
    pub queue: String,
    pub priority: i32,
    pub preemptible: bool,
    pub age_seconds: i64,
    #[serde(default)]
    pub stale_for_seconds: Option<i64>,
    #[serde(default)]
    pub eviction_is_delete: bool,
    #[serde(default)]
    pub preemption_delay_seconds: Option<i64>,
    #[serde(default)]
    pub staleness_grace_seconds: Option<i64>,
    pub subgroups: SubGroups,
    #[serde(default)]
    pub tasks: Vec<Task>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubGroups {
    pub name: String,
    #[serde(default)]
    pub min_sub_groups: Option<u32>,
    #[serde(default)]
    pub topology_constraint: Option<TopologyConstraint>,
    #[serde(default)]
    pub groups: Vec<SubGroups>,
    #[serde(default)]
    pub pod_sets: Vec<PodSet>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodSet {
    pub name: String,
    pub min_available: u32,
    #[serde(default)]
    pub topology_constraint: Option<TopologyConstraint>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologyConstraint {
    pub topology: String,
    #[serde(default)]
    pub required_level: String,
    #[serde(default)]
    pub preferred_level: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    pub name: String,
    pub levels: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    pub uid: String,
    #[serde(rename = "name")]
    _name: String,
    pub status: Status,
    #[serde(default)]
    pub node: Option<String>,
    pub pod_set: String,
    pub request: Request,
    #[serde(default)]
    pub gpu_groups: Vec<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub task_order: Option<String>,
    #[serde(default)]
    pub legacy_mig: bool,
    #[serde(default)]
    pub required_node_affinity: Vec<LabelRule>,
    #[serde(default)]
    pub required_pod_affinity: Vec<PodTerm>,
    #[serde(default)]
    pub required_pod_anti_affinity: Vec<PodTerm>,
    #[serde(default)]
    pub resource_claims: Vec<TaskClaim>,
    #[serde(default)]
    pub qos_class: Option<String>,
    /// Amounts by zone and name.
    #[serde(default)]
    pub numa_observed_placement: BTreeMap<String, BTreeMap<String, i64>>,
}

/// A claim as a task names it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskClaim {
    pub name: String,
    pub claim_name: String,
    #[serde(default)]
    pub template: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub kind: Kind,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    #[serde(default)]
    pub gpus: i64,
    #[serde(default)]
    pub fraction: f64,
    #[serde(default)]
    pub fraction_devices: Option<u32>,
    #[serde(default)]
    pub gpu_memory_mib: i64,
    #[serde(default)]
    pub mig: BTreeMap<String, i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    None,
    Gpu,
    Fraction,
    GpuMemory,
    Mig,
    Dra,
}

impl Kind {
    /// Whether it takes a part of a device.
    pub fn shares(self) -> bool {
        matches!(self, Self::Fraction | Self::GpuMemory)
    }
}

/// A required term of pod affinity or anti-affinity, about pods of the same namespace.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodTerm {
    pub topology_key: String,
    pub match_labels: BTreeMap<String, String>,
}

/// One expression of a required node affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelRule {
    pub key: String,
    pub op: String,
    #[serde(default)]
    pub values: Vec<String>,
}

/// Task statuses by their recorded names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Status {
    Pending,
    Gated,
    Allocated,
    Pipelined,
    Binding,
    Bound,
    Running,
    Releasing,
    StuckInReleasing,
    Succeeded,
    Failed,
    Unknown,
    Deleted,
}

impl Status {
    /// Counts in its queue.
    pub fn is_allocated(self) -> bool {
        matches!(self, Self::Allocated | Self::Bound | Self::Binding | Self::Running)
    }

    /// Occupies its node.
    pub fn is_used(self) -> bool {
        self.is_allocated() || matches!(self, Self::Pipelined | Self::Releasing | Self::StuckInReleasing)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    #[serde(default)]
    pub jobs: BTreeMap<String, Wanted>,
    #[serde(default)]
    pub tasks: BTreeMap<String, Wanted>,
    #[serde(default)]
    pub nodes: BTreeMap<String, WantedNode>,
    #[serde(default)]
    pub limits_per_round: Option<Counters>,
}

/// Conditions on all tasks of a job, or on one task.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    pub status: Status,
    #[serde(default)]
    pub node: Option<String>,
    #[serde(default)]
    pub gpus_requested: Option<f64>,
    #[serde(default)]
    pub gpus_accepted: Option<f64>,
    #[serde(default)]
    pub cpu_milli_requested: Option<i64>,
    #[serde(default)]
    pub memory_bytes_requested: Option<i64>,
    #[serde(default)]
    pub gpu_groups: Vec<String>,
    #[serde(default)]
    pub ignore_gpu_groups: bool,
    #[serde(default)]
    pub numa_zones: Option<Vec<u32>>,
    #[serde(default)]
    pub last_start_older_than_seconds: Option<i64>,
    #[serde(default)]
    pub fit_error: Option<FitError>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitError {
    pub reason: String,
    #[serde(default)]
    pub topology: Option<String>,
    #[serde(default)]
    pub level: Option<String>,
    #[serde(default)]
    pub domains: Vec<DomainFit>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainFit {
    pub domain: String,
    pub fits: u32,
    pub needs: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedNode {
    #[serde(default)]
    pub idle_gpus: Option<i64>,
    #[serde(default)]
    pub releasing_gpus: Option<i64>,
    #[serde(default)]
    pub numa_zones_available: Option<BTreeMap<String, BTreeMap<String, i64>>>,
}

/// Calls that leave the scheduler in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Counters {
    pub binds: u32,
    pub evictions: u32,
    pub pipelines: u32,
}

/// What KAI did.
#[derive(Clone, Debug, Deserialize)]
pub struct Observed {
    #[serde(default)]
    pub rounds: Vec<ObservedRound>,
    #[serde(default)]
    pub gpu_groups_check: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ObservedRound {
    /// `Status` or `Status@node`, by task.
    #[serde(default)]
    pub tasks: BTreeMap<String, String>,
    /// Labels of the devices a task shares: of the input, or `new-N`.
    #[serde(default)]
    pub gpu_groups: Option<BTreeMap<String, Vec<String>>>,
}

impl Case {
    /// Whether KAI's own result is the expectation.
    pub fn judged_by_observation(&self) -> bool {
        self.judge.as_deref() == Some("observed")
    }

    /// The plugin, if it is on.
    pub fn plugin(&self, name: &str) -> Option<&Plugin> {
        self.config.plugins.iter().find(|plugin| plugin.name == name)
    }

    /// All tasks with their jobs.
    pub fn tasks(&self) -> impl Iterator<Item = (&Job, &Task)> {
        self.cluster.jobs.iter().flat_map(|job| job.tasks.iter().map(move |task| (job, task)))
    }
}
