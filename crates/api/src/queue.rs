//! Queue: a share of the cluster, possibly divided among child queues.

use crate::{
    Duration, ResourceList,
    bounds::NAME_LENGTH_MAX,
    schema,
    wire::{omit_empty, spec_may_be_absent},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

spec_may_be_absent!(QueueSpec);

omit_empty! {
    /// What a queue is entitled to, and where it hangs in the tree.
    #[derive(CustomResource)]
    #[kube(
        group = "scheduling.run.ai",
        version = "v2",
        kind = "Queue",
        plural = "queues",
        doc = "A share of the cluster. Workloads are submitted to leaf queues.",
        status = "QueueStatus",
        derive = "Default",
        derive = "PartialEq",
        printcolumn(json_path = ".spec.priority", name = "Priority", type_ = "string"),
        printcolumn(json_path = ".spec.parentQueue", name = "Parent", type_ = "string"),
        printcolumn(json_path = ".status.childQueues", name = "Children", type_ = "string"),
        printcolumn(json_path = ".spec.displayName", name = "DisplayName", type_ = "string")
    )]
    #[serde(remote = "Self")]
    pub struct QueueSpec {
        /// Name shown to people instead of the object's name.
        #[schemars(length(max = NAME_LENGTH_MAX))]
        pub display_name: String,
        /// Name of the queue this one takes its share from; empty at the top of the tree.
        #[schemars(length(max = NAME_LENGTH_MAX))]
        pub parent_queue: String,
        /// Order among siblings, 100 when unset: a higher one is served first, gets surplus first, and loses it last.
        #[schemars(transform = schema::plain_int)]
        pub priority: Option<i64>,
        /// How long a workload of this queue runs undisturbed before a higher priority may preempt it.
        pub preempt_min_runtime: Option<Duration>,
        /// How long a workload of this queue runs undisturbed before another queue may reclaim from it.
        pub reclaim_min_runtime: Option<Duration>,
        /// Entitlement per resource.
        pub resources: Option<QueueResources>,
    }

    /// Entitlement of a queue per resource. A missing resource is one with three zeros.
    pub struct QueueResources {
        /// GPU devices; fractions are allowed.
        pub gpu: QueueResource,
        /// Thousandths of a core.
        pub cpu: QueueResource,
        /// Megabytes of 1,000,000 bytes.
        pub memory: QueueResource,
    }

    /// Entitlement to one resource.
    pub struct QueueResource {
        /// Guaranteed amount; -1 is unlimited.
        pub quota: f64,
        /// Portion of the surplus among siblings of equal priority; 0 gets none.
        pub over_quota_weight: f64,
        /// Most that may ever be used; -1 is unlimited, 0 allows nothing.
        pub limit: f64,
    }

    /// What the queue and everything below it uses.
    pub struct QueueStatus {
        /// Conditions of the queue.
        pub conditions: Vec<QueueCondition>,
        /// Queues that name this one as their parent.
        pub child_queues: Vec<String>,
        /// Held by running workloads.
        pub allocated: ResourceList,
        /// Held by running workloads that cannot be preempted.
        pub allocated_non_preemptible: ResourceList,
        /// Asked for by running and pending workloads.
        pub requested: ResourceList,
    }
}

/// A condition of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When it was last looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// One CamelCase word on why it changed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
