//! How objects are identified within their kind.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Namespace of a namespaced object that names none, as `kubectl` has it.
pub const NAMESPACE_DEFAULT: &str = "default";

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

    /// The key of a namespaced object. For an object of any scope see [`Kind::key_of`](crate::Kind::key_of).
    pub fn of(object: &Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().filter(|text| !text.is_empty());
        Self::new(text("namespace").unwrap_or(NAMESPACE_DEFAULT), text("name").unwrap_or_default())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}
