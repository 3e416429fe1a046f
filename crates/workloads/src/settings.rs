//! What an administrator can set, and the defaults per workload kind.

use std::collections::BTreeMap;

use kai_api::keys::{label, name};
use serde::Deserialize;
use serde_json::Value;

use crate::declared::DeclaredKinds;
use crate::error::{Fault, GroupError};
use crate::object::Object;
use crate::object_ref::ObjectRef;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub scheduler_name: String,
    pub queue_label_key: String,
    pub node_pool_label_key: String,
    /// Keep using groups named as older releases named them.
    pub search_legacy_pod_groups: bool,
    /// Start the first replicas of a Knative revision together.
    pub knative_gang_schedule: bool,
    /// Ask Kartas about kinds the table does not know.
    pub karta_fallback: bool,
    /// The config map from which `kind_defaults` are read.
    pub kind_defaults_config_map: Option<ObjectRef>,
    pub kind_defaults: KindDefaults,
    /// Kinds that users have declared.
    pub declared: DeclaredKinds,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheduler_name: name::SCHEDULER.to_owned(),
            queue_label_key: label::QUEUE.to_owned(),
            node_pool_label_key: label::NODE_POOL.to_owned(),
            search_legacy_pod_groups: true,
            knative_gang_schedule: true,
            karta_fallback: true,
            kind_defaults_config_map: None,
            kind_defaults: KindDefaults::default(),
            declared: DeclaredKinds::default(),
        }
    }
}

/// Priority class and preemptibility per workload kind, for objects that do not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindDefaults {
    /// By `Kind.group`, or `Kind` alone for any group.
    entries: BTreeMap<String, KindDefault>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KindDefault {
    type_name: String,
    group: String,
    pub priority_name: String,
    /// As written; any case.
    pub preemptibility: String,
}

/// Key of the config map that holds the JSON list.
const TYPES: &str = "types";

impl KindDefaults {
    /// Reads the config map named in the grouper's flags. An error means: log it, use no defaults.
    pub fn from_config_map(config_map: &Value) -> Result<Self, GroupError> {
        let object = Object::read_as(config_map, "v1", "ConfigMap");
        let field = format!("data.{TYPES}");
        let text = object.root().text_required(&field)?;
        let list: Vec<KindDefault> = serde_json::from_str(text).map_err(|error| {
            let expected = "a JSON list of kind defaults".to_owned();
            object.fault(field, Fault::Malformed { expected, found: error.to_string() })
        })?;
        // Later entries replace earlier ones of the same key.
        let entries = list.into_iter().map(|entry| (entry.key(), entry)).collect();
        Ok(Self { entries })
    }

    /// The entry for exactly this kind and group, else for the kind in any group. Never a mix of both.
    pub fn of(&self, object: Object<'_>) -> Option<&KindDefault> {
        self.entries.get(&key(object.kind, object.group())).or_else(|| self.entries.get(object.kind))
    }
}

impl KindDefault {
    fn key(&self) -> String {
        key(&self.type_name, &self.group)
    }
}

fn key(kind: &str, group: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn priority_of(types: &str, api_version: &str) -> Option<String> {
        let defaults = KindDefaults::from_config_map(&json!({"data": {"types": types}})).unwrap();
        let object = json!({"apiVersion": api_version, "kind": "Deployment"});
        defaults.of(Object::new(&object)).map(|entry| entry.priority_name.clone())
    }

    #[test]
    fn kind_with_group_beats_kind_alone() {
        let types = r#"[{"typeName":"Deployment","priorityName":"any"},
                        {"typeName":"Deployment","group":"apps","priorityName":"apps"}]"#;
        assert_eq!(priority_of(types, "apps/v1").as_deref(), Some("apps"));
        assert_eq!(priority_of(types, "other.io/v1").as_deref(), Some("any"));
    }

    #[test]
    fn group_may_be_written_into_the_type_name_and_the_last_duplicate_wins() {
        let types = r#"[{"typeName":"Deployment.apps","priorityName":"first"},
                        {"typeName":"Deployment","group":"apps","priorityName":"last"}]"#;
        assert_eq!(priority_of(types, "apps/v1").as_deref(), Some("last"));
        assert_eq!(priority_of(types, "v1"), None);
    }

    #[test]
    fn a_broken_list_is_an_error() {
        let broken = json!({"metadata": {"name": "defaults"}, "data": {"types": "[{"}});
        assert!(KindDefaults::from_config_map(&broken).is_err());
        assert!(KindDefaults::from_config_map(&json!({})).is_err());
    }
}
