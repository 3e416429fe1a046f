//! Reading Kubernetes objects held as JSON.
//!
//! Metadata is read leniently: what is not a string is not there. Everything a rule counts on is read
//! through [`FieldRef`], whose errors name the object and the path of the field.

use kai_api::keys::origins::{is_state_annotation, is_state_label};
use serde_json::Value;

use crate::error::{Fault, GroupError, quoted, shown};
use crate::object_ref::ObjectRef;

/// A borrowed object together with the kind it was read as.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    pub value: &'a Value,
    pub api_version: &'a str,
    pub kind: &'a str,
}

impl<'a> Object<'a> {
    pub fn new(value: &'a Value) -> Self {
        let text = |field: &str| value[field].as_str().unwrap_or_default();
        Self { value, api_version: text("apiVersion"), kind: text("kind") }
    }

    /// An object asked for by kind; list entries and typed clients leave the two fields out.
    pub fn read_as(value: &'a Value, api_version: &'a str, kind: &'a str) -> Self {
        Self { value, api_version, kind }
    }

    pub fn name(&self) -> &'a str {
        self.meta("name")
    }

    pub fn namespace(&self) -> &'a str {
        self.meta("namespace")
    }

    pub fn uid(&self) -> &'a str {
        self.meta("uid")
    }

    /// API group; empty for the core group.
    pub fn group(&self) -> &'a str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    pub fn version(&self) -> &'a str {
        self.api_version.split_once('/').map_or(self.api_version, |(_, version)| version)
    }

    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.value["metadata"]["labels"].get(key)?.as_str()
    }

    pub fn annotation(&self, key: &str) -> Option<&'a str> {
        annotation(self.value, key)
    }

    /// All labels, for copies: those that are state of components stay where they are.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        texts(&self.value["metadata"]["labels"]).filter(|(key, _)| !is_state_label(key))
    }

    /// All annotations, for copies: those that are state of components stay where they are.
    pub fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        texts(&self.value["metadata"]["annotations"]).filter(|(key, _)| !is_state_annotation(key))
    }

    /// The object as the root of typed reading.
    pub fn root(&self) -> FieldRef<'a> {
        FieldRef { object: *self, path: String::new(), value: self.value }
    }

    pub fn reference(&self) -> ObjectRef {
        ObjectRef::new(self.api_version, self.kind, self.namespace(), self.name())
    }

    /// A label the rule cannot do without.
    pub fn label_required(&self, key: &str) -> Result<&'a str, GroupError> {
        self.label(key).ok_or_else(|| self.fault(format!("label {key}"), Fault::Missing))
    }

    /// An integer label; absent is `None`, anything but a decimal number an error.
    pub fn label_int(&self, key: &str) -> Result<Option<i32>, GroupError> {
        self.label(key)
            .map(|text| text.parse().map_err(|_| self.not_an_integer(format!("label {key}"), text)))
            .transpose()
    }

    /// An integer annotation, read like [`Object::label_int`].
    pub fn annotation_int(&self, key: &str) -> Result<Option<i32>, GroupError> {
        self.annotation(key)
            .map(|text| text.parse().map_err(|_| self.not_an_integer(format!("annotation {key}"), text)))
            .transpose()
    }

    pub(crate) fn fault(&self, field: impl Into<String>, fault: Fault) -> GroupError {
        GroupError { object: Box::new(self.reference()), field: field.into(), fault }
    }

    pub(crate) fn malformed(&self, field: impl Into<String>, expected: impl Into<String>, found: &str) -> GroupError {
        let fault = Fault::Malformed { expected: expected.into(), found: quoted(found) };
        self.fault(field, fault)
    }

    fn not_an_integer(&self, field: String, found: &str) -> GroupError {
        self.malformed(field, "an integer", found)
    }

    fn meta(&self, field: &str) -> &'a str {
        self.value["metadata"][field].as_str().unwrap_or_default()
    }
}

/// A value inside an object, with its path.
#[derive(Debug, Clone)]
pub struct FieldRef<'a> {
    object: Object<'a>,
    path: String,
    pub value: &'a Value,
}

impl<'a> FieldRef<'a> {
    /// Follows a dotted path. Absent and null fields are `None`; a scalar in the way is an error.
    pub fn field(&self, path: &str) -> Result<Option<FieldRef<'a>>, GroupError> {
        let mut here = self.clone();
        for key in path.split('.') {
            let map = here.value.as_object().ok_or_else(|| here.malformed("an object"))?;
            let Some(value) = map.get(key).filter(|value| !value.is_null()) else {
                return Ok(None);
            };
            here = here.child(key, value);
        }
        Ok(Some(here))
    }

    pub fn field_required(&self, path: &str) -> Result<FieldRef<'a>, GroupError> {
        self.field(path)?.ok_or_else(|| self.missing(path))
    }

    pub fn int(&self, path: &str) -> Result<Option<i32>, GroupError> {
        self.field(path)?.map(|part| part.as_int()).transpose()
    }

    pub fn int_required(&self, path: &str) -> Result<i32, GroupError> {
        self.field_required(path)?.as_int()
    }

    pub fn text(&self, path: &str) -> Result<Option<&'a str>, GroupError> {
        self.field(path)?.map(|part| part.as_text()).transpose()
    }

    pub fn text_required(&self, path: &str) -> Result<&'a str, GroupError> {
        self.field_required(path)?.as_text()
    }

    /// A boolean; absent is false.
    pub fn flag(&self, path: &str) -> Result<bool, GroupError> {
        let Some(part) = self.field(path)? else { return Ok(false) };
        part.value.as_bool().ok_or_else(|| part.malformed("true or false"))
    }

    /// A list; absent is empty.
    pub fn list(&self, path: &str) -> Result<Vec<FieldRef<'a>>, GroupError> {
        self.field(path)?.map_or_else(|| Ok(Vec::new()), |part| part.as_list())
    }

    pub fn list_required(&self, path: &str) -> Result<Vec<FieldRef<'a>>, GroupError> {
        self.field_required(path)?.as_list()
    }

    /// The fields of an object, in order of their names.
    pub fn fields(&self) -> Result<Vec<(&'a str, FieldRef<'a>)>, GroupError> {
        let map = self.value.as_object().ok_or_else(|| self.malformed("an object"))?;
        let mut fields: Vec<_> = map.iter().map(|(key, value)| (key.as_str(), self.child(key, value))).collect();
        fields.sort_by_key(|(key, _)| *key);
        Ok(fields)
    }

    /// An annotation of this part, when the part is a pod or job template.
    pub fn annotation(&self, key: &str) -> Option<&'a str> {
        annotation(self.value, key)
    }

    pub fn as_int(&self) -> Result<i32, GroupError> {
        self.value
            .as_i64()
            .and_then(|number| i32::try_from(number).ok())
            .ok_or_else(|| self.malformed("an integer of 32 bits"))
    }

    pub fn as_text(&self) -> Result<&'a str, GroupError> {
        self.value.as_str().ok_or_else(|| self.malformed("a string"))
    }

    pub fn missing(&self, path: &str) -> GroupError {
        self.object.fault(self.join(path), Fault::Missing)
    }

    pub fn malformed(&self, expected: impl Into<String>) -> GroupError {
        let fault = Fault::Malformed { expected: expected.into(), found: shown(self.value) };
        self.object.fault(self.path.clone(), fault)
    }

    /// What is wrong with an annotation of this part.
    pub fn malformed_annotation(&self, key: &str, expected: &str, found: &str) -> GroupError {
        self.object.malformed(self.join(&format!("annotation {key}")), expected, found)
    }

    fn as_list(&self) -> Result<Vec<FieldRef<'a>>, GroupError> {
        let list = self.value.as_array().ok_or_else(|| self.malformed("a list"))?;
        Ok(list.iter().enumerate().map(|(i, value)| self.child(&i.to_string(), value)).collect())
    }

    fn child(&self, key: &str, value: &'a Value) -> FieldRef<'a> {
        FieldRef { object: self.object, path: self.join(key), value }
    }

    fn join(&self, path: &str) -> String {
        if self.path.is_empty() { path.to_owned() } else { format!("{}.{path}", self.path) }
    }
}

fn annotation<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value["metadata"]["annotations"].get(key)?.as_str()
}

fn texts(map: &Value) -> impl Iterator<Item = (&str, &str)> {
    map.as_object().into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_name_object_and_field() {
        let job = json!({
            "kind": "Job",
            "metadata": {"name": "sweep", "namespace": "lab"},
            "spec": {"tasks": [{"replicas": "two"}], "order": 3},
        });
        let root = Object::new(&job).root();
        let tasks = root.list("spec.tasks").unwrap();
        assert_eq!(
            tasks[0].int("replicas").unwrap_err().to_string(),
            "Job lab/sweep: spec.tasks.0.replicas must be an integer of 32 bits, but is \"two\"",
        );
        assert_eq!(root.int_required("spec.size").unwrap_err().to_string(), "Job lab/sweep: spec.size is missing",);
        assert!(root.int("spec.order.first").is_err(), "a number has no fields");
        assert_eq!(root.int("spec.nothing.at.all").unwrap(), None);
    }

    #[test]
    fn group_and_version_come_from_the_api_version() {
        let value = json!({"apiVersion": "ray.io/v1", "kind": "RayJob"});
        let object = Object::new(&value);
        assert_eq!((object.group(), object.version()), ("ray.io", "v1"));
        let value = json!({"apiVersion": "v1", "kind": "Pod"});
        let object = Object::new(&value);
        assert_eq!((object.group(), object.version()), ("", "v1"));
    }
}
