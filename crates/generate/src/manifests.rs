//! A cluster as manifests for a simulator: Jobs instead of their pods, so that what is evicted comes back.

use kai_api::keys::{annotation, label};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Gpus, Job};
use crate::objects::{
    TOPOLOGY, base_objects, job_name, level_label, namespace, node_name, pod_resources, pod_spec, priority_name,
    queue_name,
};

/// Nodes, queues, priority classes, topologies, Jobs, and a Scenario that says which of their pods run already.
pub fn manifests(cluster: &Cluster) -> impl Iterator<Item = Value> {
    let jobs = cluster.jobs().iter().map(job);
    base_objects(cluster).chain(jobs).chain(std::iter::once_with(|| scenario(cluster)))
}

fn job(job: &Job) -> Value {
    let job_spec = &job.spec;
    let mut annotations = json!({ annotation::BATCH_MIN_MEMBER: job_spec.min.to_string() });
    if let Some(together) = job_spec.together {
        annotations[annotation::TOPOLOGY] = TOPOLOGY.into();
        annotations[annotation::TOPOLOGY_REQUIRED] = level_label(together.required).into();
        annotations[annotation::TOPOLOGY_PREFERRED] = level_label(together.preferred).into();
    }
    let mut spec = pod_spec(job_spec.priority, &job_name(job), 0);
    spec["containers"][0]["resources"] = pod_resources(job_spec.ask);
    let mut pod = json!({});
    if job_spec.ask.gpus == Gpus::Half {
        pod["annotations"] = json!({ annotation::GPU_FRACTION: "0.5" });
    }
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": job_name(job), "namespace": namespace(job), "annotations": annotations,
            "labels": {
                label::QUEUE: queue_name(job.queue), label::PRIORITY_CLASS_NAME: priority_name(job_spec.priority),
            },
        },
        "spec": {
            "parallelism": job_spec.pods, "completions": job_spec.pods,
            "template": {"metadata": pod, "spec": spec},
        },
    })
}

fn scenario(cluster: &Cluster) -> Value {
    let mut running = Vec::new();
    for job in cluster.jobs() {
        for (number, node) in job.spec.nodes.iter().flatten().enumerate() {
            let name = format!("{}-{number}", job_name(job));
            running.push(json!({"name": name, "namespace": namespace(job), "node": node_name(*node)}));
        }
    }
    json!({"apiVersion": "kai.scheduler/v1alpha1", "kind": "Scenario", "spec": {"running": running}})
}
