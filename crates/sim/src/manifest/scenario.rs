//! The `Scenario` document: what happens to the cluster, and when.
//!
//! ```yaml
//! apiVersion: kai.scheduler/v1alpha1
//! kind: Scenario
//! spec:
//!   until: 1h
//!   scheduler: {keepNodesWhole: true}
//!   steps:
//!   - {at: 10s, apply: more.yaml}
//!   - {at: 5m, nodeDown: node-2}
//! ```

use kai_engine::units::Span;
use serde_json::Value;

use super::document::Document;
use super::fields::Fields;
use crate::input_error::{InputError, SourceLocation, suggest};
use crate::kinds::{Id, Kind};

/// How a simulation runs.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Where it was written; the default location if there is none.
    pub(crate) location: SourceLocation,
    /// When it ends, unless an option gives another time.
    pub(crate) until: Option<Span>,
    /// What happens, in the order written.
    pub(crate) steps: Vec<Step>,
    /// Pods that run already when it begins.
    pub(crate) running: Vec<Running>,
    /// How long pods of named owners run.
    pub(crate) durations: Vec<DurationRule>,
    /// How long the other pods run; for ever if absent.
    pub(crate) duration: Option<Span>,
    /// Scheduler configuration, as written.
    pub(crate) scheduler: Option<Value>,
    /// Where that stands in the document.
    pub(crate) scheduler_path: String,
    /// From bound to running.
    pub(crate) pod_start: Span,
    /// Up to so much longer, by seed.
    pub(crate) pod_start_jitter: Span,
    /// From the order to stop until the resources are free.
    pub(crate) pod_stop: Span,
    /// From a node's failure until its pods count as lost.
    pub(crate) node_loss: Span,
}

/// Something that happens at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at: Span,
    pub(crate) action: Action,
    pub(crate) location: SourceLocation,
}

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Files are applied; paths as the sources spell theirs.
    Apply(Vec<String>),
    /// An object is deleted, and what it owns.
    Delete(Id),
    /// Replicas of a Deployment and the like, parallelism of a Job.
    Scale(Id, u32),
    NodeDown(String),
    NodeUp(String),
}

/// A pod that runs when the simulation begins.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) pod: Id,
    pub(crate) node: String,
    /// Names of the shared GPUs it uses.
    pub(crate) gpus: Vec<String>,
    pub(crate) location: SourceLocation,
}

/// How long the pods of one owner, or one pod, run.
#[derive(Clone, Debug)]
pub(crate) struct DurationRule {
    pub(crate) target: Id,
    pub(crate) duration: Span,
    pub(crate) location: SourceLocation,
}

const KEYS: [&str; 11] = [
    "until",
    "scheduler",
    "steps",
    "running",
    "duration",
    "durations",
    "podStartDelay",
    "podStartJitter",
    "podStopDelay",
    "nodeLossDelay",
    "description",
];
const ACTIONS: [&str; 5] = ["apply", "delete", "scale", "nodeDown", "nodeUp"];

impl Default for Scenario {
    fn default() -> Self {
        Self {
            location: SourceLocation::default(),
            until: None,
            steps: Vec::new(),
            running: Vec::new(),
            durations: Vec::new(),
            duration: None,
            scheduler: None,
            scheduler_path: String::new(),
            // One second each: long enough that a person sees binding and starting, stopping and moving as the
            // separate steps they are in a cluster.
            pod_start: Span::seconds(1),
            pod_start_jitter: Span(0),
            pod_stop: Span::seconds(1),
            node_loss: Span(0),
        }
    }
}

impl Scenario {
    /// Reads the document. Keys may stand below `spec:` or, for short ones, directly in the document.
    pub(crate) fn read(document: &Document) -> Result<Self, InputError> {
        const HEAD: [&str; 4] = ["apiVersion", "kind", "metadata", "spec"];
        let name = document.value.pointer("/metadata/name").and_then(Value::as_str);
        let location =
            document.location.object(name.map_or_else(|| "Scenario".to_owned(), |name| format!("Scenario {name}")));
        let nested = document.value.get("spec").is_some();
        let (value, path) = if nested { (&document.value["spec"], "spec") } else { (&document.value, "") };
        if nested {
            Fields::open(&document.value, &location, "", &HEAD)?;
        }
        let known: Vec<&str> = if nested { KEYS.to_vec() } else { KEYS.into_iter().chain(HEAD).collect() };
        let fields = Fields::open(value, &location, path, &known)?;
        let base = Self::default();
        let folder = folder(&location.file);
        let mut scenario = Self {
            until: fields.span("until")?,
            steps: Vec::new(),
            running: Vec::new(),
            durations: Vec::new(),
            duration: fields.span("duration")?,
            scheduler: fields.get("scheduler").cloned(),
            scheduler_path: fields.path_of("scheduler"),
            pod_start: fields.span("podStartDelay")?.unwrap_or(base.pod_start),
            pod_start_jitter: fields.span("podStartJitter")?.unwrap_or(base.pod_start_jitter),
            pod_stop: fields.span("podStopDelay")?.unwrap_or(base.pod_stop),
            node_loss: fields.span("nodeLossDelay")?.unwrap_or(base.node_loss),
            location: location.clone(),
        };
        let each = |key: &'static str| -> Result<Vec<(String, &Value)>, InputError> {
            let items = fields.list(key)?.iter().enumerate();
            Ok(items.map(|(index, item)| (format!("{}[{index}]", fields.path_of(key)), item)).collect())
        };
        for (path, item) in each("steps")? {
            scenario.steps.push(step(item, &location, &path, folder)?);
        }
        for (path, item) in each("running")? {
            scenario.running.push(running(item, &location, &path)?);
        }
        for (path, item) in each("durations")? {
            scenario.durations.push(duration_rule(item, &location, &path)?);
        }
        Ok(scenario)
    }

    /// Files that steps apply.
    pub(crate) fn applied_files(&self) -> impl Iterator<Item = (&str, &SourceLocation)> {
        self.steps.iter().flat_map(|step| {
            let files: &[String] = if let Action::Apply(files) = &step.action { files } else { &[] };
            files.iter().map(|file| (file.as_str(), &step.location))
        })
    }
}

fn step(value: &Value, location: &SourceLocation, path: &str, folder: &str) -> Result<Step, InputError> {
    let known: Vec<&str> = ["at"].into_iter().chain(ACTIONS).collect();
    let fields = Fields::open(value, location, path, &known)?;
    let at = fields.span("at")?.ok_or_else(|| fields.missing("at"))?;
    let given: Vec<&str> = ACTIONS.into_iter().filter(|key| fields.get(key).is_some()).collect();
    let [key] = given[..] else {
        let problem = if given.is_empty() {
            "the step does nothing".to_owned()
        } else {
            format!("the step does several things: {}", given.join(", "))
        };
        return Err(InputError::new(
            fields.here(),
            problem,
            format!("give each step exactly one of {}; steps may share their time", ACTIONS.join(", ")),
        ));
    };
    let inner = fields.path_of(key);
    let action = match key {
        "apply" => Action::Apply(fields.texts("apply")?.into_iter().map(|file| join(folder, file)).collect()),
        "delete" => Action::Delete(target(&fields[key], location, &inner, &[])?.0),
        "scale" => {
            let (id, fields) = target(&fields[key], location, &inner, &["replicas"])?;
            if !id.kind.scales() {
                return Err(InputError::new(
                    fields.at("kind"),
                    format!("a {} cannot be scaled", id.kind.name()),
                    "scale a Deployment, ReplicaSet, StatefulSet, LeaderWorkerSet or Job (its parallelism), or apply a file \
                     with the new numbers",
                ));
            }
            Action::Scale(id, fields.count("replicas")?.ok_or_else(|| fields.missing("replicas"))?)
        }
        "nodeDown" => Action::NodeDown(fields.required_text(key)?.to_owned()),
        "nodeUp" => Action::NodeUp(fields.required_text(key)?.to_owned()),
        _ => unreachable!("`key` is one of ACTIONS"),
    };
    Ok(Step { at, action, location: location.field(inner) })
}

impl std::ops::Index<&str> for Fields<'_> {
    type Output = Value;
    fn index(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&Value::Null)
    }
}

/// `kind`, `name` and `namespace` of an object, beside keys of the caller.
fn target<'a>(
    value: &'a Value,
    location: &'a SourceLocation,
    path: &str,
    more: &[&str],
) -> Result<(Id, Fields<'a>), InputError> {
    let known: Vec<&str> = ["kind", "name", "namespace"].iter().chain(more).copied().collect();
    let fields = Fields::open(value, location, path, &known)?;
    let word = fields.required_text("kind")?;
    let kind = Kind::parse(word).ok_or_else(|| {
        let names: Vec<&str> = Kind::names().collect();
        InputError::new(fields.at("kind"), format!("unknown kind `{word}`"), suggest(word, &names))
    })?;
    Ok((identity(&fields, kind)?, fields))
}

/// Name and namespace; `namespace/name` in one word is taken too, since reports print it so.
fn identity(fields: &Fields<'_>, kind: Kind) -> Result<Id, InputError> {
    let name = fields.required_text("name")?;
    if !kind.namespaced() {
        return Ok(Id::cluster(kind, name));
    }
    Ok(match (name.split_once('/'), fields.text("namespace")?) {
        (Some((namespace, name)), None) => Id::namespaced(kind, namespace, name),
        (_, namespace) => Id::namespaced(kind, namespace.unwrap_or("default"), name),
    })
}

fn running(value: &Value, location: &SourceLocation, path: &str) -> Result<Running, InputError> {
    let fields = Fields::open(value, location, path, &["name", "namespace", "node", "gpus"])?;
    Ok(Running {
        pod: identity(&fields, Kind::Pod)?,
        node: fields.required_text("node")?.to_owned(),
        gpus: fields.texts("gpus")?.into_iter().map(str::to_owned).collect(),
        location: fields.here(),
    })
}

fn duration_rule(value: &Value, location: &SourceLocation, path: &str) -> Result<DurationRule, InputError> {
    let (target, fields) = target(value, location, path, &["duration"])?;
    if target.kind != Kind::Pod && !target.kind.makes_pods() {
        return Err(InputError::new(
            fields.at("kind"),
            format!("a {} has no pods that run", target.kind.name()),
            "name a Pod, or a Job or another workload that makes pods",
        ));
    }
    let duration = fields.span("duration")?.ok_or_else(|| fields.missing("duration"))?;
    Ok(DurationRule { target, duration, location: fields.here() })
}

/// The folder part of a path, without the final slash.
fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// `file` as seen from `folder`.
fn join(folder: &str, file: &str) -> String {
    if file.starts_with('/') || folder.is_empty() {
        normalize_path(file)
    } else {
        normalize_path(&format!("{folder}/{file}"))
    }
}

/// One spelling per path: no `.` parts, no `..` that can be resolved.
pub(crate) fn normalize_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." && parts.last().is_some_and(|last| *last != "..") {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    format!("{}{}", if path.starts_with('/') { "/" } else { "" }, parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_beside_the_scenario() {
        assert_eq!(join(folder("a/b/scenario.yaml"), "x.yaml"), "a/b/x.yaml");
        assert_eq!(join(folder("a/b/scenario.yaml"), "../x.yaml"), "a/x.yaml");
        assert_eq!(join(folder("scenario.yaml"), "./x.yaml"), "x.yaml");
        assert_eq!(join(folder("../scenario.yaml"), "x.yaml"), "../x.yaml");
        assert_eq!(join(folder("a/scenario.yaml"), "/x.yaml"), "/x.yaml");
        assert_eq!(normalize_path("./a//b/"), "a/b");
    }
}
