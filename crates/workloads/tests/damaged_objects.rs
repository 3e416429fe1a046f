//! Sound workloads with a few fields replaced by nonsense still get a group or an error.
//!
//! Random objects rarely get past the first check of a rule; these get deep into it.

use kai_workloads::{Grouping, Minimum, ObjectStore, Owners, Settings, group};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

/// Owner, pod and the object the rule asks for.
type Sample = [Value; 3];

/// Of each kind with a shape of its own.
fn samples() -> Vec<Sample> {
    [kubeflow_jobs(), sets(), clusters_and_services(), graphs()].concat()
}

fn constraint() -> Value {
    json!({"kai.scheduler/topology": "dc", "kai.scheduler/topology-required-placement": "rack",
        "kai.scheduler/segment-topology-required-placement": "rack", "kai.scheduler/segment-size": "2"})
}

fn template() -> Value {
    json!({"metadata": {"annotations": constraint()}, "spec": {"parallelism": 4}})
}

fn owner(api_version: &str, kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "spec": spec, "status": {"rayClusterName": "related"},
        "metadata": {"name": "top", "namespace": "lab", "uid": "u", "annotations": constraint()}})
}

fn pod(labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"schedulerName": "kai-scheduler"},
        "metadata": {"name": "p", "namespace": "lab", "uid": "v", "labels": labels, "annotations": {},
            "ownerReferences": [{"kind": "X", "name": "top", "uid": "u"}]}})
}

fn related(api_version: &str, kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "spec": spec,
        "metadata": {"name": "related", "namespace": "lab", "uid": "w", "annotations": constraint()}})
}

fn kubeflow_jobs() -> Vec<Sample> {
    let pytorch = json!({"elasticPolicy": {"minReplicas": 3},
        "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 6, "template": template()}}});
    let worker = json!({"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "3"});
    let mpi = json!({"launcherCreationPolicy": "WaitForWorkersReady",
        "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 6}}});
    vec![
        [owner("kubeflow.org/v1", "PyTorchJob", &pytorch), pod(&worker), Value::Null],
        [owner("kubeflow.org/v1", "MPIJob", &mpi), pod(&json!({})), Value::Null],
    ]
}

fn sets() -> Vec<Sample> {
    let jobs = json!({"startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        "replicatedJobs": [{"name": "a", "replicas": 2, "template": template()}, {"name": "b", "dependsOn": []}]});
    let of_job = json!({"jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "1"});
    let leader = json!({"startupPolicy": "LeaderReady",
        "leaderWorkerTemplate": {"size": 5, "workerTemplate": template(),
            "subGroupPolicy": {"subGroupSize": 2, "subGroupPolicyType": "LeaderWorker"}}});
    let worker =
        json!({"leaderworkerset.sigs.k8s.io/worker-index": "3", "leaderworkerset.sigs.k8s.io/group-index": "1"});
    vec![
        [owner("jobset.x-k8s.io/v1alpha2", "JobSet", &jobs), pod(&of_job), Value::Null],
        [owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", &leader), pod(&worker), Value::Null],
    ]
}

fn clusters_and_services() -> Vec<Sample> {
    let workers = json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": [
        {"groupName": "gpu", "replicas": 3, "minReplicas": 1, "numOfHosts": 2, "template": template()},
        {"replicas": 2}, {"groupName": "spare", "replicas": 0}]});
    let gang = json!({
        "topologyConstraint": {"packConstraint": {"required": "zone"}},
        "topologyConstraintGroupConfigs": [{"name": "all", "podGroupNames": ["a"]}],
        "podgroups": [{"name": "a", "minReplicas": 2, "podReferences": [{"namespace": "lab", "name": "p"}]}]});
    let none = json!({});
    vec![
        [owner("ray.io/v1", "RayCluster", &workers), pod(&json!({"ray.io/group": "gpu"})), Value::Null],
        [owner("ray.io/v1", "RayJob", &none), pod(&none), related("ray.io/v1", "RayCluster", &workers)],
        [
            owner("grove.io/v1alpha1", "PodCliqueSet", &none),
            pod(&json!({"grove.io/podgang": "related"})),
            related("scheduler.grove.io/v1alpha1", "PodGang", &gang),
        ],
        [
            owner("serving.knative.dev/v1", "Service", &none),
            pod(&json!({"serving.knative.dev/revision": "related"})),
            related("serving.knative.dev/v1", "Revision", &none),
        ],
    ]
}

/// Of a kind that a Karta describes.
fn graphs() -> Vec<Sample> {
    let component = |name: &str, instances: &str| {
        json!({"name": name, "ownerRef": "root", "specDefinition": {"podTemplateSpecPath": ".spec.a.template"},
            "instanceIdPath": instances, "scaleDefinition": {"replicasPath": ".spec.list[].replicas"},
            "podSelector": {"componentTypeSelector": {"keyPath": ".metadata.labels.role", "value": name},
                "componentInstanceSelector": {"idPath": ".metadata.labels.id"}}})
    };
    let sample = |gang: Value| {
        let instances = json!({"list": [{"name": "i", "replicas": 2}, {"name": "j", "replicas": 3}]});
        let description = json!({
            "structureDefinition": {
                "rootComponent": {"name": "root", "kind": {"group": "x.io", "version": "v1", "kind": "Graph"}},
                "childComponents": [component("a", ""), component("b", ".spec.list[].name")]},
            "optimizationInstructions": {"gangScheduling": gang}});
        let mut karta = related("run.ai/v1alpha1", "Karta", &description);
        karta["metadata"]["labels"] = json!({"run.ai/karta-group": "x.io", "run.ai/karta-version": "v1",
            "run.ai/karta-kind": "Graph"});
        [owner("x.io/v1", "Graph", &instances), pod(&json!({"role": "b", "id": "j"})), karta]
    };
    vec![
        sample(json!({"podGroup": {"name": "all", "subGroups": [{"componentName": "a"}, {"componentName": "b",
            "topology": {"topologyName": "dc", "requiredTopologyLevel": "rack"}}]}})),
        sample(json!({"podGroups": [{"name": "one", "members": [{"componentName": "b",
            "groupByKeyPaths": [".metadata.labels.id"], "filters": [".metadata.labels.role == \"b\""]}]}]})),
    ]
}

fn nonsense() -> impl Strategy<Value = Value> {
    select(vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(2),
        json!(7),
        json!(20_000),
        json!(i32::MAX),
        json!(i64::MIN),
        json!(2.5),
        json!(""),
        json!("a"),
        json!("-1"),
        json!("0"),
        json!("99999999999"),
        json!("LeaderExcluded"),
        json!("LeaderCreated"),
        json!("InOrder"),
        json!(".[]"),
        json!(".spec | .list[0]"),
        json!([]),
        json!([{}]),
        json!({}),
        json!({"name": "a"}),
    ])
}

/// Replaces the value at a place, counted in depth-first order.
fn damage(value: &mut Value, place: &mut usize, with: &Value) {
    if *place == 0 {
        *value = with.clone();
    }
    *place = place.wrapping_sub(1);
    let children: Box<dyn Iterator<Item = &mut Value>> = match value {
        Value::Array(list) => Box::new(list.iter_mut()),
        Value::Object(map) => Box::new(map.values_mut()),
        _ => return,
    };
    for child in children {
        damage(child, place, with);
    }
}

fn places(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(places).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(places).sum::<usize>(),
        _ => 1,
    }
}

fn check(objects: &[Value; 3]) -> bool {
    let [owner, pod, related] = objects;
    let owners: Owners<'_> = [owner].into_iter().collect();
    let related: ObjectStore = [related.clone()].into_iter().collect();
    let settings = Settings::default();
    let result = group(&owners, pod, &related, &settings);
    assert_eq!(result, group(&owners, pod, &related, &settings), "same input, same output");
    let Some(spec) = result.ok().and_then(Grouping::grouped) else { return false };
    for (i, sub_group) in spec.sub_groups.iter().enumerate() {
        if let Some(parent) = &sub_group.parent {
            let stands_before = spec.sub_groups[..i].iter().any(|other| other.name == *parent);
            assert!(stands_before, "{} stands before its parent {parent}", sub_group.name);
        }
        if matches!(sub_group.minimum, Minimum::SubGroups(_)) {
            assert!(sub_group.pods.is_empty(), "{} is a parent and holds pods", sub_group.name);
        }
    }
    true
}

#[test]
fn the_samples_are_sound() {
    for sample in samples() {
        assert!(check(&sample), "{}", sample[0]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn damage_is_survived(
        sample in select(samples()),
        wounds in vec((0..3_usize, any::<Index>(), nonsense()), 1..4),
    ) {
        let mut objects = sample;
        for (which, at, with) in wounds {
            let mut place = at.index(places(&objects[which]));
            damage(&mut objects[which], &mut place, &with);
        }
        check(&objects);
    }
}
