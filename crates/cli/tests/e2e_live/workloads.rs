//! Workloads of every kind that is a gang, with real operators where there is one, else with the objects that theirs
//! would make. While one GPU is free none of them starts anything on GPUs; when there is room all run whole.

use serde_json::{Value, json};
use test_cluster::{Kubectl, Operator};

use crate::ask::{apply, await_that, get, group_of, run, running, waiting};
use crate::kai::{Components, cluster_with};

#[test]
#[ignore = "starts a real cluster"]
fn e2e_workloads_start_whole_or_not_at_all() {
    let mut cluster = cluster_with("e2e-workloads", 3, 8, &[Operator::Training, Operator::Jobset, Operator::Lws]);
    let kubectl = cluster.kubectl();
    let mut components = Components::start(&cluster);
    apply(&kubectl, QUEUES);
    for foreign in FOREIGN_KINDS {
        apply(&kubectl, &kind(foreign).to_string());
    }
    run(&kubectl, "wait --for=condition=Established crd --all --timeout=60s");
    for (name, gpus) in [("blocker-0", 8), ("blocker-1", 8), ("blocker-2", 7)] {
        apply(
            &kubectl,
            &pod(name, &json!({QUEUE: "test", BLOCKERS: "yes", "priorityClassName": "inference"}), gpus).to_string(),
        );
    }
    await_that("one GPU is left", || running(&kubectl, BLOCKERS) == 3);

    let gangs = [
        pytorch_job(&kubectl),
        mpi_job(&kubectl),
        job_set(&kubectl),
        leader_worker_set(&kubectl),
        train_job(&kubectl),
        cron_job(&kubectl),
        knative_service(&kubectl),
        spark_application(&kubectl),
    ];
    for gang in &gangs {
        await_that(&format!("all of {} have a reason", gang.pods), || waiting(&kubectl, gang.pods) == gang.size);
    }
    for gang in &gangs {
        assert_eq!(running(&kubectl, gang.pods), 0, "{} should not have started anything", gang.pods);
    }
    run(&kubectl, &format!("delete pods -l {BLOCKERS}"));
    for gang in &gangs {
        await_that(&format!("all of {} run", gang.pods), || running(&kubectl, gang.pods) == gang.size);
        (gang.check)(&group_of(&kubectl, gang.pods));
    }
    // As the walk-through with this job does.
    run(&kubectl, "wait pytorchjob/pytorch-dist-mnist-nccl --for=condition=Running --timeout=30s");

    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
    components.end_politely();
}

/// A workload as it was applied.
struct Gang {
    /// Selects those of its pods that need GPUs or wait for those that do.
    pods: &'static str,
    size: usize,
    /// Looks at its pod group.
    check: fn(&Value),
}

pub(crate) const QUEUE: &str = "kai.scheduler/queue";
const BLOCKERS: &str = "blocker";

pub(crate) const QUEUES: &str = "
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: default}
spec:
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: test}
spec:
  parentQueue: default
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
";

/// The job of the walk-through about Kubeflow.
fn pytorch_job(kubectl: &Kubectl) -> Gang {
    let replicas = |count: u32| {
        let container = json!({
            "name": "pytorch",
            "image": "pytorch-dist-mnist:latest",
            "args": ["--backend", "nccl", "--batch-size", "2048", "--epochs", "900"],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        });
        let template = json!({"spec": {"schedulerName": "kai-scheduler", "containers": [container]}});
        json!({"replicas": count, "restartPolicy": "OnFailure", "template": template})
    };
    let job = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "pytorch-dist-mnist-nccl", "labels": {QUEUE: "test"}},
        "spec": {"pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(2)}},
    });
    apply(kubectl, &job.to_string());
    Gang {
        pods: "training.kubeflow.org/job-name=pytorch-dist-mnist-nccl",
        size: 3,
        check: |group| {
            let leaves = json!([{"name": "master", "minMember": 1}, {"name": "worker", "minMember": 2}]);
            assert_eq!((&group["spec"]["minMember"], &group["spec"]["subGroups"]), (&json!(3), &leaves));
            assert_eq!(group["spec"]["queue"], "test");
        },
    }
}

/// The launcher needs no GPU, and waits for its workers all the same.
fn mpi_job(kubectl: &Kubectl) -> Gang {
    let replicas = |count: u32, gpus: u32| json!({"replicas": count, "template": template(&json!({}), gpus)});
    let job = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "MPIJob",
        "metadata": {"name": "mpi", "labels": {QUEUE: "test"}},
        "spec": {"mpiReplicaSpecs": {"Launcher": replicas(1, 0), "Worker": replicas(2, 1)}},
    });
    apply(kubectl, &job.to_string());
    Gang {
        pods: "training.kubeflow.org/job-name=mpi",
        size: 3,
        check: |group| assert_eq!(group["spec"]["minMember"], 3),
    }
}

fn job_set(kubectl: &Kubectl) -> Gang {
    let jobs = [replicated_job("driver", 1, 1), replicated_job("worker", 2, 1)];
    apply(kubectl, &job_set_of("js", &json!({QUEUE: "test"}), &jobs).to_string());
    Gang {
        pods: "jobset.sigs.k8s.io/jobset-name=js",
        size: 3,
        check: |group| {
            assert_eq!(group["spec"]["minSubGroup"], 2);
            let names: Vec<&Value> =
                group["spec"]["subGroups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
            assert_eq!(names, ["driver", "driver-replica-0", "worker", "worker-replica-0"]);
        },
    }
}

fn leader_worker_set(kubectl: &Kubectl) -> Gang {
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "lws", "labels": {QUEUE: "test"}},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": lasting_template(&json!({}), 1)}},
    });
    apply(kubectl, &set.to_string());
    Gang {
        pods: "leaderworkerset.sigs.k8s.io/name=lws",
        size: 3,
        check: |group| {
            let leaves = json!([{"name": "leader", "minMember": 1}, {"name": "workers", "minMember": 2}]);
            assert_eq!((&group["spec"]["minMember"], &group["spec"]["subGroups"]), (&json!(3), &leaves));
            assert!(group["metadata"]["name"].as_str().unwrap().ends_with("-group-0"), "a group for each replica");
        },
    }
}

/// Kubeflow Trainer makes a `JobSet` of the same name; the queue stands on the job of the user.
fn train_job(kubectl: &Kubectl) -> Gang {
    let job = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "fine-tune", "labels": {QUEUE: "test"}},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}},
    });
    let owner = create_owner(kubectl, &job, "trainjobs.trainer.kubeflow.org");
    let mut set = job_set_of("fine-tune", &json!({}), &[replicated_job("node", 2, 1)]);
    set["metadata"]["ownerReferences"] = json!([owner]);
    apply(kubectl, &set.to_string());
    Gang {
        pods: "jobset.sigs.k8s.io/jobset-name=fine-tune",
        size: 2,
        check: |group| {
            assert_eq!(group["metadata"]["ownerReferences"][0]["kind"], "JobSet");
            assert_eq!((&group["spec"]["queue"], &group["spec"]["minSubGroup"]), (&json!("test"), &json!(1)));
        },
    }
}

/// Each run is a group of its own. Its pods need more than the GPU that is left.
fn cron_job(kubectl: &Kubectl) -> Gang {
    let job = json!({
        "metadata": {"labels": {QUEUE: "test"}},
        "spec": {"parallelism": 2, "completions": 2, "template": template(&json!({}), 2)},
    });
    let nightly = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": job},
    });
    apply(kubectl, &nightly.to_string());
    run(kubectl, "create job nightly-1 --from=cronjob/nightly");
    Gang {
        pods: "job-name=nightly-1",
        size: 2,
        check: |group| {
            assert_eq!(group["metadata"]["ownerReferences"][0]["name"], "nightly-1");
            assert_eq!((&group["spec"]["queue"], &group["spec"]["minMember"]), (&json!("test"), &json!(1)));
        },
    }
}

/// Service, Configuration, Revision, Deployment: what Knative makes of a service that keeps two replicas.
fn knative_service(kubectl: &Kubectl) -> Gang {
    let api = "serving.knative.dev/v1";
    let service = json!({"apiVersion": api, "kind": "Service", "metadata": {"name": "web"}, "spec": {}});
    let service = create_owner(kubectl, &service, "services.serving.knative.dev");
    let metadata = json!({"name": "web", "ownerReferences": [service]});
    let configuration = json!({"apiVersion": api, "kind": "Configuration", "metadata": metadata, "spec": {}});
    let configuration = create_owner(kubectl, &configuration, "configurations.serving.knative.dev");
    let metadata = json!({
        "name": "web-00001",
        "labels": {QUEUE: "test"},
        "annotations": {"autoscaling.knative.dev/min-scale": "2"},
        "ownerReferences": [configuration],
    });
    let revision = json!({"apiVersion": api, "kind": "Revision", "metadata": metadata, "spec": {}});
    let revision = create_owner(kubectl, &revision, "revisions.serving.knative.dev");
    let labels = json!({"serving.knative.dev/revision": "web-00001"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web-00001-deployment", "ownerReferences": [revision]},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": lasting_template(&labels, 1)},
    });
    apply(kubectl, &deployment.to_string());
    Gang {
        pods: "serving.knative.dev/revision=web-00001",
        size: 2,
        check: |group| {
            assert_eq!(group["metadata"]["ownerReferences"][0]["kind"], "Revision");
            assert_eq!(
                (&group["spec"]["priorityClassName"], &group["spec"]["minMember"]),
                (&json!("inference"), &json!(2))
            );
        },
    }
}

/// A driver, and executors that it owns. Who owns the driver is not for the grouper to read.
fn spark_application(kubectl: &Kubectl) -> Gang {
    let application = json!({
        "apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication",
        "metadata": {"name": "pi"}, "spec": {},
    });
    let owner = create_owner(kubectl, &application, "sparkapplications.sparkoperator.k8s.io");
    let labels = |role: &str| json!({QUEUE: "test", "spark-app-name": "pi", "spark-app-selector": "spark-2a4c", "spark-role": role});
    let mut driver = pod("pi-driver", &labels("driver"), 0);
    driver["metadata"]["ownerReferences"] = json!([owner]);
    let driver = create_owner(kubectl, &driver, "pods");
    for name in ["pi-exec-1", "pi-exec-2"] {
        let mut executor = pod(name, &labels("executor"), 2);
        executor["metadata"]["ownerReferences"] = json!([driver]);
        apply(kubectl, &executor.to_string());
    }
    Gang {
        pods: "spark-app-name=pi,spark-role=executor",
        size: 2,
        check: |group| {
            assert_eq!(group["metadata"]["name"], "spark-2a4c");
            assert_eq!(group["metadata"]["ownerReferences"][0]["name"], "pi-driver");
        },
    }
}

/// Kinds of operators that are not here: group, version, kind, plural.
const FOREIGN_KINDS: [(&str, &str, &str, &str); 5] = [
    ("serving.knative.dev", "v1", "Configuration", "configurations"),
    ("serving.knative.dev", "v1", "Revision", "revisions"),
    ("serving.knative.dev", "v1", "Service", "services"),
    ("sparkoperator.k8s.io", "v1beta2", "SparkApplication", "sparkapplications"),
    ("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"),
];

pub(crate) fn kind((group, version, kind, plural): (&str, &str, &str, &str)) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        // Groups of Kubernetes itself are for those who have asked.
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": version, "served": true, "storage": true, "schema": schema}],
        },
    })
}

/// Creates an object, and returns what its children say of it.
pub(crate) fn create_owner(kubectl: &Kubectl, object: &Value, resource: &str) -> Value {
    apply(kubectl, &object.to_string());
    let name = object["metadata"]["name"].as_str().unwrap();
    let uid = &get(kubectl, &format!("{resource} {name}"))["metadata"]["uid"];
    let (version, kind) = (&object["apiVersion"], &object["kind"]);
    json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true})
}

fn job_set_of(name: &str, labels: &Value, jobs: &[Value]) -> Value {
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicatedJobs": jobs},
    })
}

fn replicated_job(name: &str, pods: u32, gpus: u32) -> Value {
    let spec = json!({"parallelism": pods, "completions": pods, "template": template(&json!({}), gpus)});
    json!({"name": name, "replicas": 1, "template": {"spec": spec}})
}

fn template(labels: &Value, gpus: u32) -> Value {
    let container = json!({"name": "main", "image": "any", "resources": {"limits": {"nvidia.com/gpu": gpus}}});
    let spec = json!({"schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [container]});
    json!({"metadata": {"labels": labels}, "spec": spec})
}

/// For pods that never end.
fn lasting_template(labels: &Value, gpus: u32) -> Value {
    let mut template = template(labels, gpus);
    template["spec"]["restartPolicy"] = json!("Always");
    template
}

pub(crate) fn pod(name: &str, labels: &Value, gpus: u32) -> Value {
    let mut pod = template(labels, gpus);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod
}
