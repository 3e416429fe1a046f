//! A cluster as Kubernetes objects, with the fields that real ones have, whether or not a scheduler reads them.

use jiff::Timestamp;
use kai_api::keys::{annotation, label, name, node_label, resource};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use serde_json::{Value, json};

use crate::cluster::{
    BUILD, BUILD_PREEMPTIBLE, Cluster, FIRST_JOB_SECONDS, GPUS_PER_NODE, Gpus, Job, Level, NOW_SECONDS, PodRequest,
    QUEUES_SECONDS, TRAIN,
};

const IMAGE: &str = "example.com/pytorch:24.01-py3";
/// The name of the tree of nodes.
pub(crate) const TOPOLOGY: &str = "dc";
const GIB: i64 = 1 << 30;
const MIB: i64 = 1 << 20;
const KIND: &str = "kind";

/// Priority classes, those of every cluster included.
const PRIORITIES: [(&str, i32); 6] = [
    ("train", TRAIN),
    ("build-preemptible", BUILD_PREEMPTIBLE),
    ("build", BUILD),
    ("inference", 125),
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

/// What an identifier is for; different things have different ones.
#[derive(Clone, Copy)]
enum UidKind {
    Node = 1,
    Queue,
    Owner,
    PodGroup,
    Pod,
    PriorityClass,
    Topology,
}

/// Everything in the cluster: pods in random order, then nodes, queues, pod groups, priority classes and topologies.
pub fn objects(cluster: &mut Cluster) -> impl Iterator<Item = Value> {
    let mut pods: Vec<(usize, usize)> = Vec::with_capacity(cluster.pods());
    for (index, job) in cluster.jobs().iter().enumerate() {
        pods.extend((0..job.spec.pods).map(|pod| (index, pod)));
    }
    // An API server lists by name, a scheduler's cache in no order at all.
    cluster.shuffle(&mut pods);
    let cluster = &*cluster;
    let pods = pods.into_iter().map(|(index, number)| pod(cluster, &cluster.jobs()[index], number));
    let groups = cluster.jobs().iter().map(|job| pod_group(cluster, job));
    let (nodes, rest) = (nodes_and_queues(cluster), priorities_and_topology(cluster));
    pods.chain(nodes).chain(groups).chain(rest)
}

/// What is there before any job.
pub(crate) fn base_objects(cluster: &Cluster) -> impl Iterator<Item = Value> {
    nodes_and_queues(cluster).chain(priorities_and_topology(cluster))
}

fn nodes_and_queues(cluster: &Cluster) -> impl Iterator<Item = Value> {
    let departments = (0..cluster.size.departments).map(|index| department(cluster, index));
    let leaves = (0..cluster.size.queues).map(|index| leaf(cluster, index));
    (0..cluster.size.nodes).map(|index| node(cluster, index)).chain(departments).chain(leaves)
}

fn priorities_and_topology(cluster: &Cluster) -> impl Iterator<Item = Value> {
    let priorities = PRIORITIES.iter().map(|(name, value)| priority_class(cluster, name, *value));
    priorities.chain(cluster.has_topology().then(|| topology(cluster)))
}

/// The name of a node.
pub fn node_name(index: usize) -> String {
    format!("node-{index:05}")
}

/// `namespace/name` of a pod.
pub fn pod_name(job: &Job, number: usize) -> String {
    format!("{}/{}-{number}", namespace(job), job_name(job))
}

pub(crate) fn queue_name(index: usize) -> String {
    format!("queue-{index:04}")
}

fn department_name(index: usize) -> String {
    format!("dept-{index:03}")
}

pub(crate) fn namespace(job: &Job) -> String {
    format!("ns-{}", queue_name(job.queue))
}

pub(crate) fn job_name(job: &Job) -> String {
    format!("job-{:06}", job.number)
}

fn pod_group_name(cluster: &Cluster, job: &Job) -> String {
    format!("pg-{}-{}", job_name(job), uid(cluster, UidKind::Owner, job.number))
}

pub(crate) fn priority_name(priority: i32) -> &'static str {
    PRIORITIES.iter().find(|(_, value)| *value == priority).map_or("train", |(name, _)| name)
}

/// An identifier that depends on the seed and on what it is for, not on when it is asked for.
fn uid(cluster: &Cluster, kind: UidKind, index: usize) -> String {
    let mut rng = Pcg64::new(u128::from(cluster.size.seed) << 64 | (kind as u128) << 56 | index as u128, 2);
    let (high, low) = (rng.next_u64(), rng.next_u64());
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0xfff,
        low & 0xffff_ffff_ffff
    )
}

/// Of pods that are equally old the one with the smaller identifier comes first: within a job, let them be in order.
fn pod_uid(cluster: &Cluster, job: &Job, number: usize) -> String {
    let of_job = uid(cluster, UidKind::Pod, job.number);
    format!("{}-{number:012x}", &of_job[..of_job.len() - 13])
}

fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).expect("times of clusters are of this century").to_string()
}

fn metadata(name: &str, uid: &str, created: i64) -> Value {
    json!({"name": name, "uid": uid, "resourceVersion": "1", "creationTimestamp": time(created)})
}

/// Labels of the levels of the cluster's tree.
pub(crate) fn level_label(level: Level) -> &'static str {
    match level {
        Level::Block => "perf/block",
        Level::Rack => "perf/rack",
        Level::Host => node_label::HOSTNAME,
    }
}

fn node(cluster: &Cluster, index: usize) -> Value {
    let name = node_name(index);
    let now = time(NOW_SECONDS);
    let (high, low) = (index / 256 % 256, index % 256);
    let mut capacity = json!({
        "cpu": "224", "memory": "2113467644Ki", "pods": "110", "ephemeral-storage": "30000000000Ki",
        "hugepages-1Gi": "0", "hugepages-2Mi": "0",
    });
    capacity[resource::NVIDIA_GPU] = GPUS_PER_NODE.to_string().into();
    let mut allocatable = capacity.clone();
    allocatable["cpu"] = "220".into();
    allocatable["memory"] = "2050000000Ki".into();
    let condition = |kind: &str| {
        let status = if kind == "Ready" { "True" } else { "False" };
        json!({
            "type": kind, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now,
            "reason": "Kubelet", "message": "ok",
        })
    };
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(condition);
    let image = |month: usize| json!({"names": [format!("example.com/pytorch:24.{month:02}-py3")], "sizeBytes": 9_000_000_000_u64 + month as u64});
    let images = [1, 2, 3, 4, 5].map(image);
    let mut object = json!({
        "apiVersion": "v1", KIND: "Node",
        "metadata": metadata(&name, &uid(cluster, UidKind::Node, index), QUEUES_SECONDS),
        "spec": {"podCIDR": format!("10.{high}.{low}.0/24"), "providerID": format!("perf://{name}")},
        "status": {
            "capacity": capacity,
            "allocatable": allocatable,
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": format!("10.0.{high}.{low}")}, {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "5.15", "osImage": "Ubuntu",
                "containerRuntimeVersion": "containerd://1.7", "kubeletVersion": "v1.33.0",
                "kubeProxyVersion": "v1.33.0", "operatingSystem": "linux", "architecture": "amd64",
            },
            "images": images,
        },
    });
    object["metadata"]["annotations"] = json!({
        "node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    });
    object["metadata"]["labels"] = json!({
        node_label::HOSTNAME: name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "dgx-h100", "topology.kubernetes.io/zone": "zone-a",
        "topology.kubernetes.io/region": "region-1", node_label::GPU_COUNT: GPUS_PER_NODE.to_string(),
        node_label::GPU_MEMORY: "81559", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.present": "true", "nvidia.com/mig.capable": "true", node_label::MIG_STRATEGY: "none",
        "nvidia.com/cuda.driver.major": "550", "nvidia.com/gpu.family": "hopper", "nvidia.com/gpu.deploy.driver": "true",
        level_label(Level::Block): format!("block-{:03}", index / Level::Block.nodes()),
        level_label(Level::Rack): format!("rack-{:04}", index / Level::Rack.nodes()),
    });
    object
}

fn department(cluster: &Cluster, index: usize) -> Value {
    queue(cluster, &department_name(index), None, cluster.size.departments, index)
}

fn leaf(cluster: &Cluster, index: usize) -> Value {
    let parent = department_name(index % cluster.size.departments);
    queue(cluster, &queue_name(index), Some(&parent), cluster.size.queues, cluster.size.departments + index)
}

/// A queue that is guaranteed its even part of the GPUs and may take more, and any amount of the rest.
fn queue(cluster: &Cluster, name: &str, parent: Option<&str>, siblings: usize, index: usize) -> Value {
    let rest = json!({"quota": -1, "overQuotaWeight": 1, "limit": -1});
    let mut object = json!({
        "apiVersion": "scheduling.run.ai/v2", KIND: "Queue",
        "metadata": metadata(name, &uid(cluster, UidKind::Queue, index), QUEUES_SECONDS),
        "spec": {
            "displayName": name,
            "resources": {
                "gpu": {"quota": cluster.quota(siblings), "overQuotaWeight": 1, "limit": -1},
                "cpu": rest, "memory": rest,
            },
        },
        "status": {},
    });
    if let Some(parent) = parent {
        object["spec"]["parentQueue"] = parent.into();
    }
    object
}

fn owner(cluster: &Cluster, job: &Job) -> Value {
    let (version, kind) = if job.spec.pods > 1 { ("kubeflow.org/v1", "PyTorchJob") } else { ("batch/v1", "Job") };
    json!([{
        "apiVersion": version, KIND: kind, "name": job_name(job), "uid": uid(cluster, UidKind::Owner, job.number),
        "controller": true,
    }])
}

fn created(job: &Job) -> i64 {
    FIRST_JOB_SECONDS + job.number as i64
}

fn pod_group(cluster: &Cluster, job: &Job) -> Value {
    let mut metadata =
        metadata(&pod_group_name(cluster, job), &uid(cluster, UidKind::PodGroup, job.number), created(job));
    let queue = queue_name(job.queue);
    let owner_uid = uid(cluster, UidKind::Owner, job.number);
    metadata["namespace"] = namespace(job).into();
    metadata["labels"] = json!({ label::QUEUE: queue });
    metadata["annotations"] =
        json!({ annotation::TOP_OWNER_METADATA: format!("name: {}\nuid: {owner_uid}\n", job_name(job)) });
    if job.spec.nodes.is_some() {
        metadata["annotations"][annotation::LAST_START_TIMESTAMP] = time(created(job) + 30).into();
    }
    metadata["ownerReferences"] = owner(cluster, job);
    let mut spec = json!({
        "minMember": job.spec.min, "queue": queue, "priorityClassName": priority_name(job.spec.priority),
        "markUnschedulable": true,
    });
    if let Some(together) = job.spec.together {
        spec["topologyConstraint"] = json!({
            "topology": TOPOLOGY,
            "requiredTopologyLevel": level_label(together.required),
            "preferredTopologyLevel": level_label(together.preferred),
        });
    }
    json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", KIND: "PodGroup",
        "metadata": metadata, "spec": spec, "status": {"resourcesStatus": {}},
    })
}

fn pod(cluster: &Cluster, job: &Job, number: usize) -> Value {
    let (job_spec, name, queue) = (&job.spec, job_name(job), queue_name(job.queue));
    let mut metadata = metadata(&format!("{name}-{number}"), &pod_uid(cluster, job, number), created(job));
    metadata["namespace"] = namespace(job).into();
    metadata["labels"] = json!({
        label::QUEUE: queue, "app.kubernetes.io/name": name,
        "training.kubeflow.org/replica-index": number.to_string(), "runai/queue": queue,
    });
    metadata["annotations"] = json!({ annotation::POD_GROUP_NAME: pod_group_name(cluster, job) });
    metadata["ownerReferences"] = owner(cluster, job);

    if job_spec.ask.gpus == Gpus::Half {
        metadata["annotations"][annotation::GPU_FRACTION] = "0.5".into();
    }
    let mut spec = pod_spec(job_spec.priority, &name, number);
    spec["containers"][0]["resources"] = pod_resources(job_spec.ask);
    let mut status = json!({"phase": "Pending", "qosClass": "Burstable"});
    if let Some(nodes) = &job_spec.nodes {
        spec["nodeName"] = node_name(nodes[number]).into();
        status = running(&time(created(job)));
        if matches!(job_spec.ask.gpus, Gpus::Whole(_)) {
            metadata["annotations"][annotation::RECEIVED_RESOURCE_TYPE] = "Regular".into();
        }
    }
    json!({"apiVersion": "v1", KIND: "Pod", "metadata": metadata, "spec": spec, "status": status})
}

pub(crate) fn pod_resources(ask: PodRequest) -> Value {
    let mut requests = json!({"cpu": cores(ask.cpu_milli), "memory": bytes(ask.memory)});
    let mut limits = json!({});
    if let Gpus::Whole(count) = ask.gpus {
        requests[resource::NVIDIA_GPU] = count.to_string().into();
        limits[resource::NVIDIA_GPU] = count.to_string().into();
    }
    json!({"requests": requests, "limits": limits})
}

pub(crate) fn pod_spec(priority: i32, job: &str, number: usize) -> Value {
    let gone = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    json!({
        "schedulerName": name::SCHEDULER, "restartPolicy": "Never", "priorityClassName": priority_name(priority),
        "priority": priority, "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
        "containers": [{
            "name": "main", "image": IMAGE, "command": ["torchrun", "train.py"],
            "env": [
                {"name": "NODE_RANK", "value": number.to_string()},
                {"name": "MASTER_ADDR", "value": format!("{job}-0")},
                {"name": "MASTER_PORT", "value": "23456"},
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            ],
            "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "volumeMounts": [
                {"name": "shm", "mountPath": "/dev/shm"},
                {
                    "name": "kube-api-access", "readOnly": true,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                },
            ],
        }],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "kube-api-access", "projected": {
                "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}], "defaultMode": 420,
            }},
        ],
        "tolerations": [
            gone("node.kubernetes.io/not-ready"), gone("node.kubernetes.io/unreachable"),
            {"key": resource::NVIDIA_GPU, "operator": "Exists"},
        ],
        "securityContext": {},
    })
}

fn running(since: &str) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": since});
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    json!({
        "phase": "Running", "qosClass": "Burstable", "startTime": since, "hostIP": "10.0.0.1", "podIP": "10.1.0.1",
        "conditions": conditions,
        "containerStatuses": [{
            "name": "main", "ready": true, "restartCount": 0, "image": IMAGE, "imageID": "", "started": true,
            "state": {"running": {"startedAt": since}},
        }],
    })
}

fn priority_class(cluster: &Cluster, name: &str, value: i32) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", KIND: "PriorityClass",
        "metadata": metadata(name, &uid(cluster, UidKind::PriorityClass, value as usize), QUEUES_SECONDS),
        "value": value, "globalDefault": false, "preemptionPolicy": "PreemptLowerPriority",
    })
}

fn topology(cluster: &Cluster) -> Value {
    let levels = Level::ALL.map(|level| json!({"nodeLabel": level_label(level)}));
    json!({
        "apiVersion": "kai.scheduler/v1alpha1", KIND: "Topology",
        "metadata": metadata(TOPOLOGY, &uid(cluster, UidKind::Topology, 0), FIRST_JOB_SECONDS),
        "spec": {"levels": levels},
    })
}

fn cores(milli: i64) -> String {
    if milli % 1000 == 0 { (milli / 1000).to_string() } else { format!("{milli}m") }
}

fn bytes(bytes: i64) -> String {
    if bytes % GIB == 0 { format!("{}Gi", bytes / GIB) } else { format!("{}Mi", bytes / MIB) }
}
