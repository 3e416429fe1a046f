//! How objects are identified within their kind.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Identity of a namespaced object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

/// Identity of a pod.
pub type PodKey = Key;
/// Identity of a pod group.
pub type GroupKey = Key;

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object as the API server shows it; empty where it does not say.
    pub fn of(object: &Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        Self::new(text("namespace"), text("name"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}
