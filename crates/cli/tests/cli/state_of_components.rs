//! What users write where only components write decides nothing.

use serde_json::{Value, json};

use super::invocation::{Folder, stdout, test_name};

const STARTED: &str = "kai.scheduler/last-start-timestamp";

fn queue(name: &str, parent: Option<&str>, quota: i32, annotations: &Value) -> Value {
    let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let gpu = json!({"quota": quota, "limit": -1, "overQuotaWeight": 1});
    json!({
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"parentQueue": parent, "reclaimMinRuntime": "30s",
            "resources": {"gpu": gpu, "cpu": unlimited, "memory": unlimited}},
    })
}

/// Of `top`, `team` has nothing of its own and `other` has all GPUs.
fn queues() -> [Value; 3] {
    let nothing = json!({});
    [queue("top", None, 8, &nothing), queue("team", Some("top"), 0, &nothing), queue("other", Some("top"), 8, &nothing)]
}

fn node() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1"},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// All GPUs of the node.
fn container() -> Value {
    json!({"name": "main", "image": "any", "resources": {"limits": {"nvidia.com/gpu": "8"}}})
}

/// What a cycle decides about a running pod that is above its queue's quota, and another that waits within its own.
fn replayed(started: &str) -> Value {
    let pod = |name: &str, group: &str, node: Option<&str>, phase: &str| {
        json!({
            "metadata": {"name": name, "namespace": "lab", "uid": name, "annotations": {"pod-group-name": group}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [container()], "nodeName": node},
            "status": {"phase": phase},
        })
    };
    let group = |name: &str, queue: &str, annotations: Value| {
        json!({
            "metadata": {"name": name, "namespace": "lab", "uid": name, "annotations": annotations},
            "spec": {"queue": queue, "minMember": 1},
        })
    };
    let snapshot = json!({
        "cycle": {"now": "2026-11-18T12:00:00Z"},
        "rawObjects": {
            "nodes": [node()],
            "queues": queues(),
            "podGroups": [group("g1", "team", json!({STARTED: started})), group("g2", "other", json!({}))],
            "pods": [pod("squatter", "g1", Some("node-1"), "Running"), pod("owner", "g2", None, "Pending")],
        },
    });
    let folder = Folder::new(&test_name()).file("a.json", &snapshot.to_string());
    serde_json::from_str(&stdout(&folder.run(&["replay", "a.json", "-o", "json"]))).expect("the output is JSON")
}

#[test]
fn a_start_in_the_future_protects_no_pod_from_eviction() {
    let (hostile, honest) = (replayed("2999-01-01T00:00:00Z"), replayed("2026-11-18T10:00:00Z"));
    assert_eq!(honest["evicted"], json!(1));
    assert_eq!(hostile["decisions"], honest["decisions"]);
    assert_eq!(honest["problems"], json!([]));
    let problem = hostile["problems"][0].as_str().unwrap();
    assert!(problem.contains("lab/g1") && problem.contains(STARTED), "{problem}");
    assert_eq!(replayed("2026-11-18T11:59:50Z")["evicted"], json!(0), "one that has just started is protected");
}

/// A Job that takes all GPUs.
fn job(namespace: &str, name: &str, queue: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kai.scheduler/queue": queue},
            "annotations": annotations},
        "spec": {"template": {"spec": {
            "schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [container()]}}},
    })
}

fn documents(objects: &[Value]) -> String {
    objects.iter().flat_map(|object| ["---\n".to_owned(), object.to_string(), "\n".to_owned()]).collect()
}

/// What happens when the owner of the quota comes after ten seconds.
fn simulated(annotations: &Value) -> String {
    let scenario = json!({
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": "late"},
        "spec": {"duration": "5m", "steps": [{"at": "10s", "apply": "late.yaml"}]},
    });
    let squatter = job("lab", "squatter", "team", annotations);
    let first: Vec<Value> = [node()].into_iter().chain(queues()).chain([squatter, scenario]).collect();
    let folder = Folder::new(&test_name())
        .file("late.yaml", &documents(&[job("lab", "owner", "other", &json!({}))]))
        .file("a.yaml", &documents(&first));
    stdout(&folder.run(&["simulate", "a.yaml"]))
}

#[test]
fn a_start_written_on_a_workload_is_not_copied() {
    let honest = simulated(&json!({}));
    assert!(honest.contains("EVICT") || honest.contains("evict"), "{honest}");
    assert_eq!(simulated(&json!({STARTED: "2999-01-01T00:00:00Z"})), honest);
}

#[test]
fn a_queue_may_be_for_some_namespaces_only() {
    let run = |annotations: Value| {
        let objects = [
            node(),
            queue("top", None, 8, &json!({})),
            queue("team", Some("top"), 8, &annotations),
            job("stranger", "train", "team", &json!({})),
        ];
        stdout(&Folder::new(&test_name()).file("a.yaml", &documents(&objects)).run(&["simulate", "a.yaml"]))
    };
    let refused = run(json!({"kai.scheduler/namespaces": "lab"}));
    assert!(refused.contains("Namespace stranger may not use queue team, which is for lab."), "{refused}");
    let open = run(json!({}));
    assert!(!open.contains("may not use") && open.to_lowercase().contains("bind"), "{open}");
    assert_eq!(run(json!({"kai.scheduler/namespaces": "lab,stranger"})), open);
}
