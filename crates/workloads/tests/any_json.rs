//! Whatever stands in the objects, a rule answers with a group or an error.
//!
//! Objects are made of the fields the rules look for, with values that may be anything.

use kai_workloads::kinds::{Row, TABLE};
use kai_workloads::{
    ClusterReader, GroupSpec, Grouping, Minimum, Object, ObjectRef, Owners, RelatedPod, Settings, StoredGroup,
    Workload, group,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// Every field some rule reads, from the object down.
const FIELDS: &[&str] = &[
    "spec.parallelism",
    "spec.runPolicy.schedulingPolicy.minAvailable",
    "spec.elasticPolicy.minReplicas",
    "spec.launcherCreationPolicy",
    "spec.tfReplicaSpecs.Worker.replicas",
    "spec.xgbReplicaSpecs.Master.replicas",
    "spec.xgbReplicaSpecs.Worker.replicas",
    "spec.jaxReplicaSpecs.Worker.replicas",
    "spec.mpiReplicaSpecs.Launcher.replicas",
    "spec.mpiReplicaSpecs.Worker.replicas",
    "spec.pytorchReplicaSpecs.Master.replicas",
    "spec.pytorchReplicaSpecs.Worker.replicas",
    "spec.pytorchReplicaSpecs.Worker.template.metadata",
    "spec.replicatedJobs",
    "spec.startupPolicy",
    "spec.startupPolicy.startupPolicyOrder",
    "spec.leaderWorkerTemplate.size",
    "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize",
    "spec.leaderWorkerTemplate.subGroupPolicy.subGroupPolicyType",
    "spec.leaderWorkerTemplate.workerTemplate.metadata",
    "spec.headGroupSpec.template.metadata",
    "spec.workerGroupSpecs",
    "spec.job.options.envs.AZUREML_NODE_COUNT",
    "spec.podgroups",
    "spec.topologyConstraint.packConstraint.required",
    "spec.topologyConstraintGroupConfigs",
    "spec.priorityClassName",
    "spec.nodeName",
    "spec.structureDefinition.rootComponent",
    "spec.structureDefinition.childComponents",
    "spec.optimizationInstructions.gangScheduling.podGroup",
    "spec.optimizationInstructions.gangScheduling.podGroups",
    "status.rayClusterName",
    "status.activeServiceStatus.rayClusterName",
    "status.pendingServiceStatus.rayClusterName",
];

/// Fields of list entries.
const ENTRY_FIELDS: &[&str] = &[
    "name",
    "replicas",
    "minReplicas",
    "numOfHosts",
    "groupName",
    "suspend",
    "template",
    "parallelism",
    "metadata",
    "namespace",
    "podReferences",
    "podGroupNames",
    "topologyConstraint",
    "packConstraint",
    "required",
    "dependsOn",
    "ownerRef",
    "kind",
    "componentName",
    "subGroups",
    "members",
    "filters",
    "groupByKeyPaths",
    "scaleDefinition",
    "replicasPath",
    "instanceIdPath",
    "topology",
    "topologyName",
    "requiredTopologyLevel",
];

/// Every label and annotation some rule reads.
const KEYS: &[&str] = &[
    "kai.scheduler/queue",
    "kai.scheduler/node-pool",
    "kai.scheduler/preemptibility",
    "kai.scheduler/preemption-delay",
    "kai.scheduler/staleness-grace-period",
    "kai.scheduler/topology",
    "kai.scheduler/topology-required-placement",
    "kai.scheduler/segment-size",
    "kai.scheduler/segment-topology-required-placement",
    "kai.scheduler/batch-min-member",
    "priorityClassName",
    "project",
    "spark-app-name",
    "spark-app-selector",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/size",
    "ray.io/group",
    "serving.knative.dev/revision",
    "autoscaling.knative.dev/min-scale",
    "grove.io/podgang",
    "grove.io/topology-name",
];

const WORDS: &[&str] = &[
    "",
    "a",
    "b",
    "worker",
    "master",
    "headgroup",
    "0",
    "1",
    "2",
    "3",
    "7",
    "-1",
    "99999999999",
    "1.5",
    "true",
    "5s",
    "-5s",
    "InOrder",
    "LeaderReady",
    "LeaderCreated",
    "LeaderExcluded",
    "WaitForWorkersReady",
    "preemptible",
    ".spec",
    ".spec[]",
    ".name",
    ".[",
    "lab",
    "é",
];

fn text() -> impl Strategy<Value = String> {
    select(WORDS).prop_map(str::to_owned)
}

fn number() -> impl Strategy<Value = Value> {
    let integers: Vec<i64> = vec![-1, 0, 1, 2, 3, 4, 5, 8, 9, 20_000, i64::from(i32::MAX), i64::MAX, i64::MIN];
    prop_oneof![9 => select(integers).prop_map(Value::from), 1 => Just(json!(2.5))]
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => number(),
        4 => text().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let field = (select(ENTRY_FIELDS).prop_map(str::to_owned), inner.clone());
        let object = vec(field, 0..6).prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()));
        prop_oneof![2 => vec(inner, 0..4).prop_map(Value::Array), 3 => object]
    })
}

fn texts() -> impl Strategy<Value = Value> {
    let field = (select(KEYS).prop_map(str::to_owned), text().prop_map(Value::from));
    prop_oneof![
        9 => vec(field, 0..16).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        1 => anything(),
    ]
}

fn metadata() -> impl Strategy<Value = Value> {
    (text(), option::weighted(0.8, text()), texts(), texts(), anything()).prop_map(
        |(name, namespace, labels, annotations, references)| {
            json!({"name": name, "uid": "u", "namespace": namespace, "labels": labels, "annotations": annotations,
                "ownerReferences": references})
        },
    )
}

fn object() -> impl Strategy<Value = Value> {
    let fields = vec(option::weighted(0.6, prop_oneof![2 => number(), 3 => anything()]), FIELDS.len());
    let metadata = prop_oneof![19 => metadata(), 1 => anything()];
    prop_oneof![
        19 => (metadata, fields).prop_map(|(metadata, values)| {
            let mut object = json!({"metadata": metadata});
            for (field, value) in FIELDS.iter().zip(values) {
                if let Some(value) = value {
                    put(&mut object, field, value);
                }
            }
            object
        }),
        1 => anything(),
    ]
}

fn put(object: &mut Value, path: &str, value: Value) {
    let mut here = object;
    for key in path.split('.') {
        if !here.is_object() {
            *here = json!({});
        }
        here = &mut here[key];
    }
    *here = value;
}

/// A cluster in which everything one asks for exists, and is nonsense.
#[derive(Debug, Clone)]
struct Nonsense {
    object: Value,
    stored: Option<StoredGroup>,
    pods: Vec<RelatedPod>,
}

impl ClusterReader for Nonsense {
    fn object(&self, _at: &ObjectRef) -> Option<&Value> {
        Some(&self.object)
    }

    fn has_priority_class(&self, name: &str) -> bool {
        name == "a"
    }

    fn pods(&self, _namespace: &str, _labels: &[(&str, &str)]) -> Vec<RelatedPod> {
        self.pods.clone()
    }

    fn pod_group(&self, _namespace: &str, _name: &str) -> Option<StoredGroup> {
        self.stored.clone()
    }

    fn pod_groups(&self, _namespace: &str, _name_prefix: &str) -> Vec<StoredGroup> {
        self.stored.clone().into_iter().collect()
    }

    fn kartas(&self, _api_version: &str, _kind: &str) -> Vec<&Value> {
        vec![&self.object]
    }
}

fn nonsense() -> impl Strategy<Value = Nonsense> {
    let stored = (text(), option::of(text()), vec(text(), 0..3))
        .prop_map(|(name, owner_kind, sub_groups)| StoredGroup { name, owner_kind, sub_groups });
    let pod =
        (option::of(text()), any::<bool>()).prop_map(|(pod_group, terminating)| RelatedPod { pod_group, terminating });
    (object(), option::weighted(0.3, stored), vec(pod, 0..3)).prop_map(|(object, stored, pods)| Nonsense {
        object,
        stored,
        pods,
    })
}

/// What holds of every group, however it came about.
fn check(spec: &GroupSpec) {
    let mut seen: Vec<&str> = Vec::new();
    for sub_group in &spec.sub_groups {
        if let Some(parent) = &sub_group.parent {
            assert!(seen.contains(&parent.as_str()), "{} stands before its parent {parent}", sub_group.name);
        }
        if let Minimum::SubGroups(children) = sub_group.minimum {
            assert!(children > 0 && sub_group.pods.is_empty(), "{} is a parent", sub_group.name);
        }
        seen.push(&sub_group.name);
    }
}

fn stamped(object: &Value, row: &Row) -> Value {
    let mut object = object.clone();
    if let Some(map) = object.as_object_mut() {
        let version = if row.versions[0] == "*" { "v1" } else { row.versions[0] };
        let api_version = if row.group.is_empty() { version.to_owned() } else { format!("{}/{version}", row.group) };
        map.insert("apiVersion".to_owned(), json!(api_version));
        map.insert("kind".to_owned(), json!(row.kind));
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn every_rule_survives(owner in object(), pod in object(), related in nonsense()) {
        let settings = Settings::default();
        for row in TABLE {
            let owner = stamped(&owner, row);
            let chain = vec![Object::new(&pod), Object::new(&owner)];
            for owners in [Vec::new(), chain] {
                let workload = Workload::new(Object::new(&owner), owners, Object::new(&pod), &related, &settings);
                let first = row.apply(&workload);
                prop_assert_eq!(&first, &row.apply(&workload));
                if let Ok(spec) = first {
                    check(&spec);
                }
            }
        }
    }

    #[test]
    fn so_does_the_whole(owner in object(), pod in object(), related in nonsense()) {
        let mut pod = pod;
        if pod.is_object() {
            put(&mut pod, "spec.schedulerName", json!("kai-scheduler"));
        }
        let owners: Owners<'_> = [&pod, &owner].into_iter().collect();
        // An owner of no known kind: a Karta, or the base rule.
        let grouping = group(&owners, &pod, &related, &Settings::default());
        if let Some(spec) = grouping.ok().and_then(Grouping::grouped) {
            check(&spec);
        }
    }
}
