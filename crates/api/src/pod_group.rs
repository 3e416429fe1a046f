//! PodGroup: pods that start together or not at all.

use crate::{
    Duration, ResourceList,
    bounds::{LABEL_KEY_LENGTH_MAX, NAME_LENGTH_MAX, SUB_GROUPS_MAX},
    wire::{omit_empty, spec_may_be_absent},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

spec_may_be_absent!(PodGroupSpec);

omit_empty! {
    /// What the group needs and how it is to be treated.
    #[derive(CustomResource)]
    #[kube(
        group = "scheduling.run.ai",
        version = "v2alpha2",
        kind = "PodGroup",
        plural = "podgroups",
        shortname = "pg",
        namespaced,
        doc = "Pods of one workload that are scheduled as a gang.",
        status = "PodGroupStatus",
        derive = "Default",
        derive = "PartialEq"
    )]
    #[serde(remote = "Self")]
    pub struct PodGroupSpec {
        /// Pods that must start together, 1 when unset; 0 lets each pod start alone. Excludes `minSubGroup`.
        #[schemars(range(min = 0))]
        pub min_member: Option<i32>,
        /// Direct sub-groups that must start together, all when unset. Excludes `minMember`.
        #[schemars(range(min = 0))]
        pub min_sub_group: Option<i32>,
        /// Leaf queue that the group is charged to.
        #[schemars(length(max = NAME_LENGTH_MAX))]
        pub queue: String,
        /// PriorityClass of the group; without one the cluster's default applies, then 50.
        #[schemars(length(max = NAME_LENGTH_MAX))]
        pub priority_class_name: String,
        /// Whether others may evict the group; decided by its priority when unset (below 100 they may).
        pub preemptibility: Option<Preemptibility>,
        /// How long the group waits, since its creation or last eviction, before others are evicted for it.
        pub preemption_delay: Option<Duration>,
        /// How long the group may run below its minimum before it is evicted; negative is forever.
        pub staleness_grace_period: Option<Duration>,
        /// Whether pods that cannot be placed get the condition saying so; true when unset.
        pub mark_unschedulable: Option<bool>,
        /// Cycles to try on a node pool before giving it up: -1, the default, is forever; 1 is once.
        pub scheduling_backoff: Option<i32>,
        /// Where the whole group may be placed.
        pub topology_constraint: TopologyConstraint,
        /// A tree of parts with minimums and constraints of their own.
        #[schemars(length(max = SUB_GROUPS_MAX))]
        pub sub_groups: Vec<SubGroup>,
    }

    /// Keeps pods near each other, in terms of a Topology.
    pub struct TopologyConstraint {
        /// Name of the Topology.
        #[schemars(length(max = NAME_LENGTH_MAX))]
        pub topology: String,
        /// Level, by node label or alias, within one domain of which all pods must run.
        #[schemars(length(max = LABEL_KEY_LENGTH_MAX))]
        pub required_topology_level: String,
        /// Level, by node label or alias, within one domain of which pods are kept if possible.
        #[schemars(length(max = LABEL_KEY_LENGTH_MAX))]
        pub preferred_topology_level: String,
    }

    /// Observed state of the group.
    pub struct PodGroupStatus {
        /// Conditions of the group.
        pub conditions: Vec<PodGroupCondition>,
        /// What its pods hold and ask for.
        pub resources_status: PodGroupResources,
        /// Why it cannot be placed, per node pool; the latest is last.
        pub scheduling_conditions: Vec<SchedulingCondition>,
    }

    /// What the pods of a group hold and ask for.
    pub struct PodGroupResources {
        /// Held by scheduled and running pods.
        pub allocated: ResourceList,
        /// The same, while the group is not preemptible.
        pub allocated_non_preemptible: ResourceList,
        /// Asked for by pending and running pods.
        pub requested: ResourceList,
    }

    /// A condition of a group.
    pub struct PodGroupCondition {
        /// Type of the condition.
        #[serde(rename = "type")]
        pub type_: String,
        /// `True`, `False` or `Unknown`.
        pub status: String,
        /// Number of the transition, in decimal.
        #[serde(rename = "transitionID")]
        pub transition_id: String,
        /// When the status last changed.
        pub last_transition_time: Option<Time>,
        /// One CamelCase word on why it changed.
        pub reason: String,
        /// The same in a sentence.
        pub message: String,
    }

    /// Why a group cannot be placed on a node pool.
    pub struct SchedulingCondition {
        /// Always `UnschedulableOnNodePool`.
        #[serde(rename = "type")]
        pub type_: String,
        /// The node pool tried.
        pub node_pool: String,
        /// One word; superseded by `reasons`.
        pub reason: String,
        /// A sentence; superseded by `reasons`.
        pub message: String,
        /// What stood in the way. Readers should expect reasons they do not know.
        pub reasons: Vec<UnschedulableExplanation>,
        /// Number of the transition, in decimal, counting up across node pools.
        #[serde(rename = "transitionID")]
        pub transition_id: String,
        /// When the status last changed.
        pub last_transition_time: Option<Time>,
        /// `True`, `False` or `Unknown`.
        pub status: String,
    }

    /// One thing that stood in the way.
    pub struct UnschedulableExplanation {
        /// One word, for programs.
        pub reason: String,
        /// A sentence, for people.
        pub message: String,
        /// Numbers behind the reason.
        pub details: Option<UnschedulableDetails>,
    }

    /// Numbers behind a reason; which part is set depends on the reason.
    pub struct UnschedulableDetails {
        /// The queue that had no room, for the reasons about quota and limit.
        pub queue_details: Option<QueueDetails>,
    }

    /// A queue as it stood when it had no room for the group.
    pub struct QueueDetails {
        /// Name of the queue.
        pub name: String,
        /// What its workloads ask for.
        pub queue_requested_resources: ResourceList,
        /// What it is guaranteed.
        pub queue_deserved_resources: ResourceList,
        /// What its workloads hold.
        pub queue_allocated_resources: ResourceList,
        /// What its non-preemptible workloads hold.
        pub queue_allocated_non_preemptible_resources: ResourceList,
        /// What it may hold at most.
        pub queue_resource_limits: ResourceList,
        /// What the group needs to reach its minimum.
        pub pod_group_requested_resources: ResourceList,
        /// The part of that which is not preemptible.
        pub pod_group_requested_non_preemptible_resources: ResourceList,
    }
}

/// Part of a group: a set of pods, or a parent of such parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubGroup {
    /// Unique within the group; pods name it in a label.
    #[schemars(length(min = 1, max = NAME_LENGTH_MAX), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Pods of this part that must start together. Excludes `minSubGroup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_member: Option<i32>,
    /// Direct children of this part that must start together, all when unset. Excludes `minMember`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_sub_group: Option<i32>,
    /// The part this one belongs to; the group itself when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = NAME_LENGTH_MAX), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub parent: Option<String>,
    /// Where this part may be placed.
    #[serde(default, skip_serializing_if = "crate::wire::is_default")]
    pub topology_constraint: TopologyConstraint,
}

/// Whether others may evict a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preemptibility {
    /// They may; in return it may use surplus beyond its queue's quota.
    Preemptible,
    /// They may not; it must fit into its queue's quota.
    NonPreemptible,
}
