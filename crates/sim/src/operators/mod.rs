//! Objects that operators turn into pods: what they ask for, and the pods, Jobs and sets that come of it.
//!
//! A file per operator. Reading is strict and names the field, since a manifest is checked with it before anything
//! runs; drafting is pure, and whether a draft is needed is decided by the simulated cluster.

pub(crate) mod declared;
pub(crate) mod job_set;
pub(crate) mod leader_worker_set;
pub(crate) mod mpi;
pub(crate) mod ray;
pub(crate) mod stateful_set;
pub(crate) mod training;

use kai_control::objects::Malformed;
use kai_workloads::DeclaredKinds;
use serde_json::{Value, json};

use crate::json::{annotation, describe, object_at};
use crate::kinds::Kind;

/// Kubernetes itself is built for clusters of up to so many pods.
pub(crate) const COUNT_MAX: u64 = 150_000;

/// Pods of one sort that an object asks for.
#[derive(Clone, Debug)]
pub(crate) struct Role {
    /// As its operator calls it.
    pub(crate) name: String,
    pub(crate) pods: u32,
    /// Where the template stands in the object.
    pub(crate) path: String,
    pub(crate) template: Value,
}

/// The sorts of pods that an object asks for; none if its kind is not an operator's.
pub(crate) fn roles(kind: Kind, object: &Value, declared: &DeclaredKinds) -> Result<Vec<Role>, Malformed> {
    let root = JsonCursor::root(object);
    let roles = match kind {
        Kind::Declared => declared::roles(object, declared)?,
        Kind::RayCluster => ray::cluster_roles(&root.required("spec")?)?,
        Kind::RayJob => ray::job_roles(&root)?,
        Kind::RayService => ray::cluster_roles(&root.required("spec.rayClusterConfig")?)?,
        Kind::PyTorchJob | Kind::TFJob | Kind::XGBoostJob | Kind::JAXJob => training::roles(kind, &root)?,
        Kind::MPIJob => mpi::roles(&root)?,
        Kind::JobSet => job_set::roles(&root)?,
        Kind::LeaderWorkerSet => leader_worker_set::roles(&root)?,
        Kind::StatefulSet => stateful_set::roles(&root)?,
        _ => Vec::new(),
    };
    let all: u64 = roles.iter().map(|role| u64::from(role.pods)).sum();
    if all > COUNT_MAX {
        let problem = format!("{all} pods are more than a cluster holds");
        return Err(Malformed::new("spec", problem, format!("ask for up to {COUNT_MAX} pods")));
    }
    Ok(roles)
}

/// Fills what the definition of a kind fills and the grouper counts on.
pub(crate) fn complete(kind: Kind, object: &mut Value) {
    if kind == Kind::LeaderWorkerSet {
        leader_worker_set::complete(object);
    }
}

/// What an object asks for and the simulated operators do not do.
pub(crate) fn not_simulated(object: &Value) -> impl Iterator<Item = &str> {
    const ANNOTATIONS: [&str; 3] = [
        "alpha.jobset.sigs.k8s.io/exclusive-topology",
        "leaderworkerset.sigs.k8s.io/exclusive-topology",
        "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
    ];
    ANNOTATIONS.into_iter().filter(|key| annotation(object, key).is_some())
}

/// A place in an object, with its path. `null` is no value.
#[derive(Clone, Debug)]
pub(crate) struct JsonCursor<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> JsonCursor<'a> {
    fn root(object: &'a Value) -> Self {
        Self { path: String::new(), value: object }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Follows a dotted path.
    fn part(&self, path: &str) -> Result<Option<Self>, Malformed> {
        let mut here = self.clone();
        for key in path.split('.') {
            let Value::Object(map) = here.value else {
                return Err(here.wrong("keys and values"));
            };
            let Some(value) = map.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
            here = Self { path: here.path_of(key), value };
        }
        Ok(Some(here))
    }

    fn required(&self, path: &str) -> Result<Self, Malformed> {
        self.part(path)?.ok_or_else(|| self.missing(path))
    }

    fn missing(&self, path: &str) -> Malformed {
        Malformed::new(self.path_of(path), "it is missing", format!("add `{path}:` here"))
    }

    fn wrong(&self, wanted: &str) -> Malformed {
        let problem = format!("expected {wanted}, found {}", describe(self.value));
        Malformed::new(self.path.clone(), problem, format!("write {wanted} here"))
    }

    fn count(&self, path: &str) -> Result<Option<u32>, Malformed> {
        let Some(part) = self.part(path)? else { return Ok(None) };
        match part.value.as_u64() {
            None => Err(part.wrong("a whole number from 0 up")),
            Some(count) if count > COUNT_MAX => {
                let problem = format!("{count} is more than a cluster holds");
                Err(Malformed::new(part.path, problem, format!("write a number up to {COUNT_MAX}")))
            }
            Some(count) => Ok(Some(u32::try_from(count).unwrap_or(u32::MAX))),
        }
    }

    fn text(&self, path: &str) -> Result<Option<&'a str>, Malformed> {
        let Some(part) = self.part(path)? else { return Ok(None) };
        part.value.as_str().map(Some).ok_or_else(|| part.wrong("text"))
    }

    fn flag(&self, path: &str) -> Result<bool, Malformed> {
        let Some(part) = self.part(path)? else { return Ok(false) };
        part.value.as_bool().ok_or_else(|| part.wrong("true or false"))
    }

    fn list(&self, path: &str) -> Result<Vec<Self>, Malformed> {
        let Some(part) = self.part(path)? else { return Ok(Vec::new()) };
        let Value::Array(items) = part.value else { return Err(part.wrong("a list")) };
        let item = |(index, value)| Self { path: format!("{}[{index}]", part.path), value };
        Ok(items.iter().enumerate().map(item).collect())
    }

    fn fields(&self) -> Result<impl Iterator<Item = (&'a str, Self)>, Malformed> {
        let Value::Object(map) = self.value else { return Err(self.wrong("keys and values")) };
        let fields = map.iter().filter(|(_, value)| !value.is_null());
        Ok(fields.map(|(key, value)| (key.as_str(), Self { path: self.path_of(key), value })))
    }

    /// The pods of a sort, made from the template at `path`.
    fn role(&self, name: impl Into<String>, pods: u32, path: &str) -> Result<Role, Malformed> {
        let template = self.required(path)?;
        if !template.value.is_object() {
            return Err(template.wrong("a pod template"));
        }
        Ok(Role { name: name.into(), pods, path: template.path, template: template.value.clone() })
    }
}

/// Adds entries to `metadata.labels` or `metadata.annotations`, over those of the same key.
pub(crate) fn add_labels(object: &mut Value, map: &str, entries: &[(&str, String)]) {
    if let Some(map) = object_at(object, &["metadata", map]) {
        map.extend(entries.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
    }
}

#[cfg(test)]
pub(crate) fn example(kind: Kind, spec: &Value) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.name(), "spec": spec,
        "metadata": {"name": "x", "namespace": "lab", "labels": {"kai.scheduler/queue": "team"}}})
}

/// Roles as `name pods, …`, or the error.
#[cfg(test)]
pub(crate) fn outline(kind: Kind, spec: &Value) -> String {
    match roles(kind, &example(kind, spec), &DeclaredKinds::default()) {
        Ok(roles) => roles.iter().map(|role| format!("{} {}", role.name, role.pods)).collect::<Vec<_>>().join(", "),
        Err(Malformed { field, problem, hint }) => format!("{field}: {problem}; {hint}"),
    }
}
