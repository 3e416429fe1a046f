//! What must survive any input: each target takes bytes and may refuse them, but never panic.
//!
//! The programs in `/fuzz` hand these functions to libFuzzer; `tests/inputs.rs` runs them on the same corpus and on
//! thousands of variations of it with an ordinary compiler.

use kai_control::grouper::{GroupingError, reconcile};
use kai_control::quantity::Quantity;
use kai_control::scheduler::{Settings, Usage, cycle};
use kai_control::{Object, World};
use kai_engine::units::Timestamp;
use kai_record::Recording;
use kai_sim::{Source, manifest};
use kai_workloads::owners::Lookup;
use kai_workloads::{ClusterReader as _, DeclaredKinds, ObjectStore};
use serde_json::{Value, json};

/// A function that must survive any input.
pub type Target = fn(&[u8]);

/// All of them, by the name of their corpus.
pub const TARGETS: [(&str, Target); 6] = [
    ("snapshot", snapshot),
    ("quantity", quantity),
    ("fraction", fraction),
    ("manifest", manifest),
    ("owners", owners),
    ("selectors", selectors),
];

/// Beyond this many objects a cycle says nothing new, and takes long.
const OBJECTS_MAX: usize = 100;

/// A file for `kai replay`, and the cycle over what it holds.
pub fn snapshot(bytes: &[u8]) {
    let Ok(mut recording) = Recording::read(bytes) else { return };
    let Ok(configured) = recording.configured(None) else { return };
    if recording.objects.len() > OBJECTS_MAX {
        return;
    }
    let now = recording.time();
    let world = recording.take_world();
    cycle(&world, &configured.settings, &recording.usage, now);
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
    let _refused = manifest::read(&sources);
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
    let Ok(Some(pod)) = Object::parse(&json!({"kind": "Pod", "metadata": metadata, "spec": spec})) else { return };
    let mut world = World::default();
    world.apply(pod);
    for object in surroundings() {
        if let Ok(Some(object)) = Object::parse(&object) {
            world.apply(object);
        }
    }
    cycle(&world, &Settings::default(), &Usage::default(), Timestamp(1_768_478_400_000_000));
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
