//! Makes demand for parts of GPUs visible to cluster autoscalers: a scaling pod that requests whole GPUs for a pod
//! that shares some and finds no node.
//!
//! Only pods that are marked as unschedulable count; those that wait for their quota are marked otherwise, since no
//! node would help them. Scaling pods use the default scheduler, end as soon as they run, and go when the pod they stand
//! for has found its place.

mod component;
mod controller;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use kai_api::keys::{annotation, label, name, reason, resource};
use kai_engine::units::{Span, Timestamp};
use serde_json::{Map, Value, json};

use crate::key::Key;
pub use component::COMPONENT;
pub use controller::NodeScaleController;

use crate::quantity::Quantity;

/// What scaling pods look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub namespace: String,
    /// Value of their `app` label.
    pub app: String,
    pub service_account: String,
    pub image: String,
    /// Hundredths of a GPU that a request in memory counts as: the size of the new node's GPUs is unknown.
    pub memory_hundredths: u32,
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adjustment {
    pub delete: Vec<Key>,
    /// Whole pods; each is then to be marked as unschedulable, as autoscalers expect.
    pub create: Vec<Value>,
    /// Nothing may be created before then.
    pub requeue_at: Option<Timestamp>,
}

/// After a scaling pod was deleted, new nodes may still be about to take the pending pods.
pub const COOL_DOWN: Span = Span::seconds(60);

/// `pods` are those of the scheduler, `scaling_pods` those of the namespace; `removed` is when one was last deleted.
pub fn adjust<V: Borrow<Value>>(
    pods: &BTreeMap<Key, V>,
    scaling_pods: &BTreeMap<Key, V>,
    settings: &Settings,
    removed: Option<Timestamp>,
    now: Timestamp,
) -> Adjustment {
    let pods: BTreeMap<&Key, &Value> = pods.iter().map(|(key, pod)| (key, pod.borrow())).collect();
    let scaling_pods: BTreeMap<&Key, &Value> = scaling_pods.iter().map(|(key, pod)| (key, pod.borrow())).collect();
    let needed = |scaling_pod: &Value| is_needed(scaling_pod, &pods);
    let delete: Vec<Key> =
        scaling_pods.iter().filter(|(_, scaling_pod)| !needed(scaling_pod)).map(|(key, _)| (*key).clone()).collect();
    if !delete.is_empty() {
        return Adjustment { delete, create: Vec::new(), requeue_at: Some(now.plus(COOL_DOWN)) };
    }
    if let Some(quiet) = removed.map(|removed| removed.plus(COOL_DOWN)).filter(|quiet| *quiet > now) {
        return Adjustment { requeue_at: Some(quiet), ..Adjustment::default() };
    }
    let waiting: Vec<(&Key, &Value, Share)> = pods
        .into_iter()
        .filter(|(_, pod)| waits(pod))
        .filter_map(|(key, pod)| Some((key, pod, Share::of(pod, settings)?)))
        .collect();
    let hundredths: u64 =
        waiting.iter().map(|(_, _, share)| u64::from(share.hundredths) * u64::from(share.devices)).sum();
    let demand = hundredths.div_ceil(100);
    let names: BTreeSet<&str> = scaling_pods.keys().map(|key| key.name.as_str()).collect();
    let mut asked: u64 = scaling_pods.values().map(|pod| gpus(pod)).fold(0, u64::saturating_add);
    let mut largest: u64 = scaling_pods.values().map(|pod| gpus(pod)).max().unwrap_or(0);
    let mut create = Vec::new();
    for (key, pod, share) in waiting {
        let devices = u64::from(share.devices);
        let name = format!("{}-{}", key.namespace, key.name);
        if names.contains(name.as_str()) || (demand <= asked && devices <= largest) {
            continue;
        }
        asked += devices;
        largest = largest.max(devices);
        create.push(scaling_pod(&name, key, pod, share.devices, settings));
    }
    Adjustment { create, ..Adjustment::default() }
}

/// Whether the pod that a scaling pod was made for still finds no node.
fn is_needed(scaling_pod: &Value, pods: &BTreeMap<&Key, &Value>) -> bool {
    if scaling_pod["status"]["phase"] == "Succeeded" {
        return false;
    }
    let labelled = |key: &str| scaling_pod["metadata"]["labels"][key].as_str().unwrap_or_default();
    let source = Key::new(labelled(label::SHARED_GPU_POD_NAMESPACE), labelled(label::SHARED_GPU_POD_NAME));
    // A pod that no scheduler has tried yet may need it.
    pods.get(&source).is_some_and(|pod| scheduled(pod).is_none_or(needs_node))
}

/// Whether a pod that shares GPUs waits for a node.
fn waits(pod: &Value) -> bool {
    let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    let placed = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let leaving = !pod["metadata"]["deletionTimestamp"].is_null();
    !over && !placed && !leaving && scheduled(pod).is_some_and(needs_node)
}

/// The condition `PodScheduled`, if a scheduler has written it.
fn scheduled(pod: &Value) -> Option<&Value> {
    let conditions = pod["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "PodScheduled")
}

fn needs_node(condition: &Value) -> bool {
    condition["status"] == "False" && condition["reason"] == reason::UNSCHEDULABLE
}

/// Parts of GPUs that a pod asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    hundredths: u32,
    devices: u32,
}

impl Share {
    /// `None` if it asks for none, or in words that make no sense.
    fn of(pod: &Value, settings: &Settings) -> Option<Self> {
        let asked = |key: &str| pod["metadata"]["annotations"][key].as_str();
        let devices = asked(annotation::GPU_FRACTION_NUM_DEVICES).map_or(Some(1), |text| text.parse().ok())?;
        let hundredths = match asked(annotation::GPU_FRACTION) {
            Some(text) => {
                let nanos = Quantity::parse(text).ok()?.nanos();
                let hundredths = nanos.saturating_mul(100).saturating_add(500_000_000).div_euclid(1_000_000_000);
                u32::try_from(hundredths).ok().filter(|hundredths| *hundredths <= 100)?
            }
            None => asked(annotation::GPU_MEMORY).map(|_| settings.memory_hundredths)?,
        };
        (1..=DEVICES_MAX).contains(&devices).then_some(Self { hundredths, devices })
    }
}

/// No node has more GPUs.
const DEVICES_MAX: u32 = 1024;

/// Whole GPUs that a scaling pod requests.
fn gpus(scaling_pod: &Value) -> u64 {
    let containers = scaling_pod["spec"]["containers"].as_array().into_iter().flatten();
    let amount =
        |container: &Value| amount(&container["resources"]["requests"][resource::NVIDIA_GPU]).map(Quantity::units);
    containers.filter_map(amount).map(|units| u64::try_from(units).unwrap_or(0)).fold(0, u64::saturating_add)
}

fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

fn scaling_pod(name: &str, key: &Key, pod: &Value, devices: u32, settings: &Settings) -> Value {
    let gpus = devices.to_string();
    let mut requests = Map::new();
    requests.insert(resource::NVIDIA_GPU.to_owned(), json!(gpus));
    let containers = pod["spec"]["containers"].as_array();
    for (name, unit) in [("cpu", 1_000_000), ("memory", 1_000_000_000)] {
        let amounts =
            containers.into_iter().flatten().filter_map(|container| amount(&container["resources"]["requests"][name]));
        let nanos = amounts.map(Quantity::nanos).fold(0, i128::saturating_add);
        let whole = nanos.saturating_add(unit - 1) / unit;
        if whole > 0 {
            let text = if name == "cpu" { format!("{whole}m") } else { whole.to_string() };
            requests.insert(name.to_owned(), json!(text));
        }
    }
    let mut spec = json!({
        "serviceAccountName": settings.service_account,
        "restartPolicy": "OnFailure",
        "containers": [{
            "name": name::SCALING_POD,
            "image": settings.image,
            "resources": {"requests": requests, "limits": {resource::NVIDIA_GPU: gpus}},
        }],
    });
    for field in ["affinity", "tolerations", "nodeSelector"] {
        if !pod["spec"][field].is_null() {
            spec[field] = pod["spec"][field].clone();
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": settings.namespace, "labels": {
            label::APP: settings.app,
            label::SHARED_GPU_POD_NAME: key.name,
            label::SHARED_GPU_POD_NAMESPACE: key.namespace,
        }},
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000_000);

    fn settings() -> Settings {
        Settings {
            namespace: "scale".to_owned(),
            app: name::SCALING_POD.to_owned(),
            service_account: name::SCALING_POD.to_owned(),
            image: "scaling".to_owned(),
            memory_hundredths: 10,
        }
    }

    fn pod(name: &str, annotations: &Value, why: &str) -> (Key, Value) {
        let pod = json!({"metadata": {"name": name, "namespace": "lab", "annotations": annotations},
            "spec": {"nodeSelector": {"a": "b"}, "containers": [
                {"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}, {"resources": {"requests": {"cpu": 1}}}]},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": why}]}});
        (Key::new("lab", name), pod)
    }

    fn half(name: &str) -> (Key, Value) {
        pod(name, &json!({"gpu-fraction": "0.5"}), "Unschedulable")
    }

    fn made(pods: &BTreeMap<Key, Value>, scaling_pods: &BTreeMap<Key, Value>) -> Vec<String> {
        let name = |pod: &Value| format!("{} {}", pod["metadata"]["name"].as_str().unwrap(), gpus(pod));
        adjust(pods, scaling_pods, &settings(), None, NOW).create.iter().map(name).collect()
    }

    fn stored(pods: &[Value]) -> BTreeMap<Key, Value> {
        pods.iter().map(|pod| (Key::of(pod), pod.clone())).collect()
    }

    #[test]
    fn parts_add_up_to_whole_gpus() {
        let pods: BTreeMap<_, _> = [half("a"), half("b"), half("c")].into();
        assert_eq!(made(&pods, &BTreeMap::new()), ["lab-a 1", "lab-b 1"]);
        let by_memory = |name: &str| pod(name, &json!({"gpu-memory": "2000"}), "Unschedulable");
        let many: BTreeMap<_, _> = (0..10).map(|index| by_memory(&format!("m{index}"))).collect();
        assert_eq!(made(&many, &BTreeMap::new()), ["lab-m0 1"]);
        let wide = pod("w", &json!({"gpu-fraction": "0.1", "gpu-fraction-num-devices": "4"}), "Unschedulable");
        assert_eq!(made(&[half("a"), wide].into(), &BTreeMap::new()), ["lab-a 1", "lab-w 4"]);
    }

    #[test]
    fn who_waits_for_quota_or_asks_in_riddles_gets_none() {
        let pods = [
            pod("quota", &json!({"gpu-fraction": "0.5"}), "OverLimit"),
            pod("riddle", &json!({"gpu-fraction": "half"}), "Unschedulable"),
            pod("none", &json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}), "Unschedulable"),
            pod("whole", &json!({}), "Unschedulable"),
        ];
        assert_eq!(made(&pods.into(), &BTreeMap::new()), [""; 0]);
    }

    #[test]
    fn stand_ins_go_when_their_pods_have_a_place_and_none_come_for_a_while() {
        let waiting: BTreeMap<_, _> = [half("a"), half("b"), half("c")].into();
        let scaling_pods = stored(&adjust(&waiting, &BTreeMap::new(), &settings(), None, NOW).create);
        assert_eq!(scaling_pods.len(), 2);
        assert_eq!(made(&waiting, &scaling_pods), [""; 0]);
        let mut placed = waiting.clone();
        for pod in placed.values_mut() {
            pod["status"]["conditions"][0]["status"] = json!("True");
        }
        let after = adjust(&placed, &scaling_pods, &settings(), None, NOW);
        assert_eq!((after.delete.len(), after.create.len(), after.requeue_at), (2, 0, Some(NOW.plus(COOL_DOWN))));
        let early = adjust(&waiting, &BTreeMap::new(), &settings(), Some(NOW), NOW.plus(Span::seconds(59)));
        assert_eq!((early.create.len(), early.requeue_at), (0, Some(NOW.plus(COOL_DOWN))));
        assert_eq!(adjust(&waiting, &BTreeMap::new(), &settings(), Some(NOW), NOW.plus(COOL_DOWN)).create.len(), 2);
        assert_eq!(adjust(&BTreeMap::new(), &scaling_pods, &settings(), None, NOW).delete.len(), 2);
    }

    #[test]
    fn a_stand_in_wants_the_same_nodes() {
        let made = adjust(&[half("a")].into(), &BTreeMap::new(), &settings(), None, NOW).create;
        let spec = &made[0]["spec"];
        assert_eq!(
            spec["containers"][0]["resources"],
            json!({"requests": {"nvidia.com/gpu": "1", "cpu": "2500m", "memory": "1073741824"},
                "limits": {"nvidia.com/gpu": "1"}})
        );
        assert_eq!((&spec["nodeSelector"], &spec["schedulerName"]), (&json!({"a": "b"}), &Value::Null));
    }
}
