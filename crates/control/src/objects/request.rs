//! What a pod asks for: the Kubernetes sum over its containers, then what its annotations say about GPUs.

use kai_api::keys::resource;

use super::field_reader::FieldReader;
use super::gpu_sharing::{GpuSharing, legacy_mig};
use super::resources::Resources;
use super::{Faults, Malformed};

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Whole GPUs are counted here; MIG profiles are scalars. `pods` is always 1.
    pub resources: Resources,
    pub sharing: Option<GpuSharing>,
    /// Asks for MIG by annotation, which can no longer be served.
    pub legacy_mig: bool,
    /// Every container asks for CPU and memory and may have no more than that.
    pub guaranteed: bool,
    /// Requests of containers in the order in which they start, with whether each runs beside those that follow.
    /// Empty if one container's request is all that the pod asks for.
    pub containers: Vec<(Resources, bool)>,
}

impl Request {
    /// Reads `spec` and the annotations of a pod.
    pub(crate) fn read_with(
        spec: &FieldReader<'_>,
        annotations: &FieldReader<'_>,
        faults: &mut Faults,
    ) -> Result<Self, Malformed> {
        let containers = each_container(spec, faults)?;
        let mut resources = together(&containers);
        let pod_level = pod_level(spec, &resources, faults)?;
        // Kubernetes refuses less for the pod as a whole than its containers ask for.
        if let Some(amount) = pod_level.cpu {
            resources.cpu_milli = amount.max(resources.cpu_milli);
        }
        if let Some(amount) = pod_level.memory {
            resources.memory_bytes = amount.max(resources.memory_bytes);
        }
        for (name, amount) in pod_level.huge_pages {
            let own = resources.scalars.entry(name).or_default();
            *own = amount.max(*own);
        }
        let mut overhead = Resources::read_with(&spec.field("overhead"), faults)?;
        overhead.gpus = 0;
        resources.add(&overhead);
        resources.pods = 1;

        let whole_gpus = resources.gpus > 0 || faults.value_or(has_gpu_limit(spec), false)?;
        let sharing = faults.value_or_else(GpuSharing::read(annotations, whole_gpus), |faults| {
            GpuSharing::at_most(annotations, whole_gpus, faults)
        })?;
        let legacy = legacy_mig(annotations, faults)?;
        let legacy_mig = !legacy.is_empty();
        // The annotation adds to what containers ask for, and never takes away from it: it can be changed at any time.
        for (name, count) in legacy {
            let own = resources.scalars.entry(name).or_default();
            *own = (*own).max(count);
        }
        if let Some(name) = resources.cap() {
            let problem = format!("all containers together ask for more {name} than any machine has");
            faults.note(spec.field("containers").invalid(problem, "ask for less"))?;
        }
        let plain = containers.len() == 1 && containers[0].0.cpu_milli == resources.cpu_milli;
        Ok(Self {
            resources,
            sharing,
            legacy_mig,
            guaranteed: faults.value_or(guaranteed(spec), false)?,
            containers: if plain { Vec::new() } else { containers },
        })
    }

    /// Cuts what could not be read to what a node has.
    pub(crate) fn lower_to(&mut self, node: &Resources) {
        self.resources.lower_to(node);
        self.containers.iter_mut().for_each(|(own, _)| own.lower_to(node));
        if let Some(sharing) = &mut self.sharing {
            let most = u32::try_from(node.gpus).unwrap_or(0).max(1);
            *sharing = sharing.on_devices(sharing.devices().min(most));
        }
    }

    pub fn is_mig(&self) -> bool {
        self.legacy_mig || self.resources.migs().next().is_some()
    }

    pub fn needs_gpu(&self) -> bool {
        self.resources.gpus > 0 || self.sharing.is_some() || self.is_mig()
    }
}

/// Requests of init containers, then of the others, with whether each runs on beside those that follow.
fn each_container(spec: &FieldReader<'_>, faults: &mut Faults) -> Result<Vec<(Resources, bool)>, Malformed> {
    let mut containers = Vec::new();
    for place in faults.value_or(spec.field("initContainers").items(), Vec::new())? {
        let policy = faults.value_or(place.field("restartPolicy").text(), None)?;
        containers.push((container(&place.field("resources"), faults)?, policy == Some("Always")));
    }
    for place in faults.value_or(spec.field("containers").items(), Vec::new())? {
        containers.push((container(&place.field("resources"), faults)?, true));
    }
    Ok(containers)
}

/// The larger of what runs together and what an init container needs, name by name.
fn together(containers: &[(Resources, bool)]) -> Resources {
    let mut steady = Resources::default();
    let mut starting = Resources::default();
    for (own, stays) in containers {
        if *stays {
            steady.add(own);
        } else {
            let mut beside = own.clone();
            beside.add(&steady);
            starting.raise_to(&beside);
        }
    }
    steady.raise_to(&starting);
    steady
}

/// Whether Kubernetes would call the pod guaranteed: CPU and memory are limited everywhere, to what is requested.
fn guaranteed(spec: &FieldReader<'_>) -> Result<bool, Malformed> {
    let limited = |resources: &FieldReader<'_>| -> Result<bool, Malformed> {
        let limits = Resources::read(&resources.field("limits"))?;
        let requests = container(resources, &mut Faults::Refuse)?;
        Ok(limits.cpu_milli > 0
            && limits.memory_bytes > 0
            && (limits.cpu_milli, limits.memory_bytes) == (requests.cpu_milli, requests.memory_bytes))
    };
    if spec.field("resources").exists() {
        return limited(&spec.field("resources"));
    }
    let mut all = spec.field("containers").items()?;
    all.extend(spec.field("initContainers").items()?);
    for place in &all {
        if !limited(&place.field("resources"))? {
            return Ok(false);
        }
    }
    Ok(!all.is_empty())
}

/// Requests of one container; a limit without a request is one too, as the API server would fill in.
fn container(resources: &FieldReader<'_>, faults: &mut Faults) -> Result<Resources, Malformed> {
    let mut requests = Resources::read_with(&resources.field("requests"), faults)?;
    let limits = Resources::read_with(&resources.field("limits"), faults)?;
    let asked = |name: &str| resources.field("requests").field(name).exists();
    if !asked("cpu") {
        requests.cpu_milli = limits.cpu_milli;
    }
    if !asked("memory") {
        requests.memory_bytes = limits.memory_bytes;
    }
    if !asked(resource::NVIDIA_GPU) && !asked(resource::AMD_GPU) {
        requests.gpus = limits.gpus;
    }
    for (name, amount) in limits.scalars {
        requests.scalars.entry(name).or_insert(amount);
    }
    Ok(requests)
}

/// Amounts given for the pod as a whole, which take the place of the containers' sum.
#[derive(Default)]
struct PodLevel {
    cpu: Option<i64>,
    memory: Option<i64>,
    huge_pages: Vec<(String, i64)>,
}

fn pod_level(spec: &FieldReader<'_>, containers: &Resources, faults: &mut Faults) -> Result<PodLevel, Malformed> {
    let resources = spec.field("resources");
    let (requests, limits) = (resources.field("requests"), resources.field("limits"));
    let (asked, limited) = (Resources::read_with(&requests, faults)?, Resources::read_with(&limits, faults)?);
    // As the API server has it: a limit stands in for a request only if no container requests anything.
    let pick = |name: &str, asked: i64, limited: i64, summed: i64| {
        if requests.field(name).exists() {
            Some(asked)
        } else {
            (limits.field(name).exists() && summed == 0).then_some(limited)
        }
    };
    let huge = |resources: &Resources, name: &str| resources.scalars.get(name).copied().unwrap_or(0);
    let names = asked.scalars.keys().chain(limited.scalars.keys()).filter(|name| name.starts_with("hugepages-"));
    Ok(PodLevel {
        cpu: pick("cpu", asked.cpu_milli, limited.cpu_milli, containers.cpu_milli),
        memory: pick("memory", asked.memory_bytes, limited.memory_bytes, containers.memory_bytes),
        huge_pages: names
            .filter_map(|name| {
                let amount = pick(name, huge(&asked, name), huge(&limited, name), huge(containers, name))?;
                Some((name.clone(), amount))
            })
            .collect(),
    })
}

/// Whether any container has a limit for whole GPUs.
pub(crate) fn has_gpu_limit(spec: &FieldReader<'_>) -> Result<bool, Malformed> {
    let mut all = spec.field("containers").items()?;
    all.extend(spec.field("initContainers").items()?);
    Ok(all.iter().any(|place| place.field("resources").field("limits").field(resource::NVIDIA_GPU).exists()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(spec: &Value, annotations: &Value) -> Result<Request, Malformed> {
        let pod = json!({"spec": spec, "metadata": {"annotations": annotations}});
        let root = FieldReader::root(&pod);
        let annotations = root.field("metadata").field("annotations");
        Request::read_with(&root.field("spec"), &annotations, &mut Faults::Refuse)
    }

    fn resources(spec: &Value) -> Resources {
        request(spec, &json!({})).unwrap().resources
    }

    fn cpu(amount: &str) -> Value {
        json!({"requests": {"cpu": amount}})
    }

    #[test]
    fn sidecars_count_beside_what_follows_them() {
        let spec = json!({
            "containers": [{"resources": cpu("1")}, {"resources": cpu("1")}],
            "initContainers": [
                {"restartPolicy": "Always", "resources": cpu("0.5")},
                {"resources": cpu("2")},
                {"restartPolicy": "Always", "resources": cpu("1")},
            ],
        });
        assert_eq!(resources(&spec).cpu_milli, 3_500);
    }

    #[test]
    fn a_large_init_container_decides() {
        let spec = json!({
            "containers": [{"resources": {"requests": {"cpu": 1, "memory": "1Gi", "nvidia.com/gpu": 2}}}],
            "initContainers": [{"resources": {"requests": {"cpu": 4, "nvidia.com/gpu": 1}}}],
        });
        let resources = resources(&spec);
        assert_eq!((resources.cpu_milli, resources.memory_bytes, resources.gpus), (4_000, 1 << 30, 2));
    }

    #[test]
    fn a_limit_alone_is_a_request() {
        let spec = json!({"containers": [
            {"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": 2, "example.com/nic": 1}, "requests": {"cpu": 1}}},
        ]});
        let resources = resources(&spec);
        assert_eq!((resources.cpu_milli, resources.gpus), (1_000, 1));
        assert_eq!(resources.scalars["example.com/nic"], 1_000);
    }

    #[test]
    fn pod_level_amounts_replace_the_sum_and_overhead_is_added() {
        let spec = json!({
            "resources": {"requests": {"cpu": 8}, "limits": {"cpu": 8, "memory": "2Gi"}},
            "containers": [{"resources": cpu("1")}],
            "overhead": {"cpu": "250m", "nvidia.com/gpu": 1},
        });
        let resources = resources(&spec);
        assert_eq!((resources.cpu_milli, resources.memory_bytes), (8_250, 2 << 30));
        assert_eq!((resources.gpus, resources.pods), (0, 1));
    }

    #[test]
    fn the_place_of_a_mistake_is_named() {
        let spec = json!({"containers": [{"resources": cpu("lots")}]});
        let wrong = request(&spec, &json!({})).unwrap_err();
        assert_eq!(wrong.field, "spec.containers[0].resources.requests.cpu");
    }

    #[test]
    fn mig_by_annotation_takes_nothing_away_from_containers() {
        let spec = json!({"containers": [{"resources": {"requests": {
            "nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 3, "nvidia.com/mig-2g.10gb": 1}}}]});
        for (count, expected) in [("0", 3), ("2", 3), ("4", 4)] {
            let request = request(&spec, &json!({"nvidia.com/mig-1g.5gb": count})).unwrap();
            assert!(request.legacy_mig && request.is_mig());
            let migs: Vec<_> = request.resources.migs().collect();
            assert_eq!(migs, [("nvidia.com/mig-1g.5gb", expected), ("nvidia.com/mig-2g.10gb", 1)], "{count}");
            assert_eq!(request.resources.gpus, 1, "{count}");
        }
        let shared = json!({"gpu-fraction": "0.5", "nvidia.com/mig-1g.5gb": "0"});
        assert!(request(&json!({}), &shared).unwrap().sharing.is_some());
    }

    #[test]
    fn counts_of_mig_instances_are_bounded() {
        for count in ["18446744073708", "288230376151711738", "9223372036855"] {
            let annotations = json!({"nvidia.com/mig-1g.5gb": count});
            let wrong = request(&json!({}), &annotations).unwrap_err();
            assert_eq!(wrong.problem, format!("`{count}` is more than any node has"));
        }
    }

    #[test]
    fn so_many_containers_are_refused_rather_than_wrapped_around() {
        let container = json!({"resources": {"requests": {"memory": "50T", "example.com/nic": "1T"}}});
        let spec = json!({"containers": vec![container; 10_000]});
        let wrong = request(&spec, &json!({})).unwrap_err();
        assert_eq!(wrong.problem, "all containers together ask for more memory than any machine has");
    }
}
