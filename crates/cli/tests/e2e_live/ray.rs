//! `RayCluster`s with the real `KubeRay` operator, as its guide to this scheduler tells: gangs, priorities, shared GPUs,
//! autoscaling. Its manifests, shortened, and what it says they do.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use test_cluster::{Kubectl, Operator};

use crate::ask::{apply, await_that, get, group_of, message, phase, run, running, waiting};
use crate::kai::{Components, cluster_with};

#[test]
#[ignore = "starts a real cluster"]
fn e2e_ray_clusters_are_gangs() {
    let mut cluster = cluster_with("e2e-ray", 1, 4, &[Operator::Kuberay]);
    let kubectl = cluster.kubectl();
    let mut components = Components::start(&cluster);
    apply(&kubectl, QUEUES);

    the_sample_runs_whole(&kubectl);
    head_and_half_gpu_workers_start_together_or_not_at_all(&kubectl);
    a_label_gives_priority(&kubectl);
    two_workers_share_a_gpu(&kubectl);
    without_a_queue_it_is_pending_with_a_reason(&kubectl);
    the_autoscaler_adds_workers_one_by_one_and_they_go_first(&kubectl);
    a_job_has_the_gang_of_its_cluster(&kubectl);

    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
    components.end_politely();
}

const QUEUES: &str = "
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: department-1}
spec:
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team-a}
spec:
  parentQueue: department-1
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
";

/// `ray-cluster.kai-scheduler.yaml` of `KubeRay`.
fn the_sample_runs_whole(kubectl: &Kubectl) {
    let worker = json!({"groupName": "worker", "replicas": 2, "minReplicas": 2, "template": cpu_pod("ray-worker")});
    apply_cluster(kubectl, "raycluster-sample", &json!({QUEUE: "team-a"}), &cpu_pod("ray-head"), &[worker]);
    await_that("the sample is ready", || {
        run(kubectl, "get raycluster raycluster-sample -o jsonpath={.status.state}") == "ready"
    });
    assert_eq!(running(kubectl, &of("raycluster-sample")), 3);
    let spec = &group_of(kubectl, &of("raycluster-sample"))["spec"];
    let leaves = json!([{"name": "headgroup", "minMember": 1}, {"name": "worker", "minMember": 2}]);
    assert_eq!((&spec["minMember"], &spec["subGroups"]), (&json!(3), &leaves));
    assert_eq!((&spec["queue"], &spec["priorityClassName"]), (&json!("team-a"), &json!("train")));
    delete(kubectl, "raycluster-sample");
}

/// The picture in the guide: a head of one GPU and four workers of half a GPU need three.
fn head_and_half_gpu_workers_start_together_or_not_at_all(kubectl: &Kubectl) {
    apply(kubectl, &blocker(2));
    await_that("half of the node is taken", || phase(kubectl, "blocker") == "Running");
    distributed_training(kubectl);
    await_that("five pods have a reason", || waiting(kubectl, &of("distributed-training")) == 5);
    assert_eq!(running(kubectl, &of("distributed-training")), 0, "there is room for all but one GPU");
    run(kubectl, "delete pod blocker");
    await_that("five pods run", || running(kubectl, &of("distributed-training")) == 5);
    let shared: BTreeSet<String> = gpu_groups(kubectl, "distributed-training").into_iter().collect();
    assert_eq!(shared.len(), 2, "four halves fill two GPUs: {shared:?}");
}

fn a_label_gives_priority(kubectl: &Kubectl) {
    let labels = json!({QUEUE: "team-a", "priorityClassName": "build"});
    let worker = json!({"groupName": "worker", "replicas": 1, "minReplicas": 1, "template": gpu_pod("worker", 1)});
    apply_cluster(kubectl, "urgent", &labels, &gpu_pod("head", 1), &[worker]);
    await_that("the cluster of higher priority runs", || running(kubectl, &of("urgent")) == 2);
    assert_eq!(group_of(kubectl, &of("urgent"))["spec"]["priorityClassName"], "build");
    await_that("the other one waits whole", || waiting(kubectl, &of("distributed-training")) == 5);
    assert_eq!(running(kubectl, &of("distributed-training")), 0);
    delete(kubectl, "urgent");
    await_that("it is back as a whole", || running(kubectl, &of("distributed-training")) == 5);
    delete(kubectl, "distributed-training");
}

/// `ray-cluster.kai-gpu-sharing.yaml` of `KubeRay`.
fn two_workers_share_a_gpu(kubectl: &Kubectl) {
    let worker = json!({"groupName": "shared-gpu", "replicas": 2, "minReplicas": 2, "template": half_gpu_pod()});
    apply_cluster(kubectl, "raycluster-half-gpu", &json!({QUEUE: "team-a"}), &cpu_pod("head"), &[worker]);
    await_that("head and workers run", || running(kubectl, &of("raycluster-half-gpu")) == 3);
    let groups = gpu_groups(kubectl, "raycluster-half-gpu");
    assert_eq!(groups.len(), 2, "both workers say which GPU they share");
    assert_eq!(groups[0], groups[1], "there is room for both on one GPU");
    delete(kubectl, "raycluster-half-gpu");
}

fn without_a_queue_it_is_pending_with_a_reason(kubectl: &Kubectl) {
    let worker = json!({"groupName": "shared-gpu", "replicas": 2, "minReplicas": 2, "template": half_gpu_pod()});
    apply_cluster(kubectl, "raycluster-half-gpu", &json!({}), &cpu_pod("head"), &[worker]);
    await_that("pods say which queue is missing", || {
        waiting(kubectl, &of("raycluster-half-gpu")) == 3
            && message(kubectl, &of("raycluster-half-gpu")).contains("default-queue")
    });
    await_that("the pod group says so, too", || {
        let conditions = &group_of(kubectl, &of("raycluster-half-gpu"))["status"]["schedulingConditions"];
        conditions.to_string().contains("default-queue")
    });
    assert_eq!(running(kubectl, &of("raycluster-half-gpu")), 0);
    delete(kubectl, "raycluster-half-gpu");
}

/// The autoscaler of Ray does no more than to change `replicas`.
fn the_autoscaler_adds_workers_one_by_one_and_they_go_first(kubectl: &Kubectl) {
    apply(kubectl, &blocker(2));
    let worker = |replicas: u32| {
        let template = gpu_pod("worker", 1);
        json!({"groupName": "gpu", "replicas": replicas, "minReplicas": 1, "maxReplicas": 8, "template": template})
    };
    let scale = |replicas: u32| {
        apply_cluster(kubectl, "elastic", &json!({QUEUE: "team-a"}), &cpu_pod("head"), &[worker(replicas)]);
    };
    let (head, workers) = ("ray.io/cluster=elastic,ray.io/node-type=head", "ray.io/cluster=elastic,ray.io/group=gpu");
    scale(1);
    await_that("head and first worker run", || running(kubectl, &of("elastic")) == 2);
    scale(4);
    await_that("one more starts and two wait", || running(kubectl, workers) == 2 && waiting(kubectl, workers) == 2);
    assert_eq!(group_of(kubectl, workers)["spec"]["minMember"], 2, "what was added is not needed");
    run(kubectl, "delete pod blocker");
    await_that("the others start as there is room", || running(kubectl, workers) == 4);

    let uid = |selector: &str| run(kubectl, &format!("get pods -l {selector} -o jsonpath={{.items[*].metadata.uid}}"));
    let (old_head, old_workers) = (uid(head), uid(workers));
    apply(kubectl, &blocker(3).replace("train", "build"));
    await_that("work of higher priority gets three GPUs", || phase(kubectl, "blocker") == "Running");
    assert_eq!(uid(head), old_head, "the head stays");
    let stayed = run(kubectl, &format!("get pods -l {workers} -o jsonpath={RUNNING_UIDS}"));
    assert!(!stayed.is_empty() && old_workers.contains(stayed.trim()), "so does the worker it cannot do without");
    await_that("three workers wait again", || running(kubectl, workers) == 1 && waiting(kubectl, workers) == 3);
    delete(kubectl, "elastic");
    run(kubectl, "delete pod blocker");
}

const RUNNING_UIDS: &str = r#"{.items[?(@.status.phase=="Running")].metadata.uid}"#;

/// `KubeRay` 1.5 refuses `RayJob`s together with this scheduler, so the job names another manager.
fn a_job_has_the_gang_of_its_cluster(kubectl: &Kubectl) {
    let job = json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob",
        "metadata": {"name": "batch", "labels": {QUEUE: "team-a"}},
        "spec": {
            "managedBy": "kueue.x-k8s.io/multikueue",
            "entrypoint": "python train.py",
            "rayClusterSpec": {"headGroupSpec": {"template": cpu_pod("head")}},
        },
    });
    apply(kubectl, &job.to_string());
    let uid = &get(kubectl, "rayjob batch")["metadata"]["uid"];
    let status = json!({"status": {"rayClusterName": "batch-x7k2p"}}).to_string();
    let patch = ["patch", "rayjob", "batch", "--subresource=status", "--type=merge", "--patch", &status];
    kubectl.run_with(&patch, None).unwrap_or_else(|fault| panic!("{fault}"));
    let worker = json!({"groupName": "gpu", "replicas": 2, "minReplicas": 2, "template": gpu_pod("worker", 1)});
    let mut ray = ray_cluster("batch-x7k2p", &json!({QUEUE: "team-a"}), &cpu_pod("head"), &[worker]);
    ray["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "batch", "uid": uid, "controller": true}]);
    apply(kubectl, &ray.to_string());
    await_that("head and workers run", || running(kubectl, &of("batch-x7k2p")) == 3);
    let group = group_of(kubectl, &of("batch-x7k2p"));
    assert_eq!(group["metadata"]["ownerReferences"][0]["kind"], "RayJob");
    assert_eq!(group["spec"]["minMember"], 3);
}

const QUEUE: &str = "kai.scheduler/queue";

fn distributed_training(kubectl: &Kubectl) {
    let worker = json!({"groupName": "worker", "replicas": 4, "minReplicas": 4, "template": half_gpu_pod()});
    apply_cluster(kubectl, "distributed-training", &json!({QUEUE: "team-a"}), &gpu_pod("head", 1), &[worker]);
}

fn ray_cluster(name: &str, labels: &Value, head: &Value, workers: &[Value]) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": name, "labels": labels},
        "spec": {"headGroupSpec": {"template": head}, "workerGroupSpecs": workers},
    })
}

fn apply_cluster(kubectl: &Kubectl, name: &str, labels: &Value, head: &Value, workers: &[Value]) {
    apply(kubectl, &ray_cluster(name, labels, head, workers).to_string());
}

fn cpu_pod(container: &str) -> Value {
    pod(container, &json!({}), &json!({"cpu": "1", "memory": "2Gi"}))
}

fn gpu_pod(container: &str, gpus: u32) -> Value {
    pod(container, &json!({}), &json!({"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": gpus}))
}

fn half_gpu_pod() -> Value {
    pod("worker", &json!({"gpu-fraction": "0.5"}), &json!({"cpu": "1", "memory": "2Gi"}))
}

fn pod(container: &str, annotations: &Value, limits: &Value) -> Value {
    let container = json!({"name": container, "image": "rayproject/ray:2.46.0", "resources": {"limits": limits}});
    json!({"metadata": {"annotations": annotations}, "spec": {"containers": [container]}})
}

/// Takes GPUs, so that others have less room.
fn blocker(gpus: u32) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: blocker, labels: {{kai.scheduler/queue: team-a, priorityClassName: train}}}}
spec:
  schedulerName: kai-scheduler
  containers: [{{name: main, image: any, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"
    )
}

/// Selects the pods of a cluster.
fn of(cluster: &str) -> String {
    format!("ray.io/cluster={cluster}")
}

fn gpu_groups(kubectl: &Kubectl, cluster: &str) -> Vec<String> {
    let groups = format!("get pods -l {} -o jsonpath={{.items[*].metadata.labels.runai-gpu-group}}", of(cluster));
    run(kubectl, &groups).split_whitespace().map(str::to_owned).collect()
}

fn delete(kubectl: &Kubectl, cluster: &str) {
    run(kubectl, &format!("delete raycluster {cluster} --timeout=60s"));
    await_that("its pods are gone", || run(kubectl, &format!("get pods -l {} -o name", of(cluster))).trim().is_empty());
}
