//! Flags and configuration of the scheduler: the engine's policy, and what lowering and writes go by.

use std::collections::BTreeSet;

use kai_api::keys::{label, name, node_label};
use kai_engine::policy::Policy;
use kai_engine::units::Span;

use super::usage::UsageRule;

/// The longest time between two cycles, where nothing else is configured.
pub const SCHEDULE_PERIOD: Span = Span::seconds(1);

/// Flags and configuration of one scheduler (one shard).
#[derive(Clone, Debug)]
pub struct Settings {
    pub policy: Policy,
    /// Pods that name another scheduler only hold resources.
    pub scheduler_name: String,
    /// Label that assigns nodes, queues and pod groups to shards; empty is no sharding at all.
    pub node_pool_label_key: String,
    /// The shard; `None` owns everything without the label.
    pub node_pool_value: Option<String>,
    pub queue_label_key: String,
    /// Use only nodes labelled as CPU or GPU workers.
    pub restrict_node_scheduling: bool,
    pub cpu_worker_label_key: String,
    pub gpu_worker_label_key: String,
    pub mig_worker_label_key: String,
    /// `false` divides among leaf queues only, as one level.
    pub full_hierarchy_fairness: bool,
    /// How long after its deletion time a pod counts as stuck.
    pub stuck_in_releasing_threshold: Span,
    /// `app` label of pods that hold a GPU for sharing.
    pub reservation_app_label: String,
    pub task_order: TaskOrder,
    /// How past usage counts, if it does.
    pub usage: Option<UsageRule>,
    /// How NUMA zones are aligned, if they are.
    pub numa: Option<NumaSettings>,
    /// How often, and after which pause, running jobs are evicted for others.
    pub evictions: EvictionSettings,
    /// From this many binds per namespace and cycle on, bind requests are batched into one object; 0 disables batching.
    pub batch_binds: usize,
}

/// How deliberately running jobs are evicted for others. What counts within one cycle is in the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionSettings {
    /// Between two cycles that may consolidate, reclaim and preempt, at least. Other cycles only place.
    pub period: Span,
    /// How long such a cycle waits at most for binds, evictions and terminating pods.
    pub settle_timeout: Span,
    /// Pods that consolidation may move within the window, for all jobs together.
    pub moves: MoveBudget,
    /// Over which moves are counted.
    pub moves_window: Span,
}

/// How many pods consolidation may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveBudget {
    Unlimited,
    At(u32),
    /// By the number of nodes.
    Auto,
}

impl Default for EvictionSettings {
    fn default() -> Self {
        Self {
            period: SCHEDULE_PERIOD,
            settle_timeout: Span::seconds(3),
            moves: MoveBudget::Auto,
            moves_window: Span::seconds(120),
        }
    }
}

/// How NUMA zones are aligned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaSettings {
    /// Resources that are not aligned.
    pub ignored: BTreeSet<String>,
    /// Free is what zones have less what known pods hold; otherwise what the exporter reports.
    pub reconstruct_available: bool,
}

/// What decides which pods of a job come first, before their age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOrder {
    /// Masters and launchers of Kubeflow jobs.
    pub kubeflow: bool,
    /// Heads of Ray clusters.
    pub ray: bool,
    /// The label `kai.scheduler/task-priority`.
    pub label: bool,
}

impl Default for TaskOrder {
    fn default() -> Self {
        Self { kubeflow: true, ray: true, label: true }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            scheduler_name: name::SCHEDULER.to_owned(),
            node_pool_label_key: label::NODE_POOL.to_owned(),
            node_pool_value: None,
            queue_label_key: label::QUEUE.to_owned(),
            restrict_node_scheduling: false,
            cpu_worker_label_key: node_label::CPU_WORKER.to_owned(),
            gpu_worker_label_key: node_label::GPU_WORKER.to_owned(),
            mig_worker_label_key: node_label::MIG_ENABLED.to_owned(),
            full_hierarchy_fairness: true,
            stuck_in_releasing_threshold: Span::seconds(120),
            reservation_app_label: name::RESOURCE_RESERVATION.to_owned(),
            task_order: TaskOrder::default(),
            usage: None,
            numa: None,
            evictions: EvictionSettings::default(),
            batch_binds: 16,
        }
    }
}
