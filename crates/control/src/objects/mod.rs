//! Projections of cluster objects: the few fields that matter here, parsed once, with precise complaints.

#[cfg(test)]
mod tests;

mod affinity;
mod bind_request;
mod device;
mod mounts;
mod namespace;
mod node;
mod numa;
pub(crate) mod pod;
mod pod_group;
mod priority_class;
mod queue;
pub(crate) mod reader;
mod relations;
pub(crate) mod request;
pub(crate) mod resources;
mod selector;
mod sharing;
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
pub use kai_engine::builder::{HostPort, Protocol};
pub use mounts::Mounts;
pub use namespace::Namespace;
pub use node::Node;
pub(crate) use node::PRESSURES;
pub use numa::{NodeResourceTopology, Policy as NumaPolicy, Scope as NumaScope, Zone, ZoneAmount};
pub use pod::{Owner, Phase, Pod, PodClaim};
pub use pod_group::{PodGroup, SubGroup, TopologyConstraint};
pub use priority_class::PriorityClass;
pub use queue::{Queue, QueueAmounts};
pub use reader::Malformed;
pub use relations::{PodTerm, Relations, SpreadRule};
pub use request::Request;
pub use resources::Resources;
pub use selector::LabelSelector;
pub use sharing::Sharing;
pub use storage::{
    ConfigMap, CsiDriver, CsiNode, StorageCapacity, StorageClass, Volume, VolumeClaim, VolumeMode, best_volume,
};
pub use taint::{Taint, TaintEffect, Toleration};
pub use topology::{Level, Topology};

use serde_json::Value;

use crate::world::Ref;
use reader::Reader;

/// One object of a kind that the control plane keeps.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    Node(Box<Node>),
    Pod(Box<Pod>),
    Queue(Box<Queue>),
    PodGroup(Box<PodGroup>),
    PriorityClass(Box<PriorityClass>),
    Topology(Box<Topology>),
    BindRequest(Box<BindRequest>),
    Namespace(Box<Namespace>),
    NodeResourceTopology(Box<NodeResourceTopology>),
    DeviceClass(Box<DeviceClass>),
    ResourceSlice(Box<ResourceSlice>),
    ResourceClaim(Box<ResourceClaim>),
    VolumeClaim(Box<VolumeClaim>),
    Volume(Box<Volume>),
    StorageClass(Box<StorageClass>),
    CsiNode(Box<CsiNode>),
    CsiDriver(Box<CsiDriver>),
    StorageCapacity(Box<StorageCapacity>),
    ConfigMap(Box<ConfigMap>),
}

impl Object {
    /// Parses any kept kind by its `kind` field; `None` for kinds that are not kept.
    pub fn parse(value: &Value) -> Result<Option<Self>, Malformed> {
        let root = Reader::root(value);
        Ok(Some(match root.field("kind").text()?.unwrap_or_default() {
            "Node" => Self::Node(Box::new(Node::parse(value)?)),
            "Pod" => Self::Pod(Box::new(Pod::parse(value)?)),
            "Queue" => Self::Queue(Box::new(Queue::parse(value)?)),
            "PodGroup" => Self::PodGroup(Box::new(PodGroup::parse(value)?)),
            "PriorityClass" => Self::PriorityClass(Box::new(PriorityClass::parse(value)?)),
            "Topology" => Self::Topology(Box::new(Topology::parse(value)?)),
            "BindRequest" => Self::BindRequest(Box::new(BindRequest::parse(value)?)),
            "Namespace" => Self::Namespace(Box::new(Namespace::parse(value)?)),
            "NodeResourceTopology" => Self::NodeResourceTopology(Box::new(NodeResourceTopology::parse(value)?)),
            "DeviceClass" => Self::DeviceClass(Box::new(DeviceClass::parse(value)?)),
            "ResourceSlice" => Self::ResourceSlice(Box::new(ResourceSlice::parse(value)?)),
            "ResourceClaim" => Self::ResourceClaim(Box::new(ResourceClaim::parse(value)?)),
            "PersistentVolumeClaim" => Self::VolumeClaim(Box::new(VolumeClaim::parse(value)?)),
            "PersistentVolume" => Self::Volume(Box::new(Volume::parse(value)?)),
            "StorageClass" => Self::StorageClass(Box::new(StorageClass::parse(value)?)),
            "CSINode" => Self::CsiNode(Box::new(CsiNode::parse(value)?)),
            "CSIDriver" => Self::CsiDriver(Box::new(CsiDriver::parse(value)?)),
            "CSIStorageCapacity" => Self::StorageCapacity(Box::new(StorageCapacity::parse(value)?)),
            "ConfigMap" => Self::ConfigMap(Box::new(ConfigMap::parse(value)?)),
            _ => return Ok(None),
        }))
    }

    /// The name of the object, to find or delete it.
    pub fn reference(&self) -> Ref {
        match self {
            Self::Node(node) => Ref::Node(node.name.clone()),
            Self::Pod(pod) => Ref::Pod(pod.key.clone()),
            Self::Queue(queue) => Ref::Queue(queue.name.clone()),
            Self::PodGroup(group) => Ref::PodGroup(group.key.clone()),
            Self::PriorityClass(class) => Ref::PriorityClass(class.name.clone()),
            Self::Topology(topology) => Ref::Topology(topology.name.clone()),
            Self::BindRequest(request) => Ref::BindRequest(request.key.clone()),
            Self::Namespace(namespace) => Ref::Namespace(namespace.name.clone()),
            Self::NodeResourceTopology(topology) => Ref::NodeResourceTopology(topology.name.clone()),
            Self::DeviceClass(class) => Ref::DeviceClass(class.name.clone()),
            Self::ResourceSlice(slice) => Ref::ResourceSlice(slice.name.clone()),
            Self::ResourceClaim(claim) => Ref::ResourceClaim(claim.key.clone()),
            Self::VolumeClaim(row) => Ref::VolumeClaim(row.key.clone()),
            Self::Volume(row) => Ref::Volume(row.name.clone()),
            Self::StorageClass(row) => Ref::StorageClass(row.name.clone()),
            Self::CsiNode(row) => Ref::CsiNode(row.name.clone()),
            Self::CsiDriver(row) => Ref::CsiDriver(row.name.clone()),
            Self::StorageCapacity(row) => Ref::StorageCapacity(row.key.clone()),
            Self::ConfigMap(row) => Ref::ConfigMap(row.key.clone()),
        }
    }
}
