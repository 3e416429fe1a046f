//! `PyTorchJob`: masters and workers as leaves; workers may be cut into segments that stay together.
//!
//! ```text
//! minimum 7 = 1 master + 6 workers, segments of 4:
//!
//!   *        7        or, if four pods suffice (elastic):   *        4
//!   master   1                                              master   1
//!   worker   2 children                                     worker   2 children
//!   ├ worker-0  4                                           ├ worker-0  4
//!   └ worker-1  2                                           └ worker-1  0   grows pod by pod
//! ```

use kai_api::keys::annotation;

use super::kubeflow::{min_available, replica_specs_of, replicas_sum};
use crate::error::GroupError;
use crate::group::{GroupSpec, Minimum, SubGroupSpec};
use crate::kinds::SEGMENTS_MAX;
use crate::object::{FieldRef, Object};
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::topology;
use crate::workload::Workload;

const REPLICA_TYPE: &str = "training.kubeflow.org/replica-type";
const REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";

pub const ABOUT: RuleDoc = RuleDoc {
    group: "per owner",
    minimum: "`runPolicy.schedulingPolicy.minAvailable`, else `elasticPolicy.minReplicas`, else all replicas",
    sub_groups: "`master` and `worker`, the workers in segments if `kai.scheduler/segment-size` says so",
    class: TRAIN,
};

pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let specs = replica_specs_of(workload.object, "pytorchReplicaSpecs")?;
    let members = members(workload.object, &specs)?;
    let masters = specs.int("Master.replicas")?.unwrap_or(0);
    let role = workload.pod.label(REPLICA_TYPE);

    let mut sub_groups = Vec::new();
    if masters > 0 {
        sub_groups.push(SubGroupSpec::leaf("master", masters).holding(workload.pod, role == Some("master")));
    }
    if let Some(worker) = specs.field("Worker")? {
        let needed = members.saturating_sub(masters).max(0);
        sub_groups.extend(workers(workload, &worker, needed, role == Some("worker"))?);
    }
    Ok(GroupSpec { minimum: Minimum::Members(members), sub_groups, ..workload.base() })
}

/// What the job says suffices; else what its elastic policy says; else all replicas.
fn members(job: Object<'_>, specs: &FieldRef<'_>) -> Result<i32, GroupError> {
    if let Some(members) = min_available(job)? {
        return Ok(members);
    }
    let all = replicas_sum(specs, &[])?;
    let elastic = job.value["spec"]["elasticPolicy"]["minReplicas"].as_i64();
    Ok(elastic.and_then(|members| i32::try_from(members).ok()).unwrap_or(all))
}

/// One leaf, or a parent with a leaf per segment. `needed` workers must start, rounded up to whole segments.
fn workers(
    workload: &Workload<'_>,
    spec: &FieldRef<'_>,
    needed: i32,
    is_worker: bool,
) -> Result<Vec<SubGroupSpec>, GroupError> {
    let pod = workload.pod;
    let whole = || Ok(vec![SubGroupSpec::leaf("worker", needed).holding(pod, is_worker)]);
    let template = spec.field("template")?;
    let Some(size) = segment_size(pod, template.as_ref())? else { return whole() };
    let replicas = spec.int("replicas")?.unwrap_or(1).max(0);
    let segments = ceil_div(replicas, size);
    if segments == 0 {
        return whole();
    }
    if segments > SEGMENTS_MAX {
        return Err(spec.malformed(format!("cut into at most {SEGMENTS_MAX} segments")));
    }
    let mine = if is_worker { Some(replica_index(pod)? / size) } else { None };
    let mandatory = ceil_div(needed, size);
    let constraint = topology::of_segment(pod, template.as_ref(), workload.object);
    let leaf = |segment: i32| {
        let full = size.min(replicas - segment * size);
        SubGroupSpec::leaf(format!("worker-{segment}"), if segment < mandatory { full } else { 0 })
            .below("worker")
            .within(constraint.clone())
            .holding(pod, mine == Some(segment))
    };
    let parent = SubGroupSpec::parent("worker", segments);
    Ok([parent].into_iter().chain((0..segments).map(leaf)).collect())
}

/// The annotation on the pod, else on the template of the workers.
fn segment_size(pod: Object<'_>, template: Option<&FieldRef<'_>>) -> Result<Option<i32>, GroupError> {
    let expected = "an integer above 0";
    let parse = |text: &str| text.parse().ok().filter(|size: &i32| *size > 0);
    if let Some(text) = pod.annotation(annotation::SEGMENT_SIZE).filter(|text| !text.is_empty()) {
        let error = || pod.malformed(format!("annotation {}", annotation::SEGMENT_SIZE), expected, text);
        return parse(text).map(Some).ok_or_else(error);
    }
    let Some(template) = template else { return Ok(None) };
    let Some(text) = template.annotation(annotation::SEGMENT_SIZE).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    parse(text).map(Some).ok_or_else(|| template.malformed_annotation(annotation::SEGMENT_SIZE, expected, text))
}

fn replica_index(pod: Object<'_>) -> Result<i32, GroupError> {
    let text = pod.label_required(REPLICA_INDEX)?;
    let index = text.parse().ok().filter(|index: &i32| *index >= 0);
    index.ok_or_else(|| pod.malformed(format!("label {REPLICA_INDEX}"), "an integer from 0", text))
}

fn ceil_div(amount: i32, size: i32) -> i32 {
    amount / size + i32::from(amount % size > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::related::ObjectStore;
    use crate::testing::{outline, try_group};

    fn pod(role: &str, index: &str) -> Value {
        json!({"metadata": {"name": "p", "labels": {REPLICA_TYPE: role, REPLICA_INDEX: index}}})
    }

    /// The job of the picture above: one master, six workers.
    fn job(segment_size: &str) -> Value {
        json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": "llm", "annotations": {"kai.scheduler/topology": "dc"}},
            "spec": {"pytorchReplicaSpecs": {
                "Master": {"replicas": 1},
                "Worker": {"replicas": 6, "template": {"metadata": {"annotations": {
                    annotation::SEGMENT_SIZE: segment_size, annotation::SEGMENT_TOPOLOGY_REQUIRED: "rack"}}}}}}})
    }

    fn group(job: &Value, pod: &Value) -> Result<String, GroupError> {
        try_group(std::slice::from_ref(job), pod, &ObjectStore::default()).map(|spec| outline(&spec))
    }

    #[track_caller]
    fn check(job: &Value, pod: &Value, expected: &str) {
        assert_eq!(group(job, pod).unwrap(), expected);
    }

    #[test]
    fn masters_and_workers_are_leaves() {
        check(&job(""), &pod("master", "0"), "* 7\nmaster 1 [p]\nworker 6");
        check(&job(""), &pod("worker", "x"), "* 7\nmaster 1\nworker 6 [p]");
    }

    #[test]
    fn fewer_may_suffice() {
        let mut elastic = job("");
        elastic["spec"]["elasticPolicy"] = json!({"minReplicas": 3});
        check(&elastic, &pod("", ""), "* 3\nmaster 1\nworker 2");
        elastic["spec"]["runPolicy"] = json!({"schedulingPolicy": {"minAvailable": 1}});
        check(&elastic, &pod("", ""), "* 1\nmaster 1\nworker 0");
        elastic["spec"]["pytorchReplicaSpecs"] = Value::Null;
        assert!(group(&elastic, &pod("", "")).is_err(), "replica specs are needed all the same");
    }

    #[test]
    fn segments_are_leaves_below_the_workers() {
        let tree = "* 7\nmaster 1\nworker 2!\nworker-0 4 < worker @dc:rack:\nworker-1 2 < worker @dc:rack:";
        check(
            &job("4"),
            &pod("worker", "3"),
            &tree.replace("worker-0 4 < worker @dc:rack:", "worker-0 4 < worker @dc:rack: [p]"),
        );
        check(&job("4"), &pod("worker", "7"), &format!("{tree} [p]"));
        check(&job("4"), &pod("worker", "8"), tree);
        check(&job("4"), &pod("master", "0"), &tree.replace("master 1", "master 1 [p]"));
    }

    #[test]
    fn elastic_segments_have_minimum_zero() {
        let mut elastic = job("4");
        elastic["spec"]["elasticPolicy"] = json!({"minReplicas": 4});
        let expected = "* 4\nmaster 1\nworker 2!\nworker-0 4 < worker @dc:rack:\nworker-1 0 < worker @dc:rack:";
        check(&elastic, &pod("", ""), expected);
    }

    #[test]
    fn sizes_and_indices_must_make_sense() {
        for size in ["0", "-1", "four", "1.5"] {
            assert!(group(&job(size), &pod("worker", "0")).is_err(), "{size}");
            let mut sized = pod("worker", "0");
            sized["metadata"]["annotations"] = json!({annotation::SEGMENT_SIZE: size});
            assert!(group(&job("4"), &sized).is_err(), "{size} on the pod");
        }
        for index in ["-1", "x", ""] {
            assert!(group(&job("4"), &pod("worker", index)).is_err(), "{index}");
        }
        let mut huge = job("1");
        huge["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = json!(i32::MAX);
        assert!(group(&huge, &pod("worker", "0")).is_err());
    }
}
