//! Devices that a pod was allocated, as the API writes them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::key::Key;

/// Devices of one resource claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedDevices {
    /// The pod's own name for the claim.
    pub name: String,
    pub claim: Key,
    /// An `AllocationResult` as the API writes it.
    pub allocation: Value,
}

/// Devices for extended resources; the binder makes a claim of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtendedDevices {
    /// An `AllocationResult` as the API writes it.
    pub allocation: Value,
    /// The requests of the claim to make, as the API writes them.
    pub requests: Vec<Value>,
    /// Container, resource and request that serves it.
    pub mappings: Vec<(String, String, String)>,
}
