//! A node: what it offers, what it is labelled and tainted with, how it feels.

use std::collections::BTreeMap;

use kai_api::keys::node_label;
use kai_engine::units::compat;
use serde_json::Value;

use super::Malformed;
use super::field_reader::FieldReader;
use super::resources::Resources;
use super::taint::Taint;

/// What matters of a `Node`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
    /// Status (`True`, `False`, `Unknown`) by condition type.
    pub conditions: BTreeMap<String, String>,
    pub allocatable: Resources,
}

/// Some exporters write bytes; no GPU has a million MiB.
const BYTES_FROM: i64 = 1 << 20;

/// MiB of each GPU as the label states them, not rounded. `None` without the label, or if it is not a number.
pub fn gpu_memory_mib(labels: &BTreeMap<String, String>) -> Option<i64> {
    let number: i64 = labels.get(node_label::GPU_MEMORY)?.parse().ok().filter(|number| *number >= 0)?;
    Some(if number >= BYTES_FROM { (number / BYTES_FROM).min(BYTES_FROM) } else { number })
}

/// Pod slots of a node that reports none: the default of kubelets.
const PODS_DEFAULT: i64 = 110;

impl Node {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let (metadata, spec, status) = (root.field("metadata"), root.field("spec"), root.field("status"));
        // Hand-written nodes often give one list only; a kubelet always gives both.
        let offered = Some(status.field("allocatable")).filter(FieldReader::exists).unwrap_or(status.field("capacity"));
        let mut allocatable = Resources::read(&offered)?;
        if !offered.field("pods").exists() {
            allocatable.pods = PODS_DEFAULT;
        }
        let mut conditions = BTreeMap::new();
        for item in status.field("conditions").items()? {
            conditions.insert(item.field("type").text_or_empty()?, item.field("status").text_or_empty()?);
        }
        Ok(Self {
            name: root.object_name()?,
            labels: metadata.field("labels").string_map()?,
            taints: spec.field("taints").items()?.iter().map(Taint::read).collect::<Result<_, _>>()?,
            unschedulable: spec.field("unschedulable").flag()?.unwrap_or(false),
            conditions,
            allocatable,
        })
    }

    /// MiB of each of its GPUs, rounded as KAI does; `None` if no label states them.
    pub fn device_memory(&self) -> Option<i64> {
        gpu_memory_mib(&self.labels).map(compat::floor_device_memory)
    }

    /// Whether the condition is absent or has this status.
    pub fn condition_is(&self, kind: &str, status: &str) -> bool {
        self.conditions.get(kind).is_none_or(|found| found == status)
    }

    /// Whether it counts as capacity: not cordoned, ready, under no pressure.
    pub fn is_ready(&self) -> bool {
        !self.unschedulable
            && self.condition_is("Ready", "True")
            && PRESSURES.iter().all(|kind| self.condition_is(kind, "False"))
    }
}

/// Conditions that must be `False` where they are reported at all.
pub(crate) const PRESSURES: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];

#[cfg(test)]
impl Node {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "n", "labels": {"nvidia.com/gpu.memory": "40000"}},
        "spec": {"unschedulable": true, "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": 1, "nvidia.com/gpu": 8},
            "conditions": [{"type": "Ready", "status": "True"}]}})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(spec: &Value, status: &Value) -> Result<Node, Malformed> {
        Node::parse(&json!({"kind": "Node", "metadata": {"name": "a"}, "spec": spec, "status": status}))
    }

    #[test]
    fn a_short_node_is_a_usable_one() {
        let node = node(&json!({}), &json!({"capacity": {"cpu": 8, "nvidia.com/gpu": "4"}})).unwrap();
        assert_eq!((node.allocatable.cpu_milli, node.allocatable.gpus, node.allocatable.pods), (8_000, 4, 110));
        assert!(node.is_ready());
    }

    #[test]
    fn gpu_memory_is_written_in_mib_or_bytes() {
        let memory = |text: &str| {
            let node =
                Node { labels: [(node_label::GPU_MEMORY.to_owned(), text.to_owned())].into(), ..Node::default() };
            (gpu_memory_mib(&node.labels), node.device_memory())
        };
        assert_eq!(memory("4096"), (Some(4096), Some(4000)));
        assert_eq!(memory("4295000001"), (Some(4096), Some(4000)));
        assert_eq!((memory("much"), memory("-4096")), ((None, None), (None, None)));
        assert_eq!(memory("9223372036854775807"), (Some(1 << 20), Some(1_048_500)));
    }

    #[test]
    fn unknown_pressure_is_not_ready() {
        let status = json!({"conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "DiskPressure", "status": "Unknown"},
        ]});
        assert!(!node(&json!({}), &status).unwrap().is_ready());
        assert!(!node(&json!({"unschedulable": true}), &json!({})).unwrap().is_ready());
    }

    #[test]
    fn the_place_of_a_mistake_is_named() {
        let wrong = node(&json!({}), &json!({"allocatable": {"nvidia.com/gpu": "eight"}})).unwrap_err();
        assert_eq!(wrong.field, "status.allocatable[nvidia.com/gpu]");
        let wrong = node(&json!({"taints": [{"key": "a", "effect": "NoWay"}]}), &json!({})).unwrap_err();
        assert_eq!(wrong.to_string(), "spec.taints[0].effect: `NoWay` is not an effect of a taint");
    }
}
