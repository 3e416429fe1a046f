//! Objects of any kind without managedFields, which are half of many objects. They are skipped while parsing: most of what
//! is parsed comes from watches.

use std::borrow::Cow;
use std::fmt;

use kai_control::Kind;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

#[derive(Clone, Debug)]
pub(crate) struct StrippedObject {
    /// What watches and lists need of it.
    metadata: ObjectMeta,
    fields: Map<String, Value>,
}

/// Whether to keep the data of config maps: a watch of certain ones needs it, a watch of all needs their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigMapData {
    Keep,
    Drop,
}

impl StrippedObject {
    /// The object with its kind, which lists leave out.
    pub(crate) fn into_value(mut self, resource: &ApiResource, contents: ConfigMapData) -> Value {
        if resource.kind == Kind::ConfigMap.name() && contents == ConfigMapData::Drop {
            self.fields.retain(|field, _| field == "metadata");
        }
        self.fields.insert("apiVersion".to_owned(), resource.api_version.clone().into());
        self.fields.insert("kind".to_owned(), resource.kind.clone().into());
        Value::Object(self.fields)
    }
}

impl<'de> serde::Deserialize<'de> for StrippedObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields { of: Level::Object }.deserialize(deserializer)?;
        let metadata = fields.get("metadata");
        let text = |field: &str| Some(metadata?.get(field)?.as_str()?.to_owned());
        let metadata = ObjectMeta {
            namespace: text("namespace"),
            name: text("name"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, fields })
    }
}

impl kube::Resource for StrippedObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Parses fields, and skips managedFields.
#[derive(Clone, Copy)]
struct Fields {
    of: Level,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Object,
    Metadata,
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = Map<String, Value>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = match (self.of, name.as_str()) {
                (Level::Metadata, "managedFields") => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                (Level::Object, "metadata") => Value::Object(map.next_value_seed(Self { of: Level::Metadata })?),
                _ => map.next_value()?,
            };
            fields.insert(name, value);
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Resource as _;
    use kube::api::WatchEvent;
    use serde_json::json;

    use super::*;

    fn map() -> Value {
        json!({
            "metadata": {"name": "m", "namespace": "n", "resourceVersion": "7", "managedFields": [{"manager": "x"}]},
            "data": {"key": "value", "managedFields": "kept"},
        })
    }

    fn read(contents: ConfigMapData) -> Value {
        let object: StrippedObject = serde_json::from_value(map()).unwrap();
        object.into_value(&ApiResource::erase::<ConfigMap>(&()), contents)
    }

    #[test]
    fn all_but_managed_fields_is_kept() {
        let mut want = map();
        want["metadata"].as_object_mut().unwrap().remove("managedFields");
        want["apiVersion"] = json!("v1");
        want["kind"] = json!("ConfigMap");
        assert_eq!(read(ConfigMapData::Keep), want);
    }

    #[test]
    fn config_maps_keep_their_data_only_where_it_is_wanted() {
        assert!(read(ConfigMapData::Drop)["data"].is_null());
        assert_eq!(read(ConfigMapData::Drop)["metadata"]["name"], "m");
    }

    #[test]
    fn watches_find_the_resource_version() {
        let event = json!({"type": "ADDED", "object": map()}).to_string();
        let Ok(WatchEvent::Added(object)) = serde_json::from_str::<WatchEvent<StrippedObject>>(&event) else {
            panic!("not read")
        };
        assert_eq!(object.meta().resource_version.as_deref(), Some("7"));
    }
}
