//! A hostile tenant: malformed objects, good objects edited into malformed ones, annotations and labels changed while
//! pods run, nonsense in queues. All of it in a namespace of its own, so that for all others the same must hold as
//! without it; what a tenant may write is what an API server stores, with admission or past it.

use kai_engine::units::Span;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Review};
use crate::json::object_at;
use crate::manifest::{Id, Kind};

/// Where the tenant works. What holds for others need not hold for its objects.
pub(super) const NAMESPACE: &str = "hostile";
/// Pods that must run whatever the tenant does, on a node and in a queue of their own.
pub(super) const PROBES: &str = "probe";

/// What the tenant does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hostility {
    /// Changes what a pod's annotations say about GPUs, running or not.
    SharingAnnotations,
    /// Makes a pod ask for MIG or MPS by annotation.
    MigAnnotations,
    /// Removes or changes the labels that name a pod's shared GPUs.
    GpuGroupLabels,
    /// Removes or changes the link of a pod to its group.
    GroupLinks,
    /// Creates a pod that asks for amounts that no machine has, or whose sum no integer holds.
    Amounts,
    /// Creates or changes a pod group: cycles, long chains, unknown parents, huge minimums.
    GroupTrees,
    /// Writes times on pod groups that only the scheduler writes, in the future and in no format.
    GroupTimes,
    /// Makes a pod group name another queue: missing, no leaf, of others.
    GroupQueues,
    /// Creates queues: cycles, missing parents, huge and negative quotas.
    Queues,
    /// Creates workloads whose owners and templates carry what only the components write.
    OwnerState,
    /// Deletes config maps that the binder made for its pods.
    ConfigMaps,
}

/// All that the product withstands.
pub(super) const ENABLED: &[Hostility] = &[
    Hostility::SharingAnnotations,
    Hostility::MigAnnotations,
    Hostility::GpuGroupLabels,
    Hostility::GroupLinks,
    Hostility::Amounts,
    Hostility::GroupTrees,
    Hostility::GroupTimes,
    Hostility::GroupQueues,
    Hostility::Queues,
    Hostility::OwnerState,
    Hostility::ConfigMaps,
];

/// What happens when.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// A workload that looks like any other, so that there is something to change.
    Workload(u32),
    /// A workload of another tenant, which must run in the end.
    Probe(u32),
    Hostile(u32, Hostility),
}

const MANY: &[&str] = &["1000000", "9223372036854775807", "9223372036854775808", "18446744073709551615", "1e30"];
const FRACTIONS: &[&str] =
    &["0.000001", "0.1", "0.9", "0.999999", "1", "2", "0", "-1", "NaN", "inf", "1e-400", "0x1", "", "half", "٠.٥"];
const MEMORIES: &[&str] = &["1", "100", "0", "-5", "18446744073709551616", "1Gi", "", "9223372036854775807"];
const DEVICES: &[&str] = &["1", "2", "3", "0", "-1", "4294967297", "9223372036854775807", "two", ""];
const TIMES: &[&str] = &[
    "2999-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "1970-01-01T00:00:00Z",
    "0000-00-00T00:00:00Z",
    "yesterday",
    "",
    "-262143-01-01T00:00:00Z",
];
/// Annotations that only the components write.
const STATE: &[&str] = &[
    "kai.scheduler/last-start-timestamp",
    "kai.scheduler/stale-podgroup-timestamp",
    "kai.scheduler/last-eviction-timestamp",
];

/// The tenant in one run.
pub(super) struct Tenant {
    rng: Pcg32,
    enabled: &'static [Hostility],
}

impl Tenant {
    /// There is one in every fourth run.
    pub(super) fn new(seed: u64) -> Option<Self> {
        let mut rng = Pcg32::new(seed, 14);
        (rng.next_u32().is_multiple_of(4) && !ENABLED.is_empty()).then_some(Self { rng, enabled: ENABLED })
    }

    /// What happens within the window.
    pub(super) fn plan(&mut self, window: Span) -> Vec<(Span, Act)> {
        let mut acts = Vec::new();
        let (workloads, hostile) = (self.between(2, 4), self.between(3, 20));
        for number in 0..workloads {
            acts.push((Span(self.moment(window).0 / 2), Act::Workload(number)));
        }
        for number in 0..hostile {
            let what = self.enabled[self.between(0, self.enabled.len() as u32 - 1) as usize];
            acts.push((self.moment(window), Act::Hostile(number, what)));
        }
        for number in 0..2 {
            acts.push((self.moment(window), Act::Probe(number)));
        }
        acts
    }

    /// What the probes need.
    pub(super) fn prepare(cluster: &mut Cluster) {
        let node = json!({
            "metadata": {"name": PROBES, "labels": {"nvidia.com/gpu.memory": "16000", "kubernetes.io/hostname": PROBES}},
            "spec": {"taints": [{"key": PROBES, "value": "only", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "2", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        cluster.create_for_user(&Id::cluster(Kind::Node, PROBES), node);
        let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let resources = json!({"gpu": open, "cpu": open, "memory": open});
        let above = json!({"spec": {"resources": resources}});
        cluster.create_for_user(&Id::cluster(Kind::Queue, "probes"), above);
        let queue = json!({"spec": {"parentQueue": "probes", "resources": resources}});
        cluster.create_for_user(&Id::cluster(Kind::Queue, PROBES), queue);
    }

    /// Performs it; returns what it counts as, if anything has changed.
    pub(super) fn perform(&mut self, act: Act, cluster: &mut Cluster) -> Option<&'static str> {
        match act {
            Act::Workload(number) => self.workload(number, cluster).then_some("tenant workload"),
            Act::Probe(number) => probe(number, cluster).then_some("probe"),
            Act::Hostile(number, what) => match what {
                Hostility::SharingAnnotations => self.sharing(cluster).then_some("sharing edited"),
                Hostility::MigAnnotations => self.mig(cluster).then_some("MIG or MPS asked for"),
                Hostility::GpuGroupLabels => self.gpu_groups(cluster).then_some("GPU group edited"),
                Hostility::GroupLinks => self.link(cluster).then_some("link edited"),
                Hostility::Amounts => self.amounts(number, cluster).then_some("impossible amounts"),
                Hostility::GroupTrees => self.tree(number, cluster).then_some("hostile tree"),
                Hostility::GroupTimes => self.times(cluster).then_some("group times edited"),
                Hostility::GroupQueues => self.queue(cluster).then_some("group queue edited"),
                Hostility::Queues => self.queues(number, cluster).then_some("hostile queue"),
                Hostility::OwnerState => self.owner_state(number, cluster).then_some("state on owner"),
                Hostility::ConfigMaps => self.config_map(cluster).then_some("config map deleted"),
            },
        }
    }

    /// As the workloads of stories are.
    fn workload(&mut self, number: u32, cluster: &mut Cluster) -> bool {
        let (annotations, resources) = self.asked();
        let pods = self.between(1, 3);
        let mut job = job(&self.leaf(), pods, &annotations, &resources);
        job["metadata"]["annotations"] = json!({"kai.scheduler/batch-min-member": self.between(1, pods).to_string()});
        let class = self.pick(&["train", "train", "build", "inference"]);
        job["metadata"]["labels"]["priorityClassName"] = json!(class);
        cluster.create_for_user(&Id::namespaced(Kind::Job, NAMESPACE, format!("work-{number}")), job)
    }

    /// Annotations and resources of an ordinary pod.
    fn asked(&mut self) -> (Map<String, Value>, Value) {
        let mut annotations = Map::new();
        let cpu = format!("{}m", self.between(1, 10) * 100);
        let mut resources = json!({"requests": {"cpu": cpu}});
        match self.between(0, 3) {
            0 => drop(annotations.insert("gpu-fraction".to_owned(), json!(format!("0.{}", self.between(1, 9))))),
            1 => {
                let mib = (self.between(1, 100) * 100).to_string();
                annotations.insert("gpu-memory".to_owned(), json!(mib));
            }
            _ => resources["limits"] = json!({"nvidia.com/gpu": self.between(1, 3).to_string()}),
        }
        if !annotations.is_empty() && self.one_in(4) {
            annotations.insert("gpu-fraction-num-devices".to_owned(), json!("2"));
        }
        (annotations, resources)
    }

    fn sharing(&mut self, cluster: &mut Cluster) -> bool {
        let (key, values) = match self.between(0, 3) {
            0 | 1 => ("gpu-fraction", FRACTIONS),
            2 => ("gpu-memory", MEMORIES),
            _ => ("gpu-fraction-num-devices", DEVICES),
        };
        let value = if self.one_in(4) { Value::Null } else { json!(self.pick(values)) };
        self.annotate_pod(cluster, key, &value)
    }

    fn mig(&mut self, cluster: &mut Cluster) -> bool {
        let (key, value) = match self.between(0, 4) {
            0 => ("nvidia.com/mig-1g.5gb", json!("0")),
            1 => ("nvidia.com/mig-7g.40gb", json!(self.pick(MANY))),
            2 => ("nvidia.com/mig-", json!("1")),
            3 => ("nvidia.com/mig-3g.20gb", json!(self.pick(&["1", "-1", "", "many"]))),
            _ => ("mps", json!("true")),
        };
        self.annotate_pod(cluster, key, &value)
    }

    fn gpu_groups(&mut self, cluster: &mut Cluster) -> bool {
        let Some(pod) = self.pod(cluster) else { return false };
        let groups =
            cluster.store.of_kind(Kind::Pod).filter_map(|(_, pod)| pod.pointer("/metadata/labels/runai-gpu-group"));
        let groups: Vec<String> = groups.filter_map(Value::as_str).map(str::to_owned).collect();
        let other = match self.between(0, groups.len() as u32) as usize {
            place if place < groups.len() => groups[place].clone(),
            _ => "elsewhere".to_owned(),
        };
        let how = self.between(0, 3);
        self.edit(cluster, &pod, |pod| {
            let Some(labels) = object_at(pod, &["metadata", "labels"]) else { return };
            match how {
                0 => labels.retain(|key, _| !key.starts_with("runai-gpu-group")),
                1 => drop(labels.insert("runai-gpu-group".to_owned(), json!(other))),
                2 => drop(labels.insert(format!("runai-gpu-group/{other}"), json!(other))),
                _ => drop(labels.insert("runai-gpu-group".to_owned(), json!(""))),
            }
        })
    }

    fn link(&mut self, cluster: &mut Cluster) -> bool {
        let value = match self.between(0, 3) {
            0 => Value::Null,
            1 => json!(""),
            2 => json!("no-such-group"),
            _ => self.some(cluster, Kind::PodGroup).map_or(Value::Null, |group| json!(group.name)),
        };
        self.annotate_pod(cluster, "pod-group-name", &value)
    }

    fn amounts(&mut self, number: u32, cluster: &mut Cluster) -> bool {
        let many = self.pick(MANY);
        let (mut resources, mut spec) = (json!({"requests": {"cpu": "100m"}}), json!({}));
        match self.between(0, 6) {
            0 => resources = json!({"limits": {"nvidia.com/gpu": many}}),
            1 => resources = json!({"requests": {"cpu": many, "memory": many}}),
            2 => resources = json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "200Ti"}}),
            3 => resources = json!({"limits": {"nvidia.com/mig-1g.5gb": many, "example.com/nic": many}}),
            4 => spec["initContainers"] = json!([{"name": "first", "resources": {"requests": {"cpu": many}}}]),
            5 => spec["overhead"] = json!({"cpu": many, "nvidia.com/gpu": many}),
            _ => spec["resources"] = json!({"requests": {"cpu": many, "memory": "9Ei"}}),
        }
        // Several containers, whose sum no integer holds.
        let container = |name: u32| json!({"name": format!("main-{name}"), "image": "any", "resources": resources});
        spec["containers"] = (0..self.between(1, 4)).map(container).collect();
        spec["schedulerName"] = json!("kai-scheduler");
        let labels = json!({"kai.scheduler/queue": self.leaf()});
        let pod = json!({"metadata": {"labels": labels}, "spec": spec});
        cluster.create_for_user(&Id::namespaced(Kind::Pod, NAMESPACE, format!("huge-{number}")), pod)
    }

    fn tree(&mut self, number: u32, cluster: &mut Cluster) -> bool {
        let group = |name: String, parent: Option<String>, least: u64| {
            let mut group = json!({"name": name, "minMember": least});
            if let Some(parent) = parent {
                group["parent"] = json!(parent);
            }
            group
        };
        let least = [0, 1, 2, 2_147_483_647][self.between(0, 3) as usize];
        let name = |at: u32| format!("s{at}");
        let length = self.between(1, 120);
        let groups: Vec<Value> = match self.between(0, 4) {
            0 => (0..length).map(|at| group(name(at), at.checked_sub(1).map(name), least)).collect(),
            1 => (0..length).map(|at| group(name(at), Some(name((at + 1) % length)), least)).collect(),
            2 => (0..length).map(|_| group(name(0), None, least)).collect(),
            3 => (0..length).map(|at| group(name(at), Some("missing".to_owned()), least)).collect(),
            _ => vec![group("self".to_owned(), Some("self".to_owned()), least)],
        };
        let huge = self.one_in(3).then_some(2_147_483_647_u64);
        let edit = move |value: &mut Value| {
            let Some(spec) = object_at(value, &["spec"]) else { return };
            spec.insert("subGroups".to_owned(), Value::Array(groups));
            if let Some(huge) = huge {
                spec.insert("minMember".to_owned(), json!(huge));
                spec.insert("minSubGroup".to_owned(), json!(huge));
            }
        };
        if let Some(known) = self.some(cluster, Kind::PodGroup).filter(|_| self.one_in(2)) {
            return self.edit(cluster, &known, edit);
        }
        let mut value = json!({"metadata": {}, "spec": {"queue": self.leaf(), "minMember": 1}});
        edit(&mut value);
        cluster.create_for_user(&Id::namespaced(Kind::PodGroup, NAMESPACE, format!("tree-{number}")), value)
    }

    fn times(&mut self, cluster: &mut Cluster) -> bool {
        let Some(group) = self.some(cluster, Kind::PodGroup) else { return false };
        let (key, time) = (self.pick(STATE), self.pick(TIMES));
        self.edit(cluster, &group, |group| annotate(group, key, &json!(time)))
    }

    fn queue(&mut self, cluster: &mut Cluster) -> bool {
        let Some(group) = self.some(cluster, Kind::PodGroup) else { return false };
        let queue = self.pick(&["", "missing", "department-0", "probes", "queue-0", "queue-3"]);
        self.edit(cluster, &group, |group| {
            if let Some(spec) = object_at(group, &["spec"]) {
                spec.insert("queue".to_owned(), json!(queue));
            }
        })
    }

    fn queues(&mut self, number: u32, cluster: &mut Cluster) -> bool {
        let id = |number: u32| format!("hostile-{number}");
        let parent = match self.between(0, 4) {
            0 => id(number),
            1 => id(number + 1),
            2 => "missing".to_owned(),
            3 => "department-1".to_owned(),
            _ => String::new(),
        };
        let mut amounts = || {
            let numbers: [f64; 7] = [0.0, 1.0, -1.0, -5.0, 0.000_000_1, 1e17, 1e300];
            let mut number = || numbers[self.between(0, 6) as usize];
            let (quota, limit) = (number(), number());
            json!({"quota": quota, "limit": limit, "overQuotaWeight": number().abs()})
        };
        let resources = json!({"gpu": amounts(), "cpu": amounts(), "memory": amounts()});
        let runtime = self.pick(&["1s", "-1h", "9999999h", ""]);
        let queue = json!({"metadata": {}, "spec": {
            "parentQueue": parent,
            "priority": i32::MAX,
            "resources": resources,
            "reclaimMinRuntime": runtime,
        }});
        cluster.create_for_user(&Id::cluster(Kind::Queue, id(number)), queue)
    }

    fn owner_state(&mut self, number: u32, cluster: &mut Cluster) -> bool {
        let (mut annotations, resources) = self.asked();
        let state = || STATE.iter().map(|key| ((*key).to_owned(), json!(TIMES[0])));
        let mut labels = json!({});
        match self.between(0, 4) {
            0 => annotations.extend(state()),
            1 => labels = json!({"runai-gpu-group": "elsewhere"}),
            2 => {
                drop(annotations.insert("received-resource-type".to_owned(), json!(self.pick(&["Fraction", "x", ""]))));
            }
            3 => {
                let zones = self.pick(&["[", "[{\"zone\":\"node-0\",\"amount\":{\"cpu\":\"9e99\"}}]", "{}"]);
                annotations.insert("kai.scheduler/numa-placement-predicted".to_owned(), json!(zones));
            }
            _ => drop(annotations.insert("run.ai/reserve_for_gpu_index".to_owned(), json!("GPU-0"))),
        }
        let mut job = job(&self.leaf(), 1, &annotations, &resources);
        job["spec"]["template"]["metadata"]["labels"] = labels;
        job["metadata"]["annotations"] = Value::Object(state().collect());
        cluster.create_for_user(&Id::namespaced(Kind::Job, NAMESPACE, format!("state-{number}")), job)
    }

    fn config_map(&mut self, cluster: &mut Cluster) -> bool {
        let Some(map) = self.some(cluster, Kind::ConfigMap) else { return false };
        cluster.delete_for_user(&map);
        true
    }

    fn annotate_pod(&mut self, cluster: &mut Cluster, key: &str, value: &Value) -> bool {
        let Some(pod) = self.pod(cluster) else { return false };
        self.edit(cluster, &pod, |pod| annotate(pod, key, value))
    }

    /// A pod of the tenant.
    fn pod(&mut self, cluster: &Cluster) -> Option<Id> {
        self.some(cluster, Kind::Pod)
    }

    /// An object of the tenant.
    fn some(&mut self, cluster: &Cluster, kind: Kind) -> Option<Id> {
        let own: Vec<&Id> =
            cluster.store.of_kind(kind).map(|(id, _)| id).filter(|id| id.namespace == NAMESPACE).collect();
        let last = (own.len() as u32).checked_sub(1)?;
        Some(own[self.between(0, last) as usize].clone())
    }

    fn edit(&mut self, cluster: &mut Cluster, id: &Id, edit: impl FnOnce(&mut Value)) -> bool {
        let review = if self.one_in(2) { Review::Asked } else { Review::Skipped };
        cluster.edit_for_user(id, review, edit)
    }

    /// A queue of the stories.
    fn leaf(&mut self) -> String {
        format!("queue-{}", self.between(0, 3))
    }

    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.between(0, choices.len() as u32 - 1) as usize]
    }

    fn moment(&mut self, window: Span) -> Span {
        Span(i64::from(self.rng.next_u32()) % window.0.max(1))
    }

    fn one_in(&mut self, chances: u32) -> bool {
        self.between(1, chances) == 1
    }

    fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.rng.next_u32() % (high - low + 1)
    }
}

fn annotate(object: &mut Value, key: &str, value: &Value) {
    let Some(annotations) = object_at(object, &["metadata", "annotations"]) else { return };
    if value.is_null() {
        annotations.remove(key);
    } else {
        annotations.insert(key.to_owned(), value.clone());
    }
}

fn job(queue: &str, pods: u32, annotations: &Map<String, Value>, resources: &Value) -> Value {
    json!({
        "metadata": {"labels": {"kai.scheduler/queue": queue}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "schedulerName": "kai-scheduler",
                    "containers": [{"name": "main", "image": "any", "resources": resources}],
                },
            },
        },
    })
}

/// The first wants a whole GPU, the second half of the other.
fn probe(number: u32, cluster: &mut Cluster) -> bool {
    let (mut annotations, mut resources) = (Map::new(), json!({"requests": {"cpu": "100m"}}));
    if number == 0 {
        resources["limits"] = json!({"nvidia.com/gpu": "1"});
    } else {
        annotations.insert("gpu-fraction".to_owned(), json!("0.5"));
    }
    let mut job = job(PROBES, 1, &annotations, &resources);
    let spec = &mut job["spec"]["template"]["spec"];
    spec["tolerations"] = json!([{"key": PROBES, "operator": "Exists"}]);
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": PROBES});
    cluster.create_for_user(&Id::namespaced(Kind::Job, PROBES, format!("probe-{number}")), job)
}
