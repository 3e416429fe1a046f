//! How a container learns which shared GPUs are its own: names of the config maps that stand between admission, which
//! makes the container read them, and the binder, which fills them.

use std::collections::BTreeMap;

use kai_api::keys::annotation;
use serde_json::Value;

use crate::key::Key;

/// Devices that the container runtime shows to a container.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// The same under the key that older versions wrote.
pub const VISIBLE_DEVICES_OLD: &str = "RUNAI-VISIBLE-DEVICES";
/// Part of each device.
pub const PORTION: &str = "GPU_PORTION";
/// The same under another name.
pub const NUM_OF_GPUS: &str = "RUNAI_NUM_OF_GPUS";
/// Memory limit that HAMi-core enforces.
pub const MEMORY_LIMIT: &str = "CUDA_DEVICE_MEMORY_LIMIT";

/// The lists of containers in a pod's spec, in the order in which a name is looked for.
pub(crate) const LISTS: [&str; 2] = ["initContainers", "containers"];

/// Length that a volume's name may have.
const LABEL_MAX: usize = 63;

/// The container that gets the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuContainer {
    pub init: bool,
    pub index: usize,
}

impl GpuContainer {
    pub(crate) fn list(self) -> &'static str {
        LISTS[usize::from(!self.init)]
    }

    fn mark(self) -> String {
        format!("{}{}", if self.init { "i" } else { "" }, self.index)
    }
}

/// Names of the two config maps of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapNames {
    /// Read key by key.
    pub capabilities: String,
    /// Read as a whole.
    pub env: String,
}

impl ConfigMapNames {
    /// The volume that makes the kubelet wait for the map: a DNS label, which the map's name need not be.
    pub fn volume(&self) -> String {
        let mut label = String::new();
        for letter in format!("{}-vol", self.capabilities).to_lowercase().chars() {
            match letter {
                'a'..='z' | '0'..='9' => label.push(letter),
                _ if label.ends_with('-') => {}
                _ => label.push('-'),
            }
        }
        label.trim_matches('-').to_owned()
    }
}

/// The container that the pod wants its GPU in: the one it names, else the first ordinary one.
pub fn target(pod: &Value) -> Result<GpuContainer, String> {
    let Some(name) = pod["metadata"]["annotations"][annotation::GPU_FRACTION_CONTAINER_NAME].as_str() else {
        return Ok(GpuContainer { init: false, index: 0 });
    };
    for list in LISTS {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        if let Some(index) = containers.into_iter().position(|container| container["name"].as_str() == Some(name)) {
            return Ok(GpuContainer { init: list == LISTS[0], index });
        }
    }
    Err(format!("container with name {name} not found for fraction request"))
}

/// What the names of the pod's config maps begin with, once admission has chosen it.
pub(crate) fn prefix(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][annotation::SHARED_GPU_CONFIG_MAP].as_str().filter(|prefix| !prefix.is_empty())
}

/// Names of the pod's config maps; `None` before admission.
pub fn maps(pod: &Value, target: GpuContainer) -> Option<ConfigMapNames> {
    let capabilities = format!("{}-{}", prefix(pod)?, target.mark());
    Some(ConfigMapNames { env: format!("{capabilities}-evar"), capabilities })
}

/// A prefix for a pod called or owned by `base`, short enough for the volume's name.
pub(crate) fn new_prefix(base: &str, target: GpuContainer, suffix: &str) -> String {
    const AROUND: usize = "-1234567-shared-gpu".len() + "-".len() + "-vol".len() + "-evar".len();
    let room = LABEL_MAX.saturating_sub(AROUND + target.index.to_string().len());
    let cut: String = base.chars().take(room).collect();
    let cut = cut.trim_end_matches(['.', '-']);
    format!("{cut}-{suffix}-shared-gpu")
}

/// What the two maps hold: `(capabilities, env)`. `direct`: the container reads its devices from the first by key.
pub fn contents(devices: &str, portion: &str, direct: bool, limit: Option<String>) -> [BTreeMap<String, String>; 2] {
    let mut capabilities = BTreeMap::new();
    capabilities.insert(PORTION.to_owned(), portion.to_owned());
    capabilities.insert(NUM_OF_GPUS.to_owned(), portion.to_owned());
    if let Some(limit) = limit {
        capabilities.insert(MEMORY_LIMIT.to_owned(), limit);
    }
    let mut env = BTreeMap::new();
    let holder = if direct { &mut capabilities } else { &mut env };
    holder.insert(VISIBLE_DEVICES.to_owned(), devices.to_owned());
    [capabilities, env]
}

/// Why a stored config map must not be written in the place of `wanted`: it does not belong to the same pod. Pods name their
/// maps themselves, and the binder may write where their authors may not.
pub fn refusal(stored: &Value, wanted: &Value) -> Option<String> {
    let pods = |map: &Value| {
        let owners = map["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.into_iter().filter(|owner| owner["kind"] == "Pod" && owner["apiVersion"] == "v1").collect::<Vec<_>>()
    };
    let own = pods(wanted);
    if pods(stored).iter().any(|pod| own.iter().any(|owner| owner["uid"] == pod["uid"])) {
        return None;
    }
    let pod = own.first().and_then(|owner| owner["name"].as_str()).unwrap_or_default();
    Some(format!(
        "config map {} exists and does not belong to pod {pod}, so that its GPU cannot be written there; create the pod \
         without the annotation {}, or delete the config map",
        Key::of(stored),
        annotation::SHARED_GPU_CONFIG_MAP
    ))
}

/// Whether the container reads its devices from a config map by key, as admission would have it.
pub fn reads_devices_by_key(pod: &Value, target: GpuContainer) -> bool {
    let variables = pod["spec"][target.list()][target.index]["env"].as_array().into_iter().flatten();
    variables
        .into_iter()
        .any(|variable| variable["name"] == VISIBLE_DEVICES && !variable["valueFrom"]["configMapKeyRef"].is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_map_is_written_only_for_the_pod_that_owns_it() {
        let map = |owners: Value| json!({"metadata": {"namespace": "lab", "name": "m-0", "ownerReferences": owners}});
        let pod = |uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "p", "uid": "u"});
        let wanted = map(json!([pod("u")]));
        assert_eq!(refusal(&map(json!([pod("u")])), &wanted), None);
        assert_eq!(refusal(&map(json!([job.clone(), pod("u")])), &wanted), None);
        for others in [json!(null), json!([]), json!([pod("v")]), json!([job])] {
            let why = refusal(&map(others), &wanted).expect("it belongs to others");
            assert!(why.starts_with("config map lab/m-0 exists and does not belong to pod p,"), "{why}");
        }
    }
}
