//! The configuration that a cycle decided by.
//!
//! Settings and policy are taken apart field by field, so that a new field does not compile before it is recorded or left
//! out on purpose.

use std::collections::BTreeSet;

use kai_engine::policy::{
    Depth, DeviceOrder, Disruption, MinRuntime, Policy, Proportion, ReclaimMethod, Repairs, SearchBudget, Strategy,
};
use kai_engine::units::{Span, Timestamp};
use serde::{Deserialize, Serialize};

use crate::scheduler::config::{action_name, generator_name};
use crate::scheduler::reasons::wire;
use crate::scheduler::settings::{EvictionSettings, MoveBudget, NumaSettings, Settings, TaskOrder};
use crate::scheduler::usage::{UsageRule, Window};

/// The configuration, as far as it decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "switches of the configuration, each on its own")]
pub struct CyclePolicy {
    pub scheduler_name: String,
    /// The shard; absent for nodes, queues and pod groups without a label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<String>,
    pub labels: LabelPolicy,
    /// Only nodes labelled as CPU or GPU workers are used.
    pub restrict_node_scheduling: bool,
    pub actions: Vec<String>,
    pub full_hierarchy_fairness: bool,
    /// Whether nodes are filtered.
    pub filters: bool,
    pub order_by_priority: bool,
    pub order_below_min_first: bool,
    pub task_order: TaskOrderPolicy,
    /// `binpack` or `spread`, for pods with and without GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementPolicy>,
    /// Node scores that are on, other than `placement`.
    pub scores: Vec<String>,
    /// `binpack` or `spread`, for shared GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_order: Option<String>,
    /// Millionths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k_value: Option<i64>,
    /// Millionths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation_multiplier: Option<i64>,
    /// Which part of the past counts, if any does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsagePolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_runtime: Option<MinRuntimePolicy>,
    pub queue_depth_per_action: DepthPolicy,
    /// Generators of victim scenarios, by their plugins, in order.
    pub generators: Vec<String>,
    pub search_budget: BudgetPolicy,
    /// Jobs that are no easier than one that failed are skipped.
    pub skip_no_easier: bool,
    /// Absent for ever.
    #[serde(default, with = "wire::maybe_micros", skip_serializing_if = "Option::is_none")]
    pub staleness_grace_micros: Option<Span>,
    #[serde(with = "wire::micros")]
    pub stuck_in_releasing_micros: Span,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_consolidation_preemptees: Option<u32>,
    pub allow_consolidating_reclaim: bool,
    pub placement_rules: PlacementRules,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaPolicy>,
    pub keep_nodes_whole: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evictions: Option<EvictionPolicy>,
    pub repairs: RepairPolicy,
    /// Binds per namespace from which on bind requests are batched; 0 is never.
    pub batch_binds: usize,
}

/// Keys of labels, as far as they are configurable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelPolicy {
    pub node_pool_key: String,
    pub queue_key: String,
    pub cpu_worker_key: String,
    pub gpu_worker_key: String,
    pub mig_worker_key: String,
    /// `app` label of reservation pods.
    pub reservation_app: String,
}

/// What decides which pods of a job come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskOrderPolicy {
    pub kubeflow: bool,
    pub ray: bool,
    pub label: bool,
}

/// Which rules about more than one pod or device are obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementRules {
    pub topology: bool,
    pub numa: bool,
}

/// How NUMA zones are aligned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NumaPolicy {
    pub ignored: BTreeSet<String>,
    pub reconstruct_available: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementPolicy {
    pub gpu: String,
    pub cpu: String,
}

/// Which part of the past counts. Where it is stored is not recorded: an address may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsagePolicy {
    pub window: WindowPolicy,
    #[serde(default, with = "wire::maybe_micros", skip_serializing_if = "Option::is_none")]
    pub half_life_micros: Option<Span>,
    #[serde(with = "wire::micros")]
    pub resolution_micros: Span,
    #[serde(with = "wire::micros")]
    pub fetch_interval_micros: Span,
    #[serde(with = "wire::micros")]
    pub staleness_micros: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum WindowPolicy {
    Sliding {
        #[serde(with = "wire::micros")]
        size_micros: Span,
    },
    Tumbling {
        #[serde(with = "wire::micros")]
        size_micros: Span,
        #[serde(with = "wire::time")]
        first: Timestamp,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MinRuntimePolicy {
    #[serde(with = "wire::micros")]
    pub preempt_micros: Span,
    #[serde(with = "wire::micros")]
    pub reclaim_micros: Span,
    /// `lca` or `queue`.
    pub reclaim_resolve_method: String,
}

/// Jobs tried per queue; absent is all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DepthPolicy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocate: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidation: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt: Option<u32>,
}

/// Steps of the victim search; absent is no bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetPolicy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidation: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_max: Option<u64>,
    pub job_min: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_local_greedy: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multi_node_gang: Option<u64>,
}

/// What a cycle may take from running jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictionPolicy {
    /// Whether consolidation, reclaim and preemption ran in this cycle.
    pub allowed: bool,
    /// Pods that consolidation could move in this cycle; absent is any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_left: Option<u32>,
    #[serde(with = "wire::micros")]
    pub period_micros: Span,
    #[serde(with = "wire::micros")]
    pub settle_timeout_micros: Span,
    /// Absent is any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_moves: Option<String>,
    #[serde(with = "wire::micros")]
    pub moves_window_micros: Span,
    #[serde(with = "wire::micros")]
    pub cooldown_micros: Span,
    #[serde(with = "wire::micros")]
    pub move_cooldown_micros: Span,
    #[serde(default, with = "wire::maybe_micros", skip_serializing_if = "Option::is_none")]
    pub max_lost_work_per_gpu_micros: Option<Span>,
    pub least_work_first: bool,
}

/// Which unintended behaviours of upstream are repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "switches, each on its own")]
pub struct RepairPolicy {
    pub gang_trees: bool,
    pub drop_placements: bool,
    pub gpu_sharing: bool,
    pub stable_moves: bool,
    pub reprieve_victims: bool,
    pub ignore_releasing_neighbours: bool,
}

impl From<&Settings> for CyclePolicy {
    fn from(settings: &Settings) -> Self {
        let Settings {
            policy,
            scheduler_name,
            node_pool_label_key,
            node_pool_value,
            queue_label_key,
            restrict_node_scheduling,
            cpu_worker_label_key,
            gpu_worker_label_key,
            mig_worker_label_key,
            full_hierarchy_fairness,
            stuck_in_releasing_threshold,
            reservation_app_label,
            task_order,
            usage,
            numa,
            evictions,
            batch_binds,
        } = settings;
        let Policy {
            actions,
            filters,
            proportion,
            order_by_priority,
            order_below_min_first,
            scores,
            device_order,
            topology,
            numa: numa_alignment,
            min_runtime,
            generators,
            depth,
            consolidation_moves_max,
            consolidating_reclaim,
            skip_no_easier,
            staleness_grace,
            keep_nodes_whole,
            budget,
            disruption,
            repairs,
        } = policy;
        let strategy = |strategy: Strategy| packing_name(strategy == Strategy::Pack);
        let (k_value, saturation_multiplier) =
            proportion.map(|Proportion { k_value, saturation_multiplier }| (k_value, saturation_multiplier)).unzip();
        Self {
            scheduler_name: scheduler_name.clone(),
            node_pool: node_pool_value.clone(),
            labels: LabelPolicy {
                node_pool_key: node_pool_label_key.clone(),
                queue_key: queue_label_key.clone(),
                cpu_worker_key: cpu_worker_label_key.clone(),
                gpu_worker_key: gpu_worker_label_key.clone(),
                mig_worker_key: mig_worker_label_key.clone(),
                reservation_app: reservation_app_label.clone(),
            },
            restrict_node_scheduling: *restrict_node_scheduling,
            actions: actions.iter().map(|action| action_name(*action).to_owned()).collect(),
            full_hierarchy_fairness: *full_hierarchy_fairness,
            filters: *filters,
            order_by_priority: *order_by_priority,
            order_below_min_first: *order_below_min_first,
            task_order: (*task_order).into(),
            placement: scores
                .placement
                .map(|placement| PlacementPolicy { gpu: strategy(placement.gpu), cpu: strategy(placement.cpu) }),
            scores: scores.names().into_iter().map(str::to_owned).collect(),
            gpu_order: device_order.map(|order| packing_name(order == DeviceOrder::Pack)),
            k_value,
            saturation_multiplier,
            usage: usage.as_ref().map(UsagePolicy::from),
            min_runtime: min_runtime.map(MinRuntimePolicy::from),
            queue_depth_per_action: (*depth).into(),
            generators: generators.iter().map(|generator| generator_name(*generator).to_owned()).collect(),
            search_budget: (*budget).into(),
            skip_no_easier: *skip_no_easier,
            staleness_grace_micros: *staleness_grace,
            stuck_in_releasing_micros: *stuck_in_releasing_threshold,
            max_consolidation_preemptees: *consolidation_moves_max,
            allow_consolidating_reclaim: *consolidating_reclaim,
            placement_rules: PlacementRules { topology: *topology, numa: *numa_alignment },
            numa: numa.as_ref().map(NumaPolicy::from),
            keep_nodes_whole: *keep_nodes_whole,
            evictions: Some(EvictionPolicy::new(evictions, disruption)),
            repairs: (*repairs).into(),
            batch_binds: *batch_binds,
        }
    }
}

impl From<TaskOrder> for TaskOrderPolicy {
    fn from(TaskOrder { kubeflow, ray, label }: TaskOrder) -> Self {
        Self { kubeflow, ray, label }
    }
}

impl From<&NumaSettings> for NumaPolicy {
    fn from(NumaSettings { ignored, reconstruct_available }: &NumaSettings) -> Self {
        Self { ignored: ignored.clone(), reconstruct_available: *reconstruct_available }
    }
}

impl From<&UsageRule> for UsagePolicy {
    fn from(rule: &UsageRule) -> Self {
        let UsageRule { window, half_life, resolution, fetch_interval, staleness, source: _ } = rule;
        Self {
            window: match *window {
                Window::Sliding { size } => WindowPolicy::Sliding { size_micros: size },
                Window::Tumbling { size, first } => WindowPolicy::Tumbling { size_micros: size, first },
            },
            half_life_micros: *half_life,
            resolution_micros: *resolution,
            fetch_interval_micros: *fetch_interval,
            staleness_micros: *staleness,
        }
    }
}

impl From<MinRuntime> for MinRuntimePolicy {
    fn from(MinRuntime { preempt_default, reclaim_default, reclaim_method }: MinRuntime) -> Self {
        Self {
            preempt_micros: preempt_default,
            reclaim_micros: reclaim_default,
            reclaim_resolve_method: match reclaim_method {
                ReclaimMethod::LowestCommonAncestor => "lca".to_owned(),
                ReclaimMethod::Queue => "queue".to_owned(),
            },
        }
    }
}

impl From<Depth> for DepthPolicy {
    fn from(Depth { allocate, consolidate, reclaim, preempt }: Depth) -> Self {
        Self { allocate, consolidation: consolidate, reclaim, preempt }
    }
}

impl From<SearchBudget> for BudgetPolicy {
    fn from(budget: SearchBudget) -> Self {
        let SearchBudget { reclaim, preempt, consolidate, job_max, job_min, node_local_greedy, multi_node_gang } =
            budget;
        Self { reclaim, preempt, consolidation: consolidate, job_max, job_min, node_local_greedy, multi_node_gang }
    }
}

impl EvictionPolicy {
    fn new(settings: &EvictionSettings, disruption: &Disruption) -> Self {
        let EvictionSettings { period, settle_timeout, moves, moves_window } = *settings;
        let Disruption {
            allowed,
            moves_left,
            eviction_cooldown,
            move_cooldown,
            lost_work_per_gpu_max,
            least_work_first,
        } = *disruption;
        Self {
            allowed,
            moves_left,
            period_micros: period,
            settle_timeout_micros: settle_timeout,
            max_moves: match moves {
                MoveBudget::Unlimited => None,
                MoveBudget::At(pods) => Some(pods.to_string()),
                MoveBudget::Auto => Some("auto".to_owned()),
            },
            moves_window_micros: moves_window,
            cooldown_micros: eviction_cooldown,
            move_cooldown_micros: move_cooldown,
            max_lost_work_per_gpu_micros: lost_work_per_gpu_max,
            least_work_first,
        }
    }
}

impl From<Repairs> for RepairPolicy {
    fn from(repairs: Repairs) -> Self {
        let Repairs {
            gang_trees,
            drop_placements,
            gpu_sharing,
            stable_moves,
            reprieve_victims,
            ignore_releasing_neighbours,
        } = repairs;
        Self { gang_trees, drop_placements, gpu_sharing, stable_moves, reprieve_victims, ignore_releasing_neighbours }
    }
}

/// As the configuration writes it.
fn packing_name(pack: bool) -> String {
    if pack { "binpack" } else { "spread" }.to_owned()
}
