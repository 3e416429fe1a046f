//! Objects as users and controllers write them survive reading and writing.

use kai_api::{
    BindRequest, BindRequestSpec, Config, ConfigSpec, Duration, PodGroup, PodGroupSpec, Preemptibility, Queue,
    QueueSpec, SchedulingShard, SchedulingShardSpec, Topology,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

#[track_caller]
fn survives<K: Serialize + DeserializeOwned>(object: &Value) -> K {
    let read: K = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), *object);
    read
}

#[test]
fn queue() {
    let queue: Queue = survives(&json!({
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "team", "labels": {"kai.scheduler/node-pool": "a100"}},
        "spec": {
            "displayName": "The team",
            "parentQueue": "department",
            "priority": 0,
            "preemptMinRuntime": "1m30s",
            "reclaimMinRuntime": "0s",
            "resources": {
                "gpu": {"quota": 2.5, "overQuotaWeight": 1.0, "limit": -1.0},
                "cpu": {"quota": 4000.0, "limit": -1.0},
            },
        },
        "status": {
            "conditions": [{"type": "Orphan", "status": "False", "lastTransitionTime": "2024-05-01T12:00:00Z"}],
            "childQueues": ["left", "right"],
            "allocated": {"cpu": "500m", "nvidia.com/gpu": "1500m"},
        },
    }));
    assert_eq!(queue.spec.priority, Some(0), "zero is not absent");
    assert_eq!(queue.spec.preempt_min_runtime, Some(Duration::from_secs(90)));
    assert!(queue.spec.resources.unwrap().memory.limit.abs() < f64::EPSILON, "a missing resource allows nothing");
}

#[test]
fn pod_group() {
    let group: PodGroup = survives(&json!({
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "pg-train", "namespace": "team"},
        "spec": {
            "minSubGroup": 0,
            "queue": "team",
            "priorityClassName": "train",
            "preemptibility": "non-preemptible",
            "stalenessGracePeriod": "-1s",
            "markUnschedulable": false,
            "schedulingBackoff": -1,
            "topologyConstraint": {"topology": "fabric", "requiredTopologyLevel": "rack"},
            "subGroups": [
                {"name": "workers"},
                {"name": "worker-0", "parent": "workers", "minMember": 8,
                 "topologyConstraint": {"topology": "fabric", "preferredTopologyLevel": "kubernetes.io/hostname"}},
            ],
        },
        "status": {
            "resourcesStatus": {"requested": {"nvidia.com/gpu": "8"}},
            "schedulingConditions": [{
                "type": "UnschedulableOnNodePool",
                "nodePool": "default",
                "reason": "Unschedulable",
                "transitionID": "3",
                "status": "True",
                "lastTransitionTime": "2024-05-01T12:00:00Z",
                "reasons": [{
                    "reason": "OverLimit",
                    "message": "too much",
                    "details": {"queueDetails": {"name": "team", "queueResourceLimits": {"cpu": "4"}}},
                }],
            }],
        },
    }));
    assert_eq!(group.spec.preemptibility, Some(Preemptibility::NonPreemptible));
    assert_eq!(group.spec.min_sub_group, Some(0), "zero is not absent");
    assert_eq!(group.spec.sub_groups[1].min_member, Some(8));
}

#[test]
fn bind_request() {
    survives::<BindRequest>(&json!({
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {"name": "pod", "namespace": "team"},
        "spec": {
            "podName": "pod",
            "selectedNode": "node-1",
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 1, "portion": "0.50"},
            "selectedGPUGroups": ["group"],
            "resourceClaimAllocations": [{
                "name": "gpu",
                "allocation": {"devices": {"results": [
                    {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node-1", "device": "gpu-0"},
                ]}},
            }],
            "extendedResourceClaimAllocation": {
                "deviceRequests": [{"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}],
                "containerMappings": [{"containerName": "c", "resourceName": "nvidia.com/gpu", "requestName": "r"}],
            },
            "predictedNUMAZones": [{"zone": "node-0", "amount": {"cpu": "4"}}],
            "backoffLimit": 0,
        },
        "status": {"phase": "Failed", "reason": "no such node", "failedAttempts": 2},
    }));
}

#[test]
fn topology() {
    survives::<Topology>(&json!({
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "fabric"},
        "spec": {"levels": [{"nodeLabel": "example.com/rack", "alias": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
    }));
}

#[test]
fn scheduling_shard() {
    let shard: SchedulingShard = survives(&json!({
        "apiVersion": "kai.scheduler/v1",
        "kind": "SchedulingShard",
        "metadata": {"name": "a100"},
        "spec": {
            "partitionLabelValue": "a100",
            "placementStrategy": {"gpu": "spread", "cpu": "binpack"},
            "args": {"leader-elect": "true"},
            "queueDepthPerAction": {"allocate": 100},
            "minRuntime": {"preemptMinRuntime": "5m"},
            "kValue": 0.5,
            "goMemLimitRatio": 0.9,
            "goMemLimit": "4Gi",
            "scenarioSearchBudgets": {"maxActionSearchDuration": {"default": "5m0s"}, "minJobSearchDuration": "0s"},
            "usageDBConfig": {
                "clientType": "prometheus",
                "connectionStringEnvVar": "USAGE_DB",
                "usageParams": {"windowSize": "1w", "halfLifePeriod": "24h0m0s", "extraParams": {"queryResolution": "1m"}},
            },
            "plugins": {"proportion": {"arguments": {}}, "gpupack": {"enabled": false, "priority": 0}},
            "actions": {"consolidation": {"enabled": false}},
        },
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "ready", "message": "System is ready",
            "lastTransitionTime": "2024-05-01T12:00:00Z",
        }]},
    }));
    assert!(shard.spec.plugins["proportion"].arguments.is_some(), "no arguments is not unset arguments");
}

#[test]
fn config() {
    let config: Config = survives(&json!({
        "apiVersion": "kai.scheduler/v1",
        "kind": "Config",
        "metadata": {"name": "kai-config"},
        "spec": {
            "namespace": "kai-scheduler",
            "global": {
                "securityContext": {"runAsUser": 10000, "capabilities": {"drop": ["all"]}},
                "tolerations": [{"key": "a", "operator": "Exists"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
                "replicaCount": 2,
                "vpa": {"enabled": true, "updatePolicy": {"updateMode": "Initial"}},
            },
            "podGrouper": {"args": {"gangScheduleKnative": false}, "k8sClientConfig": {"qps": 50}},
            "binder": {"cdiEnabled": false, "resourceReservation": {"runtimeClassName": ""}, "plugins": {"hamicore": {"enabled": true}}},
            "admission": {"gpuFractionRuntimeClassName": "", "webhook": {"targetPort": 9443}},
            "scheduler": {"GOGC": 400, "service": {"resources": {"limits": {"cpu": "700m"}}}},
            "queueController": {"controllerService": {"metrics": {"name": "metrics", "port": 8080}}},
            "numaPlacementExporter": {"driftResyncInterval": "0s"},
            "prometheus": {"enabled": true, "externalPrometheusHealthProbe": {"maxRetries": 0}},
        },
    }));
    assert_eq!(config.spec.admission.gpu_fraction_runtime_class_name.as_deref(), Some(""), "empty is not absent");
}

#[test]
fn amounts_may_be_written_as_numbers() {
    let config: Config = serde_json::from_value(json!({
        "metadata": {},
        "spec": {"scheduler": {"service": {"resources": {"limits": {"cpu": 2}}}}},
    }))
    .unwrap();
    let limits = config.spec.scheduler.service.resources.unwrap().limits.unwrap();
    assert_eq!(limits["cpu"].0, "2");
}

#[test]
fn an_object_may_lack_its_spec() {
    let bare = json!({"metadata": {"name": "x"}});
    let queue: Queue = serde_json::from_value(bare.clone()).unwrap();
    let group: PodGroup = serde_json::from_value(bare.clone()).unwrap();
    let request: BindRequest = serde_json::from_value(bare.clone()).unwrap();
    let shard: SchedulingShard = serde_json::from_value(bare.clone()).unwrap();
    let config: Config = serde_json::from_value(json!({"metadata": {"name": "x"}, "spec": null})).unwrap();
    assert_eq!(queue.spec, QueueSpec::default());
    assert_eq!(group.spec, PodGroupSpec::default());
    assert_eq!(request.spec, BindRequestSpec::default());
    assert_eq!(shard.spec, SchedulingShardSpec::default());
    assert_eq!(config.spec, ConfigSpec::default());
    serde_json::from_value::<Topology>(bare).expect_err("a topology without levels means nothing");
}

#[test]
fn fields_of_later_versions_are_ignored() {
    let group: PodGroup = serde_json::from_value(json!({
        "metadata": {"name": "x"},
        "spec": {"queue": "team", "backoffLimit": 3, "subGroups": [{"name": "a", "novelty": {}}]},
        "status": {"phase": "Running", "running": 4},
    }))
    .unwrap();
    assert_eq!(group.spec.queue, "team");
    assert_eq!(group.spec.sub_groups[0].name, "a");
}
