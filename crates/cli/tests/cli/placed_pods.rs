//! A pod with a node counts, whatever is written on it: no text makes the GPUs free that its containers have.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::invocation::{Folder, stdout, test_name, transcript};

/// One node of 8 GPUs, one queue that may have so many of them, a pod that runs there, and one that waits for `asked` GPUs.
fn snapshot(limit: i32, running: &Value, asked: &str) -> Value {
    let amounts = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"});
    let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let queue = |name: &str, parent: &str, gpus: i32| {
        let resources =
            json!({"gpu": {"quota": gpus, "limit": gpus, "overQuotaWeight": 1}, "cpu": unlimited, "memory": unlimited});
        json!({"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": resources}})
    };
    let group = |name: &str| json!({"metadata": {"name": name, "namespace": "lab", "uid": name}, "spec": {"queue": "team", "minMember": 1}});
    let limits = json!({"nvidia.com/gpu": asked});
    let waits = json!({
        "metadata": {"name": "more", "namespace": "lab", "uid": "more", "annotations": {"pod-group-name": "second"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "m", "resources": {"limits": limits}}]},
        "status": {"phase": "Pending"},
    });
    json!({"rawObjects": {
        "nodes": [{"metadata": {"name": "node-1"}, "status": {"allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}]}}],
        "queues": [queue("top", "", 8), queue("team", "top", limit)],
        "podGroups": [group("first"), group("second")],
        "pods": [running, waits],
    }})
}

/// A pod that runs on the node, with these annotations, labels and resources of its container.
fn running(annotations: &Value, labels: &Value, resources: &Value) -> Value {
    let mut annotations = annotations.clone();
    annotations["pod-group-name"] = json!("first");
    json!({
        "metadata": {"name": "runs", "namespace": "lab", "uid": "runs", "annotations": annotations, "labels": labels},
        "spec": {"schedulerName": "kai-scheduler", "nodeName": "node-1",
            "containers": [{"name": "m", "resources": resources}]},
        "status": {"phase": "Running"},
    })
}

fn eight_gpus() -> Value {
    json!({"limits": {"nvidia.com/gpu": "8", "memory": "1Gi"}, "requests": {"memory": "1Gi"}})
}

/// Whether the pod that waits is bound, the GPUs that the queue holds, and the warnings.
fn replay(snapshot: &Value) -> (bool, String, String) {
    let output =
        Folder::new(&test_name()).file("a.json", &snapshot.to_string()).run(&["replay", "a.json", "-o", "json"]);
    assert!(output.status.success(), "{}", transcript(&output));
    let value: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    let share = value["shares"].as_array().unwrap().iter().find(|row| row["name"] == "team").expect("its queue");
    let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    (value["bound"] != 0, share["allocated"].to_string(), warnings)
}

#[test]
fn a_running_pod_keeps_its_gpus_whatever_its_text() {
    let mut limits = eight_gpus();
    limits["limits"]["memory"] = json!("200Ti");
    for (annotations, resources, warnings) in [
        (json!({}), eight_gpus(), ""),
        (json!({"nvidia.com/mig-1g.5gb": "0"}), eight_gpus(), ""),
        (
            json!({"mps": "true"}),
            eight_gpus(),
            "warning: Pod lab/runs: metadata.annotations.mps: MPS needs a GPU fraction\n",
        ),
        (
            json!({}),
            limits,
            "warning: Pod lab/runs: spec.containers[0].resources.limits.memory: is more than any machine has\n",
        ),
        (
            json!({"gpu-fraction": "0.1"}),
            eight_gpus(),
            "warning: Pod lab/runs: metadata.annotations.gpu-fraction: the containers ask for whole GPUs already\n",
        ),
        (
            json!({"gpu-fraction": 0.1}),
            eight_gpus(),
            "warning: Pod lab/runs: metadata.annotations.gpu-fraction: expected text, found the number 0.1\nwarning: Pod \
             lab/runs: metadata.annotations.gpu-fraction: the containers ask for whole GPUs already\n",
        ),
    ] {
        let pod = running(&annotations, &json!({}), &resources);
        let expected = (false, "8".to_owned(), warnings.to_owned());
        assert_eq!(replay(&snapshot(16, &pod, "2")), expected, "{annotations} {resources}");
    }
}

#[test]
fn a_count_that_would_wrap_around_pays_for_nothing() {
    for (profile, count) in [
        ("nvidia.com/mig-1g.5gb", "288230376151711738"),
        ("nvidia.com/mig-1g.5gb", "9223372036855"),
        ("nvidia.com/mig-1g.5gb", "18446744073708"),
        ("nvidia.com/mig-4294967295g.5gb", "4294967297"),
        ("nvidia.com/mig-7g.80gb", "99999999999999999999999"),
    ] {
        let pod = running(&json!({profile: count}), &json!({}), &json!({"requests": {"memory": "1Gi"}}));
        let (bound, held, warnings) = replay(&snapshot(2, &pod, "8"));
        assert_eq!((bound, held.as_str()), (false, "0"), "{profile}: {count}");
        assert_eq!(
            warnings,
            format!("warning: Pod lab/runs: metadata.annotations[{profile}]: `{count}` is more than any node has\n")
        );
    }
}

#[test]
fn what_was_bound_counts_until_the_pod_ends() {
    let bound = json!({"groups": ["g1"], "millionths": 900_000}).to_string();
    let (with, without) = (json!({"runai-gpu-group": "g1"}), json!({}));
    for (fraction, labels) in
        [("0.9", &with), ("0.000001", &with), ("0.000001", &without), ("none", &with), ("", &without)]
    {
        let mut annotations = json!({"kai.scheduler/bound-gpu-share": bound, "received-resource-type": "Fraction"});
        if !fraction.is_empty() {
            annotations["gpu-fraction"] = json!(fraction);
        }
        let pod = running(&annotations, labels, &json!({}));
        let (bound, held, _) = replay(&snapshot(16, &pod, "8"));
        assert_eq!((bound, held.as_str()), (false, "0.9"), "{fraction} {labels}");
        assert!(replay(&snapshot(16, &pod, "7")).0, "seven others are free");
    }
}

fn simulate(pod: &str, expected: Expect) {
    let cluster = "apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {allocatable: {cpu: 64, memory: 512Gi, pods: 110, nvidia.com/gpu: 8}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec: {resources: {gpu: {quota: 8, limit: 8}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}
---
";
    let output = Folder::new(&test_name()).file("a.yaml", &format!("{cluster}{pod}")).run(&["simulate", "a.yaml"]);
    let text = if output.status.success() { stdout(&output) } else { transcript(&output) };
    let shown = text.split_once("Nodes\n").map_or(text.as_str(), |(_, nodes)| nodes);
    expected.assert_eq(shown);
}

fn manifest(annotations: &str, labels: &str, resources: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: runs
  namespace: lab
  labels: {{kai.scheduler/queue: team{labels}}}
  annotations: {{{annotations}}}
spec:
  schedulerName: kai-scheduler
  nodeName: node-1
  containers: [{{name: main, image: any{resources}}}]
status: {{phase: Running}}
"
    )
}

#[test]
fn simulated_whole_gpus_stay_taken() {
    let resources = ", resources: {limits: {nvidia.com/gpu: 8}}";
    simulate(
        &manifest("\"nvidia.com/mig-1g.5gb\": \"0\"", "", resources),
        expect![[r#"
        node-1  [AAAAAAAA]  0 of 8 GPUs free
             A  lab/runs  8 GPUs  queue team

        Queues
        GPUs  priority  quota  limit  fair share  allocated  requested
        team       100      8      8           8          8          8

        Pending
        nothing waits
    "#]],
    );
}

#[test]
fn a_simulated_share_stays_what_was_bound() {
    let bound = r#"gpu-fraction: "0.000001", kai.scheduler/bound-gpu-share: '{"groups":["g1"],"millionths":900000}'"#;
    simulate(
        &manifest(bound, ", runai-gpu-group: g1", ""),
        expect![[r#"
        node-1  [*.......]  7.1 of 8 GPUs free
             *  lab/runs  0.9 GPU  queue team  0.9 of shared GPU 1

        Queues
        GPUs  priority  quota  limit  fair share  allocated  requested
        team       100      8      8         0.9        0.9        0.9

        Pending
        nothing waits
    "#]],
    );
}

#[test]
fn a_simulated_count_that_is_too_large_is_refused() {
    simulate(
        &manifest("\"nvidia.com/mig-1g.5gb\": \"18446744073708\"", "", ""),
        expect![[r#"
        exit 1
        -- stderr
        error: `18446744073708` is more than any node has
          --> a.yaml, document 3 (line 11), Pod lab/runs, metadata.annotations[nvidia.com/mig-1g.5gb]
          help: remove this retired annotation
    "#]],
    );
}
