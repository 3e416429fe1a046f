//! What must survive any input: each target takes bytes and may refuse them, but never panic, and never at length.
//!
//! The programs in `/fuzz` hand these functions to libFuzzer; `tests/inputs.rs` runs them on the same corpus and on
//! thousands of variations of it with an ordinary compiler, `tests/hostile.rs` on the table of [`hostile`].

pub mod hostile;

use kai_control::admission::{
    AdmissionResult, PodRules, mutate_pod, validate_pod, validate_pod_group, validate_queue, validate_topology,
};
use kai_control::grouper::{GroupingError, reconcile};
use kai_control::quantity::Quantity;
use kai_control::scheduler::{Configured, Settings, Usage, cycle};
use kai_control::{Object, World};
use kai_engine::units::Timestamp;
use kai_record::Recording;
use kai_sim::{Options, Plan, Source, Span, manifest, simulate};
use kai_workloads::owners::Lookup;
use kai_workloads::{ClusterReader as _, DeclaredKinds, ObjectStore};
use serde_json::{Value, json};

/// A function that must survive any input.
pub type Target = fn(&[u8]);

/// All of them, by the name of their corpus.
pub const TARGETS: [(&str, Target); 10] = [
    ("snapshot", snapshot),
    ("quantity", quantity),
    ("fraction", fraction),
    ("manifest", manifest),
    ("owners", owners),
    ("selectors", selectors),
    ("annotations", annotations),
    ("pod_groups", pod_groups),
    ("reviews", reviews),
    ("config", config),
];

/// No message is longer, whatever it repeats of what users wrote.
const MESSAGE_BYTES_MAX: usize = 2_000;

/// Checks what users would read.
fn assert_presentable(message: &str) {
    assert!(
        message.len() <= MESSAGE_BYTES_MAX,
        "{} bytes: {}",
        message.len(),
        &message[..message.floor_char_boundary(200)]
    );
    assert!(!message.chars().any(|letter| letter.is_control() && letter != '\n'), "control characters: {message:?}");
}

/// Beyond this many objects a cycle says nothing new, and takes long.
const OBJECTS_MAX: usize = 100;

/// A file for `kai replay`, and the cycle over what it holds.
pub fn snapshot(bytes: &[u8]) {
    replay(bytes, OBJECTS_MAX);
}

/// The same with any number of objects.
pub fn large_snapshot(bytes: &[u8]) {
    replay(bytes, usize::MAX);
}

fn replay(bytes: &[u8], most: usize) {
    let mut recording = match Recording::read(bytes) {
        Ok(recording) => recording,
        Err(error) => return assert_presentable(&error.to_string()),
    };
    for error in &recording.errors {
        assert_presentable(error);
    }
    let configured = match recording.configured(None) {
        Ok(configured) => configured,
        Err(error) => return assert_presentable(&error.to_string()),
    };
    if recording.objects.len() <= most {
        let now = recording.time();
        run(&recording.take_world(), &configured.settings, &recording.usage, now);
    }
}

/// A cycle, and all messages about it.
fn run(world: &World, settings: &Settings, usage: &Usage, now: Timestamp) {
    let result = cycle(world, settings, usage, now);
    for problem in &result.problems {
        assert_presentable(&problem.to_string());
    }
    for job in &result.pending {
        for explanation in job.explanations() {
            assert_presentable(&explanation.message);
        }
    }
}

/// The text of an amount.
pub fn quantity(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(quantity) = Quantity::parse(text) {
        assert!(quantity.units() != 0 || quantity.milli() == 0, "rounding up never makes nothing of something");
        assert_eq!(quantity.is_negative(), quantity.milli() < 0);
    }
}

/// The texts with which a pod asks for a part of a GPU: fraction, memory, devices, one a line.
pub fn fraction(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let mut annotations = json!({"pod-group-name": "group"});
    for (key, line) in ["gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"].into_iter().zip(text.lines()) {
        if !line.is_empty() {
            annotations[key] = line.into();
        }
    }
    run_pod(&json!({"annotations": annotations}), &json!({"containers": [{"name": "main"}]}));
}

/// A manifest for `kai simulate`.
pub fn manifest(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let sources = [Source { name: "a.yaml".to_owned(), text: text.to_owned() }];
    if let Ok(wanted) = manifest::missing_files(&sources) {
        assert!(wanted.len() <= text.len(), "every file is asked for by some text");
    }
    let _refused = read_manifest(&sources);
}

/// The same, and what becomes of the cluster within some minutes.
pub fn simulation(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Some(plan) = read_manifest(&[Source { name: "a.yaml".to_owned(), text: text.to_owned() }]) else { return };
    let options = Options { until: Some(Span::seconds(120)), seed: 1 };
    if let Err(error) = simulate(&plan, options, &mut |_| {}) {
        assert_presentable(&error.to_string());
    }
}

fn read_manifest(sources: &[Source]) -> Option<Plan> {
    match manifest::read(sources) {
        Ok(plan) => Some(plan),
        Err(error) => {
            assert_presentable(&format!("{error} {} {}", error.location, error.help));
            None
        }
    }
}

/// Annotations of a pod, as JSON, of one that waits and of one that runs.
pub fn annotations(bytes: &[u8]) {
    let Ok(annotations @ Value::Object(_)) = serde_json::from_slice::<Value>(bytes) else { return };
    let limits = json!({"limits": {"nvidia.com/gpu": "1"}});
    for resources in [json!({}), limits] {
        let spec = json!({"containers": [{"name": "main", "resources": resources}]});
        run_pod(&json!({"annotations": annotations}), &spec);
        let review = json!({"metadata": {"name": "a", "annotations": annotations}, "spec": spec});
        review_pod(&review, "team");
    }
}

/// The spec of a pod group as JSON, through admission and a cycle.
pub fn pod_groups(bytes: &[u8]) {
    let Ok(mut spec @ Value::Object(_)) = serde_json::from_slice::<Value>(bytes) else { return };
    spec["queue"] = "team".into();
    let leaves: Vec<Value> =
        spec["subGroups"].as_array().into_iter().flatten().map(|sub| sub["name"].clone()).collect();
    let group = json!({"kind": "PodGroup", "metadata": {"name": "group", "namespace": "team"}, "spec": spec});
    for update in [false, true] {
        answered(&validate_pod_group(&group, update));
    }
    let mut objects = surroundings();
    objects.push(group);
    for (index, leaf) in leaves.iter().take(20).chain([&Value::Null]).enumerate() {
        objects.push(json!({
            "kind": "Pod",
            "metadata": {"name": format!("p{index}"), "namespace": "team", "annotations": {"pod-group-name": "group"},
                "labels": {"kai.scheduler/subgroup-name": leaf}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]},
        }));
    }
    run(&world(&objects), &Settings::default(), &Usage::default(), NOW);
}

/// What the API server sends to a webhook, and what others send who reach its port.
pub fn reviews(bytes: &[u8]) {
    let Ok(review) = serde_json::from_slice::<Value>(bytes) else { return };
    let request = &review["request"];
    let namespace = request["namespace"].as_str().unwrap_or_default();
    let world = world(&surroundings());
    for object in [&request["object"], &request["oldObject"]] {
        review_pod(object, namespace);
        answered(&validate_queue(object, &world, true));
        answered(&validate_pod_group(object, true));
        answered(&validate_topology(object));
    }
}

fn review_pod(pod: &Value, namespace: &str) {
    let rules = PodRules { gpu_sharing: true, ..PodRules::default() };
    answered(&validate_pod(pod, namespace, &rules));
    match mutate_pod(pod, namespace, "abcdefg", &rules) {
        Ok(changed) => assert_eq!(mutate_pod(&changed, namespace, "abcdefg", &rules), Ok(changed), "twice is once"),
        Err(answer) => answered(&answer),
    }
}

fn answered(answer: &AdmissionResult) {
    assert_presentable(&answer.message());
    for warning in &answer.warnings {
        assert_presentable(warning);
    }
}

/// The scheduler's configuration file, and a cycle with it.
pub fn config(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if kai_workloads::nests_too_deep(text) {
        return;
    }
    let Ok(file) = yaml_serde::from_str::<Value>(text) else { return };
    match Configured::read(&file) {
        Ok(configured) => run(&world(&surroundings()), &configured.settings, &Usage::default(), NOW),
        Err(error) => {
            assert_presentable(&error.to_string());
            assert_presentable(&error.hint);
        }
    }
}

/// A pod and the objects around it as JSON: its owners and what their rules may ask for. Whatever they hold, the pod gets a
/// group or a complaint that names an object and a field.
pub fn owners(bytes: &[u8]) {
    let Ok(input) = serde_json::from_slice::<Value>(bytes) else { return };
    let (declared, errors) = DeclaredKinds::from_config_map(&input["declarations"]);
    assert!(errors.iter().all(|error| error.field.starts_with("data.")), "the key is named");
    let settings = kai_workloads::Settings { declared, ..kai_workloads::Settings::default() };
    let objects: ObjectStore = input["objects"].as_array().into_iter().flatten().cloned().collect();
    let read = |query: &kai_workloads::owners::OwnerQuery| match objects.object(&query.object) {
        Some(owner) => Lookup::Found(owner),
        None => Lookup::Forbidden,
    };
    match reconcile(&input["pod"], read, &objects, &settings) {
        Err(GroupingError::Rule(error)) => assert!(!error.field.is_empty(), "the field is named"),
        Err(other) => assert!(!other.to_string().is_empty(), "the pod gets a message"),
        Ok(_) => {}
    }
}

/// The part of a pod that says on which nodes it may run, as JSON.
pub fn selectors(bytes: &[u8]) {
    let Ok(Value::Object(rules)) = serde_json::from_slice(bytes) else { return };
    let mut spec = json!({"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]});
    for key in ["affinity", "nodeSelector", "tolerations", "topologySpreadConstraints", "volumes"] {
        if let Some(value) = rules.get(key) {
            spec[key] = value.clone();
        }
    }
    run_pod(&json!({"annotations": {"pod-group-name": "group"}, "labels": {"app": "a"}}), &spec);
}

/// A cycle with this pod waiting beside another one that runs, if it is a pod at all.
fn run_pod(metadata: &Value, spec: &Value) {
    let (mut metadata, mut spec) = (metadata.clone(), spec.clone());
    metadata["name"] = "a".into();
    metadata["namespace"] = "team".into();
    spec["schedulerName"] = "kai-scheduler".into();
    let mut objects = surroundings();
    objects.push(json!({"kind": "Pod", "metadata": metadata, "spec": spec}));
    run(&world(&objects), &Settings::default(), &Usage::default(), NOW);
    metadata["name"] = "c".into();
    spec["nodeName"] = "two".into();
    objects.push(json!({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}));
    run(&world(&objects), &Settings::default(), &Usage::default(), NOW);
}

const NOW: Timestamp = Timestamp(1_768_478_400_000_000);

/// The objects that can be used.
fn world(objects: &[Value]) -> World {
    let mut world = World::default();
    for object in objects {
        match Object::parse(object) {
            Ok(Some(object)) => {
                world.apply(object);
            }
            Ok(None) => {}
            Err(error) => assert_presentable(&error.to_string()),
        }
    }
    world
}

fn surroundings() -> Vec<Value> {
    let amounts = json!({"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "2"});
    let node = |name: &str, zone: &str| {
        let labels = json!({
            "kubernetes.io/hostname": name, "zone": zone, "size": "12", "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.count": "2",
        });
        let taints = json!([{"key": "dedicated", "value": zone, "effect": "NoSchedule"}]);
        json!({
            "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints},
            "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    let unlimited = json!({"quota": -1, "limit": -1});
    vec![
        node("one", "east"),
        node("two", "west"),
        json!({"kind": "Queue", "metadata": {"name": "all"}, "spec": {"resources": {"gpu": unlimited, "cpu": unlimited, "memory": unlimited}}}),
        json!({"kind": "Queue", "metadata": {"name": "team"}, "spec": {"parentQueue": "all", "resources": {"gpu": unlimited, "cpu": unlimited, "memory": unlimited}}}),
        json!({"kind": "PodGroup", "metadata": {"name": "group", "namespace": "team"}, "spec": {"queue": "team", "minMember": 1}}),
        json!({
            "kind": "Pod", "metadata": {"name": "b", "namespace": "team", "labels": {"app": "b"}},
            "spec": {"nodeName": "one", "containers": [{"name": "main"}]}, "status": {"phase": "Running"},
        }),
    ]
}
