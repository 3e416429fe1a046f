//! What the binder keeps of objects: the few fields that its steps read.

use std::collections::BTreeMap;

use kai_api::keys::{annotation, received};
use kai_engine::units::Timestamp;
use serde_json::{Value, json};

use super::Settings;
use crate::gpu_config_maps::{self, ConfigMapNames};
use crate::key::{Key, PodKey};
use crate::objects::field_reader::{FieldReader, parse_time};
use crate::objects::pod::gpu_groups;
use crate::objects::{BindPhase, BindRequest, Faults, GpuSharing, Request, Resources, held_share};

/// What matters of a `BindRequest`.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRow {
    /// What the scheduler reads of it, too.
    pub bind_request: BindRequest,
    /// Of the object as it was seen.
    pub version: String,
    pub created: Timestamp,
    pub received: String,
    pub portion: String,
    /// Devices by the pod's own name of the claim.
    pub allocations: Vec<(String, Value)>,
    pub numa_zones: Option<Value>,
    pub deleting: bool,
}

/// What matters of a pod, whether to be bound, sharing a GPU or reserving one.
#[derive(Clone, Debug, PartialEq)]
pub struct PodRow {
    pub key: PodKey,
    pub uid: String,
    /// Of a reservation as it was seen.
    pub version: String,
    pub created: Timestamp,
    pub node: Option<String>,
    pub phase: String,
    pub deleting: bool,
    /// Shared GPUs that its labels name.
    pub groups: Vec<String>,
    /// GPUs of which it wants a part.
    pub devices: u32,
    /// What it asks for, on any node and of each shared GPU.
    pub resources: Resources,
    pub sharing: Option<GpuSharing>,
    /// What it asks for cannot be read: these are the most that it can mean.
    pub request_unclear: bool,
    /// The device that a reservation pod found.
    pub device: Option<String>,
    /// It lacks the condition `PodScheduled=True`.
    pub unscheduled: bool,
    /// What only a pod that is still to be bound needs to keep.
    pub bind_inputs: Option<Box<BindInputs>>,
}

/// What is needed to bind a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct BindInputs {
    pub tolerations: Value,
    /// Where its container reads its devices, or why that is unknown.
    pub gpu_env: Result<GpuEnvSource, String>,
    /// Volume claims by name.
    pub volumes: Vec<String>,
    /// Device claims: the pod's own name, and the name of the object once there is one.
    pub claims: Vec<(String, Option<String>)>,
}

/// Where a container reads its devices.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuEnvSource {
    pub maps: Option<ConfigMapNames>,
    /// Key by key rather than as a whole.
    pub by_key: bool,
}

impl RequestRow {
    pub(super) fn read(request: &Value) -> Result<Self, String> {
        let spec = &request["spec"];
        Ok(Self {
            bind_request: BindRequest::parse(request).map_err(|malformed| malformed.to_string())?,
            version: text(&request["metadata"]["resourceVersion"]).unwrap_or_default(),
            created: time_of(request),
            received: text(&spec["receivedResourceType"]).unwrap_or_else(|| received::REGULAR.to_owned()),
            portion: text(&spec["receivedGPU"]["portion"]).unwrap_or_default(),
            allocations: items(&spec["resourceClaimAllocations"])
                .map(|item| (text(&item["name"]).unwrap_or_default(), item["allocation"].clone()))
                .collect(),
            numa_zones: Some(&spec["predictedNUMAZones"]).filter(|zones| zones.is_array()).cloned(),
            deleting: !request["metadata"]["deletionTimestamp"].is_null(),
        })
    }

    /// Still to be carried out.
    pub fn is_pending(&self) -> bool {
        !self.deleting && self.bind_request.phase != BindPhase::Succeeded && !self.bind_request.given_up()
    }

    pub(super) fn is_fraction(&self) -> bool {
        self.received == received::FRACTION
    }
}

impl PodRow {
    pub(super) fn read(pod: &Value, settings: &Settings) -> Result<Self, String> {
        let key = key_of(pod)?;
        let (metadata, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
        let node = text(&spec["nodeName"]);
        let root = FieldReader::root(pod);
        let mut faults = Faults::collect();
        let place = root.field("metadata").field("annotations");
        let annotations = place.string_map_with(&mut faults).unwrap_or_default();
        let before = faults.count();
        let request = Request::read_with(&root.field("spec"), &place.with_value(&json!(annotations)), &mut faults);
        let mut request = request.unwrap_or_default();
        let mut groups = groups(&metadata["labels"]);
        if node.is_some() {
            (request.sharing, groups) = held_share(&request, groups, &annotations);
        }
        let reservation = key.namespace == settings.reservation_namespace;
        let bind_inputs = node.is_none().then(|| {
            Box::new(BindInputs {
                tolerations: spec["tolerations"].clone(),
                gpu_env: gpu_config_maps::target(pod).map(|target| GpuEnvSource {
                    maps: gpu_config_maps::maps(pod, target),
                    by_key: gpu_config_maps::reads_devices_by_key(pod, target),
                }),
                volumes: volumes(pod, &key),
                claims: claims(pod),
            })
        });
        Ok(Self {
            uid: text(&metadata["uid"]).unwrap_or_default(),
            version: text(&metadata["resourceVersion"]).filter(|_| reservation).unwrap_or_default(),
            created: time_of(pod),
            node,
            phase: text(&status["phase"]).unwrap_or_else(|| "Pending".to_owned()),
            deleting: !metadata["deletionTimestamp"].is_null(),
            groups,
            devices: text(&metadata["annotations"][annotation::GPU_FRACTION_NUM_DEVICES])
                .and_then(|number| number.parse().ok())
                .unwrap_or(1),
            resources: request.resources,
            sharing: request.sharing,
            request_unclear: faults.count() > before,
            device: text(&metadata["annotations"][annotation::RESERVED_GPU]).filter(|_| reservation),
            unscheduled: !items(&status["conditions"])
                .any(|condition| condition["type"] == "PodScheduled" && condition["status"] == "True"),
            bind_inputs,
            key,
        })
    }

    /// What it held earlier it holds until it ends, whatever it says by now.
    pub(super) fn keep_held(&mut self, earlier: &Self) {
        if self.node.is_none() || earlier.uid != self.uid || earlier.request_unclear {
            return;
        }
        if self.request_unclear {
            self.resources = earlier.resources.clone();
            self.request_unclear = false;
        }
        if earlier.node == self.node {
            self.sharing = earlier.sharing;
            if !earlier.groups.is_empty() {
                self.groups.clone_from(&earlier.groups);
            }
        }
    }

    /// Whether it has a node, and stays there.
    pub(super) fn is_placed(&self) -> bool {
        self.node.is_some() && self.is_alive() && !self.deleting
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(self.phase.as_str(), "Pending" | "Running")
    }
}

fn groups(labels: &Value) -> Vec<String> {
    let written = labels.as_object().into_iter().flatten();
    let named =
        written.filter_map(|(key, group)| Some((key.as_str(), group.as_str().filter(|name| !name.is_empty())?)));
    gpu_groups(named).into_iter().map(str::to_owned).collect()
}

fn volumes(pod: &Value, key: &PodKey) -> Vec<String> {
    let named = |volume: &Value| {
        // An ephemeral volume's claim is named after pod and volume.
        let ephemeral = || Some(format!("{}-{}", key.name, text(&volume["name"])?));
        text(&volume["persistentVolumeClaim"]["claimName"])
            .or_else(|| if volume["ephemeral"].is_object() { ephemeral() } else { None })
    };
    items(&pod["spec"]["volumes"]).filter_map(named).collect()
}

fn claims(pod: &Value) -> Vec<(String, Option<String>)> {
    let made: BTreeMap<String, String> = items(&pod["status"]["resourceClaimStatuses"])
        .filter_map(|status| Some((text(&status["name"])?, text(&status["resourceClaimName"])?)))
        .collect();
    items(&pod["spec"]["resourceClaims"])
        .filter_map(|claim| {
            let own = text(&claim["name"])?;
            let object = text(&claim["resourceClaimName"]).or_else(|| made.get(&own).cloned());
            Some((own, object))
        })
        .collect()
}

fn key_of(object: &Value) -> Result<Key, String> {
    let key = Key::of(object);
    if key.name.is_empty() { Err("metadata.name: the object has no name".to_owned()) } else { Ok(key) }
}

fn time_of(object: &Value) -> Timestamp {
    object["metadata"]["creationTimestamp"].as_str().and_then(parse_time).unwrap_or(Timestamp(0))
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
