//! Config: how the operator installs and runs everything else. Only the object named `kai-config` counts.
//!
//! One file per component. Nothing is required; whatever is left out is filled in by the operator.

mod admission;
mod binder;
mod controllers;
mod global;
mod node_scale_adjuster;
mod numa;
mod prometheus;
mod scheduler;
mod service;
mod vpa;

pub use admission::{Admission, AdmissionPorts};
pub use binder::{Binder, ResourceReservation};
pub use controllers::{
    PodGroupController, PodGroupControllerService, PodGrouper, PodGrouperArgs, QueueController, QueueControllerService,
};
pub use global::Global;
pub use node_scale_adjuster::{NodeScaleAdjuster, NodeScaleAdjusterArgs};
pub use numa::NumaPlacementExporter;
pub use prometheus::{HealthProbe, Prometheus, ServiceMonitor};
pub use scheduler::{Scheduler, SchedulerService};
pub use service::{Image, K8sClientConfig, PodDisruptionBudget, Service, ServicePort, Webhooks};
pub use vpa::{ContainerPolicy, EvictionRequirement, ResourcePolicy, UpdatePolicy, Vpa};

use crate::{
    schema,
    wire::{omit_empty, spec_may_be_absent},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;

spec_may_be_absent!(ConfigSpec);

omit_empty! {
    /// Settings common to all components, then one section for each.
    #[derive(CustomResource)]
    #[kube(
        group = "kai.scheduler",
        version = "v1",
        kind = "Config",
        plural = "configs",
        doc = "Installation settings. Only the object named kai-config counts.",
        status = "ConfigStatus",
        derive = "Default",
        derive = "PartialEq"
    )]
    #[serde(remote = "Self")]
    pub struct ConfigSpec {
        /// Namespace the components run in.
        pub namespace: String,
        /// Settings common to all components.
        pub global: Global,
        /// Groups pods into PodGroups.
        pub pod_grouper: PodGrouper,
        /// Carries out bind requests.
        pub binder: Binder,
        /// Checks and completes pods on creation.
        pub admission: Admission,
        /// Decides placements; one per shard.
        pub scheduler: Scheduler,
        /// Keeps queue status.
        pub queue_controller: QueueController,
        /// Keeps pod group status.
        pub pod_group_controller: PodGroupController,
        /// Makes autoscalers notice pods that share GPUs.
        pub node_scale_adjuster: NodeScaleAdjuster,
        /// Reports where on a node pods were really placed.
        pub numa_placement_exporter: NumaPlacementExporter,
        /// Keeps usage history.
        pub prometheus: Prometheus,
    }

    /// Observed state of the installation.
    pub struct ConfigStatus {
        /// Conditions of the installation.
        #[schemars(transform = schema::conditions)]
        pub conditions: Vec<Condition>,
    }
}
