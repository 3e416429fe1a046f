//! The kinds of objects that controllers watch, and projections of their objects: the few fields that matter here, parsed
//! once, with precise errors.
//!
//! A new kind is a file here with its type (`parse`, and `full` for tests) and a row in [`for_each_kind`](crate::for_each_kind).

mod affinity;
mod bind_request;
mod bound_share;
mod device;
mod faults;
pub(crate) mod field_reader;
mod gpu_sharing;
mod inter_pod_rules;
mod karta;
mod namespace;
mod node;
mod numa;
pub(crate) mod pod;
mod pod_group;
mod prerequisites;
mod priority_class;
mod queue;
pub(crate) mod request;
pub(crate) mod resources;
mod selector;
mod storage;
mod taint;
mod topology;

pub use affinity::{NodeTerm, Operator, Requirement};
pub use bind_request::{BindPhase, BindRequest};
pub use bound_share::BoundShare;
pub(crate) use bound_share::held_share;
pub(crate) use device::names_gpus;
pub use device::{
    AllocatedDevice, Attribute, ClaimAllocation, ClaimSpec, Device, DeviceAlternative, DeviceClass, DeviceConstraint,
    DeviceRequest, ResourceClaim, ResourceClaimTemplate, ResourceSlice, SliceNodes,
};
pub(crate) use faults::Faults;
pub use field_reader::Malformed;
pub use gpu_sharing::GpuSharing;
pub use inter_pod_rules::{InterPodRules, PodAffinityTerm, TopologySpreadConstraint};
pub use kai_engine::builder::{HostPort, Protocol};
pub use karta::Karta;
pub use namespace::Namespace;
pub(crate) use node::PRESSURES;
pub use node::{Node, gpu_memory_mib};
pub use numa::{NodeResourceTopology, Policy as NumaPolicy, Scope as NumaScope, Zone, ZoneAmount};
pub use pod::{Owner, Phase, Pod, PodClaim};
pub use pod_group::{PodGroup, SubGroup, TopologyConstraint};
pub use prerequisites::Prerequisites;
pub use priority_class::PriorityClass;
pub use queue::{NamespaceRule, Queue, QueueAmounts};
pub use request::Request;
pub use resources::Resources;
pub use selector::LabelSelector;
pub use storage::{
    ConfigMap, CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass,
    VolumeMode, best_volume,
};
pub use taint::{Taint, TaintEffect, Toleration};
pub use topology::{Level, Topology};

use serde_json::Value;

use field_reader::FieldReader;

/// Calls the macro `$then` with the table of kinds. Each row: the type in `objects`, which also names the variants here;
/// the table of the `World` that keeps it; `kind`; `apiVersion`; plural name; whether its objects have a namespace;
/// whether a cluster may lack it; its list in snapshot files.
///
/// In the order of the lists in snapshot files: KAI's, then those that KAI's lack although its decisions depend on them. Last
/// come kinds on which no scheduling cycle depends, with `""` for a list: the scheduler neither watches nor may read them.
#[macro_export]
macro_rules! for_each_kind {
    ($then:ident) => {
        $then! {
            Pod pods "Pod" "v1" "pods" Namespaced Required "pods";
            Node nodes "Node" "v1" "nodes" Cluster Required "nodes";
            Queue queues "Queue" "scheduling.run.ai/v2" "queues" Cluster Required "queues";
            PodGroup pod_groups "PodGroup" "scheduling.run.ai/v2alpha2" "podgroups" Namespaced Required "podGroups";
            BindRequest bind_requests
                "BindRequest" "scheduling.run.ai/v1alpha2" "bindrequests" Namespaced Required "bindRequests";
            PriorityClass priority_classes
                "PriorityClass" "scheduling.k8s.io/v1" "priorityclasses" Cluster Optional "priorityClasses";
            ConfigMap config_maps "ConfigMap" "v1" "configmaps" Namespaced Required "configMaps";
            PersistentVolume volumes "PersistentVolume" "v1" "persistentvolumes" Cluster Required "persistentVolumes";
            PersistentVolumeClaim volume_claims
                "PersistentVolumeClaim" "v1" "persistentvolumeclaims" Namespaced Required "persistentVolumeClaims";
            CsiStorageCapacity storage_capacities
                "CSIStorageCapacity" "storage.k8s.io/v1" "csistoragecapacities" Namespaced Optional
                "csiStorageCapacities";
            StorageClass storage_classes
                "StorageClass" "storage.k8s.io/v1" "storageclasses" Cluster Optional "storageClasses";
            CsiDriver csi_drivers "CSIDriver" "storage.k8s.io/v1" "csidrivers" Cluster Optional "csiDrivers";
            ResourceClaim resource_claims
                "ResourceClaim" "resource.k8s.io/v1" "resourceclaims" Namespaced Optional "resourceClaims";
            ResourceSlice resource_slices
                "ResourceSlice" "resource.k8s.io/v1" "resourceslices" Cluster Optional "resourceSlices";
            DeviceClass device_classes
                "DeviceClass" "resource.k8s.io/v1" "deviceclasses" Cluster Optional "deviceClasses";
            Topology topologies "Topology" "kai.scheduler/v1alpha1" "topologies" Cluster Required "topologies";
            NodeResourceTopology numa_topologies
                "NodeResourceTopology" "topology.node.k8s.io/v1alpha2" "noderesourcetopologies" Cluster Optional
                "nodeResourceTopologies";
            Namespace namespaces "Namespace" "v1" "namespaces" Cluster Required "namespaces";
            CsiNode csi_nodes "CSINode" "storage.k8s.io/v1" "csinodes" Cluster Optional "csiNodes";
            Karta kartas "Karta" "run.ai/v1alpha1" "kartas" Cluster Optional "";
        }
    };
}

/// `apiVersion` and `kind` of an object, empty where it does not say.
pub(crate) fn type_of(object: &Value) -> Result<(&str, &str), Malformed> {
    let root = FieldReader::root(object);
    let text = |field: &str| Ok(root.field(field).text()?.unwrap_or_default());
    Ok((text("apiVersion")?, text("kind")?))
}
