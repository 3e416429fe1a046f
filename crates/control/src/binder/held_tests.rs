//! What the pods of a node hold is what they were bound with, whatever they say by now.

use kai_engine::units::{Span, Timestamp};
use serde_json::{Value, json};

use super::{BindEffect, Binder};

const NOW: Timestamp = Timestamp(1_000_000_000);

/// A binder that knows a node of 2 GPUs of 16,000 MiB, the reservation of GPU group `g`, and these pods, in this order.
fn binder(pods: &[Value]) -> Binder {
    let mut binder = Binder::default();
    let labels = json!({"nvidia.com/gpu.memory": "16000"});
    let offered = json!({"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "2"});
    binder
        .apply_node(&json!({"metadata": {"name": "n1", "labels": labels}, "status": {"allocatable": offered}}))
        .unwrap();
    let reservation = json!({
        "metadata": {"name": "gpu-g", "namespace": "kai-resource-reservation", "uid": "r", "labels": {"runai-gpu-group": "g"},
            "annotations": {"run.ai/reserve_for_gpu_index": "GPU-0"}},
        "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
        "status": {"phase": "Running"},
    });
    for pod in [&reservation].into_iter().chain(pods) {
        binder.apply_pod(pod).unwrap();
    }
    binder
}

fn pod(name: &str, node: Option<&str>, annotations: &Value, labels: &Value, requests: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "lab", "uid": name, "annotations": annotations, "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": requests}}]},
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
    })
}

/// A pod on the node that shares `g`.
fn sharer(annotations: &Value) -> Value {
    pod("user", Some("n1"), annotations, &json!({"runai-gpu-group": "g"}), &json!({}))
}

/// What is done for a new pod that was scheduled onto half of `g`, beside these.
fn half_more(pods: &[Value], annotations: &Value) -> Vec<BindEffect> {
    let mut binder = binder(pods);
    binder.apply_pod(&pod("new", None, annotations, &json!({}), &json!({}))).unwrap();
    let spec = json!({"podName": "new", "selectedNode": "n1", "receivedResourceType": "Fraction",
        "selectedGPUGroups": ["g"], "receivedGPU": {"count": 1, "portion": "0.50"}});
    let request =
        binder.apply_request(&json!({"metadata": {"name": "new", "namespace": "lab"}, "spec": spec})).unwrap();
    binder.plan(&request, NOW.plus(Span::seconds(60))).effects
}

/// Why a new pod for whole GPUs does not fit beside these.
fn whole_more(pods: &[Value], gpus: u32) -> Option<String> {
    let mut binder = binder(pods);
    binder.apply_pod(&pod("new", None, &json!({}), &json!({}), &json!({"nvidia.com/gpu": gpus}))).unwrap();
    let spec = json!({"podName": "new", "selectedNode": "n1"});
    let request =
        binder.apply_request(&json!({"metadata": {"name": "new", "namespace": "lab"}, "spec": spec})).unwrap();
    failure(&binder.plan(&request, NOW.plus(Span::seconds(60))).effects)
}

fn failure(effects: &[BindEffect]) -> Option<String> {
    effects.iter().find_map(|effect| match effect {
        BindEffect::SetPhase { phase: "Failed", reason, .. } => Some(reason.clone()),
        _ => None,
    })
}

fn half() -> Value {
    json!({"gpu-fraction": "0.5"})
}

#[test]
fn the_share_of_a_gpu_is_noted_with_the_bind() {
    let effects = half_more(&[], &half());
    let noted = effects.iter().find_map(|effect| match effect {
        BindEffect::Bind { annotations, .. } => annotations.get("kai.scheduler/bound-gpu-share"),
        _ => None,
    });
    assert_eq!(noted.map(String::as_str), Some(r#"{"groups":["g"],"millionths":500000}"#));
}

#[test]
fn a_pod_is_not_bound_with_another_share_than_it_was_scheduled_for() {
    for changed in [json!({"gpu-fraction": "0.1"}), json!({"gpu-fraction": "0.9"}), json!({"gpu-memory": "1000"})] {
        let why = failure(&half_more(&[], &changed));
        assert_eq!(
            why.as_deref(),
            Some("the pod asks for another part of a GPU than it was scheduled for"),
            "{changed}"
        );
    }
    let why = failure(&half_more(&[], &json!({})));
    assert_eq!(why.as_deref(), Some("the pod no longer asks for a part of a GPU"));
    assert_eq!(failure(&half_more(&[], &json!({"gpu-memory": "8000"}))), None);
}

#[test]
fn a_share_that_was_lowered_since_still_counts() {
    let bound = sharer(&json!({"gpu-fraction": "0.9"}));
    let full = "insufficient MiB on GPU g on node n1: pod lab/new would exceed allocatable by 6400";
    for later in
        [json!({"gpu-fraction": "0.1"}), json!({"gpu-fraction": "none"}), json!({}), json!({"gpu-memory": "1"})]
    {
        let why = failure(&half_more(&[bound.clone(), sharer(&later)], &half()));
        assert_eq!(why.as_deref(), Some(full), "{later}");
    }
    let noted = json!({"gpu-fraction": "0.1",
        "kai.scheduler/bound-gpu-share": r#"{"groups":["g"],"millionths":900000}"#});
    let unlabelled = pod("user", Some("n1"), &noted, &json!({}), &json!({}));
    for pod in [sharer(&noted), unlabelled] {
        assert_eq!(failure(&half_more(&[pod], &half())).as_deref(), Some(full), "a binder that has just started");
    }
    assert_eq!(failure(&half_more(&[sharer(&json!({"gpu-fraction": "0.5"}))], &half())), None);
}

#[test]
fn whole_gpus_count_whatever_the_annotations() {
    let full = |excess: u32| format!("insufficient GPUs on node n1: pod lab/new would exceed allocatable by {excess}");
    let one = json!({"nvidia.com/gpu": 1});
    let running =
        |annotations: Value, labels: Value, requests: &Value| pod("user", Some("n1"), &annotations, &labels, requests);
    for user in [
        running(json!({}), json!({}), &one),
        running(json!({}), json!({"runai-gpu-group": "g"}), &one),
        running(json!({"gpu-fraction": "0.1"}), json!({"runai-gpu-group": "g"}), &one),
        running(json!({"nvidia.com/mig-1g.5gb": "0"}), json!({}), &one),
        running(json!({"mps": "true"}), json!({}), &one),
        running(json!({}), json!({}), &json!({"nvidia.com/gpu": 1, "memory": "200Ti"})),
        running(json!({"gpu-fraction": "0.5"}), json!({}), &json!({})),
    ] {
        assert_eq!(whole_more(std::slice::from_ref(&user), 1), Some(full(1)), "{user}");
    }
    let unreadable = running(json!({}), json!({}), &json!({"nvidia.com/gpu": "lots"}));
    assert_eq!(whole_more(&[unreadable], 1), Some(full(2)), "as much as the node has");
    assert_eq!(whole_more(&[], 1), None);
}
