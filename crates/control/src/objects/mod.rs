//! Projections of cluster objects: the few fields that matter here, parsed once, with precise complaints.

mod affinity;
mod bind_request;
mod device;
pub(crate) mod field_reader;
mod gpu_sharing;
mod inter_pod_rules;
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
pub(crate) use device::names_gpus;
pub use device::{
    AllocatedDevice, Attribute, ClaimAllocation, ClaimSpec, Device, DeviceAlternative, DeviceClass, DeviceConstraint,
    DeviceRequest, ResourceClaim, ResourceClaimTemplate, ResourceSlice, SliceNodes,
};
pub use field_reader::Malformed;
pub use gpu_sharing::GpuSharing;
pub use inter_pod_rules::{InterPodRules, PodAffinityTerm, TopologySpreadConstraint};
pub use kai_engine::builder::{HostPort, Protocol};
pub use namespace::Namespace;
pub use node::Node;
pub(crate) use node::PRESSURES;
pub use numa::{NodeResourceTopology, Policy as NumaPolicy, Scope as NumaScope, Zone, ZoneAmount};
pub use pod::{Owner, Phase, Pod, PodClaim};
pub use pod_group::{PodGroup, SubGroup, TopologyConstraint};
pub use prerequisites::Prerequisites;
pub use priority_class::PriorityClass;
pub use queue::{Queue, QueueAmounts};
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

/// `apiVersion` and `kind` of an object, empty where it does not say.
pub(crate) fn type_of(object: &Value) -> Result<(&str, &str), Malformed> {
    let root = FieldReader::root(object);
    let text = |field: &str| Ok(root.field(field).text()?.unwrap_or_default());
    Ok((text("apiVersion")?, text("kind")?))
}
