//! What an API server or a kubelet fills in.

use serde_json::{Value, json};

use crate::json::object_at;

/// A kubelet labels its node with the name of the host.
pub(super) fn complete_node(node: &mut Value, name: &str) {
    if let Some(labels) = object_at(node, &["metadata", "labels"]) {
        labels.entry("kubernetes.io/hostname").or_insert_with(|| json!(name));
    }
}

/// An API server takes the limit of a resource as its request where only the limit is written.
pub(crate) fn complete_pod(pod: &mut Value) {
    for list in ["containers", "initContainers"] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let Some(limits) = container.pointer("/resources/limits").and_then(Value::as_object).cloned() else {
                continue;
            };
            let Some(requests) = object_at(container, &["resources", "requests"]) else { continue };
            for (name, amount) in limits {
                requests.entry(name).or_insert(amount);
            }
        }
    }
}
