//! Volumes, claims and config maps that pods refer to.

use serde::{Deserialize, Serialize};

use crate::key::Key;

/// An object without which a pod can run nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum MissingObject {
    ConfigMap {
        config_map: Key,
    },
    Claim {
        claim: Key,
    },
    /// The claim of an ephemeral volume.
    OwnClaim {
        claim: Key,
    },
    /// There is a claim of the name of an ephemeral volume that belongs to something else.
    ForeignClaim {
        claim: Key,
    },
    ClaimDeleting {
        claim: Key,
    },
    ClaimLost {
        claim: Key,
    },
    /// The volume that a claim is bound to.
    Volume {
        volume: String,
        claim: Key,
    },
    ClaimUnbound {
        claim: Key,
        cause: UnboundClaim,
    },
}

/// Why a claim waits for a volume although no node has been chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum UnboundClaim {
    /// It names its volume.
    VolumeNamed { volume: String },
    /// It has no storage class.
    NoClass,
    /// There is no such storage class.
    UnknownClass { class: String },
    /// The class binds claims at once.
    ImmediateBinding { class: String },
}

/// How a claim of a pod explains the nodes that were refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum VolumeNote {
    /// Only some nodes reach the volume.
    NodeAffinity { volume: String, claim: Key },
    /// The volume is in a zone.
    Zone { volume: String, claim: Key, label: String, zone: String },
    /// The driver has too little capacity for the class.
    Capacity { driver: String, claim: Key, class: String },
    /// A volume is being provisioned for a node.
    Provisioning { claim: Key, node: String },
    /// The class only provisions in some domains.
    AllowedTopologies { class: String, claim: Key },
    /// The class does not provision.
    NoProvisioner { class: String, claim: Key },
}
