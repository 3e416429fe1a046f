//! No object, however odd, makes a parser panic; and what it complains about can be found.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::kinds::Object;

/// One full object of each kind.
fn templates() -> Vec<Value> {
    let term = json!({"topologyKey": "zone", "namespaces": ["a"], "namespaceSelector": {"matchLabels": {"a": "b"}},
        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
        "matchLabelKeys": ["c"], "mismatchLabelKeys": ["d"]});
    let pod = json!({"kind": "Pod",
        "metadata": {"name": "p", "namespace": "lab", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kai.scheduler/subgroup-name": "a", "runai-gpu-group": "g"},
            "annotations": {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", "pod-group-name": "g"},
            "ownerReferences": [{"kind": "Job", "name": "j", "uid": "k", "controller": true}]},
        "spec": {"schedulerName": "kai-scheduler", "nodeName": "n", "priority": 3, "hostNetwork": true,
            "nodeSelector": {"zone": "a"}, "overhead": {"cpu": "10m"}, "schedulingGates": [{"name": "g"}],
            "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi"}},
            "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["3"]}],
                 "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}},
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": term}]}},
            "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {}, "minDomains": 2, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {}},
                {"name": "m", "configMap": {"name": "s", "optional": true}}],
            "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
            "containers": [{"ports": [{"containerPort": 1, "hostPort": 2, "hostIP": "10.0.0.1", "protocol": "UDP"}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/mig-1g.5gb": 1}}}]},
        "status": {"phase": "Running", "nominatedNodeName": "n"}});
    let node = json!({"kind": "Node", "metadata": {"name": "n", "labels": {"nvidia.com/gpu.memory": "40000"}},
        "spec": {"unschedulable": true, "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": 1, "nvidia.com/gpu": 8},
            "conditions": [{"type": "Ready", "status": "True"}]}});
    let amounts = json!({"quota": 1.5, "limit": -1, "overQuotaWeight": 2});
    let queue = json!({"kind": "Queue", "metadata": {"name": "q", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"displayName": "Q", "parentQueue": "r", "priority": 1, "preemptMinRuntime": "1h", "reclaimMinRuntime": "1s",
            "resources": {"cpu": amounts, "memory": amounts, "gpu": amounts}}});
    let constraint = json!({"topology": "t", "requiredTopologyLevel": "a", "preferredTopologyLevel": "b"});
    let group = json!({"kind": "PodGroup", "metadata": {"name": "g", "annotations": {
            "kai.scheduler/last-start-timestamp": "2026-01-01T00:00:00Z"}},
        "spec": {"queue": "q", "minMember": 1, "minSubGroup": 1, "priorityClassName": "train", "schedulingBackoff": 1,
            "preemptibility": "preemptible", "preemptionDelay": "1s", "stalenessGracePeriod": "-1s",
            "topologyConstraint": constraint,
            "subGroups": [{"name": "a", "parent": "b", "minMember": 1, "minSubGroup": 1, "topologyConstraint": constraint}]},
        "status": {"schedulingConditions": [{"transitionID": "1", "nodePool": "p"}]}});
    let class = json!({"kind": "PriorityClass", "metadata": {"name": "c"}, "value": 5, "globalDefault": true});
    let topology = json!({"kind": "Topology", "metadata": {"name": "t"},
        "spec": {"levels": [{"nodeLabel": "a", "alias": "b"}]}});
    let request = json!({"kind": "BindRequest",
        "metadata": {"name": "p", "ownerReferences": [{"uid": "u"}]},
        "spec": {"podName": "p", "selectedNode": "n", "selectedGPUGroups": ["g"], "backoffLimit": 1},
        "status": {"phase": "Failed", "failedAttempts": 1}});
    let namespace = json!({"kind": "Namespace", "metadata": {"name": "n", "labels": {"a": "b"}}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let claim = json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "c", "annotations": {
            "volume.kubernetes.io/selected-node": "n", "pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"storageClassName": "s", "volumeName": "v", "accessModes": ["ReadWriteOnce"], "selector": selector,
            "volumeMode": "Block", "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Bound"}});
    let volume = json!({"kind": "PersistentVolume", "metadata": {"name": "v", "labels": {"a": "b"}},
        "spec": {"storageClassName": "s", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "n", "name": "c", "uid": "u"}, "csi": {"driver": "d", "volumeHandle": "h"},
            "volumeMode": "Filesystem", "nodeAffinity": {"required": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}},
        "status": {"phase": "Available"}});
    let storage = json!({"kind": "StorageClass", "metadata": {"name": "s", "annotations": {
            "storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "d",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b"]}]}]});
    let csi_node = json!({"kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": [
        {"name": "d", "allocatable": {"count": 3}}]}});
    let driver = json!({"kind": "CSIDriver", "metadata": {"name": "d"}, "spec": {"storageCapacity": true}});
    let capacity = json!({"kind": "CSIStorageCapacity", "metadata": {"name": "c"}, "storageClassName": "s",
        "capacity": "1Gi", "maximumVolumeSize": "1Gi", "nodeTopology": selector});
    let config = json!({"kind": "ConfigMap", "metadata": {"name": "c"}});
    vec![
        pod, node, queue, group, class, topology, request, namespace, claim, volume, storage, csi_node, driver,
        capacity, config,
    ]
}

/// Every place of a value, as JSON pointers.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    let mut down = |key: &str, inner: &Value| {
        let place = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        all.push(place.clone());
        places(inner, &place, all);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| down(key, inner)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, inner)| down(&index.to_string(), inner)),
        _ => {}
    }
}

fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "[-+0-9.eEGimns/: ]{0,12}".prop_map(Value::from),
        Just(json!([])),
        Just(json!([null])),
        Just(json!({})),
        Just(json!({"": ""})),
    ]
}

#[test]
fn templates_are_well_formed() {
    for template in templates() {
        let kind = template["kind"].clone();
        assert!(matches!(Object::parse(&template), Ok(Some(_))), "{kind}: {:?}", Object::parse(&template));
    }
}

proptest! {
    #[test]
    fn an_odd_value_is_read_or_refused_with_its_place(kind in 0_usize..15, place in any::<prop::sample::Index>(), odd in odd_value()) {
        let mut object = templates().swap_remove(kind);
        let mut all = Vec::new();
        places(&object, "", &mut all);
        let place: &String = place.get(&all);
        *object.pointer_mut(place).expect("a place of the object") = odd;
        if let Err(malformed) = Object::parse(&object) {
            prop_assert!(!malformed.field.is_empty() && !malformed.problem.is_empty() && !malformed.hint.is_empty());
        }
    }
}
