//! Which object: kind, namespace and name.

use std::fmt;

use kai_api::bounds::NAME_LENGTH_MAX;

use crate::brief::brief;

/// Where an object lives. Cluster-scoped objects have an empty namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

impl ObjectRef {
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind.is_empty() { "object" } else { &self.kind };
        write!(f, "{} ", brief(kind, NAME_LENGTH_MAX))?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", brief(&self.namespace, NAME_LENGTH_MAX))?;
        }
        f.write_str(&brief(&self.name, NAME_LENGTH_MAX))
    }
}
