//! Pods of our scheduler: GPU sharing is checked and wired to the config maps that the binder will fill.

use kai_api::keys::origins::{is_state_annotation, is_state_label};
use kai_api::keys::{annotation, name, resource};
use serde_json::{Map, Value, json};

use super::AdmissionResult;
use crate::gpu_config_maps::{self, NUM_OF_GPUS, PORTION, VISIBLE_DEVICES};
use crate::objects::Malformed;
use crate::objects::field_reader::FieldReader;
use crate::objects::request::has_gpu_limit;
use crate::quantity::Quantity;

/// Which rules apply to pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRules {
    /// Pods of other schedulers are left alone.
    pub scheduler: String,
    /// Whether GPUs may be shared at all.
    pub gpu_sharing: bool,
    /// Whether memory limits are passed to HAMi-core.
    pub hami_core: bool,
    /// Whether containers without a GPU must not see one.
    pub block_visible_devices: bool,
    /// Runtime class of pods that share a GPU; none to leave it.
    pub runtime_class: Option<String>,
}

impl Default for PodRules {
    fn default() -> Self {
        Self {
            scheduler: name::SCHEDULER.to_owned(),
            gpu_sharing: false,
            hami_core: false,
            block_visible_devices: false,
            runtime_class: Some("nvidia".to_owned()),
        }
    }
}

/// The pod as it should be stored. `namespace` is the request's; `suffix` makes names unique (seven characters).
pub fn mutate_pod(pod: &Value, namespace: &str, suffix: &str, rules: &PodRules) -> Result<Value, AdmissionResult> {
    if scheduler_of(pod) != rules.scheduler {
        return Ok(pod.clone());
    }
    if let Some(own) = pod["metadata"]["namespace"].as_str().filter(|own| !own.is_empty() && *own != namespace) {
        return Err(AdmissionResult::deny(format!(
            "error: the namespace from the provided object {own} does not match the namespace {namespace}"
        )));
    }
    if sharing(pod, namespace, rules).is_err() {
        // It will be refused. With a runtime class from here, others might refuse it first, for a reason not its own.
        return Ok(pod.clone());
    }
    let mut pod = pod.clone();
    remove_state(&mut pod);
    let target = if shares_gpu(&pod) && !list(&pod, "containers").is_empty() {
        Some(gpu_config_maps::target(&pod).map_err(|problem| {
            AdmissionResult::deny(format!(
                "failed to get fraction container ref: {problem}; set the annotation {} to the name of a container",
                annotation::GPU_FRACTION_CONTAINER_NAME
            ))
        })?)
    } else {
        None
    };
    if let Some(target) = target {
        inject_gpu_env(&mut pod, target, suffix, rules.hami_core);
    }
    if rules.block_visible_devices {
        hide_gpus(&mut pod, target);
    }
    if let Some(class) = rules.runtime_class.as_ref().filter(|_| shares_gpu(&pod))
        && pod["spec"]["runtimeClassName"].as_str().is_none_or(str::is_empty)
    {
        pod["spec"]["runtimeClassName"] = json!(class);
    }
    Ok(pod)
}

/// Whether the pod may enter; asked when it is created and when it changes.
pub fn validate_pod(pod: &Value, namespace: &str, rules: &PodRules) -> AdmissionResult {
    if scheduler_of(pod) != rules.scheduler {
        return AdmissionResult::allow();
    }
    match sharing(pod, namespace, rules) {
        Err(Denial::Malformed(malformed)) => return malformed.into(),
        Err(Denial::Rule(why, hint)) => return AdmissionResult::deny(format!("{why}; {hint}")),
        Ok(()) => {}
    }
    if rules.block_visible_devices
        && let Some(why) = forbidden_visible_devices(pod)
    {
        return AdmissionResult::deny(why);
    }
    AdmissionResult::allow()
}

/// Takes state of components off a pod that has no node yet: it is a copy of one that ran, and holds nothing.
fn remove_state(pod: &mut Value) {
    if pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
        return;
    }
    let keys =
        [("/metadata/labels", is_state_label as fn(&str) -> bool), ("/metadata/annotations", is_state_annotation)];
    for (field, is_state) in keys {
        if let Some(map) = pod.pointer_mut(field).and_then(Value::as_object_mut) {
            map.retain(|key, _| !is_state(key));
        }
    }
}

enum Denial {
    Malformed(Malformed),
    Rule(String, &'static str),
}

impl From<Malformed> for Denial {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// The first rule about shared GPUs that the pod breaks.
fn sharing(pod: &Value, namespace: &str, rules: &PodRules) -> Result<(), Denial> {
    let root = FieldReader::root(pod);
    let annotations = root.field("metadata").field("annotations");
    let fraction = annotations.field(annotation::GPU_FRACTION).text()?;
    let memory = annotations.field(annotation::GPU_MEMORY).text()?;
    let devices = annotations.field(annotation::GPU_FRACTION_NUM_DEVICES).text()?;
    let shares = fraction.is_some() || memory.is_some();
    let limit = has_gpu_limit(&root.field("spec"))?;
    let rule = |why: &str, hint: &'static str| Err(Denial::Rule(why.to_owned(), hint));
    if shares && !rules.gpu_sharing {
        let own = root.field("metadata").field("name").text_or_empty()?;
        return Err(Denial::Rule(
            format!(
                "attempting to create a pod {namespace}/{own} with gpu sharing request, while GPU sharing is disabled"
            ),
            "ask the cluster administrator to set global.gpuSharing, or request a whole nvidia.com/gpu",
        ));
    }
    if !shares && annotations.field(annotation::MPS).text()? == Some("true") {
        return rule(
            "MPS is only supported with GPU fraction request",
            "add the annotation gpu-fraction, or remove mps",
        );
    }
    if fraction.is_some() && limit {
        return rule(
            "cannot have both GPU fraction request and whole GPU resource request/limit",
            "remove nvidia.com/gpu from the containers, or the annotation gpu-fraction",
        );
    }
    if memory.is_some() && (fraction.is_some() || limit) {
        return rule(
            "cannot request both GPU and GPU memory",
            "keep one of the annotations gpu-fraction and gpu-memory and the resource nvidia.com/gpu",
        );
    }
    if devices.is_some() && !shares {
        return rule(
            "cannot request multiple fractional devices without specifying fraction portion or gpu-memory",
            "add the annotation gpu-fraction or gpu-memory",
        );
    }
    if memory.is_some_and(|text| !positive(text)) {
        return rule(
            "gpu-memory annotation value must be a positive integer greater than 0",
            "write whole MiB, such as \"2000\"",
        );
    }
    if let Some(text) = fraction {
        // A text such as NaN or inf is a float to some, but never a quantity.
        if !text.parse::<f64>().is_ok_and(|portion| portion > 0.0 && portion < 1.0) {
            return rule(
                "gpu-fraction annotation value must be a positive number smaller than 1.0",
                "write a part of one GPU such as \"0.5\", or request whole GPUs as nvidia.com/gpu",
            );
        }
        if Quantity::parse(text).is_err() {
            return Err(Denial::Rule(
                format!(
                    "gpu-fraction annotation value must be a float written with a decimal point or a scientific \
                     notation .given value: {text}"
                ),
                "write a part of one GPU such as \"0.5\"",
            ));
        }
    }
    if devices.is_some_and(|text| !positive(text)) {
        return rule(
            "fraction count annotation value must be a positive integer greater than 0",
            "write the number of GPUs to share, such as \"2\"",
        );
    }
    Ok(())
}

/// An unsigned whole number above zero, without sign or space.
fn positive(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_ok_and(|number| number > 0)
}

/// Lets the container read its GPUs from config maps that the binder makes.
fn inject_gpu_env(pod: &mut Value, target: gpu_config_maps::GpuContainer, suffix: &str, hami_core: bool) {
    if gpu_config_maps::prefix(pod).is_none() {
        let base = pod["metadata"]["ownerReferences"][0]["name"].as_str().or_else(|| pod["metadata"]["name"].as_str());
        let prefix = gpu_config_maps::new_prefix(base.unwrap_or_default(), target, suffix);
        object(&mut pod["metadata"], "annotations").insert(annotation::SHARED_GPU_CONFIG_MAP.to_owned(), json!(prefix));
    }
    let maps = gpu_config_maps::maps(pod, target).expect("the prefix was just written");
    let container = &mut pod["spec"][target.list()][target.index];
    for key in [VISIBLE_DEVICES, NUM_OF_GPUS, PORTION] {
        set_env(container, key, json!({"valueFrom": {"configMapKeyRef": {"name": maps.capabilities, "key": key}}}));
    }
    if hami_core {
        let key = gpu_config_maps::MEMORY_LIMIT;
        let source = json!({"name": maps.capabilities, "key": key, "optional": true});
        set_env(container, key, json!({"valueFrom": {"configMapKeyRef": source}}));
    }
    let sources = array(container, "envFrom");
    if !sources.iter().any(|source| source["configMapRef"]["name"] == json!(maps.env)) {
        sources.push(json!({"configMapRef": {"name": maps.env, "optional": false}}));
    }
    let volume = json!({"name": maps.volume(), "configMap": {"name": maps.capabilities}});
    let volumes = array(&mut pod["spec"], "volumes");
    match volumes.iter_mut().find(|known| known["name"] == volume["name"]) {
        Some(known) => *known = volume,
        None => volumes.push(volume),
    }
}

/// Containers that ask for no GPU see none.
fn hide_gpus(pod: &mut Value, target: Option<gpu_config_maps::GpuContainer>) {
    for list in gpu_config_maps::LISTS {
        for index in 0..pod["spec"][list].as_array().map_or(0, Vec::len) {
            if target.is_some_and(|target| target.list() == list && target.index == index) {
                continue;
            }
            let container = &mut pod["spec"][list][index];
            if requests_gpu(container) {
                continue;
            }
            let variables = array(container, "env");
            match variables.iter_mut().find(|variable| variable["name"] == json!(VISIBLE_DEVICES)) {
                Some(variable) => *variable = json!({"name": VISIBLE_DEVICES, "value": "void"}),
                None => variables.push(json!({"name": VISIBLE_DEVICES, "value": "void"})),
            }
        }
    }
}

/// A container that claims devices behind the scheduler's back.
fn forbidden_visible_devices(pod: &Value) -> Option<String> {
    let target = shares_gpu(pod).then(|| gpu_config_maps::target(pod).ok()).flatten();
    for list in gpu_config_maps::LISTS {
        for (index, container) in pod["spec"][list].as_array().into_iter().flatten().enumerate() {
            if target.is_some_and(|target| target.list() == list && target.index == index) {
                continue;
            }
            let own = container["name"].as_str().unwrap_or_default();
            for variable in container["env"].as_array().into_iter().flatten() {
                if variable["name"] != json!(VISIBLE_DEVICES) {
                    continue;
                }
                if !variable["valueFrom"].is_null() {
                    return Some(format!(
                        "container {own} has an environment variable {VISIBLE_DEVICES} defined with a valueFrom \
                         reference. This is forbidden due to possible conflicts with Nvidia's device plugin"
                    ));
                }
                let value = variable["value"].as_str().unwrap_or_default();
                if !matches!(value, "" | "void" | "none") {
                    return Some(format!(
                        "container {own} has an environment variable {VISIBLE_DEVICES} defined with a value of \
                         {value}. This is forbidden due to conflicts with Nvidia's device plugin. The only values \
                         that are allowed are 'void' or 'none'"
                    ));
                }
            }
        }
    }
    None
}

fn scheduler_of(pod: &Value) -> &str {
    pod["spec"]["schedulerName"].as_str().unwrap_or_default()
}

/// Whether the pod, or a pod of the template, asks for parts of GPUs.
pub fn shares_gpu(pod: &Value) -> bool {
    let annotations = &pod["metadata"]["annotations"];
    !annotations[annotation::GPU_FRACTION].is_null() || !annotations[annotation::GPU_MEMORY].is_null()
}

fn requests_gpu(container: &Value) -> bool {
    let resources = &container["resources"];
    ["limits", "requests"].iter().filter_map(|which| resources[which].as_object()).flatten().any(|(name, amount)| {
        let gpu = name == resource::NVIDIA_GPU || name.starts_with(resource::MIG_PREFIX);
        let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
        gpu && Quantity::parse(&text).is_ok_and(|quantity| quantity.units() != 0)
    })
}

fn list<'a>(pod: &'a Value, name: &str) -> &'a [Value] {
    pod["spec"][name].as_array().map_or(&[], Vec::as_slice)
}

/// Replaces a variable, or adds it at the end.
fn set_env(container: &mut Value, name: &str, mut variable: Value) {
    variable["name"] = json!(name);
    let variables = array(container, "env");
    variables.retain(|known| known["name"] != json!(name));
    variables.push(variable);
}

fn array<'a>(parent: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    if !parent[key].is_array() {
        parent[key] = json!([]);
    }
    parent[key].as_array_mut().expect("just made")
}

fn object<'a>(parent: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !parent[key].is_object() {
        parent[key] = json!({});
    }
    parent[key].as_object_mut().expect("just made")
}
