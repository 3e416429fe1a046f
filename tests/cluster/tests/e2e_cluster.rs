//! The test cluster is a real one: its API server, its controllers and its kubelets do what they should.
//!
//! Ignored by plain `cargo test`, for it needs programs that take minutes to build the first time:
//! `cargo test -p test-cluster --test e2e_cluster -- --ignored`.

use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use test_cluster::{Cluster, Kubectl, Operator, Options, Progress};

#[test]
#[ignore = "starts a real cluster"]
fn e2e_nodes_pods_and_controllers_live() {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clusters");
    let options = Options {
        name: "e2e-cluster".to_owned(),
        base: base.clone(),
        nodes: 4,
        gpus: 8,
        operators: Operator::ALL.to_vec(),
    };
    let mut cluster =
        Cluster::start(&options, &Progress::start("e2e-cluster")).unwrap_or_else(|fault| panic!("{fault}"));
    let kubectl = cluster.kubectl();

    versions_agree(&kubectl);
    nodes_have_gpus_and_no_taints(&kubectl);
    kinds_of_ours_can_be_created(&kubectl);
    a_bound_pod_runs_and_can_be_deleted(&kubectl);
    a_job_makes_pods_that_end(&kubectl);
    pods_fail_when_asked_to(&kubectl);
    reservations_get_a_gpu(&kubectl);
    operators_make_pods(&kubectl);
    nothing_listens_beyond_loopback(&cluster);

    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
    let processes = cluster.state().processes.clone();
    assert_eq!(processes.len(), 4 + Operator::ALL.len());
    drop(cluster);
    for process in processes {
        assert!(process.stats().is_none(), "{} still runs", process.name);
    }
    assert!(!base.join(&options.name).exists(), "the folder is still there");
}

fn versions_agree(kubectl: &Kubectl) {
    let version: Value = serde_json::from_str(&run(kubectl, "version -o json")).unwrap();
    assert_eq!(version["serverVersion"]["gitVersion"], "v1.34.3");
    assert_eq!(version["clientVersion"]["gitVersion"], "v1.34.3");
}

fn nodes_have_gpus_and_no_taints(kubectl: &Kubectl) {
    let nodes = run(kubectl, "get nodes --no-headers");
    assert_eq!(nodes.lines().filter(|line| line.contains(" Ready ")).count(), 4, "{nodes}");
    await_that("taints of new nodes are gone", || {
        run(kubectl, "get nodes -o jsonpath={.items[*].spec.taints}").trim().is_empty()
    });
    assert_eq!(run(kubectl, r"get nodes -o jsonpath={.items[*].status.allocatable.nvidia\.com/gpu}"), "8 8 8 8");
}

fn kinds_of_ours_can_be_created(kubectl: &Kubectl) {
    apply(kubectl, "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: team}, spec: {resources: {}}}");
    assert_eq!(run(kubectl, "get queues.scheduling.run.ai -o name").trim(), "queue.scheduling.run.ai/team");
    assert_eq!(run(kubectl, "get priorityclass inference -o jsonpath={.value}"), "125");
}

fn a_bound_pod_runs_and_can_be_deleted(kubectl: &Kubectl) {
    apply(
        kubectl,
        "
apiVersion: v1
kind: Pod
metadata: {name: bound}
spec:
  nodeName: node-2
  initContainers: [{name: first, image: any}]
  containers: [{name: main, image: any, resources: {limits: {nvidia.com/gpu: 1}}}]
",
    );
    await_that("a bound pod runs", || run(kubectl, "get pod bound -o jsonpath={.status.phase}") == "Running");
    run(kubectl, "wait pod/bound --for=condition=Ready --timeout=30s");
    run(kubectl, "delete pod bound --timeout=30s");
}

/// Its pods are bound by hand, since there is no scheduler.
fn a_job_makes_pods_that_end(kubectl: &Kubectl) {
    apply(
        kubectl,
        "
apiVersion: batch/v1
kind: Job
metadata: {name: brief}
spec:
  parallelism: 2
  completions: 2
  template:
    metadata: {annotations: {e2e.test/run-for: 1s}}
    spec:
      schedulerName: none
      restartPolicy: Never
      containers: [{name: main, image: any}]
",
    );
    let pods = || run(kubectl, "get pods -l job-name=brief -o name");
    await_that("a job has its pods", || pods().lines().count() == 2);
    for pod in pods().lines() {
        let pod = pod.trim_start_matches("pod/");
        let binding = format!(
            "{{apiVersion: v1, kind: Binding, metadata: {{name: {pod}, namespace: default}}, \
             target: {{apiVersion: v1, kind: Node, name: node-1}}}}"
        );
        let path = format!("/api/v1/namespaces/default/pods/{pod}/binding");
        kubectl.run_with(&["create", "--raw", &path, "--filename=-"], Some(&as_json(&binding))).unwrap();
    }
    run(kubectl, "wait job/brief --for=condition=Complete --timeout=60s");
}

fn pods_fail_when_asked_to(kubectl: &Kubectl) {
    apply(
        kubectl,
        "
apiVersion: v1
kind: Pod
metadata: {name: failing, annotations: {e2e.test/fail-after: 1s}}
spec: {nodeName: node-0, restartPolicy: Never, containers: [{name: main, image: any}]}
",
    );
    await_that("a pod fails", || run(kubectl, "get pod failing -o jsonpath={.status.phase}") == "Failed");
}

fn reservations_get_a_gpu(kubectl: &Kubectl) {
    apply(
        kubectl,
        "
apiVersion: v1
kind: Pod
metadata: {name: reservation, labels: {app: kai-resource-reservation}}
spec: {nodeName: node-3, containers: [{name: main, image: any}]}
",
    );
    let index = r"get pod reservation -o jsonpath={.metadata.annotations.run\.ai/reserve_for_gpu_index}";
    await_that("a reservation knows its GPU", || run(kubectl, index).starts_with("GPU-"));
}

/// Each is asked for one workload of two pods; webhooks are asked on the way.
fn operators_make_pods(kubectl: &Kubectl) {
    let pod =
        "{metadata: {}, spec: {schedulerName: none, restartPolicy: Never, containers: [{name: pytorch, image: any}]}}";
    let pod_always = pod.replace("restartPolicy: Never, ", "");
    apply(
        kubectl,
        &format!(
            "
{{apiVersion: ray.io/v1, kind: RayCluster, metadata: {{name: ray}}, spec: {{headGroupSpec: {{template: {pod_always}}},
  workerGroupSpecs: [{{groupName: gpu, replicas: 1, minReplicas: 1, template: {pod_always}}}]}}}}
---
{{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {{name: torch}}, spec: {{pytorchReplicaSpecs:
  {{Master: {{replicas: 1, template: {pod}}}, Worker: {{replicas: 1, template: {pod}}}}}}}}}
---
{{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {{name: js}}, spec: {{replicatedJobs:
  [{{name: w, replicas: 1, template: {{spec: {{parallelism: 2, completions: 2, template: {pod}}}}}}}]}}}}
---
{{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {{name: lws}}, spec: {{replicas: 1,
  leaderWorkerTemplate: {{size: 2, workerTemplate: {pod_always}}}}}}}
"
        ),
    );
    for selector in [
        "ray.io/cluster=ray",
        "training.kubeflow.org/job-name=torch",
        "jobset.sigs.k8s.io/jobset-name=js",
        "leaderworkerset.sigs.k8s.io/name=lws",
    ] {
        await_that(&format!("there are two pods with {selector}"), || {
            run(kubectl, &format!("get pods -l {selector} -o name")).lines().count() == 2
        });
    }
}

/// Sockets of our processes, from what the kernel tells.
fn nothing_listens_beyond_loopback(cluster: &Cluster) {
    if !cfg!(target_os = "linux") {
        return;
    }
    for process in &cluster.state().processes {
        let mine = sockets_of(process.pid);
        let mut listening = 0;
        for table in ["tcp", "tcp6"] {
            let text = std::fs::read_to_string(format!("/proc/{}/net/{table}", process.pid)).unwrap();
            for line in text.lines().skip(1) {
                let fields: Vec<&str> = line.split_whitespace().collect();
                // Fields: number, local address, remote address, state (0A listens), …, inode.
                if fields[3] != "0A" || !mine.iter().any(|inode| inode == fields[9]) {
                    continue;
                }
                listening += 1;
                assert!(fields[1].starts_with("0100007F:"), "{} listens on {}", process.name, fields[1]);
            }
        }
        assert!(listening > 0 || process.name == "kwok", "{} listens nowhere", process.name);
    }
}

fn sockets_of(pid: u32) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let target = |file: std::io::Result<std::fs::DirEntry>| std::fs::read_link(file.ok()?.path()).ok();
    files
        .filter_map(target)
        .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
        .collect()
}

#[track_caller]
fn run(kubectl: &Kubectl, arguments: &str) -> String {
    kubectl.run(arguments).unwrap_or_else(|fault| panic!("{fault}"))
}

#[track_caller]
fn apply(kubectl: &Kubectl, manifest: &str) {
    kubectl.apply(manifest).unwrap_or_else(|fault| panic!("{fault}"));
}

fn as_json(yaml: &str) -> String {
    let value: Value = yaml_serde::from_str(yaml).unwrap();
    value.to_string()
}

#[track_caller]
fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..300 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("30 s later it still does not hold that {what}");
}
