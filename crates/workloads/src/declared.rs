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
//! A declaration that cannot be used is an error that names its key; the others are used. Here is what is declared;
//! [`kinds`](crate::kinds) has the rule.

use serde::Deserialize;
use serde_json::Value;

use crate::error::{Fault, GroupError};
use crate::jq::Program;
use crate::nesting::nests_too_deep;
use crate::object::Object;

/// All declarations that can be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeclaredKinds {
    pub(crate) kinds: Vec<DeclaredKind>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeclaredKind {
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
    /// Reads the config map. `has_rule` tells which groups and kinds must not be declared. The errors name keys that are
    /// ignored.
    pub(crate) fn read(config_map: &Value, has_rule: fn(&str, &str) -> bool) -> (Self, Vec<GroupError>) {
        let object = Object::read_as(config_map, "v1", "ConfigMap");
        let (mut declared, mut errors) = (Self::default(), Vec::new());
        let entries = config_map["data"].as_object().into_iter().flatten();
        for (key, text) in entries {
            match DeclaredKind::read(object, key, text.as_str().unwrap_or_default(), has_rule) {
                Ok(kind) if declared.find(&kind.group, &kind.kind).is_some() => {
                    errors.push(object.fault(format!("data.{key}"), Fault::DeclaredTwice { kind: kind.kind }));
                }
                Ok(kind) => declared.kinds.push(kind),
                Err(error) => errors.push(error),
            }
        }
        (declared, errors)
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

    pub(crate) fn find(&self, group: &str, kind: &str) -> Option<&DeclaredKind> {
        self.kinds.iter().find(|declared| declared.group == group && declared.kind == kind)
    }
}

impl DeclaredKind {
    fn read(
        config_map: Object<'_>,
        key: &str,
        text: &str,
        has_rule: fn(&str, &str) -> bool,
    ) -> Result<Self, GroupError> {
        if nests_too_deep(text) {
            return Err(config_map.malformed(format!("data.{key}"), "YAML of some levels", text));
        }
        let declared: Self = yaml_serde::from_str(text).map_err(|error| {
            let expected = "YAML with kind, group, replicas, minimum, queue, priority and template".to_owned();
            config_map.fault(format!("data.{key}"), Fault::Malformed { expected, found: error.to_string() })
        })?;
        let at = |field: &str| format!("data.{key}: {field}");
        if declared.kind.is_empty() {
            return Err(config_map.fault(at("kind"), Fault::Missing));
        }
        if has_rule(&declared.group, &declared.kind) {
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

    /// The queue that an object names, if its declaration has a path to it.
    pub(crate) fn queue(&self, object: Object<'_>) -> Result<Option<String>, GroupError> {
        self.queue.as_deref().map_or(Ok(None), |path| text(object, path))
    }

    /// The priority class that an object names, if its declaration has a path to it.
    pub(crate) fn priority_class(&self, object: Object<'_>) -> Result<Option<String>, GroupError> {
        self.priority.as_deref().map_or(Ok(None), |path| text(object, path))
    }

    /// How many pods of an object start together.
    pub(crate) fn minimum(&self, object: Object<'_>) -> Result<i32, GroupError> {
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
