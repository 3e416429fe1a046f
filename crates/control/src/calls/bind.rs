//! Calls of the binder.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::key::{Key, PodKey};

/// One call of the binder. All are idempotent.
#[derive(Clone, Debug, PartialEq)]
pub enum BindEffect {
    /// Creates the pod. Success if it exists.
    CreatePod(Box<Value>),
    /// Deletes the pod of this uid, or of any if it is empty, without a grace period. Success if it does not exist. Conflict
    /// if it has changed since this version.
    DeletePod {
        pod: PodKey,
        uid: String,
        version: Option<String>,
    },
    /// Sets exactly these GPU-group labels. Conflict if the pod was replaced or is on another node.
    LabelPod {
        pod: PodKey,
        uid: String,
        node: String,
        labels: BTreeMap<String, String>,
    },
    /// Creates the config map, or sets the data of the stored one. Rejected if that belongs to no pod that owns this one.
    WriteConfigMap(Box<Value>),
    /// Sets the annotation `selected-node`, so that the provisioner creates the volume there.
    SetSelectedNode {
        claim: Key,
        node: String,
    },
    /// Sets `claimRef` of the volume. Conflict if another claim has it.
    PrebindVolume {
        volume: String,
        claim: Key,
        uid: String,
    },
    /// Reserves the claim for the pod, and allocates these devices unless it has some.
    AllocateClaim {
        claim: Key,
        pod: PodKey,
        uid: String,
        allocation: Box<Value>,
    },
    /// Binds the pod to the node, with these annotations.
    Bind {
        pod: PodKey,
        uid: String,
        node: String,
        annotations: BTreeMap<String, String>,
    },
    /// Sets the phase of the request. Conflict if it changed since this version: it may be a new request of that name.
    /// Success if the request does not exist any more. Of a request in a batch, success is not stored, and failure removes
    /// it from the batch.
    SetPhase {
        request: Key,
        version: String,
        phase: &'static str,
        reason: String,
        failed_attempts: u32,
    },
    DeleteRequest(Key),
    /// Writes condition and event of the pod.
    ReportResult {
        pod: PodKey,
        bound: bool,
        message: String,
    },
}
