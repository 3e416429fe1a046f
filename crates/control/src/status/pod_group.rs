//! Status of pod groups: what their pods ask for and hold.

use std::collections::BTreeMap;

use kai_api::PodGroupResources;
use kai_api::keys::{annotation, node_label, received, resource};
use kai_engine::units::GPU;
use serde_json::{Value, json};

use crate::key::{GroupKey, Key};
use crate::objects::field_reader::FieldReader;
use crate::objects::pod::gpu_groups;
use crate::objects::{
    DeviceRequest, Faults, GpuSharing, Malformed, PodGroup, PriorityClass, Request, ResourceClaim, gpu_memory_mib,
    held_share,
};
use crate::quantity::Quantity;
use crate::resource_sum::ResourceSum;

/// What one pod adds to its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    pub group: GroupKey,
    pub uid: String,
    /// What it holds of shared GPUs once it has a node; it stays the same until the pod ends.
    held: Option<HeldShare>,
    /// Empty once the pod has ended.
    pub requested: ResourceSum,
    /// Empty until the pod has a node.
    pub allocated: ResourceSum,
}

/// GPUs that a resource claim asks for, under the name of the first device class of GPUs that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedGpus {
    class: String,
    devices: i64,
}

impl ClaimedGpus {
    /// `None` if it asks for no GPU. Requests with alternatives do not count.
    pub fn read(claim: &Value) -> Result<Option<Self>, Malformed> {
        let claim = ResourceClaim::parse(claim)?;
        let mut found: Option<Self> = None;
        for exactly in claim.spec.requests.iter().filter_map(DeviceRequest::exactly).filter(|it| it.gpus() > 0) {
            let so_far = found.get_or_insert_with(|| Self { class: exactly.class.clone(), devices: 0 });
            so_far.devices = so_far.devices.saturating_add(exactly.gpus().into());
        }
        Ok(found)
    }
}

/// What must be known to count a pod.
#[derive(Clone, Debug, Default)]
pub struct PodUsageInputs {
    /// By node.
    pub labels: BTreeMap<String, BTreeMap<String, String>>,
    /// By resource claim.
    pub claims: BTreeMap<Key, Option<ClaimedGpus>>,
}

impl PodUsage {
    /// `None` for pods without a group.
    pub fn read(pod: &Value, inputs: &PodUsageInputs) -> Result<Option<Self>, String> {
        Self::read_after(None, pod, inputs)
    }

    /// The same; `earlier` is what was read of the pod of this name before.
    pub(super) fn read_after(
        earlier: Option<&Self>,
        pod: &Value,
        inputs: &PodUsageInputs,
    ) -> Result<Option<Self>, String> {
        let annotations = &pod["metadata"]["annotations"];
        let Some(group) = annotations[annotation::POD_GROUP_NAME].as_str().filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let namespace = Key::of(pod).namespace;
        let mut found = Self {
            group: GroupKey::new(&namespace, group),
            uid: pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            held: None,
            requested: ResourceSum::default(),
            allocated: ResourceSum::default(),
        };
        let phase = pod["status"]["phase"].as_str().unwrap_or("Pending");
        if !matches!(phase, "Pending" | "Running") {
            return Ok(Some(found));
        }
        if pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
            let earlier = earlier.filter(|earlier| earlier.uid == found.uid).and_then(|earlier| earlier.held);
            found.held = Some(earlier.unwrap_or_else(|| HeldShare::read(pod)));
        }
        for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
            let requests = &container["resources"]["requests"];
            match found.held {
                Some(_) => found.requested.add_readable(requests),
                None => found.requested.add_list(requests)?,
            }
        }
        for claim in claims(pod, &namespace)? {
            let gpus = inputs.claims.get(&claim).ok_or_else(|| format!("resource claim {claim} is not known"))?;
            if let Some(ClaimedGpus { class, devices }) = gpus {
                found.requested.add_milli(class, devices.saturating_mul(1000));
            }
        }
        let scheduled = phase == "Running" || condition_is(pod, "PodScheduled", "True");
        if scheduled {
            found.allocated = found.requested.clone();
        }
        let share = match found.held {
            Some(held) => held.share,
            None => Share::read(annotations)?,
        };
        let Some(share) = share else { return Ok(Some(found)) };
        match share {
            Share::Fraction { milli, devices } => {
                found.requested.add_milli(resource::NVIDIA_GPU, milli.saturating_mul(devices));
            }
            Share::Memory { mib, devices } => {
                found.requested.add_milli(resource::GPU_MEMORY, mib.saturating_mul(devices).saturating_mul(1000));
            }
        }
        if scheduled && found.held.map_or_else(|| received_fraction(annotations), |held| held.received) {
            let milli = match share {
                Share::Fraction { milli, devices } => milli.saturating_mul(devices),
                Share::Memory { mib, devices } => {
                    let name = pod["spec"]["nodeName"].as_str().unwrap_or_default();
                    let labels = inputs.labels.get(name).ok_or_else(|| format!("node {name} is not known"))?;
                    let memory = device_memory(labels).map_err(|problem| format!("node {name}: {problem}"))?;
                    mib.saturating_mul(devices).saturating_mul(1000).saturating_add(memory / 2) / memory
                }
            };
            found.allocated.add_milli(resource::NVIDIA_GPU, milli);
        }
        Ok(Some(found))
    }
}

/// The resource claims of a pod: named by it, or made for it from a template.
fn claims(pod: &Value, namespace: &str) -> Result<Vec<Key>, String> {
    let made = |own: &str| {
        let statuses = pod["status"]["resourceClaimStatuses"].as_array().into_iter().flatten();
        statuses.into_iter().find(|status| status["name"] == own)
    };
    let mut claims = Vec::new();
    for entry in pod["spec"]["resourceClaims"].as_array().into_iter().flatten() {
        let own = entry["name"].as_str().unwrap_or_default();
        let claim = match (entry["resourceClaimName"].as_str(), made(own)) {
            (Some(name), _) => Some(name),
            // None is needed if the status names none.
            (None, Some(status)) => status["resourceClaimName"].as_str(),
            (None, None) => return Err(format!("its claim {own} is not made yet")),
        };
        claims.extend(claim.map(|name| Key::new(namespace, name)));
    }
    Ok(claims)
}

fn received_fraction(annotations: &Value) -> bool {
    annotations[annotation::RECEIVED_RESOURCE_TYPE].as_str() == Some(received::FRACTION)
}

/// The part of each GPU that a pod shares: thousandths or MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Fraction { milli: i64, devices: i64 },
    Memory { mib: i64, devices: i64 },
}

/// What a pod with a node holds of shared GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldShare {
    share: Option<Share>,
    /// A binder has given it that.
    received: bool,
}

impl HeldShare {
    fn read(pod: &Value) -> Self {
        let root = FieldReader::root(pod);
        let mut faults = Faults::collect();
        let metadata = root.field("metadata");
        let mut texts = |field: &str| metadata.field(field).string_map_with(&mut faults).unwrap_or_default();
        let (annotations, labels) = (texts("annotations"), texts("labels"));
        let written = json!(annotations);
        let place = metadata.field("annotations").with_value(&written);
        let request = Request::read_with(&root.field("spec"), &place, &mut faults).unwrap_or_default();
        let labelled = gpu_groups(labels.iter().map(|(key, group)| (key.as_str(), group.as_str())));
        let labelled = labelled.into_iter().map(str::to_owned).collect();
        let (sharing, groups) = held_share(&request, labelled, &annotations);
        let share = sharing.map(|sharing| match sharing {
            GpuSharing::Fraction { devices, portion } => {
                Share::Fraction { milli: (portion + PER_MILLE - 1) / PER_MILLE, devices: devices.into() }
            }
            GpuSharing::Memory { devices, mib } => Share::Memory { mib, devices: devices.into() },
        });
        Self { share, received: !groups.is_empty() || received_fraction(&written) }
    }
}

/// Millionths in a thousandth.
const PER_MILLE: i64 = GPU / 1000;

/// More than any pod is given of one node, so that what it asks for stays a number that can be shown.
const DEVICES_MAX: i64 = 1024;
const DEVICE_MIB_MAX: i64 = 1 << 20;

impl Share {
    fn read(annotations: &Value) -> Result<Option<Self>, String> {
        let number = |key: &str| -> Result<Option<Quantity>, String> {
            let Some(text) = annotations[key].as_str() else { return Ok(None) };
            Quantity::parse(text).map(Some).map_err(|_| format!("annotation {key}: `{text}` is not a number"))
        };
        let devices = number(annotation::GPU_FRACTION_NUM_DEVICES)?.map_or(1, Quantity::units).clamp(0, DEVICES_MAX);
        if let Some(fraction) = number(annotation::GPU_FRACTION)? {
            return Ok(Some(Self::Fraction { milli: fraction.milli().clamp(0, 1000), devices }));
        }
        let memory = number(annotation::GPU_MEMORY)?.map(|memory| memory.units().clamp(0, DEVICE_MIB_MAX));
        Ok(memory.map(|mib| Self::Memory { mib, devices }))
    }
}

/// MiB of each GPU. AMD's label has them in its key; only KAI's status controller reads it.
fn device_memory(labels: &BTreeMap<String, String>) -> Result<i64, String> {
    let own = labels.get(node_label::GPU_MEMORY);
    let amd = labels.keys().find_map(|key| key.strip_prefix(node_label::AMD_GPU_MEMORY_PREFIX));
    let memory = match (own, amd) {
        (Some(_), None) => gpu_memory_mib(labels),
        (None, Some(text)) => {
            Quantity::parse(text.trim_start_matches('.')).ok().map(|memory| memory.units() / 1_000_000)
        }
        (None, None) => return Err(format!("has no label {}", node_label::GPU_MEMORY)),
        (Some(_), Some(_)) => return Err("has labels of two vendors for the memory of its GPUs".to_owned()),
    };
    memory.filter(|memory| *memory > 0).ok_or_else(|| "the label for the memory of its GPUs is no number".to_owned())
}

fn condition_is(pod: &Value, kind: &str, status: &str) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == kind && condition["status"] == status)
}

/// What the status of the group should say.
pub fn resources<'p>(
    group: &PodGroup,
    pods: impl IntoIterator<Item = &'p PodUsage>,
    classes: &BTreeMap<String, PriorityClass>,
) -> PodGroupResources {
    let (mut requested, mut allocated) = (ResourceSum::default(), ResourceSum::default());
    for pod in pods {
        requested.add(&pod.requested);
        allocated.add(&pod.allocated);
    }
    let allocated = allocated.to_list();
    // KAI keeps the old amount when a group becomes preemptible, which is wrong from then on.
    let non_preemptible = if is_preemptible(group, classes) { BTreeMap::new() } else { allocated.clone() };
    PodGroupResources { requested: requested.to_list(), allocated, allocated_non_preemptible: non_preemptible }
}

/// Whether others may evict the group: as it says, else by its priority.
pub fn is_preemptible(group: &PodGroup, classes: &BTreeMap<String, PriorityClass>) -> bool {
    let named = group.priority_class.as_ref().and_then(|name| classes.get(name));
    group.is_preemptible(named.map_or_else(|| PriorityClass::global_default_value(classes), |class| class.value))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(pod: &Value, want: &Expect) {
        let labels = |memory: &str| BTreeMap::from([(node_label::GPU_MEMORY.to_owned(), memory.to_owned())]);
        let claim = |requests: Value| {
            let spec = json!({"devices": {"requests": requests}});
            ClaimedGpus::read(&json!({"metadata": {"name": "claim"}, "spec": spec})).unwrap()
        };
        let inputs = PodUsageInputs {
            labels: [("n1", "16000"), ("bytes", "16777216000")]
                .map(|(node, memory)| (node.to_owned(), labels(memory)))
                .into(),
            claims: BTreeMap::from([
                (Key::new("lab", "none"), claim(json!([{"exactly": {"deviceClassName": "nic.example.com"}}]))),
                (
                    Key::new("lab", "some"),
                    claim(json!([
                        {"firstAvailable": [{"deviceClassName": "gpu.example.com", "count": 9}]},
                        {"exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}},
                        {"exactly": {"deviceClassName": "other-GPU", "allocationMode": "All"}},
                    ])),
                ),
            ]),
        };
        let found = PodUsage::read(pod, &inputs);
        let list = |sum: &ResourceSum| {
            let texts = sum.to_list().into_iter().map(|(name, amount)| format!("{name}={}", amount.0));
            texts.collect::<Vec<_>>().join(" ")
        };
        let text = match found {
            Ok(Some(found)) => {
                format!("{} asks [{}] holds [{}]", found.group, list(&found.requested), list(&found.allocated))
            }
            Ok(None) => "no group".to_owned(),
            Err(problem) => problem,
        };
        want.assert_eq(&text);
    }

    fn pod(annotations: &Value, phase: &str, node: Option<&str>) -> Value {
        let mut annotations = annotations.clone();
        annotations["pod-group-name"] = json!("g");
        json!({
            "metadata": {"name": "p", "namespace": "lab", "annotations": annotations},
            "spec": {"nodeName": node, "containers": [
                {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
                {"resources": {"requests": {"cpu": 1}, "limits": {"example.com/nic": 8}}},
            ], "initContainers": [{"resources": {"requests": {"cpu": 64}}}]},
            "status": {"phase": phase},
        })
    }

    #[test]
    fn pods_count_as_far_as_they_have_come() {
        check(&json!({"metadata": {"name": "p"}}), &expect!["no group"]);
        check(&pod(&json!({}), "Pending", None), &expect!["lab/g asks [cpu=1500m memory=1Gi] holds []"]);
        check(
            &pod(&json!({}), "Running", Some("n1")),
            &expect!["lab/g asks [cpu=1500m memory=1Gi] holds [cpu=1500m memory=1Gi]"],
        );
        check(&pod(&json!({}), "Succeeded", Some("n1")), &expect!["lab/g asks [] holds []"]);
    }

    #[test]
    fn a_pod_that_runs_holds_what_it_was_bound_with() {
        let inputs = PodUsageInputs::default();
        let bound = |annotations: &Value, earlier: Option<&PodUsage>| {
            let mut pod = pod(annotations, "Running", Some("n1"));
            pod["metadata"]["labels"] = json!({"runai-gpu-group": "g1"});
            PodUsage::read_after(earlier, &pod, &inputs).unwrap().unwrap()
        };
        let first = bound(&json!({"gpu-fraction": "0.9", "received-resource-type": "Fraction"}), None);
        let gpus = |used: &PodUsage| used.allocated.to_list()["nvidia.com/gpu"].0.clone();
        assert_eq!(gpus(&first), "900m");
        for later in [json!({"gpu-fraction": "0.1"}), json!({}), json!({"gpu-fraction": "lots"})] {
            assert_eq!(bound(&later, Some(&first)), first, "{later}");
        }
        let noted =
            json!({"gpu-fraction": "0.1", "kai.scheduler/bound-gpu-share": r#"{"groups":["g1"],"millionths":900000}"#});
        assert_eq!(gpus(&bound(&noted, None)), "900m");
        let mut odd = pod(&json!({}), "Running", Some("n1"));
        odd["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("lots");
        check(&odd, &expect!["lab/g asks [cpu=1500m] holds [cpu=1500m]"]);
    }

    #[test]
    fn gpus_of_claims_count_under_the_first_class_of_gpus() {
        let mut user = pod(&json!({}), "Running", Some("n1"));
        user["spec"]["containers"] = json!([]);
        user["spec"]["resourceClaims"] = json!([
            {"name": "nic", "resourceClaimName": "none"},
            {"name": "gpus", "resourceClaimTemplateName": "template"},
        ]);
        check(&user, &expect!["its claim gpus is not made yet"]);
        user["status"]["resourceClaimStatuses"] = json!([{"name": "gpus", "resourceClaimName": "some"}]);
        check(&user, &expect!["lab/g asks [gpu.nvidia.com=3] holds [gpu.nvidia.com=3]"]);
        user["status"]["resourceClaimStatuses"][0]["resourceClaimName"] = json!("unknown");
        check(&user, &expect!["resource claim lab/unknown is not known"]);
    }

    #[test]
    fn shared_gpus_count_by_fraction_and_memory_by_what_the_node_has() {
        let half =
            json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", "received-resource-type": "Fraction"});
        check(
            &pod(&half, "Running", Some("n1")),
            &expect![
                "lab/g asks [cpu=1500m memory=1Gi nvidia.com/gpu=1] holds [cpu=1500m memory=1Gi nvidia.com/gpu=1]"
            ],
        );
        let memory = json!({"gpu-memory": "4000", "received-resource-type": "Fraction"});
        check(
            &pod(&memory, "Running", Some("n1")),
            &expect![
                "lab/g asks [cpu=1500m memory=1Gi run.ai/gpu.memory=4k] holds [cpu=1500m memory=1Gi nvidia.com/gpu=250m]"
            ],
        );
        check(
            &pod(&memory, "Running", Some("bytes")),
            &expect![
                "lab/g asks [cpu=1500m memory=1Gi run.ai/gpu.memory=4k] holds [cpu=1500m memory=1Gi nvidia.com/gpu=250m]"
            ],
        );
        check(&pod(&memory, "Running", Some("n2")), &expect!["node n2 is not known"]);
    }

    #[test]
    fn only_what_cannot_be_preempted_is_counted_as_such() {
        let group = |spec: Value| PodGroup::parse(&json!({"metadata": {"name": "g"}, "spec": spec})).unwrap();
        let class = |name: &str, value: i32, global_default: bool| {
            (name.to_owned(), PriorityClass { name: name.to_owned(), value, global_default })
        };
        let classes = BTreeMap::from([class("build", 100, false), class("train", 50, false)]);
        assert!(!is_preemptible(&group(json!({"priorityClassName": "build"})), &classes));
        assert!(is_preemptible(
            &group(json!({"priorityClassName": "build", "preemptibility": "preemptible"})),
            &classes
        ));
        assert!(is_preemptible(&group(json!({"priorityClassName": "unknown"})), &classes));
        let with_default = BTreeMap::from([class("all", 200, true)]);
        assert!(!is_preemptible(&group(json!({"priorityClassName": "unknown"})), &with_default));
        let with_two = BTreeMap::from([class("all", 200, true), class("some", 10, true)]);
        assert!(is_preemptible(&group(json!({"priorityClassName": "unknown"})), &with_two));
    }
}
