//! A namespace: its labels, by which pods of others may select it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Malformed;
use super::field_reader::FieldReader;

/// What matters of a `Namespace`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

/// Every namespace carries its own name as this label.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Namespace {
    /// A namespace of which nothing is known but its name.
    pub fn named(name: &str) -> Self {
        let labels = BTreeMap::from([(NAME_LABEL.to_owned(), name.to_owned())]);
        Self { name: name.to_owned(), labels }
    }

    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let mut namespace = Self::named(&root.object_name()?);
        namespace.labels.extend(root.field("metadata").field("labels").string_map()?);
        Ok(namespace)
    }
}

#[cfg(test)]
impl Namespace {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "n", "labels": {"a": "b"}}})
    }
}
