//! What walk-throughs describe, done with `kubectl` and their manifests.

use std::path::{Path, PathBuf};

use test_cluster::Kubectl;

use crate::ask::{apply, await_that, phase, run};
use crate::kai::{Components, cluster};

/// Jobs make room on nodes in use, so that an empty node stays whole.
#[test]
#[ignore = "starts a real cluster"]
fn e2e_consolidation_keeps_a_node_whole() {
    let mut cluster = cluster("e2e-consolidation", 4, 8);
    let kubectl = cluster.kubectl();
    let config = cluster.state().kubeconfig.with_file_name("scheduler.yaml");
    std::fs::write(&config, "keepNodesWhole: true\n").unwrap();
    let mut components = Components::start_with(&cluster, &["--scheduler-conf", config.to_str().unwrap()]);
    for project in ["project-a", "project-b", "project-c", "project-d"] {
        run(&kubectl, &format!("create namespace {project}"));
    }
    apply(&kubectl, &example("consolidation/1-queues.yaml"));
    // One after the other, as the nodes of the story are filled.
    for job in example("consolidation/2-initial-state.yaml").split("---\n") {
        let running = running_jobs(&kubectl).len();
        apply(&kubectl, job);
        await_that("the job runs", || running_jobs(&kubectl).len() == running + 1);
    }
    assert_eq!(neighbours(&kubectl), ["interactive-job", "training-job-1 training-job-2", "training-job-3"]);

    apply(&kubectl, &example("consolidation/3-new-workloads.yaml"));
    await_that("one node is left whole and all others are full", || {
        neighbours(&kubectl)
            == ["interactive-job training-job-b", "training-job-1 training-job-a", "training-job-2 training-job-3"]
    });
    await_that("events name the pods that were moved and the preemptor", || {
        let events = run(&kubectl, "get events --namespace project-c -o jsonpath={.items[*].message}");
        events.contains("project-c/training-job-a")
    });
    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
    components.end_politely();
}

/// At the limit of its queue, a pod of higher priority takes the place of a lower one.
#[test]
#[ignore = "starts a real cluster"]
fn e2e_build_preempts_train() {
    let mut cluster = cluster("e2e-priority", 1, 4);
    let kubectl = cluster.kubectl();
    let mut components = Components::start(&cluster);
    run(&kubectl, "create namespace sandbox");
    apply(&kubectl, &quick_start_queues("quota: 1, limit: 1"));

    apply(&kubectl, &example("priority/train-pod.yaml"));
    await_that("the train pod runs", || phase(&kubectl, "train-pod -n sandbox") == "Running");
    apply(&kubectl, &example("priority/build-pod.yaml"));
    await_that("the build pod runs", || phase(&kubectl, "build-pod -n sandbox") == "Running");
    await_that("the train pod is gone", || {
        !run(&kubectl, "get pods -n sandbox -l kai.scheduler/queue=test -o name").contains("train-pod")
    });
    await_that("its condition has the reason", || {
        let events =
            run(&kubectl, "get events -n sandbox --field-selector reason=Evict -o jsonpath={.items[*].message}");
        events.contains("Pod sandbox/train-pod was preempted by higher priority workload sandbox/")
    });

    pods_share_a_gpu(&kubectl);
    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
    components.end_politely();
}

/// Parts of GPUs, by fraction and by memory: pods share one, and nodes show all their GPUs all the same.
fn pods_share_a_gpu(kubectl: &Kubectl) {
    run(kubectl, "delete pods --all -n sandbox --timeout=60s");
    apply(kubectl, &quick_start_queues("quota: -1, limit: -1"));
    for (name, annotation) in [("gpu-sharing", "gpu-fraction: \"0.5\""), ("gpu-pod", "gpu-memory: \"2000\"")] {
        apply(kubectl, &sharing_pod(name, annotation));
        await_that("a pod that shares a GPU runs", || phase(kubectl, &format!("{name} -n sandbox")) == "Running");
    }
    let groups = run(kubectl, "get pods -n sandbox -o jsonpath={.items[*].metadata.labels.runai-gpu-group}");
    let groups: Vec<&str> = groups.split_whitespace().collect();
    assert_eq!(groups.len(), 2, "both say which GPU they share: {groups:?}");
    assert_eq!(groups[0], groups[1], "there is room for both on one GPU");
    let allocatable = run(kubectl, r"get nodes -o jsonpath={.items[*].status.allocatable.nvidia\.com/gpu}");
    assert_eq!(allocatable, "4");
    await_that("the queue counts parts of GPUs", || {
        // Half a GPU and 2,000 MiB of one with 81,920.
        run(kubectl, r"get queue test -o jsonpath={.status.allocated.nvidia\.com/gpu}") == "524m"
    });
    run(kubectl, "delete pods --all -n sandbox --timeout=60s");
    await_that("the GPU is given back", || {
        run(kubectl, "get pods -n kai-resource-reservation -o name").trim().is_empty()
    });
}

/// The queues of KAI's quick start; `test` gets so many GPUs.
fn quick_start_queues(gpus: &str) -> String {
    format!(
        "
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: default}}
spec:
  resources:
    cpu: {{quota: -1, limit: -1, overQuotaWeight: 1}}
    gpu: {{quota: -1, limit: -1, overQuotaWeight: 1}}
    memory: {{quota: -1, limit: -1, overQuotaWeight: 1}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: test}}
spec:
  parentQueue: default
  resources:
    cpu: {{quota: -1, limit: -1, overQuotaWeight: 1}}
    gpu: {{{gpus}, overQuotaWeight: 1}}
    memory: {{quota: -1, limit: -1, overQuotaWeight: 1}}
"
    )
}

fn sharing_pod(name: &str, annotation: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: sandbox
  labels: {{kai.scheduler/queue: test}}
  annotations: {{{annotation}}}
spec:
  schedulerName: kai-scheduler
  restartPolicy: Never
  containers: [{{name: cuda-container, image: any}}]
  tolerations: [{{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}}]
"
    )
}

pub(crate) fn example(file: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn running_jobs(kubectl: &Kubectl) -> Vec<(String, String)> {
    let pods = "get pods -A --field-selector status.phase=Running -l job-name --no-headers \
                -o custom-columns=NODE:.spec.nodeName,JOB:.metadata.labels.job-name,DELETED:.metadata.deletionTimestamp";
    let text = run(kubectl, pods);
    let fields = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let living = fields.filter(|fields| fields.len() == 3 && fields[2] == "<none>");
    living.map(|fields| (fields[0].to_owned(), fields[1].to_owned())).collect()
}

/// The jobs on each node in use.
fn neighbours(kubectl: &Kubectl) -> Vec<String> {
    let mut running = running_jobs(kubectl);
    running.sort();
    let mut nodes: Vec<String> = running
        .chunk_by(|one, other| one.0 == other.0)
        .map(|jobs| jobs.iter().map(|(_, job)| job.as_str()).collect::<Vec<_>>().join(" "))
        .collect();
    nodes.sort();
    nodes
}
