//! SchedulingShard: one scheduler, the part of the cluster it owns, and its policy.

use crate::{
    Duration, schema,
    wire::{omit_empty, spec_may_be_absent},
};
use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

spec_may_be_absent!(SchedulingShardSpec);

omit_empty! {
    /// Which nodes, queues and groups a scheduler owns, and how it decides.
    #[derive(CustomResource)]
    #[kube(
        group = "kai.scheduler",
        version = "v1",
        kind = "SchedulingShard",
        plural = "schedulingshards",
        doc = "One scheduler: the part of the cluster it owns, and its policy.",
        status = "SchedulingShardStatus",
        derive = "Default",
        derive = "PartialEq"
    )]
    #[serde(remote = "Self")]
    pub struct SchedulingShardSpec {
        /// Node-pool label value of the objects this shard owns; empty owns those without the label.
        pub partition_label_value: String,
        /// Whether nodes are filled or evened out.
        pub placement_strategy: PlacementStrategy,
        /// Further scheduler flags by name, without dashes; they win over generated ones.
        pub args: BTreeMap<String, String>,
        /// Workloads to try per queue, by action.
        #[schemars(transform = schema::plain_int_values)]
        pub queue_depth_per_action: BTreeMap<String, i64>,
        /// Default undisturbed runtimes.
        pub min_runtime: Option<MinRuntime>,
        /// Strength with which past usage lowers a queue's share; 1 when unset.
        pub k_value: Option<f64>,
        /// Bounds on the search for evictions.
        pub scenario_search_budgets: Option<ScenarioSearchBudgets>,
        /// Memory setting of KAI's own runtime; accepted, without effect.
        #[schemars(transform = schema::ratio)]
        pub go_mem_limit_ratio: Option<f64>,
        /// Memory setting of KAI's own runtime; accepted, without effect.
        pub go_mem_limit: Option<Quantity>,
        /// Where past usage is read from.
        #[serde(rename = "usageDBConfig")]
        pub usage_db_config: Option<UsageDbConfig>,
        /// Changes to the built-in plugins, by name; an unknown name adds a plugin.
        pub plugins: BTreeMap<String, PluginConfig>,
        /// Changes to the built-in actions, by name; an unknown name adds an action.
        pub actions: BTreeMap<String, ActionConfig>,
    }

    /// `binpack`, the default, fills nodes; `spread` evens them out.
    pub struct PlacementStrategy {
        /// For pods that ask for GPUs.
        pub gpu: Option<String>,
        /// For all others.
        pub cpu: Option<String>,
    }

    /// Undisturbed runtimes where no queue sets its own.
    pub struct MinRuntime {
        /// Before preemption within the queue.
        pub preempt_min_runtime: Option<String>,
        /// Before reclaim by another queue.
        pub reclaim_min_runtime: Option<String>,
    }

    /// Bounds on the search for evictions; 0 is unbounded.
    pub struct ScenarioSearchBudgets {
        /// Per action; `default` covers those not named.
        pub max_action_search_duration: BTreeMap<String, Duration>,
        /// Per pending workload.
        pub max_job_search_duration: Option<Duration>,
        /// What a pending workload gets even when its action's budget is spent.
        pub min_job_search_duration: Option<Duration>,
        /// Per way of searching; `default` covers those not named.
        pub max_generator_search_duration: BTreeMap<String, Duration>,
    }

    /// How past usage is sampled and weighed.
    pub struct UsageParams {
        /// Age at which usage counts half; unset or 0 never fades.
        pub half_life_period: Option<Duration>,
        /// How far back usage counts, such as `1w`, which is the default.
        #[schemars(regex(
            pattern = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
        ))]
        pub window_size: Option<String>,
        /// `sliding`, the default, `tumbling` or `cron`.
        pub window_type: Option<String>,
        /// When the first tumbling window began.
        pub tumbling_window_start_time: Option<Time>,
        /// When cron windows begin.
        pub cron_string: String,
        /// Time between readings; one minute when unset.
        pub fetch_interval: Option<Duration>,
        /// Age at which a reading is no longer used; five minutes when unset.
        pub staleness_period: Option<Duration>,
        /// How long a start waits for the first reading; one minute when unset.
        pub wait_timeout: Option<Duration>,
        /// Parameters of the particular client.
        pub extra_params: BTreeMap<String, String>,
    }

    /// Changes to a plugin.
    pub struct PluginConfig {
        /// Whether it takes part; true when unset.
        pub enabled: Option<bool>,
        /// Rank; higher comes first.
        #[schemars(transform = schema::plain_int)]
        pub priority: Option<i64>,
        /// Replaces all of its default arguments when set.
        pub arguments: Option<BTreeMap<String, String>>,
    }

    /// Changes to an action.
    pub struct ActionConfig {
        /// Whether it runs; true when unset.
        pub enabled: Option<bool>,
        /// Rank; higher runs first.
        #[schemars(transform = schema::plain_int)]
        pub priority: Option<i64>,
    }

    /// Observed state of the shard.
    pub struct SchedulingShardStatus {
        /// Conditions of the shard.
        #[schemars(transform = schema::conditions)]
        pub conditions: Vec<Condition>,
    }
}

/// Where past usage is read from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageDbConfig {
    /// `prometheus`, or `fake` for tests.
    pub client_type: String,
    /// Address of the database.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub connection_string: String,
    /// Environment variable that holds the address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub connection_string_env_var: String,
    /// How usage is sampled and weighed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_params: Option<UsageParams>,
}
