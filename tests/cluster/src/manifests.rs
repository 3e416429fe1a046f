//! Objects that every cluster starts with: kinds and priority classes of ours, nodes with GPUs.

use kai_api::keys::priority::SHIPPED_CLASSES;
use serde_json::{Value, json};

/// Lives of nodes and pods, as kwok plays them.
pub(crate) const KWOK: &str = include_str!("../kwok.yaml");

pub(crate) fn crds() -> String {
    kai_api::crds_yaml()
}

/// As NVIDIA's operator makes it: pods that share a GPU name it, and are rejected if it does not exist.
pub(crate) const RUNTIME_CLASS: &str =
    "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia}";

pub(crate) fn priority_classes() -> String {
    let class = |(name, value): (&str, i32)| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        })
    };
    list(&SHIPPED_CLASSES.map(class))
}

/// Nodes `node-0`, `node-1` … with 64 cores, 512 GiB and this many GPUs of 80 GiB each.
pub(crate) fn nodes(count: u32, gpus: u32) -> String {
    list(&(0..count).map(|number| node(number, gpus)).collect::<Vec<_>>())
}

fn node(number: u32, gpus: u32) -> Value {
    let name = format!("node-{number}");
    let mut labels = json!({
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node-role.kubernetes.io/worker": "",
    });
    let mut room = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"});
    if gpus > 0 {
        room["nvidia.com/gpu"] = json!(gpus.to_string());
        labels["nvidia.com/gpu.present"] = json!("true");
        labels["nvidia.com/gpu.count"] = json!(gpus.to_string());
        labels["nvidia.com/gpu.memory"] = json!("81920");
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": room, "allocatable": room},
    })
}

pub(crate) fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}
