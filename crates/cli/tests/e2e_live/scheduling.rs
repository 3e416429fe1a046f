//! Pods and gangs are bound, or have a condition with the reason.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use test_cluster::{Cluster, Kubectl};

use crate::ask::{apply, await_that, get, phase, phases, run};
use crate::kai::{Components, cluster, fetch, free_port, kai};

#[test]
#[ignore = "starts a real cluster"]
fn e2e_pods_and_gangs_are_scheduled() {
    let mut cluster = cluster("e2e-scheduling", 4, 8);
    let kubectl = cluster.kubectl();
    let snapshots = free_port();
    let mut components = Components::start_with(&cluster, &["--plugin-server-port", &snapshots.to_string()]);
    apply(&kubectl, QUEUES);

    a_pod_runs(&kubectl);
    a_gang_runs_whole(&kubectl);
    a_gang_that_does_not_fit_waits_whole(&kubectl);
    room_that_becomes_free_is_used(&kubectl);
    an_unknown_queue_is_named_on_the_pod(&kubectl);
    pods_of_others_are_left_alone(&kubectl);
    status_of_queues_and_groups_has_what_they_hold(&kubectl);
    metrics_count_what_was_done(&components);
    a_snapshot_can_be_replayed(&cluster, snapshots);
    a_claim_gets_a_volume_that_is_there(&kubectl);

    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
    components.end_politely();
}

const QUEUES: &str = "
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: department}
spec:
  resources: {gpu: {quota: 32, limit: -1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  parentQueue: department
  resources: {gpu: {quota: 32, limit: -1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}
";

fn a_pod_runs(kubectl: &Kubectl) {
    apply(kubectl, &pod("single", "team", "kai-scheduler", 1));
    await_that("a pod runs", || phase(kubectl, "single") == "Running");
    let group = || get(kubectl, "pod single")["metadata"]["annotations"]["pod-group-name"].as_str().map(str::to_owned);
    await_that("it is linked to its group", || group().is_some());
    let group = group().expect("it is linked");
    assert_eq!(get(kubectl, &format!("podgroups.scheduling.run.ai {group}"))["spec"]["queue"], "team");
    let pod = get(kubectl, "pod single");
    assert_eq!(pod["metadata"]["annotations"]["received-resource-type"], "Regular");
    let request = get(kubectl, "bindrequests.scheduling.run.ai single");
    assert_eq!(request["spec"]["selectedNode"], pod["spec"]["nodeName"]);
    await_that("its bind request has succeeded", || {
        get(kubectl, "bindrequests.scheduling.run.ai single")["status"]["phase"] == "Succeeded"
    });
    await_that("there is an event", || {
        let events = run(kubectl, "get events --field-selector involvedObject.name=single");
        events.contains("Scheduled") && events.contains("Bound")
    });
}

fn a_gang_runs_whole(kubectl: &Kubectl) {
    apply(kubectl, &job("gang", 3, 8));
    await_that("a gang runs", || phases(kubectl, "gang") == ["Running", "Running", "Running"]);
    let nodes = run(kubectl, "get pods -l job-name=gang -o jsonpath={.items[*].spec.nodeName}");
    let nodes: BTreeSet<&str> = nodes.split(' ').collect();
    assert_eq!(nodes.len(), 3, "three pods of 8 GPUs need three nodes of 8");
}

fn a_gang_that_does_not_fit_waits_whole(kubectl: &Kubectl) {
    apply(kubectl, &job("late", 2, 6));
    await_that("both pods of it have a reason", || {
        let reason =
            "get pods -l job-name=late -o jsonpath={.items[*].status.conditions[?(@.type==\"PodScheduled\")].reason}";
        run(kubectl, reason) == "Unschedulable Unschedulable"
    });
    assert_eq!(phases(kubectl, "late"), ["Pending", "Pending"], "there is room for one of them only");
    let bound = run(kubectl, "get pods -l job-name=late -o jsonpath={.items[*].spec.nodeName}");
    assert_eq!(bound, "");
    await_that("the group says so, too", || {
        let groups = get(kubectl, "podgroups.scheduling.run.ai");
        let late = |group: &&Value| group["metadata"]["ownerReferences"][0]["name"] == "late";
        let group = groups["items"].as_array().into_iter().flatten().find(late).cloned().unwrap_or_default();
        group["status"]["schedulingConditions"][0]["type"] == "UnschedulableOnNodePool"
    });
}

fn room_that_becomes_free_is_used(kubectl: &Kubectl) {
    run(kubectl, "delete job gang --timeout=60s");
    await_that("the gang that waited runs", || phases(kubectl, "late") == ["Running", "Running"]);
    await_that("it has no condition any more", || {
        let conditions =
            run(kubectl, "get podgroups.scheduling.run.ai -o jsonpath={.items[*].status.schedulingConditions}");
        !conditions.contains("Unschedulable")
    });
}

fn an_unknown_queue_is_named_on_the_pod(kubectl: &Kubectl) {
    apply(kubectl, &pod("lost", "nowhere", "kai-scheduler", 1));
    await_that("the pod says which queue is missing", || {
        let message = "get pod lost -o jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].message}";
        run(kubectl, message).contains("nowhere")
    });
}

fn pods_of_others_are_left_alone(kubectl: &Kubectl) {
    apply(kubectl, &pod("foreign", "team", "somebody-else", 1));
    thread::sleep(Duration::from_secs(3));
    let foreign = get(kubectl, "pod foreign");
    assert!(foreign["spec"]["nodeName"].is_null() && foreign["metadata"]["annotations"]["pod-group-name"].is_null());
}

fn status_of_queues_and_groups_has_what_they_hold(kubectl: &Kubectl) {
    let held =
        |queue: &str| run(kubectl, &format!(r"get queue {queue} -o jsonpath={{.status.allocated.nvidia\.com/gpu}}"));
    await_that("both levels of queues count the GPUs of what runs", || {
        held("team") == "13" && held("department") == "13"
    });
    let children = run(kubectl, "get queue department -o jsonpath={.status.childQueues}");
    assert_eq!(children, r#"["team"]"#);
    let columns = run(kubectl, "get queues");
    let header: Vec<&str> = columns.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["NAME", "PRIORITY", "PARENT", "CHILDREN", "DISPLAYNAME"]);
}

fn metrics_count_what_was_done(components: &Components) {
    let metrics = components.get("scheduler", "/metrics");
    let binds = metrics.lines().find_map(|line| line.strip_prefix("kai_bind_requests_total "));
    assert_eq!(binds, Some("6"), "{metrics}");
    for counted in [
        r#"kai_podgroups_scheduled_by_action{action="allocate"}"#,
        r#"kai_podgroups_acted_on_by_action{action="allocate"}"#,
        r#"kai_action_scheduling_latency_milliseconds{action="allocate"}"#,
        r#"kai_queue_fair_share_gpu{queue_name="team",queue_metadata_name="team",queue_display_name=""}"#,
        "kai_task_bind_latency_milliseconds_count",
    ] {
        let value = metrics.lines().find(|line| line.starts_with(counted)).and_then(|line| line.rsplit(' ').next());
        assert!(value.is_some_and(|value| value.parse::<f64>().is_ok_and(|value| value > 0.0)), "{counted}: {metrics}");
    }
    assert!(components.get("binder", "/healthz").ends_with("ok"));
    let queues = components.get("queuecontroller", "/metrics");
    let team = r#"kai_queue_allocated_gpus{queue_name="team",queue_metadata_name="team",queue_display_name=""} 13.0"#;
    assert!(queues.contains(team), "{queues}");
}

/// Whether read from the API server or asked of the scheduler.
fn a_snapshot_can_be_replayed(cluster: &Cluster, port: u16) {
    let kubeconfig = &cluster.state().kubeconfig;
    let (read, asked) = (kubeconfig.with_file_name("read.zip"), kubeconfig.with_file_name("asked.zip"));
    kai(&["snapshot".as_ref(), "--kubeconfig".as_ref(), kubeconfig, "--output".as_ref(), &read]);
    let answer = fetch(port, "/get-snapshot").expect("the scheduler answers");
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("there is a head");
    std::fs::write(&asked, &answer[head + 4..]).unwrap();
    for file in [read, asked] {
        let replayed = kai(&["replay".as_ref(), &file, "-o".as_ref(), "json".as_ref()]);
        let replayed: Value = serde_json::from_str(&replayed).unwrap();
        assert_eq!(replayed["bound"], 0, "the scheduler has left nothing to do: {replayed}");
        let waiting = replayed["pending"].to_string();
        assert!(waiting.contains("nowhere"), "the pod of an unknown queue waits in the snapshot, too: {replayed}");
    }
}

fn pod(name: &str, queue: &str, scheduler: &str, gpus: u32) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{kai.scheduler/queue: {queue}}}}}
spec:
  schedulerName: {scheduler}
  containers: [{{name: main, image: any, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"
    )
}

fn job(name: &str, pods: u32, gpus: u32) -> String {
    format!(
        "
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels: {{kai.scheduler/queue: team}}
  annotations: {{kai.scheduler/batch-min-member: \"{pods}\"}}
spec:
  parallelism: {pods}
  completions: {pods}
  template:
    metadata: {{labels: {{kai.scheduler/queue: team}}}}
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers: [{{name: main, image: any, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"
    )
}

/// Local disks, made by hand: the pod goes where a volume is that suits its claim, and gets the smallest of these.
fn a_claim_gets_a_volume_that_is_there(kubectl: &Kubectl) {
    let volume = |name: &str, node: &str, size: &str| {
        format!(
            "
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {name}}}
spec:
  storageClassName: local
  capacity: {{storage: {size}}}
  accessModes: [ReadWriteOnce]
  local: {{path: /mnt/disk}}
  nodeAffinity:
    required:
      nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{node}]}}]}}]
---"
        )
    };
    let volumes = [volume("small", "node-0", "1Gi"), volume("large", "node-2", "9Gi"), volume("fits", "node-2", "5Gi")];
    apply(kubectl, &volumes.concat());
    apply(kubectl, LOCAL_STORAGE);
    apply(
        kubectl,
        &pod("reader", "team", "kai-scheduler", 1).replace(
            "  containers:",
            "  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n  containers:",
        ),
    );
    await_that("a pod with a volume runs", || phase(kubectl, "reader") == "Running");
    assert_eq!(get(kubectl, "pod reader")["spec"]["nodeName"], "node-2");
    let claim = get(kubectl, "persistentvolumeclaim data");
    assert_eq!((&claim["spec"]["volumeName"], &claim["status"]["phase"]), (&"fits".into(), &"Bound".into()));
    assert!(claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_null(), "none was to be made");
}

const LOCAL_STORAGE: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: local
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 3Gi}}
";
