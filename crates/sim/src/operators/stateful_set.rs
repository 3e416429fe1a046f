//! `StatefulSet`, of Kubernetes itself: numbered pods that keep their names.

use kai_control::objects::Malformed;
use serde_json::{Value, json};

use super::{JsonCursor, Role, add_labels};

pub(super) fn roles(set: &JsonCursor<'_>) -> Result<Vec<Role>, Malformed> {
    let spec = set.required("spec")?;
    if !spec.list("volumeClaimTemplates")?.is_empty() {
        return Err(Malformed::new(
            "spec.volumeClaimTemplates",
            "volume claims made from templates are not simulated",
            "write a PersistentVolumeClaim, and name it under spec.template.spec.volumes",
        ));
    }
    spec.count("ordinals.start")?;
    Ok(vec![spec.role("pod", spec.count("replicas")?.unwrap_or(1), "template")?])
}

/// Whether a pod is made only when the one before runs.
pub(crate) fn one_by_one(set: &Value) -> bool {
    set.pointer("/spec/podManagementPolicy").and_then(Value::as_str) != Some("Parallel")
}

/// Name and draft of every pod.
pub(crate) fn pods(set: &Value, set_name: &str) -> Vec<(String, Value)> {
    let count = |pointer: &str, default: u32| {
        let count = set.pointer(pointer).and_then(Value::as_u64);
        count.map_or(default, |count| u32::try_from(count).unwrap_or(u32::MAX))
    };
    let start = count("/spec/ordinals/start", 0);
    let pod = |number: u32| {
        let name = format!("{set_name}-{number}");
        let mut pod = set.pointer("/spec/template").cloned().unwrap_or_else(|| json!({}));
        add_labels(
            &mut pod,
            "labels",
            &[
                ("statefulset.kubernetes.io/pod-name", name.clone()),
                ("apps.kubernetes.io/pod-index", number.to_string()),
            ],
        );
        (name, pod)
    };
    (start..start.saturating_add(count("/spec/replicas", 1))).map(pod).collect()
}
