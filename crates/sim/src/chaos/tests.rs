//! Each check breaks when a converged cluster is damaged, and no other.

use serde_json::{Value, json};

use super::convergence::check_converged;
use super::*;
use crate::manifest::{Id, Kind, Source, read};

/// Two pods share a GPU, one holds one whole, and one that wants two waits.
const CLUSTER: &str = "
apiVersion: v1
kind: Node
metadata: {name: a, labels: {nvidia.com/gpu.memory: \"16000\"}}
status: {allocatable: {cpu: \"8\", memory: 64Gi, nvidia.com/gpu: \"2\", pods: \"20\"}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: half, namespace: team, labels: {kai.scheduler/queue: default-queue}}
spec: {parallelism: 2, completions: 2, template: {metadata: {annotations: {gpu-fraction: \"0.5\"}},
  spec: {schedulerName: kai-scheduler, containers: [{name: main}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: whole, namespace: team, labels: {kai.scheduler/queue: default-queue}}
spec: {parallelism: 1, completions: 1, template:
  {spec: {schedulerName: kai-scheduler, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
---
apiVersion: kai.scheduler/v1alpha1
kind: Scenario
spec: {steps: [{at: 30s, apply: large.yaml}]}
";

/// It comes when the others have their GPUs.
const LARGE: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: large, namespace: team, labels: {kai.scheduler/queue: default-queue}}
spec: {parallelism: 1, completions: 1, template:
  {spec: {schedulerName: kai-scheduler, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]}}}
";

fn plan() -> Plan {
    let source = |(name, text): (&str, &str)| Source { name: name.to_owned(), text: text.to_owned() };
    read(&[("cluster.yaml", CLUSTER), ("large.yaml", LARGE)].map(source)).expect("well-formed")
}

fn at_rest() -> (Cluster, Settings, SafetyMonitor) {
    at_rest_after(false)
}

/// With grouper and scheduler in one process or in two.
fn at_rest_after(paired: bool) -> (Cluster, Settings, SafetyMonitor) {
    let plan = plan();
    let mut run = ChaosRun::new(&plan, FaultPlan::none(start_time(&plan), paired), 0, None).expect("usable");
    run.run(&plan).expect("comes to rest");
    let ChaosRun { cluster, settings, safety, .. } = run;
    (cluster, settings, safety)
}

/// The check of convergence that fails after the damage.
fn broken_by(damage: impl FnOnce(&mut Cluster)) -> String {
    let (mut cluster, settings, _) = at_rest();
    damage(&mut cluster);
    check_converged(&cluster, &settings, Span(0))
        .map_or_else(|violation| violation.invariant.to_owned(), |()| "none".to_owned())
}

/// The check of safety that fails after the damage.
fn broken_at_once_by(damage: impl FnOnce(&mut Cluster)) -> String {
    let (mut cluster, settings, mut safety) = at_rest();
    damage(&mut cluster);
    let found = safety.check(&cluster, &settings, Span(0));
    found.map_or_else(|violation| violation.invariant.to_owned(), |()| "none".to_owned())
}

fn pod(name: &str) -> Id {
    Id::namespaced(Kind::Pod, "team", name)
}

fn set(cluster: &mut Cluster, id: &Id, pointer: &str, new: Value) {
    assert!(cluster.store.get(id).is_some(), "{id} does not exist");
    cluster.store.change(id, |value| *value.pointer_mut(pointer).expect("the field exists") = new);
}

/// The first object of a kind whose name starts so.
fn find(cluster: &Cluster, kind: Kind, name: &str) -> Id {
    let found = cluster.store.of_kind(kind).map(|(id, _)| id).find(|id| id.name.starts_with(name));
    found.expect("it exists").clone()
}

#[test]
fn an_undamaged_cluster_breaks_nothing() {
    assert_eq!((broken_by(|_| ()), broken_at_once_by(|_| ())), ("none".to_owned(), "none".to_owned()));
    let (cluster, ..) = at_rest();
    let on_node = |name: &str| cluster.store.get(&pod(name)).is_some_and(|pod| pod["spec"]["nodeName"] == "a");
    assert_eq!(["half-0", "half-1", "whole-0", "large-0"].map(on_node), [true, true, true, false]);
}

#[test]
fn pods_start_before_anything_is_written_about_them() {
    let (cluster, settings, _) = at_rest_after(true);
    check_converged(&cluster, &settings, Span(0)).expect("all is written in the end");
    let when = |kind: Kind, wanted: &dyn Fn(&Id, &Value) -> bool| {
        let all = cluster.store.changes(kind, 0, usize::MAX).expect("nothing is compacted");
        all.iter().position(|change| change.value.as_ref().is_some_and(|value| wanted(&change.id, value)))
    };
    let bound = when(Kind::Pod, &|id, pod| id.name == "whole-0" && pod["spec"]["nodeName"] == "a");
    let linked =
        when(Kind::Pod, &|id, pod| id.name == "whole-0" && !pod["metadata"]["annotations"]["pod-group-name"].is_null());
    assert!(bound.is_some() && bound < linked, "bound at {bound:?}, linked at {linked:?}");
    let group = cluster.store.get(&find(&cluster, Kind::PodGroup, "pg-whole")).expect("it exists");
    let started = &group["metadata"]["annotations"]["kai.scheduler/last-start-timestamp"];
    assert!(started.is_string(), "when it started was noted before the group was written: {started}");
    let waiting = cluster.store.get(&find(&cluster, Kind::PodGroup, "pg-large")).expect("it exists");
    let explained =
        waiting["status"]["schedulingConditions"].as_array().is_some_and(|conditions| !conditions.is_empty());
    assert!(explained, "its reason was known before the group was written: {waiting}");
}

#[test]
fn a_pod_without_link_or_group_is_found() {
    let invariant = "every pod is linked to its group";
    assert_eq!(broken_by(|cluster| set(cluster, &pod("whole-0"), "/metadata/annotations", json!({}))), invariant);
    let lost = broken_by(|cluster| {
        let group = find(cluster, Kind::PodGroup, "pg-whole");
        drop(cluster.store.remove(&group));
    });
    assert_eq!(lost, invariant);
}

#[test]
fn a_request_that_is_not_carried_out_is_found() {
    let request = Id::namespaced(Kind::BindRequest, "team", "whole-0");
    let invariant = "no bind request is left undone";
    assert_eq!(broken_by(|cluster| set(cluster, &request, "/status/phase", json!("Pending"))), invariant);
    assert_eq!(broken_by(|cluster| set(cluster, &request, "/spec/selectedNode", json!("b"))), invariant);
    assert_eq!(broken_by(|cluster| drop(cluster.store.remove(&pod("whole-0")))), invariant);
}

#[test]
fn orphaned_and_missing_reservations_are_found() {
    let invariant = "shared GPUs are reserved, and only those";
    let namespace = kai_api::keys::name::RESOURCE_RESERVATION;
    let reservation = |cluster: &Cluster| find(cluster, Kind::Pod, "gpu-reservation-");
    assert_eq!(broken_by(|cluster| drop(cluster.store.remove(&reservation(cluster)))), invariant);
    let orphan = broken_by(|cluster| {
        let mut copy = cluster.store.get(&reservation(cluster)).expect("it exists").clone();
        copy["metadata"]["labels"]["runai-gpu-group"] = json!("a-unused");
        let now = cluster.now;
        cluster.store.create(Id::namespaced(Kind::Pod, namespace, "orphan"), copy, now);
    });
    assert_eq!(orphan, invariant);
}

#[test]
fn containers_that_cannot_read_their_gpus_are_found() {
    let invariant = "containers read which GPUs are theirs";
    let map = |cluster: &Cluster| find(cluster, Kind::ConfigMap, "half-");
    assert_eq!(broken_by(|cluster| drop(cluster.store.remove(&map(cluster)))), invariant);
    let other = broken_by(|cluster| {
        let reservation = find(cluster, Kind::Pod, "gpu-reservation-");
        set(cluster, &reservation, "/metadata/annotations/run.ai~1reserve_for_gpu_index", json!("GPU-other"));
    });
    assert_eq!(other, invariant);
    let unprepared = broken_by(|cluster| {
        let link = json!({"pod-group-name": cluster.store.get(&pod("half-0")).unwrap()["metadata"]["annotations"]["pod-group-name"]});
        set(cluster, &pod("half-0"), "/metadata/annotations", link);
    });
    assert_eq!(unprepared, invariant);
}

#[test]
fn a_group_that_admission_would_refuse_is_found() {
    let twice = json!([{"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}]);
    let broken = broken_by(|cluster| {
        let group = find(cluster, Kind::PodGroup, "pg-whole");
        cluster.store.change(&group, |value| value["spec"]["subGroups"] = twice);
    });
    assert_eq!(broken, "pod groups are as admission wants them");
}

#[test]
fn pods_that_share_a_gpu_wait_for_admission_and_others_do_not() {
    let plan = plan();
    let mut cluster = Cluster::new(&plan, kai_workloads::Settings::default(), 0, start_time(&plan));
    cluster.webhooks.available = false;
    cluster.bootstrap(&with_built_ins(&plan)).expect("usable");
    let made = |cluster: &Cluster| ["half-0", "whole-0"].map(|name| cluster.store.get(&pod(name)).is_some());
    assert_eq!(made(&cluster), [false, true]);
    cluster.webhooks.available = true;
    cluster.run_controllers();
    assert_eq!(made(&cluster), [true, true]);
}

#[test]
fn a_torn_gang_is_found() {
    let torn = broken_by(|cluster| {
        let group = find(cluster, Kind::PodGroup, "pg-whole");
        set(cluster, &group, "/spec/minMember", json!(2));
    });
    assert_eq!(torn, "gangs are whole or wait");
}

#[test]
fn a_pod_that_is_pending_beside_free_room_is_found() {
    let node = Id::cluster(Kind::Node, "a");
    let wide = broken_by(|cluster| set(cluster, &node, "/status/allocatable/nvidia.com~1gpu", json!("4")));
    assert_eq!(wide, "no pod is pending that could run");
}

#[test]
fn missing_and_outdated_reasons_are_found() {
    let invariant = "every pending pod has a reason";
    let silent = broken_by(|cluster| {
        let group = find(cluster, Kind::PodGroup, "pg-large");
        set(cluster, &group, "/status/schedulingConditions", json!([]));
        set(cluster, &pod("large-0"), "/status/conditions", json!([]));
    });
    assert_eq!(silent, invariant);
    let stale = broken_by(|cluster| {
        let (group, waiting) = (find(cluster, Kind::PodGroup, "pg-whole"), find(cluster, Kind::PodGroup, "pg-large"));
        let old = cluster.store.get(&waiting).expect("it exists")["status"]["schedulingConditions"].clone();
        cluster.store.change(&group, |value| value["status"]["schedulingConditions"] = old);
    });
    assert_eq!(stale, invariant);
}

#[test]
fn wrong_statuses_are_found() {
    let invariant = "every status equals what the objects add up to";
    let group = broken_by(|cluster| {
        let group = find(cluster, Kind::PodGroup, "pg-whole");
        set(cluster, &group, "/status/resourcesStatus/allocated", json!({"nvidia.com/gpu": "7"}));
    });
    let queue = Id::cluster(Kind::Queue, "default-parent-queue");
    let queue = broken_by(|cluster| set(cluster, &queue, "/status/allocated", json!({})));
    assert_eq!((group.as_str(), queue.as_str()), (invariant, invariant));
}

#[test]
fn a_pod_that_moves_is_found_at_once() {
    let moved = broken_at_once_by(|cluster| set(cluster, &pod("whole-0"), "/spec/nodeName", json!("b")));
    assert_eq!(moved, "no pod is bound twice");
}

/// The raw check that fails after the damage, which no reading of annotations and labels shows.
fn broken_in_raw_objects_by(damage: impl FnOnce(&mut Cluster)) -> String {
    let (mut cluster, settings, mut safety) = at_rest();
    safety.hostile = true;
    damage(&mut cluster);
    let found = safety.check(&cluster, &settings, Span(0));
    found.map_or_else(|violation| violation.invariant.to_owned(), |()| "none".to_owned())
}

#[test]
fn what_containers_have_counts_whatever_their_annotations_become() {
    let node = "containers of a node never have more than it has";
    let bind = |cluster: &mut Cluster, pod: &Id| {
        cluster.store.change(pod, |value| value["spec"]["nodeName"] = json!("a"));
    };
    let copy = |cluster: &mut Cluster, of: &str, name: &str| {
        let mut copy = cluster.store.get(&pod(of)).expect("it exists").clone();
        copy["metadata"]["uid"] = json!("another");
        let now = cluster.now;
        cluster.store.create(pod(name), copy, now);
    };
    assert_eq!(broken_in_raw_objects_by(|cluster| bind(cluster, &pod("large-0"))), node);
    assert_eq!(broken_in_raw_objects_by(|cluster| copy(cluster, "half-0", "half-2")), node);
    let cheaper = broken_in_raw_objects_by(|cluster| {
        for name in ["half-0", "half-1"] {
            set(cluster, &pod(name), "/metadata/annotations/gpu-fraction", json!("0.1"));
        }
        copy(cluster, "half-0", "half-2");
    });
    assert_eq!(cheaper, node);
    let mig = broken_in_raw_objects_by(|cluster| {
        cluster.store.change(&pod("whole-0"), |pod| {
            pod["metadata"]["annotations"]["nvidia.com/mig-1g.5gb"] = json!("0");
        });
        cluster.store.change(&pod("large-0"), |pod| {
            pod["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
        });
        bind(cluster, &pod("large-0"));
    });
    assert_eq!(mig, node);
    let unreserved = broken_in_raw_objects_by(|cluster| {
        let reservation = find(cluster, Kind::Pod, "gpu-reservation-");
        drop(cluster.store.remove(&reservation));
        cluster.store.change(&pod("large-0"), |pod| {
            pod["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
        });
        bind(cluster, &pod("large-0"));
    });
    assert_eq!(unreserved, node);
    let over = broken_in_raw_objects_by(|cluster| {
        set(cluster, &Id::cluster(Kind::Queue, "default-queue"), "/spec/resources/gpu/limit", json!(2));
        set(cluster, &Id::cluster(Kind::Node, "a"), "/status/allocatable/nvidia.com~1gpu", json!("8"));
        bind(cluster, &pod("large-0"));
    });
    assert_eq!(over, "no queue is bound above its limit");
    let ended = broken_in_raw_objects_by(|cluster| {
        for name in ["half-0", "half-1", "whole-0"] {
            cluster.store.change(&pod(name), |pod| pod["status"]["phase"] = json!("Succeeded"));
        }
        let reservation = find(cluster, Kind::Pod, "gpu-reservation-");
        drop(cluster.store.remove(&reservation));
        bind(cluster, &pod("large-0"));
    });
    assert_eq!(ended, "none");
}

#[test]
fn too_much_on_a_node_or_a_gpu_is_found_at_once() {
    let bind = |cluster: &mut Cluster, pod: &Id| {
        cluster.store.change(pod, |value| value["spec"]["nodeName"] = json!("a"));
    };
    assert_eq!(broken_at_once_by(|cluster| bind(cluster, &pod("large-0"))), "no GPU is over-committed");
    let third = broken_at_once_by(|cluster| {
        let mut copy = cluster.store.get(&pod("half-0")).expect("it exists").clone();
        copy["metadata"]["uid"] = json!("another");
        let now = cluster.now;
        cluster.store.create(pod("half-2"), copy, now);
    });
    assert_eq!(third, "no GPU is over-committed");
    let busy = broken_at_once_by(|cluster| {
        let asked = json!([{"name": "main", "resources": {"requests": {"cpu": "9"}}}]);
        set(cluster, &pod("large-0"), "/spec/containers", asked);
        bind(cluster, &pod("large-0"));
    });
    assert_eq!(busy, "no node is over-committed");
}
