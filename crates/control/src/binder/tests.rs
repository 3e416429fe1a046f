use std::collections::BTreeMap;

use kai_engine::units::{Span, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::controller::Work;
use super::*;
use crate::controller::{CallError, OnError, WorkKey, WorkResult};
use crate::kinds::Kind;

/// A cluster just large enough to bind pods in: objects by kind, namespace and name.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cluster {
    objects: BTreeMap<(String, String, String), Value>,
    messages: Vec<String>,
    made: u32,
}

impl Cluster {
    fn put(&mut self, mut object: Value) {
        if object["metadata"]["uid"].is_null() {
            self.made += 1;
            object["metadata"]["uid"] = json!(format!("uid-{}", self.made));
            object["metadata"]["creationTimestamp"] = json!("1970-01-01T00:16:40Z");
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        self.objects.insert((text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"])), object);
    }

    fn at(&mut self, kind: &str, key: &Key) -> Option<&mut Value> {
        self.objects.get_mut(&(kind.to_owned(), key.namespace.clone(), key.name.clone()))
    }

    fn remove(&mut self, kind: &str, key: &Key) {
        self.objects.remove(&(kind.to_owned(), key.namespace.clone(), key.name.clone()));
    }

    fn kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |((own, ..), _)| own == kind).map(|(_, object)| object)
    }

    /// A binder that has just started and read everything.
    fn binder(&self) -> Binder {
        let mut binder = Binder::new(Settings::default());
        for ((kind, ..), object) in &self.objects {
            match kind.as_str() {
                "BindRequest" => drop(binder.apply_request(object).unwrap()),
                "Pod" => drop(binder.apply_pod(object).unwrap()),
                "PersistentVolumeClaim" => binder.apply_volume_claim(object).unwrap(),
                "StorageClass" => binder.apply_storage_class(object).unwrap(),
                "Node" => binder.apply_node(object).unwrap(),
                _ => {}
            }
        }
        binder
    }

    fn perform(&mut self, effect: &BindEffect) {
        match effect {
            BindEffect::CreatePod(pod) => {
                let key =
                    Key::new(pod["metadata"]["namespace"].as_str().unwrap(), pod["metadata"]["name"].as_str().unwrap());
                if self.at("Pod", &key).is_none() {
                    self.put((**pod).clone());
                }
            }
            BindEffect::DeletePod { pod, uid, .. } => {
                if self.at("Pod", pod).is_some_and(|stored| stored["metadata"]["uid"] == json!(uid)) {
                    self.remove("Pod", pod);
                }
            }
            BindEffect::LabelPod { pod, labels, .. } => {
                let stored = self.at("Pod", pod).expect("the pod is there");
                stored["metadata"]["labels"] = json!(labels);
            }
            BindEffect::WriteConfigMap(map) => self.put((**map).clone()),
            BindEffect::SetSelectedNode { claim, node } => {
                let stored = self.at("PersistentVolumeClaim", claim).expect("the claim is there");
                stored["metadata"]["annotations"][SELECTED_NODE] = json!(node);
            }
            BindEffect::PrebindVolume { .. } => unreachable!("no volume is there"),
            BindEffect::AllocateClaim { claim, uid, allocation, .. } => {
                let stored = self.at("ResourceClaim", claim).expect("the claim is there");
                stored["status"]["allocation"] = (**allocation).clone();
                stored["status"]["reservedFor"][uid] = json!(true);
            }
            BindEffect::Bind { pod, node, annotations, .. } => {
                let stored = self.at("Pod", pod).expect("the pod is there");
                assert!(stored["spec"]["nodeName"].is_null(), "{pod} is bound twice");
                stored["spec"]["nodeName"] = json!(node);
                for (key, value) in annotations {
                    stored["metadata"]["annotations"][key] = json!(value);
                }
            }
            BindEffect::SetPhase { request, phase, reason, failed_attempts, .. } => {
                let stored = self.at("BindRequest", request).expect("the request is there");
                stored["status"] = json!({"phase": phase, "reason": reason, "failedAttempts": failed_attempts});
            }
            BindEffect::DeleteRequest(key) => self.remove("BindRequest", key),
            BindEffect::ReportResult { message, .. } => self.messages.push(message.clone()),
        }
    }

    /// What others do meanwhile: reservation pods find their device, volumes are made.
    fn others(&mut self) {
        for ((kind, namespace, name), object) in &mut self.objects {
            if kind == "Pod" && namespace == "kai-resource-reservation" {
                object["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] = json!(format!("GPU-of-{name}"));
                object["status"]["phase"] = json!("Running");
            }
            let assigned = !object["metadata"]["annotations"][SELECTED_NODE].is_null();
            if kind == "PersistentVolumeClaim" && assigned {
                object["spec"]["volumeName"] = json!("volume");
                object["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
            }
        }
    }
}

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const NOW: Timestamp = Timestamp(1_000_000_000);

fn request(pod: &str, kind: &str, groups: &[&str]) -> Value {
    json!({
        "kind": "BindRequest",
        "metadata": {"name": pod, "namespace": "lab", "creationTimestamp": "1970-01-01T00:16:40Z"},
        "spec": {
            "podName": pod, "selectedNode": "n1", "receivedResourceType": kind, "selectedGPUGroups": groups,
            "receivedGPU": {"count": 1, "portion": "0.50"},
            "resourceClaimAllocations": [{"name": "gpu", "allocation": {"devices": {"results": []}}}],
        },
    })
}

fn pod(name: &str, devices: usize) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "lab", "uid": format!("uid-of-{name}"), "labels": {}, "annotations": {
            "gpu-fraction": "0.5", "gpu-fraction-num-devices": devices.to_string(),
            "runai/shared-gpu-configmap": format!("{name}-abcdefg-shared-gpu"),
        }},
        "spec": {
            "containers": [{"name": "main", "env": [
                {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}},
            ]}],
            "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "device"}],
        },
        "status": {"phase": "Pending"},
    })
}

/// Two pods that share a GPU and one on two GPUs, volumes and device claims included.
fn cluster() -> Cluster {
    let mut cluster = Cluster::default();
    let labels = json!({"nvidia.com/gpu.memory": "16000"});
    cluster.put(json!({"kind": "Node", "metadata": {"name": "n1", "labels": labels}}));
    cluster.put(json!({
        "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer",
    }));
    cluster.put(json!({
        "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "lab", "annotations": {}},
        "spec": {"storageClassName": "fast"},
    }));
    cluster.put(json!({"kind": "ResourceClaim", "metadata": {"name": "device", "namespace": "lab"}}));
    for (name, groups) in [("a", vec!["g1"]), ("b", vec!["g1"]), ("c", vec!["g2", "g3"])] {
        cluster.put(pod(name, groups.len()));
        cluster.put(request(name, "Fraction", &groups));
    }
    cluster
}

/// Lets binders work until nothing is left to do; the first ones die after as many effects as `lives` says.
fn run(cluster: &mut Cluster, lives: &[usize]) {
    for round in 0..200 {
        let binder = cluster.binder();
        let keys: Vec<Key> = binder.pending_requests().cloned().collect();
        let mut left = lives.get(round).copied().unwrap_or(usize::MAX);
        let mut idle = true;
        'alive: for key in keys {
            for effect in cluster.binder().plan(&key, NOW).effects {
                if left == 0 {
                    break 'alive;
                }
                left -= 1;
                idle = false;
                cluster.perform(&effect);
            }
        }
        for group in cluster.binder().groups() {
            for effect in cluster.binder().sync_gpu_group(&group, NOW) {
                cluster.perform(&effect);
            }
        }
        let before = cluster.clone();
        cluster.others();
        if idle && round >= lives.len() && before == *cluster {
            return;
        }
    }
    panic!("never done");
}

#[test]
fn shared_gpus_are_reserved_once_and_passed_to_containers() {
    let mut cluster = cluster();
    run(&mut cluster, &[]);
    assert!(cluster.kind("BindRequest").all(|request| request["status"]["phase"] == "Succeeded"));
    let reservations: Vec<&Value> =
        cluster.kind("Pod").filter(|pod| pod["metadata"]["namespace"] == "kai-resource-reservation").collect();
    assert_eq!(reservations.len(), 3);
    assert!(reservations.iter().all(|pod| pod["spec"]["tolerations"] == json!([{"operator": "Exists"}])));
    let found = |name: &str| cluster.kind("Pod").find(|pod| pod["metadata"]["name"] == name).unwrap();
    assert_eq!(found("a")["metadata"]["labels"], json!({"runai-gpu-group": "g1"}));
    assert_eq!(found("b")["metadata"]["labels"], json!({"runai-gpu-group": "g1"}));
    assert_eq!(found("c")["metadata"]["labels"], json!({"runai-gpu-group/g2": "g2", "runai-gpu-group/g3": "g3"}));
    assert_eq!(found("a")["metadata"]["annotations"]["received-resource-type"], "Fraction");
    let map =
        |name: &str| cluster.kind("ConfigMap").find(|map| map["metadata"]["name"] == name).unwrap()["data"].clone();
    let capabilities = map("a-abcdefg-shared-gpu-0");
    assert_eq!(capabilities, map("b-abcdefg-shared-gpu-0"));
    assert_eq!((&capabilities["GPU_PORTION"], &capabilities["RUNAI_NUM_OF_GPUS"]), (&json!("0.50"), &json!("0.50")));
    assert_eq!(map("a-abcdefg-shared-gpu-0-evar"), json!({}));
    let devices = map("c-abcdefg-shared-gpu-0")["NVIDIA_VISIBLE_DEVICES"].as_str().unwrap().to_owned();
    assert_eq!(devices.split(',').count(), 2);
    assert_eq!(cluster.messages.iter().filter(|text| *text == "Pod bound successfully to node n1").count(), 3);
}

#[test]
fn the_name_of_a_reservation_follows_from_node_and_group() {
    let cluster = cluster();
    let plan = cluster.binder().plan(&Key::new("lab", "a"), NOW);
    let BindEffect::CreatePod(pod) = &plan.effects[0] else { panic!("expected a reservation, got {plan:?}") };
    // The first eight bytes of SHA-256 over "n1/g1".
    assert_eq!(pod["metadata"]["name"], "gpu-reservation-bb8a26907a9bbf15");
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"], json!({"nvidia.com/gpu": "1"}));
}

#[test]
fn a_reservation_that_finds_no_gpu_fails_the_request_and_leaves_nothing() {
    let mut cluster = cluster();
    let key = Key::new("lab", "a");
    for effect in cluster.binder().plan(&key, NOW).effects {
        cluster.perform(&effect);
    }
    let reservation = cluster.kind("Pod").find(|pod| pod["metadata"]["namespace"] == "kai-resource-reservation");
    assert!(reservation.is_some());
    let plan = cluster.binder().plan(&key, NOW);
    assert_eq!(plan.requeue_at, Some(Timestamp(NOW.0 + Span::seconds(40).0)));
    for effect in cluster.binder().plan(&key, Timestamp(NOW.0 + Span::seconds(41).0)).effects {
        cluster.perform(&effect);
    }
    let request = cluster.at("BindRequest", &key).unwrap();
    assert_eq!(request["status"]["phase"], "Failed");
    assert!(request["status"]["reason"].as_str().unwrap().contains("failed waiting for GPU reservation pod"));
    assert!(cluster.kind("Pod").all(|pod| pod["metadata"]["namespace"] == "lab"));
    assert!(cluster.messages[0].starts_with("Failed to bind pod lab/a to node n1: failed to reserve GPUs"));
}

#[test]
fn a_request_outlives_neither_its_pod_nor_its_node() {
    let mut cluster = cluster();
    cluster.remove("Node", &Key::new("", "n1"));
    run(&mut cluster, &[]);
    assert!(cluster.kind("BindRequest").all(|request| request["status"]["phase"] == "Failed"));

    let mut cluster = self::cluster();
    cluster.remove("Pod", &Key::new("lab", "a"));
    let key = Key::new("lab", "a");
    assert_eq!(cluster.binder().plan(&key, NOW).requeue_at, Some(Timestamp(NOW.0 + Span::seconds(10).0)));
    let plan = cluster.binder().plan(&key, Timestamp(NOW.0 + Span::seconds(10).0));
    assert!(matches!(&plan.effects[0], BindEffect::SetPhase { phase: "Failed", .. }));
}

#[test]
fn a_new_pod_of_the_same_name_does_not_inherit_the_request() {
    let mut cluster = cluster();
    let mut owned = request("a", "Regular", &[]);
    owned["metadata"]["ownerReferences"] = json!([{"uid": "of-an-earlier-pod"}]);
    cluster.put(owned);
    let plan = cluster.binder().plan(&Key::new("lab", "a"), NOW);
    assert_eq!((plan.effects.len(), plan.wait_reason.as_deref()), (0, Some("pod lab/a to appear")));
}

#[test]
fn attempts_are_counted_up_to_the_limit() {
    let mut cluster = cluster();
    let mut limited = request("a", "Fraction", &["g1"]);
    limited["spec"]["backoffLimit"] = json!(3);
    cluster.put(limited);
    let key = Key::new("lab", "a");
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let plan = cluster.binder().failed(&key, "no", NOW);
        pauses.push(plan.requeue_at.map(|again| (again.0 - NOW.0) / 1_000_000));
        plan.effects.iter().for_each(|effect| cluster.perform(effect));
    }
    assert_eq!(pauses, [Some(1), Some(2), None, None]);
    assert_eq!(cluster.at("BindRequest", &key).unwrap()["status"]["failedAttempts"], 3);
}

#[test]
fn users_of_a_lost_reservation_go_and_unused_reservations_too() {
    let mut cluster = cluster();
    run(&mut cluster, &[]);
    for name in ["a", "b"] {
        cluster.at("Pod", &Key::new("lab", name)).unwrap()["status"]["phase"] = json!("Running");
    }
    cluster.remove("Pod", &Key::new("lab", "c"));
    let reservation = cluster.binder().reservation("g1").unwrap().key.clone();
    cluster.remove("Pod", &reservation);
    for group in ["g1", "g2", "g3"] {
        for effect in cluster.binder().sync_gpu_group(group, NOW) {
            cluster.perform(&effect);
        }
    }
    assert_eq!(cluster.kind("Pod").count(), 0);
}

#[test]
fn an_attempt_that_failed_takes_nothing_from_a_pod_that_may_be_bound() {
    let mut cluster = cluster();
    let key = Key::new("lab", "a");
    // The pod is bound in the end, but the answer was lost and no watch has shown it yet.
    let before = loop {
        let before = cluster.binder();
        let effects = cluster.binder().plan(&key, NOW).effects;
        for effect in &effects {
            cluster.perform(effect);
        }
        if effects.iter().any(|effect| matches!(effect, BindEffect::Bind { .. })) {
            break before;
        }
        assert!(!effects.is_empty(), "it is never bound");
        cluster.others();
    };
    before.failed(&key, "no answer", NOW).effects.iter().for_each(|effect| cluster.perform(effect));
    assert_eq!(cluster.at("Pod", &key).unwrap()["metadata"]["labels"], json!({"runai-gpu-group": "g1"}));
    assert!(cluster.at("ConfigMap", &Key::new("lab", "a-abcdefg-shared-gpu-0")).is_some());
}

#[test]
fn a_reservation_stays_while_its_user_may_be_bound() {
    let mut cluster = cluster();
    run(&mut cluster, &[]);
    cluster.remove("BindRequest", &Key::new("lab", "b"));
    cluster.remove("Pod", &Key::new("lab", "b"));
    // The watch of requests is ahead of that of pods.
    let mut binder = cluster.binder();
    let mut late = cluster.at("Pod", &Key::new("lab", "a")).unwrap().clone();
    late["spec"]["nodeName"] = json!(null);
    binder.apply_pod(&late).unwrap();
    assert_eq!(binder.sync_gpu_group("g1", NOW), []);
}

#[test]
fn a_reservation_goes_when_its_user_was_not_bound_after_all() {
    let mut cluster = cluster();
    run(&mut cluster, &[]);
    for name in ["a", "b"] {
        cluster.remove("BindRequest", &Key::new("lab", name));
        cluster.remove("Pod", &Key::new("lab", name));
    }
    cluster.put(pod("a", 1));
    cluster.put(request("a", "Fraction", &["g1"]));
    let key = Key::new("lab", "a");
    let mut binder = cluster.binder();
    let effects = binder.plan(&key, NOW).effects;
    assert!(effects.iter().any(|effect| matches!(effect, BindEffect::Bind { .. })), "{effects:?}");
    binder.mark_bind_unknown(&effects, NOW);
    binder.delete_request(&key);
    assert_eq!(binder.sync_gpu_group("g1", NOW), []);
    let later = NOW.plus(Span::seconds(121));
    assert!(matches!(&*binder.sync_gpu_group("g1", later), [BindEffect::DeletePod { .. }]));
}

#[test]
fn a_node_takes_no_more_than_it_has_room_for() {
    fn whole(name: &str, amounts: &Value) -> Value {
        json!({"kind": "Pod", "metadata": {"name": name, "namespace": "lab", "uid": name},
            "spec": {"containers": [{"resources": {"requests": amounts}}]}, "status": {"phase": "Pending"}})
    }
    /// What the binder waits for with a pod that asks for this much beside those; they may be bound or on their way.
    fn waits_for(amounts: &Value, others: &[(Value, bool)]) -> Option<String> {
        let mut cluster = Cluster::default();
        let offered = json!({"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2", "pods": "10"});
        cluster.put(json!({"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": offered}}));
        for (number, (amounts, bound)) in others.iter().enumerate() {
            let name = format!("other-{number}");
            let mut pod = whole(&name, amounts);
            if *bound {
                pod["spec"]["nodeName"] = json!("n1");
            } else {
                cluster.put(request(&name, "Regular", &[]));
            }
            cluster.put(pod);
        }
        cluster.put(whole("new", amounts));
        cluster.put(request("new", "Regular", &[]));
        let key = Key::new("lab", "new");
        let late = Timestamp(NOW.0 + Span::seconds(10).0);
        let plan = cluster.binder().plan(&key, late);
        let gives_up = matches!(&plan.effects[0], BindEffect::SetPhase { phase: "Failed", .. });
        let waiting = cluster.binder().plan(&key, NOW).wait_reason;
        assert_eq!(waiting.is_some(), gives_up, "at first it waits for pods that may have been deleted already");
        waiting
    }
    let (gpu, cpus) = (json!({"nvidia.com/gpu": "1"}), json!({"cpu": "3"}));
    assert_eq!(waits_for(&gpu, &[(gpu.clone(), true)]), None);
    let full = "node to fit: insufficient GPUs on node n1: pod lab/new would exceed allocatable by 1";
    assert_eq!(waits_for(&gpu, &[(gpu.clone(), true), (gpu.clone(), true)]).as_deref(), Some(full));
    assert_eq!(waits_for(&gpu, &[(gpu.clone(), true), (gpu.clone(), false)]).as_deref(), Some(full));
    assert_eq!(waits_for(&gpu, &[(cpus.clone(), true)]), None);
    assert!(
        waits_for(&cpus, &[(cpus.clone(), true)])
            .is_some_and(|why| why.contains("insufficient milli-CPU on node n1") && why.ends_with("by 2000"))
    );
}

#[test]
fn a_shared_gpu_takes_no_more_than_it_has() {
    let mut cluster = cluster();
    cluster.put(pod("d", 1));
    cluster.put(request("d", "Fraction", &["g1"]));
    let waiting = cluster.binder().plan(&Key::new("lab", "d"), NOW).wait_reason.unwrap();
    let full = "insufficient MiB on GPU g1 on node n1: pod lab/d would exceed allocatable by 8000";
    assert!(waiting.ends_with(full), "{waiting}");
}

proptest! {
    /// However often the binder dies and starts again, the cluster ends the same.
    #[test]
    fn dying_at_any_moment_changes_nothing(lives in prop::collection::vec(0_usize..10, 0..12)) {
        let (mut steady, mut shaky) = (cluster(), cluster());
        run(&mut steady, &[]);
        run(&mut shaky, &lives);
        let state = |cluster: &Cluster| {
            let mut objects = cluster.objects.clone();
            for object in objects.values_mut() {
                object["metadata"]["uid"] = json!(null);
            }
            objects
        };
        prop_assert_eq!(state(&steady), state(&shaky));
    }

    /// Whichever effect is refused, no GPU stays reserved.
    #[test]
    fn a_refused_effect_leaves_no_reservation_behind(refused in 0_usize..30) {
        let mut cluster = cluster();
        let key = Key::new("lab", "c");
        let mut count = 0;
        'all: for _ in 0..6 {
            for effect in cluster.binder().plan(&key, NOW).effects {
                if count == refused && !matches!(effect, BindEffect::SetPhase { .. } | BindEffect::ReportResult { .. }) {
                    for effect in cluster.binder().failed(&key, "refused", NOW).effects {
                        cluster.perform(&effect);
                    }
                    break 'all;
                }
                count += 1;
                cluster.perform(&effect);
            }
            cluster.others();
        }
        for group in ["g2", "g3"] {
            for effect in cluster.binder().sync_gpu_group(group, NOW) {
                cluster.perform(&effect);
            }
        }
        let pod = cluster.at("Pod", &Key::new("lab", "c")).unwrap().clone();
        if pod["spec"]["nodeName"].is_null() {
            prop_assert_eq!(cluster.kind("Pod").filter(|pod| pod["metadata"]["namespace"] != "lab").count(), 0);
        }
    }
}

/// A binder that has read everything.
fn controller(cluster: &Cluster) -> BinderController {
    let mut controller = BinderController::new(Settings::default());
    for ((kind, ..), object) in &cluster.objects {
        let kind = match kind.as_str() {
            "BindRequest" => Kind::BindRequest,
            "Pod" => Kind::Pod,
            "PersistentVolumeClaim" => Kind::PersistentVolumeClaim,
            "StorageClass" => Kind::StorageClass,
            "Node" => Kind::Node,
            _ => continue,
        };
        controller.apply(kind, object, NOW).unwrap();
    }
    controller
}

fn done(item: Work) -> WorkResult<BindEffect> {
    ended(item, None)
}

/// The result of an item of which this call failed, if one did.
fn ended(item: Work, error: Option<(usize, CallError)>) -> WorkResult<BindEffect> {
    let stops = error.is_some() && item.on_error == OnError::Stop;
    let completed = error.as_ref().filter(|_| stops).map_or(item.calls.len(), |(at, _)| *at);
    WorkResult { completed, errors: error.into_iter().collect(), ..WorkResult::new(item) }
}

fn creations(jobs: &[Work]) -> usize {
    let effects = jobs.iter().flat_map(|job| &job.calls);
    effects.filter(|effect| matches!(effect, BindEffect::CreatePod(_))).count()
}

fn binds(jobs: &[Work]) -> usize {
    let effects = jobs.iter().flat_map(|job| &job.calls);
    effects.filter(|effect| matches!(effect, BindEffect::Bind { .. })).count()
}

#[test]
fn no_pod_is_bound_with_a_gpu_whose_reservation_is_being_deleted() {
    let mut cluster = Cluster::default();
    cluster.put(json!({"kind": "Node", "metadata": {"name": "n1"}}));
    for name in ["a", "b"] {
        let mut pod = pod(name, 1);
        pod["spec"]["volumes"] = json!([]);
        pod["spec"]["resourceClaims"] = json!([]);
        cluster.put(pod);
        cluster.put(request(name, "Fraction", &["g1"]));
    }
    let mut controller = controller(&cluster);
    let creation = controller.work(NOW).remove(0);
    creation.calls.iter().for_each(|effect| cluster.perform(effect));
    controller.finished(done(creation), NOW);
    let mut reservation = cluster.kind("Pod").find(|pod| pod["metadata"]["namespace"] != "lab").unwrap().clone();
    reservation["metadata"]["resourceVersion"] = json!("7");
    controller.apply(Kind::Pod, &reservation, NOW).unwrap();
    assert_eq!(controller.work(NOW), [], "it has to find its GPU first");
    // For all that is known, it has not found it in time.
    let late = NOW.plus(Settings::default().reservation_timeout);
    let mut jobs = controller.work(late);
    let deletes =
        |job: &Work| matches!(&job.calls[0], BindEffect::DeletePod { version: Some(seen), .. } if seen == "7");
    let deletion = jobs.remove(jobs.iter().position(deletes).expect("it is deleted as it was seen"));
    reservation["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] = json!("GPU-1");
    reservation["metadata"]["resourceVersion"] = json!("8");
    controller.apply(Kind::Pod, &reservation, late).unwrap();
    controller.apply(Kind::BindRequest, &request("d", "Fraction", &["g1"]), late).unwrap();
    let mut pod = cluster.at("Pod", &Key::new("lab", "b")).unwrap().clone();
    pod["metadata"]["name"] = json!("d");
    controller.apply(Kind::Pod, &pod, late).unwrap();
    assert_eq!(binds(&controller.work(late)), 0, "it may be gone in a moment");
    let mut gone = controller;
    gone.finished(done(deletion.clone()), late);
    gone.apply(Kind::Pod, &reservation, late).unwrap();
    assert_eq!(binds(&gone.work(late)), 0, "it is gone, whatever a watch shows");
}

#[test]
fn a_reservation_is_created_by_one_at_a_time_and_not_deleted_meanwhile() {
    let mut cluster = cluster();
    let mut controller = controller(&cluster);
    let mut jobs = controller.work(NOW);
    assert_eq!(creations(&jobs), 3, "g1 for a and b, g2 and g3 for c");
    let first = jobs.remove(0);
    // Its requests are deleted while the call is in flight.
    for name in ["a", "b"] {
        controller.delete(Kind::BindRequest, &Key::new("lab", name), NOW);
    }
    controller.resync();
    assert_eq!(controller.work(NOW), []);
    // Then it goes, and is not made again before it is gone.
    first.calls.iter().for_each(|effect| cluster.perform(effect));
    controller.finished(done(first), NOW);
    let mut deletions = controller.work(NOW);
    let deletion = deletions.remove(0);
    assert!(matches!(deletion.calls[..], [BindEffect::DeletePod { .. }]) && deletions.is_empty(), "{deletions:?}");
    controller.apply(Kind::BindRequest, &request("a", "Fraction", &["g1"]), NOW).unwrap();
    assert_eq!(creations(&controller.work(NOW)), 0);
    controller.finished(done(deletion), NOW);
    assert_eq!(creations(&controller.work(NOW)), 1);
}

#[test]
fn a_pod_shares_the_gpus_that_are_named_last() {
    let text = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let stored = text(&[("app", "web"), ("runai-gpu-group", "g0"), ("runai-gpu-group/g1", "g1")]);
    let changes =
        gpu_group_label_changes(&stored, &text(&[("runai-gpu-group/g1", "g1"), ("runai-gpu-group/g2", "g2")]));
    let expected = [("runai-gpu-group".to_owned(), None), ("runai-gpu-group/g2".to_owned(), Some("g2".to_owned()))];
    assert_eq!(changes, BTreeMap::from(expected));
}

/// The scheduler may plan anew with the room of a request that was given up: nothing may be done for it any more.
#[test]
fn a_request_given_up_stays_so_even_if_its_event_fails() {
    let mut cluster = cluster();
    cluster.remove("Pod", &Key::new("lab", "c"));
    let mut controller = controller(&cluster);
    let given_up = controller
        .work(NOW.plus(Span::seconds(60)))
        .into_iter()
        .find(|job| job.on_error == OnError::Continue)
        .expect("c is given up");
    let report = given_up.calls.len() - 1;
    assert!(matches!(given_up.calls[report], BindEffect::ReportResult { bound: false, .. }));
    let later = NOW.plus(Span::seconds(90));
    let refused = CallError::Rejected("pod not found".to_owned());
    controller.finished(ended(given_up, Some((report, refused))), later);
    // The pod's watch was late.
    controller.apply(Kind::Pod, &pod("c", 2), later).unwrap();
    let about_c = |job: &Work| job.key == WorkKey::BindRequest(Key::new("lab", "c"));
    assert!(!controller.work(later).iter().any(about_c));
}

/// Otherwise its room could be given away while it is there.
#[test]
fn a_bind_without_an_answer_is_tried_again_until_there_is_one() {
    let cluster = {
        let mut cluster = Cluster::default();
        cluster
            .put(json!({"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": 4, "pods": 9}}}));
        let spec = json!({"containers": [{"name": "main"}]});
        let metadata = json!({"name": "c", "namespace": "lab", "uid": "uid-of-c"});
        cluster.put(json!({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}));
        cluster.put(request("c", "Regular", &[]));
        cluster
    };
    let ends = |refusal: CallError| {
        let mut controller = controller(&cluster);
        let job = controller.work(NOW).remove(0);
        let at = job.calls.iter().position(|effect| matches!(effect, BindEffect::Bind { .. })).expect("it binds");
        controller.finished(ended(job, Some((at, refusal))), NOW);
        controller.work(NOW.plus(Span::seconds(2))).remove(0).calls
    };
    let binds = |effects: &[BindEffect]| effects.iter().any(|effect| matches!(effect, BindEffect::Bind { .. }));
    assert!(binds(&ends(CallError::Unknown("timeout".to_owned()))));
    assert!(!binds(&ends(CallError::Rejected("the pod is already bound to node n2".to_owned()))));
}

/// Everything that is written about a failed attempt comes back from a watch, and is not a change.
#[test]
fn the_next_attempt_keeps_its_pause_whatever_is_seen_meanwhile() {
    let mut cluster = cluster();
    let mut limited = request("a", "Fraction", &["g1"]);
    limited["spec"]["backoffLimit"] = json!(5);
    cluster.put(limited);
    cluster.remove("BindRequest", &Key::new("lab", "b"));
    let (mut controller, key) = (controller(&cluster), Key::new("lab", "a"));
    let job = controller.work(NOW).remove(0);
    assert_eq!(job.key, WorkKey::BindRequest(key.clone()));
    controller.finished(ended(job, Some((0, CallError::Rejected("no".to_owned())))), NOW);
    let job = controller.work(NOW).remove(0);
    job.calls.iter().for_each(|effect| cluster.perform(effect));
    controller.finished(done(job), NOW);
    let mut written = cluster.at("BindRequest", &key).unwrap().clone();
    written["metadata"]["resourceVersion"] = json!("next");
    controller.apply(Kind::BindRequest, &written, NOW).unwrap();
    controller.apply(Kind::Pod, cluster.at("Pod", &key).unwrap(), NOW).unwrap();
    let mut attempts =
        |at: Timestamp| controller.work(at).iter().filter(|job| job.key == WorkKey::BindRequest(key.clone())).count();
    assert_eq!(attempts(NOW.plus(Span(999_999))), 0);
    assert_eq!(attempts(NOW.plus(Span::seconds(1))), 1);
}

fn plain_pod(name: &str, node: Option<&str>) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "lab", "uid": format!("uid-of-{name}")},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": "Pending"},
    })
}

/// A batch with a request for each pod, from number 0.
fn batch_of(requests: &[(&str, &str)]) -> Value {
    let entries: BTreeMap<String, String> = requests
        .iter()
        .enumerate()
        .map(|(number, (pod, node))| {
            let entry = json!({"uid": format!("uid-of-{pod}"), "spec": {"podName": pod, "selectedNode": node}});
            (format!("bind-batch.kai.scheduler/{number}"), entry.to_string())
        })
        .collect();
    let labels = json!({"kai.scheduler/bind-batch": requests.len().to_string()});
    let metadata = json!({"namespace": "lab", "name": "batch-1", "uid": "u", "labels": labels, "annotations": entries});
    json!({"kind": "BindRequest", "metadata": metadata})
}

/// What a job wants, and whether all of it was done.
fn finish(controller: &mut BinderController, job: Work, refused: Option<CallError>) {
    controller.finished(ended(job, refused.map(|refusal| (0, refusal))), NOW);
}

fn with_batch(requests: &[(&str, &str)]) -> BinderController {
    let mut cluster = Cluster::default();
    cluster.put(json!({"kind": "Node", "metadata": {"name": "n1"}}));
    for (pod, _) in requests {
        cluster.put(plain_pod(pod, None));
    }
    let mut controller = controller(&cluster);
    controller.apply(Kind::BindRequest, &batch_of(requests), NOW).unwrap();
    controller
}

fn deletes_batch(jobs: &[Work]) -> bool {
    let batch = BindEffect::DeleteRequest(Key::new("lab", "batch-1"));
    jobs.iter().any(|job| job.calls.contains(&batch))
}

#[test]
fn a_batch_is_carried_out_and_goes_when_all_of_it_was_done_for_a_while() {
    let mut controller = with_batch(&[("a", "n1"), ("b", "n1")]);
    let jobs = controller.work(NOW);
    let bound: Vec<&str> = jobs
        .iter()
        .flat_map(|job| &job.calls)
        .filter_map(|effect| match effect {
            BindEffect::Bind { pod, .. } => Some(pod.name.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(bound, ["a", "b"]);
    for job in jobs {
        finish(&mut controller, job, None);
    }
    let after = |seconds: i64| NOW.plus(Span::seconds(seconds));
    controller.apply(Kind::Pod, &plain_pod("a", Some("n1")), NOW).unwrap();
    assert!(!deletes_batch(&controller.work(after(100))), "no watch has shown yet that the other one is bound");
    controller.apply(Kind::Pod, &plain_pod("b", Some("n1")), after(100)).unwrap();
    assert!(!deletes_batch(&controller.work(after(120))), "others may not know yet");
    assert!(deletes_batch(&controller.work(after(140))));
    controller.delete(Kind::BindRequest, &Key::new("lab", "batch-1"), after(141));
    assert_eq!((controller.pending_count(), controller.work(after(200))), (0, Vec::new()));
}

#[test]
fn what_cannot_be_bound_is_taken_out_of_its_batch() {
    let mut controller = with_batch(&[("a", "n1"), ("b", "gone")]);
    let failed = |job: &Work| match &job.calls[..] {
        [BindEffect::SetPhase { request, phase: "Failed", .. }, BindEffect::ReportResult { bound: false, .. }] => {
            Some(request.name.clone())
        }
        _ => None,
    };
    let jobs = controller.work(NOW);
    assert_eq!(jobs.iter().filter_map(failed).collect::<Vec<_>>(), ["batch-1/1"]);
    for job in jobs {
        let refused = failed(&job).is_none().then(|| CallError::Rejected("no".to_owned()));
        finish(&mut controller, job, refused);
    }
    assert_eq!(controller.work(NOW).iter().filter_map(failed).collect::<Vec<_>>(), ["batch-1/0"], "no second attempt");
}

#[test]
fn two_requests_for_one_pod_both_come_to_an_end() {
    let mut controller = with_batch(&[("a", "n1"), ("a", "n1")]);
    let jobs = controller.work(NOW);
    assert_eq!(jobs.len(), 2);
    for job in jobs {
        finish(&mut controller, job, None);
    }
    controller.apply(Kind::Pod, &plain_pod("a", Some("n1")), NOW).unwrap();
    assert_eq!(controller.work(NOW), []);
}
