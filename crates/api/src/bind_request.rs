//! BindRequest: the scheduler's order to the binder to put one pod on one node.

use crate::{
    ResourceList, schema,
    wire::{omit_empty, spec_may_be_absent},
};
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequest};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

spec_may_be_absent!(BindRequestSpec);

omit_empty! {
    /// Which pod goes where, with which devices.
    #[derive(CustomResource)]
    #[kube(
        group = "scheduling.run.ai",
        version = "v1alpha2",
        kind = "BindRequest",
        plural = "bindrequests",
        namespaced,
        doc = "A request to bind one pod to one node. Written by the scheduler, carried out by the binder.",
        status = "BindRequestStatus",
        derive = "Default",
        derive = "PartialEq"
    )]
    #[serde(remote = "Self")]
    pub struct BindRequestSpec {
        /// Pod to bind, in the request's namespace.
        pub pod_name: String,
        /// Node to bind it to.
        pub selected_node: String,
        /// `Regular`, `Fraction` or `MigInstance`.
        pub received_resource_type: String,
        /// GPUs the pod was given.
        #[serde(rename = "receivedGPU")]
        pub received_gpu: Option<ReceivedGpu>,
        /// Shared-GPU group of each device of a fractional pod.
        #[serde(rename = "selectedGPUGroups")]
        pub selected_gpu_groups: Vec<String>,
        /// Devices chosen for the pod's resource claims.
        pub resource_claim_allocations: Vec<ResourceClaimAllocation>,
        /// Devices chosen for extended resources that a device class backs.
        pub extended_resource_claim_allocation: Option<ExtendedResourceClaimAllocation>,
        /// NUMA zones the pod's resources are expected to come from.
        #[serde(rename = "predictedNUMAZones")]
        pub predicted_numa_zones: Vec<NumaZone>,
        /// Failures after which the binder gives up.
        pub backoff_limit: Option<i32>,
    }

    /// GPUs a pod was given.
    pub struct ReceivedGpu {
        /// Number of devices.
        #[schemars(transform = schema::plain_int)]
        pub count: i64,
        /// Portion of each, with two decimals.
        pub portion: String,
    }

    /// Devices chosen for one resource claim.
    pub struct ResourceClaimAllocation {
        /// The pod's own name for the claim.
        pub name: String,
        /// The devices.
        #[schemars(transform = schema::embedded)]
        pub allocation: Option<AllocationResult>,
    }

    /// Devices chosen for extended resources that a device class backs; the binder makes a claim of them.
    pub struct ExtendedResourceClaimAllocation {
        /// The devices.
        #[schemars(transform = schema::embedded)]
        pub allocation: Option<AllocationResult>,
        /// Requests of the claim to make.
        #[schemars(transform = schema::embedded_items)]
        pub device_requests: Vec<DeviceRequest>,
        /// Which container's resource each request stands for.
        pub container_mappings: Vec<ContainerMapping>,
    }

    /// How binding went.
    pub struct BindRequestStatus {
        /// Empty at first, then `Succeeded` or `Failed`.
        pub phase: String,
        /// What the last failure was.
        pub reason: String,
        /// Failures so far.
        pub failed_attempts: i32,
    }
}

/// Ties a request of the synthetic claim to the container that asked for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerMapping {
    /// The container.
    pub container_name: String,
    /// The extended resource it asks for.
    pub resource_name: String,
    /// The claim's request that serves it.
    pub request_name: String,
}

/// Amounts taken from one NUMA zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NumaZone {
    /// The zone.
    pub zone: String,
    /// What is taken from it.
    pub amount: ResourceList,
}
