//! Test clusters written in a few lines, and results of cycles as text.
//!
//! ```text
//! node a gpu=8 cpu=32
//! queue team quota=4
//! job train queue=team pods=4 gpu=2
//! job old queue=team gpu=1 on=a
//! ```
//!
//! `app=web` is a label of the pods; `near=web@zone`, `apart=web@zone`, `likes=web@zone*10` and `spread=web@zone*1` ask
//! something of pods with that label. `claims=data` mounts volume claims, `config=settings` reads a config map.
//!
//! A job without `on` waits. Jobs are one second apart in age, in the order written. Everything is in
//! namespace `lab`; amounts that are not given are generous.

use std::collections::BTreeMap;
use std::fmt::Write;

use kai_engine::units::Timestamp;
use serde_json::{Map, Value, json};

use super::effect::{CycleResult, Effect, Explanation, GpuGroup};
use super::settings::Settings;
use super::usage::Usage;
use crate::kinds::Object;
use crate::world::World;

/// The time of every test.
pub(super) const NOW: Timestamp = Timestamp(1_000_000_000);

/// Words of a line: the kind, the name, then `key=value` or bare flags.
struct Line<'t> {
    name: &'t str,
    options: BTreeMap<&'t str, &'t str>,
}

impl<'t> Line<'t> {
    fn get(&self, key: &str) -> Option<&'t str> {
        self.options.get(key).copied()
    }

    fn or(&self, key: &str, other: &'t str) -> &'t str {
        self.get(key).unwrap_or(other)
    }

    fn number(&self, key: &str, other: f64) -> f64 {
        self.get(key).map_or(other, |text| text.parse().expect("a number"))
    }

    /// Options such as `label:zone=a`.
    fn prefixed(&self, prefix: &str) -> Value {
        let found = self.options.iter().filter_map(|(key, value)| Some((key.strip_prefix(prefix)?, *value)));
        Value::Object(found.map(|(key, value)| (key.to_owned(), json!(value))).collect())
    }
}

/// Objects from lines; order within a kind does not matter, except for the age of jobs.
pub(super) fn world(text: &str) -> World {
    let mut world = World::default();
    for object in objects(text) {
        world.apply(object);
    }
    world
}

/// The objects one by one.
pub(super) fn objects(text: &str) -> Vec<Object> {
    let mut objects = Vec::new();
    for (age, text) in text.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        let mut words = text.split_whitespace();
        let (kind, name) = (words.next().expect("a kind"), words.next().expect("a name"));
        let options = words.map(|word| word.split_once('=').unwrap_or((word, "")));
        let line = Line { name, options: options.collect() };
        let values = match kind {
            "node" => vec![node(&line)],
            "queue" => vec![queue(&line)],
            "class" => vec![
                json!({"kind": "PriorityClass", "metadata": {"name": name}, "value": line.number("value", 0.0) as i64}),
            ],
            "topology" => vec![topology(&line)],
            "group" => vec![group(&line, age)],
            "job" => job(&line, age),
            "pod" => vec![pod(&line, name, None, "default-scheduler", age)],
            other => panic!("a line starts with what it is, not with {other}"),
        };
        objects.extend(values.iter().map(|value| Object::parse(value).expect("well formed").expect("a kept kind")));
    }
    objects
}

fn node(line: &Line<'_>) -> Value {
    let mut labels = line.prefixed("label:");
    if let Some(memory) = line.get("gpu-memory") {
        labels["nvidia.com/gpu.memory"] = json!(memory);
    }
    let mut allocatable = json!({"cpu": line.or("cpu", "100"), "memory": line.or("memory", "1000G"),
        "nvidia.com/gpu": line.or("gpu", "0"), "pods": line.or("pods", "110")});
    for (name, amount) in line.prefixed("has:").as_object().expect("an object") {
        allocatable[name] = amount.clone();
    }
    let taints: Vec<Value> =
        line.get("taint").map(|key| json!({"key": key, "effect": "NoSchedule"})).into_iter().collect();
    let ready = if line.get("down").is_some() { "False" } else { "True" };
    json!({"kind": "Node", "metadata": {"name": line.name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": line.get("cordoned").is_some()},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]}})
}

fn queue(line: &Line<'_>) -> Value {
    let amounts = |quota: f64, limit: f64| json!({"quota": quota, "limit": limit, "overQuotaWeight": 1});
    let labels = line.prefixed("label:");
    json!({"kind": "Queue", "metadata": {"name": line.name, "labels": labels}, "spec": {
        "parentQueue": line.get("parent"), "displayName": line.get("display"), "resources": {
            "cpu": amounts(line.number("cpu-quota", -1.0), line.number("cpu-limit", -1.0)),
            "memory": amounts(-1.0, -1.0),
            "gpu": amounts(line.number("quota", -1.0), line.number("limit", -1.0)),
        },
    }})
}

fn topology(line: &Line<'_>) -> Value {
    let levels: Vec<Value> = line.or("levels", "zone").split(',').map(|label| json!({"nodeLabel": label})).collect();
    json!({"kind": "Topology", "metadata": {"name": line.name}, "spec": {"levels": levels}})
}

fn stamp(age: usize) -> String {
    format!("1970-01-01T00:00:{age:02}Z")
}

fn group(line: &Line<'_>, age: usize) -> Value {
    let constraint = line.get("topology").map(|topology| {
        json!({"topology": topology, "requiredTopologyLevel": line.get("required"), "preferredTopologyLevel": line.get("preferred")})
    });
    let mut spec = json!({"queue": line.or("queue", ""), "priorityClassName": line.get("priority"), "topologyConstraint": constraint});
    if let Some(min) = line.get("min") {
        spec["minMember"] = json!(min.parse::<u32>().expect("a number"));
    }
    if let Some(trees) = line.get("subgroups") {
        // name:min or name:min<parent
        let parse = |text: &str| {
            let (text, parent) = text.split_once('<').map_or((text, None), |(text, parent)| (text, Some(parent)));
            let (name, min) = text.split_once(':').map_or((text, None), |(name, min)| (name, min.parse::<u32>().ok()));
            json!({"name": name, "minMember": min, "parent": parent})
        };
        spec["subGroups"] = trees.split(',').map(parse).collect();
    }
    if line.get("non-preemptible").is_some() {
        spec["preemptibility"] = json!("non-preemptible");
    }
    json!({"kind": "PodGroup", "metadata": {"name": line.name, "namespace": "lab", "creationTimestamp": stamp(age),
        "labels": line.prefixed("label:")}, "spec": spec})
}

/// A pod group and its pods, called `name-0` and so on; all of them its minimum unless `min` is given.
fn job(line: &Line<'_>, age: usize) -> Vec<Value> {
    let nodes: Vec<&str> = line.get("on").map_or_else(Vec::new, |nodes| nodes.split(',').collect());
    let pods: usize = line.get("pods").map_or(nodes.len().max(1), |count| count.parse().expect("a number"));
    let mut values = vec![group(line, age)];
    if line.get("min").is_none() && line.get("subgroups").is_none() {
        values[0]["spec"]["minMember"] = json!(pods);
    }
    let done: usize = line.or("done", "0").parse().expect("a number");
    for index in 0..pods {
        let mut value = pod(line, &format!("{}-{index}", line.name), nodes.get(index).copied(), "kai-scheduler", age);
        value["metadata"]["annotations"]["pod-group-name"] = json!(line.name);
        if let Some(leaf) = line.get("subgroup") {
            value["metadata"]["labels"]["kai.scheduler/subgroup-name"] = json!(leaf);
        }
        if index < done {
            value["status"]["phase"] = json!("Succeeded");
        }
        values.push(value);
    }
    values
}

fn pod(line: &Line<'_>, name: &str, node: Option<&str>, scheduler: &str, age: usize) -> Value {
    let node = node.or_else(|| line.get("node"));
    let mut annotations = Map::new();
    for (option, key) in
        [("fraction", "gpu-fraction"), ("device-memory", "gpu-memory"), ("devices", "gpu-fraction-num-devices")]
    {
        annotations.extend(line.get(option).map(|value| (key.to_owned(), json!(value))));
    }
    let mut requests = json!({"cpu": line.or("cpu", "1"), "memory": line.or("memory", "1G")});
    if let Some(gpus) = line.get("gpu") {
        requests["nvidia.com/gpu"] = json!(gpus);
    }
    for (name, amount) in line.prefixed("asks:").as_object().expect("an object") {
        requests[name] = amount.clone();
    }
    let mut labels = line.get("device").map_or_else(|| json!({}), |group| json!({"runai-gpu-group": group}));
    if let Some(app) = line.get("app") {
        labels["app"] = json!(app);
    }
    let (affinity, spread) = inter_pod_rules(line);
    let claims = line.get("claims").map_or_else(Vec::new, |names| names.split(',').collect());
    let volume = |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let volumes: Vec<Value> = claims.iter().map(volume).collect();
    let settings: Vec<Value> =
        line.get("config").map(|name| json!({"configMapRef": {"name": name}})).into_iter().collect();
    let deletion = line.get("ending").map(|_| "1970-01-01T00:16:40Z");
    json!({"kind": "Pod",
        "metadata": {"name": name, "namespace": "lab", "annotations": annotations, "labels": labels,
            "creationTimestamp": stamp(age), "deletionTimestamp": deletion},
        "spec": {"schedulerName": scheduler, "nodeName": node, "nodeSelector": line.prefixed("selector:"),
            "affinity": affinity, "topologySpreadConstraints": spread, "volumes": volumes,
            "containers": [{"resources": {"requests": requests}, "envFrom": settings}]},
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" }}})
}

/// Affinity to pods, and spread constraints.
fn inter_pod_rules(line: &Line<'_>) -> (Value, Value) {
    let term = |text: &str| {
        let (app, rest) = text.split_once('@').expect("a node label after @");
        let (key, amount) = rest.split_once('*').unwrap_or((rest, "1"));
        (
            json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}),
            amount.parse::<i32>().expect("a number"),
        )
    };
    let required = |key: &str| line.get(key).map(|text| term(text).0).into_iter().collect::<Vec<Value>>();
    let liked = line.get("likes").map(|text| {
        let (term, weight) = term(text);
        json!({"weight": weight, "podAffinityTerm": term})
    });
    let liked: Vec<Value> = liked.into_iter().collect();
    let spread = line.get("spread").map(|text| {
        let (mut rule, skew) = term(text);
        rule["maxSkew"] = json!(skew);
        rule["whenUnsatisfiable"] = json!("DoNotSchedule");
        rule
    });
    let affinity = json!({
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required("near"),
            "preferredDuringSchedulingIgnoredDuringExecution": liked},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required("apart")},
    });
    (affinity, spread.into_iter().collect())
}

/// The result of one cycle as text.
pub(super) fn run_and_render(text: &str, settings: &Settings) -> String {
    render(&super::cycle(&world(text), settings, &Usage::default(), NOW))
}

pub(super) fn render(cycle: &CycleResult) -> String {
    let mut text = String::new();
    for effect in &cycle.effects {
        match effect {
            Effect::Bind { pod, node, gpu_groups, why, .. } => {
                writeln!(text, "bind {} {node}{}: {why}", pod.name, devices(gpu_groups))
            }
            Effect::Pipeline { pod, node, gpu_groups, why, .. } => {
                writeln!(text, "pipeline {} {node}{}: {why}", pod.name, devices(gpu_groups))
            }
            Effect::Evict { pod, why, .. } => writeln!(text, "evict {}: {why}", pod.name),
            Effect::SetGroupTimestamps { job, last_start, stale_since, .. } => {
                let set = |time: &Option<Timestamp>| if time.is_some() { "yes" } else { "no" };
                writeln!(text, "timestamps {}: started {}, stale {}", job.name, set(last_start), set(stale_since))
            }
            Effect::Nominate { pod, node } => {
                writeln!(text, "nominate {} {}", pod.name, node.as_deref().unwrap_or("nowhere"))
            }
            Effect::DeleteBindRequest { request, why } => writeln!(text, "delete bind request {}: {why}", request.name),
            Effect::MarkPod { pod, reason } => {
                let Explanation { reason, message } = reason.explain();
                writeln!(text, "mark {}: {reason}: {message}", pod.name)
            }
        }
        .expect("text takes everything");
    }
    for job in &cycle.pending {
        for Explanation { reason, message } in job.explanations() {
            writeln!(text, "{} waits: {reason}: {message}", job.job.name).expect("text takes everything");
        }
    }
    for problem in &cycle.problems {
        let Explanation { reason, message } = problem.reason.explain();
        writeln!(text, "{}: {reason}: {message}", problem.object).expect("text takes everything");
    }
    text
}

fn devices(groups: &[GpuGroup]) -> String {
    groups
        .iter()
        .fold(String::new(), |text, group| format!("{text} [{}{}]", group.name, if group.fresh { " new" } else { "" }))
}
