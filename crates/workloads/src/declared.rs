//! Kinds that users declare in a config map, without code: where an object says how many pods it has.
//!
//! ```yaml
//! data:
//!   trainer: |                     # any name
//!     group: ml.example.com
//!     kind: Trainer
//!     replicas: .spec.nodes        # jq; several results are added up
//!     minimum: .spec.minNodes      # optional; all replicas otherwise
//!     queue: .spec.team            # optional, for objects without a queue label
//!     priority: .spec.class        # optional, for objects without a priority label
//!     template: .spec.template     # optional; lets the simulator make the pods
//! ```
//!
//! A declaration that makes no sense is a complaint about its key; the others count all the same.

use kai_api::keys::label;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Fault, GroupError};
use crate::group::{GroupSpec, IgnoredValue, Minimum};
use crate::jq::Program;
use crate::object::Object;
use crate::table;
use crate::workload::Workload;

/// All declarations that can be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeclaredKinds {
    kinds: Vec<DeclaredKind>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredKind {
    #[serde(default)]
    group: String,
    kind: String,
    replicas: Option<String>,
    minimum: Option<String>,
    queue: Option<String>,
    priority: Option<String>,
    template: Option<String>,
}

impl DeclaredKinds {
    /// Reads the config map; the complaints name keys that were passed over.
    pub fn from_config_map(config_map: &Value) -> (Self, Vec<GroupError>) {
        let object = Object::read_as(config_map, "v1", "ConfigMap");
        let (mut declared, mut complaints) = (Self::default(), Vec::new());
        let entries = config_map["data"].as_object().into_iter().flatten();
        for (key, text) in entries {
            match DeclaredKind::read(object, key, text.as_str().unwrap_or_default()) {
                Ok(kind) if declared.find(&kind.group, &kind.kind).is_some() => {
                    complaints.push(object.fault(format!("data.{key}"), Fault::DeclaredTwice { kind: kind.kind }));
                }
                Ok(kind) => declared.kinds.push(kind),
                Err(complaint) => complaints.push(complaint),
            }
        }
        (declared, complaints)
    }

    /// Whether the kind of an object is declared.
    pub fn knows(&self, object: &Value) -> bool {
        let object = Object::new(object);
        self.find(object.group(), object.kind).is_some()
    }

    /// How many pods of which template an object asks for; none if its declaration does not say where templates stand.
    pub fn pods(&self, object: &Value) -> Result<Vec<(u32, Value)>, GroupError> {
        let object = Object::new(object);
        let declared = self.find(object.group(), object.kind);
        let Some((declared, path)) = declared.and_then(|kind| Some((kind, kind.template.as_deref()?))) else {
            return Ok(Vec::new());
        };
        let templates = results(object, path)?;
        let mut counts = match declared.replicas.as_deref().or(declared.minimum.as_deref()) {
            Some(counts) => self::counts(object, counts)?,
            None => Vec::new(),
        };
        if templates.len() == 1 {
            counts = vec![counts.into_iter().fold(0, i32::saturating_add)];
        }
        if templates.len() != counts.len() || !templates.iter().all(Value::is_object) {
            let expected = format!("a pod template for each of {} numbers of pods", counts.len());
            let found = format!("{} of them", templates.iter().filter(|template| template.is_object()).count());
            return Err(object.fault(path, Fault::Malformed { expected, found }));
        }
        Ok(counts.into_iter().map(i32::unsigned_abs).zip(templates).collect())
    }

    fn find(&self, group: &str, kind: &str) -> Option<&DeclaredKind> {
        self.kinds.iter().find(|declared| declared.group == group && declared.kind == kind)
    }
}

impl DeclaredKind {
    fn read(config_map: Object<'_>, key: &str, text: &str) -> Result<Self, GroupError> {
        let declared: Self = yaml_serde::from_str(text).map_err(|error| {
            let expected = "YAML with kind, group, replicas, minimum, queue, priority and template".to_owned();
            config_map.fault(format!("data.{key}"), Fault::Malformed { expected, found: error.to_string() })
        })?;
        let at = |field: &str| format!("data.{key}: {field}");
        if declared.kind.is_empty() {
            return Err(config_map.fault(at("kind"), Fault::Missing));
        }
        if table::find(&declared.group, &declared.kind).is_some() {
            let expected = "a kind that has no rule of its own; remove this key";
            return Err(config_map.malformed(at("kind"), expected, &declared.kind));
        }
        if declared.replicas.is_none() && declared.minimum.is_none() {
            return Err(config_map.fault(at("replicas"), Fault::Missing));
        }
        let paths = [
            ("replicas", &declared.replicas),
            ("minimum", &declared.minimum),
            ("queue", &declared.queue),
            ("priority", &declared.priority),
            ("template", &declared.template),
        ];
        for (field, path) in paths {
            let Some(path) = path else { continue };
            if let Err(error) = Program::parse(path) {
                let expected = format!("a jq path such as .spec.{field} ({error})");
                return Err(config_map.malformed(at(field), expected, path));
            }
        }
        Ok(declared)
    }

    fn minimum(&self, object: Object<'_>) -> Result<i32, GroupError> {
        let replicas = self.replicas.as_deref().map(|path| sum(object, path)).transpose()?;
        let Some(path) = &self.minimum else { return Ok(replicas.unwrap_or(1)) };
        let minimum = match (results(object, path)?.as_slice(), replicas) {
            // Objects that leave the minimum out mean all of it.
            ([Value::Null] | [], Some(replicas)) => return Ok(replicas),
            _ => sum(object, path)?,
        };
        match replicas {
            Some(replicas) if minimum > replicas => {
                Err(object.malformed(path, format!("at most the replicas, which are {replicas}"), &minimum.to_string()))
            }
            _ => Ok(minimum),
        }
    }
}

/// The group of an object whose kind is declared; `None` if it is not.
pub(crate) fn group(workload: &Workload<'_>) -> Option<Result<GroupSpec, GroupError>> {
    let object = workload.object;
    let declared = workload.settings.declared.find(object.group(), object.kind)?;
    Some(apply(workload, declared))
}

fn apply(workload: &Workload<'_>, declared: &DeclaredKind) -> Result<GroupSpec, GroupError> {
    let (object, pod) = (workload.object, workload.pod);
    let mut spec = GroupSpec { minimum: Minimum::Members(declared.minimum(object)?), ..workload.base() };
    let labelled = |key: &str| object.label(key).or_else(|| pod.label(key)).is_some();
    if let Some(path) = declared.queue.as_deref().filter(|_| !labelled(&workload.settings.queue_label_key))
        && let Some(queue) = text(object, path)?
    {
        spec.queue = queue;
    }
    if let Some(path) = declared.priority.as_deref().filter(|_| !labelled(label::PRIORITY_CLASS_NAME))
        && let Some(class) = text(object, path)?
    {
        if workload.related.has_priority_class(&class) {
            spec.priority_class = class;
        } else {
            spec.ignored_values.push(IgnoredValue::UnknownPriorityClass { object: object.reference(), class });
        }
    }
    Ok(spec)
}

fn results(object: Object<'_>, path: &str) -> Result<Vec<Value>, GroupError> {
    let found = Program::parse(path).and_then(|program| program.run(object.value));
    found.map_err(|error| {
        let fault =
            Fault::Malformed { expected: "something that can be looked up".to_owned(), found: error.to_string() };
        object.fault(path, fault)
    })
}

/// How many pods a path counts, all in all.
fn sum(object: Object<'_>, path: &str) -> Result<i32, GroupError> {
    Ok(counts(object, path)?.into_iter().fold(0, i32::saturating_add))
}

/// The numbers of pods at a path; at least one.
fn counts(object: Object<'_>, path: &str) -> Result<Vec<i32>, GroupError> {
    let found = results(object, path)?;
    if found.is_empty() {
        return Err(object.fault(path, Fault::Missing));
    }
    let count = |value: &Value| {
        let count = value.as_i64().and_then(|count| i32::try_from(count).ok()).filter(|count| *count >= 0);
        count.ok_or_else(|| {
            let found = crate::error::shown(value);
            object.fault(path, Fault::Malformed { expected: "a number of pods".to_owned(), found })
        })
    };
    found.iter().map(count).collect()
}

/// The text at a path, if there is one.
fn text(object: Object<'_>, path: &str) -> Result<Option<String>, GroupError> {
    match results(object, path)?.as_slice() {
        [] | [Value::Null] => Ok(None),
        [Value::String(text)] => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        [other, ..] => {
            let found = crate::error::shown(other);
            Err(object.fault(path, Fault::Malformed { expected: "text".to_owned(), found }))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::related::ObjectStore;
    use crate::settings::Settings;
    use crate::testing::{outline, try_group_with};

    fn declared(declarations: &Value) -> (DeclaredKinds, Vec<String>) {
        let map = json!({"metadata": {"name": "kinds", "namespace": "kai"}, "data": declarations});
        let (declared, complaints) = DeclaredKinds::from_config_map(&map);
        (declared, complaints.iter().map(ToString::to_string).collect())
    }

    const TRAINER: &str = "group: ml.example.com\nkind: Trainer\nreplicas: .spec.groups[].nodes\nminimum: .spec.least\n\
                           queue: .spec.team\npriority: .spec.class";

    fn grouped(spec: &Value, labels: &Value) -> Result<GroupSpec, GroupError> {
        let (declared, complaints) = declared(&json!({"trainer": TRAINER}));
        assert_eq!(complaints, [""; 0]);
        let settings = Settings { declared, ..Settings::default() };
        let owner = json!({"apiVersion": "ml.example.com/v7", "kind": "Trainer", "spec": spec,
            "metadata": {"name": "t", "namespace": "lab", "uid": "u", "labels": labels}});
        let class =
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}});
        let related: ObjectStore = [class].into_iter().collect();
        try_group_with(&[owner], &json!({"metadata": {"name": "p", "namespace": "lab"}}), &related, &settings)
    }

    #[test]
    fn sizes_queue_and_priority_are_found_where_the_declaration_says() {
        let spec = json!({"groups": [{"nodes": 2}, {"nodes": 3}], "team": "research", "class": "high"});
        let group = grouped(&spec, &json!({})).unwrap();
        assert_eq!((group.name.as_str(), outline(&group).as_str()), ("pg-t-u", "* 5"));
        assert_eq!((group.queue.as_str(), group.priority_class.as_str()), ("research", "high"));
        let labelled = grouped(&spec, &json!({"kai.scheduler/queue": "other"})).unwrap();
        assert_eq!(labelled.queue, "other");
        let least = grouped(&json!({"groups": [{"nodes": 2}], "least": 1, "class": "unknown"}), &json!({})).unwrap();
        assert_eq!(
            (outline(&least).as_str(), least.queue.as_str(), least.priority_class.as_str()),
            ("* 1", "default-queue", "train")
        );
    }

    #[test]
    fn objects_without_sense_are_errors_that_name_the_path() {
        for (spec, complaint) in [
            (
                json!({"groups": [{"nodes": "2"}]}),
                r#"Trainer lab/t: .spec.groups[].nodes must be a number of pods, but is "2""#,
            ),
            (json!({"groups": []}), "Trainer lab/t: .spec.groups[].nodes is missing"),
            (
                json!({"groups": [{"nodes": 2}], "least": 3}),
                r#"Trainer lab/t: .spec.least must be at most the replicas, which are 2, but is "3""#,
            ),
            (json!({"groups": [{"nodes": 2}], "team": 7}), "Trainer lab/t: .spec.team must be text, but is 7"),
        ] {
            assert_eq!(grouped(&spec, &json!({})).unwrap_err().to_string(), complaint);
        }
        assert!(grouped(&json!({}), &json!({})).is_err());
    }

    #[test]
    fn a_bad_declaration_is_passed_over_and_named() {
        let (kinds, complaints) = declared(&json!({
            "a": "kind: Good\nminimum: .spec.size",
            "b": "kind: Good\nreplicas: .spec.size",
            "c": "kind: Job\ngroup: batch\nreplicas: .spec.parallelism",
            "d": "kind: Nothing",
            "e": "kind: Odd\nreplicas: .spec[",
            "f": "kind: Odd\nreplica: .spec.size",
            "g": "replicas: .spec.size",
        }));
        assert_eq!(kinds.kinds.len(), 1);
        let starts = [
            "ConfigMap kai/kinds: data.b repeats kind Good, which is declared already",
            "ConfigMap kai/kinds: data.c: kind must be a kind that has no rule of its own; remove this key, but is \"Job\"",
            "ConfigMap kai/kinds: data.d: replicas is missing",
            "ConfigMap kai/kinds: data.e: replicas must be a jq path such as .spec.replicas (",
            "ConfigMap kai/kinds: data.f must be YAML with kind, group, replicas, minimum, queue, priority and template, but is unknown field",
            "ConfigMap kai/kinds: data.g must be YAML with",
        ];
        assert_eq!(complaints.len(), starts.len());
        for (complaint, start) in complaints.iter().zip(starts) {
            assert!(complaint.starts_with(start), "{complaint}");
        }
    }
}
