//! Kubernetes API types of the scheduler: what users, charts and third-party controllers read and write.
//!
//! One file per kind. Field names, defaults and schemas are those of KAI v0.17, so manifests carry over
//! unchanged. Types only: nothing here decides, fetches, or fills in defaults; the readers of an object do.

#![warn(missing_docs)]
#![allow(clippy::doc_markdown, reason = "doc comments become CRD descriptions, where names of kinds are prose")]

mod bind_request;
pub mod bounds;
pub mod config;
mod crds;
mod duration;
pub mod keys;
mod pod_group;
mod queue;
mod scheduling_shard;
mod schema;
mod topology;
mod wire;

pub use bind_request::{
    BindRequest, BindRequestSpec, BindRequestStatus, ContainerMapping, ExtendedResourceClaimAllocation, NumaZone,
    ReceivedGpu, ResourceClaimAllocation,
};
pub use config::{Config, ConfigSpec, ConfigStatus};
pub use crds::{crds, crds_yaml};
pub use duration::{Duration, ParseDurationError};
pub use pod_group::{
    PodGroup, PodGroupCondition, PodGroupResources, PodGroupSpec, PodGroupStatus, Preemptibility, QueueDetails,
    SchedulingCondition, SubGroup, TopologyConstraint, UnschedulableDetails, UnschedulableExplanation,
};
pub use queue::{Queue, QueueCondition, QueueResource, QueueResources, QueueSpec, QueueStatus};
pub use scheduling_shard::{
    ActionConfig, MinRuntime, PlacementStrategy, PluginConfig, ScenarioSearchBudgets, SchedulingShard,
    SchedulingShardSpec, SchedulingShardStatus, UsageDbConfig, UsageParams,
};
pub use topology::{Topology, TopologyLevel, TopologySpec};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Amounts by resource name, as in pods and nodes.
pub type ResourceList = BTreeMap<String, Quantity>;
