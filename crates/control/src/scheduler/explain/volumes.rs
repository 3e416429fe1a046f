//! Volumes, claims and config maps: what a pod lacks on every node, and why a node is refused.

use crate::scheduler::reasons::{MissingObject, UnboundClaim, VolumeNote};

/// What a pod lacks on every node.
pub(super) fn missing(object: &MissingObject) -> String {
    match object {
        MissingObject::ConfigMap { config_map } => {
            format!("ConfigMap {config_map} does not exist: create it, or make the reference to it optional")
        }
        MissingObject::OwnClaim { claim } => {
            format!("PersistentVolumeClaim {claim} has not been created for it yet")
        }
        MissingObject::Claim { claim } => format!("PersistentVolumeClaim {claim} does not exist: create it"),
        MissingObject::ForeignClaim { claim } => format!(
            "PersistentVolumeClaim {claim} was not created for it: delete the claim, or rename the pod or its volume"
        ),
        MissingObject::ClaimDeleting { claim } => format!("PersistentVolumeClaim {claim} is being deleted"),
        MissingObject::ClaimLost { claim } => {
            format!("PersistentVolumeClaim {claim} has lost its volume: create another claim")
        }
        MissingObject::Volume { volume, claim } => {
            format!("PersistentVolume {volume} of claim {claim} does not exist")
        }
        MissingObject::ClaimUnbound { claim, cause } => {
            format!("PersistentVolumeClaim {claim} is not bound yet: {}", unbound(cause))
        }
    }
}

fn unbound(cause: &UnboundClaim) -> String {
    match cause {
        UnboundClaim::VolumeNamed { volume } => {
            format!("it asks for PersistentVolume {volume} in spec.volumeName")
        }
        UnboundClaim::NoClass => "it names no spec.storageClassName, so that it takes a volume without one".to_owned(),
        UnboundClaim::UnknownClass { class } => format!("its StorageClass {class} does not exist"),
        UnboundClaim::ImmediateBinding { class } => {
            format!("StorageClass {class} binds claims at once, whatever the node")
        }
    }
}

/// How a claim of the pod explains the nodes that were refused.
pub(super) fn note(note: &VolumeNote) -> String {
    match note {
        VolumeNote::NodeAffinity { volume, claim } => {
            format!("Volume {volume} of claim {claim} is only accessible from nodes that match its spec.nodeAffinity.")
        }
        VolumeNote::Zone { volume, claim, label, zone } => {
            format!("Volume {volume} of claim {claim} is labelled {label}={zone}.")
        }
        VolumeNote::Capacity { driver, claim, class } => format!(
            "CSI driver {driver} reports too little capacity for claim {claim}, see CSIStorageCapacity of class {class}."
        ),
        VolumeNote::Provisioning { claim, node } => {
            format!("A volume for claim {claim} is being provisioned for node {node}.")
        }
        VolumeNote::AllowedTopologies { class, claim } => {
            format!("StorageClass {class} of claim {claim} only provisions in its allowedTopologies.")
        }
        VolumeNote::NoProvisioner { class, claim } => {
            format!("StorageClass {class} does not provision: create a PersistentVolume that fits claim {claim}.")
        }
    }
}
