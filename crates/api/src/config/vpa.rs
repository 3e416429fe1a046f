//! Vertical autoscaling of a component's pods, handed on to a VerticalPodAutoscaler as it is.

use crate::{ResourceList, wire::omit_empty};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

omit_empty! {
    /// Vertical autoscaling of one component.
    pub struct Vpa {
        /// Whether there is any.
        pub enabled: Option<bool>,
        /// When recommendations are applied.
        pub update_policy: Option<UpdatePolicy>,
        /// What may be recommended.
        pub resource_policy: Option<ResourcePolicy>,
    }

    /// When recommendations are applied.
    pub struct UpdatePolicy {
        /// How pods take up a recommendation.
        #[schemars(extend("enum" = ["Off", "Initial", "Recreate", "InPlaceOrRecreate", "Auto"]))]
        pub update_mode: Option<String>,
        /// Replicas that must be alive before one is evicted.
        pub min_replicas: Option<i32>,
        /// What must hold before a pod is evicted.
        pub eviction_requirements: Vec<EvictionRequirement>,
    }

    /// What may be recommended.
    pub struct ResourcePolicy {
        /// Bounds per container.
        pub container_policies: Vec<ContainerPolicy>,
    }

    /// Bounds for one container.
    pub struct ContainerPolicy {
        /// The container, or `*` for all others.
        pub container_name: Option<String>,
        /// Whether it is autoscaled.
        #[schemars(extend("enum" = ["Auto", "Off"]))]
        pub mode: Option<String>,
        /// Least to recommend.
        pub min_allowed: ResourceList,
        /// Most to recommend.
        pub max_allowed: ResourceList,
        /// Resources to recommend for; cpu and memory when unset.
        pub controlled_resources: Option<Vec<String>>,
        /// Whether limits follow requests.
        #[schemars(extend("enum" = ["RequestsAndLimits", "RequestsOnly"]))]
        pub controlled_values: Option<String>,
    }
}

/// What must hold before a pod is evicted for a recommendation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionRequirement {
    /// Resources of which at least one must change that way.
    pub resources: Vec<String>,
    /// The way.
    #[schemars(extend("enum" = ["TargetHigherThanRequests", "TargetLowerThanRequests"]))]
    pub change_requirement: String,
}
