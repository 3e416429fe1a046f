//! Orchestrators that only wrap other workloads: the object inside is grouped, in the wrapper's name.
//!
//! Argo Workflow, `TrainJob`, Dynamo graphs and Run:ai workloads. The next lower owner, or the pod itself,
//! takes over every label and annotation of the wrapper that it lacks, and then follows its own rule.

use kai_api::keys::label;
use serde_json::{Map, Value};

use crate::error::GroupError;
use crate::group::GroupSpec;
use crate::kinds::{TABLE, apply_exact, pod};
use crate::object::Object;
use crate::priority::TRAIN;
use crate::row::{Row, RuleDoc};
use crate::workload::Workload;

pub const ABOUT: RuleDoc = RuleDoc {
    group: "of the object inside",
    minimum: "of the object inside",
    sub_groups: "of the object inside",
    class: TRAIN,
};

pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    group_by(workload, TABLE)
}

/// With the rules of this table for the object inside.
pub fn group_by(workload: &Workload<'_>, table: &[Row]) -> Result<GroupSpec, GroupError> {
    let below = workload.owners.len().checked_sub(2).and_then(|i| workload.owners.get(i)).copied();
    let Some(entry) = below else {
        let inner = with_inheritance(workload.pod.value, workload);
        let object = Object::read_as(&inner, workload.pod.api_version, workload.pod.kind);
        return pod::group(&Workload { object, owners: Vec::new(), ..workload.clone() });
    };
    let full = workload.read(entry.reference(), workload.object, "as an owner")?;
    let inner = with_inheritance(full, workload);
    let object = Object::read_as(&inner, entry.api_version, entry.kind);
    // The chain ends at the object inside, which brings what it inherited along. It gets shorter each
    // time, so that wrappers within wrappers come to an end.
    let mut owners = workload.owners.clone();
    owners.truncate(owners.len() - 2);
    owners.push(object);
    apply_exact(&Workload { object, owners, ..workload.clone() }, table)
}

/// A copy of the object that also carries what the wrapper says, and last the defaults of the wrapper's kind.
fn with_inheritance(inner: &Value, workload: &Workload<'_>) -> Value {
    let wrapper = workload.object;
    let mut inner = inner.clone();
    let mut labels: Vec<(&str, String)> = wrapper.labels().map(|(key, value)| (key, value.to_owned())).collect();
    if let Some(defaults) = workload.settings.kind_defaults.of(wrapper) {
        if workload.related.has_priority_class(&defaults.priority_name) {
            labels.push((label::PRIORITY_CLASS_NAME, defaults.priority_name.clone()));
        }
        if !defaults.preemptibility.is_empty() {
            labels.push((label::PREEMPTIBILITY, defaults.preemptibility.to_lowercase()));
        }
    }
    add_missing(&mut inner, "labels", labels);
    let annotations = wrapper.annotations().map(|(key, value)| (key, value.to_owned())).collect();
    add_missing(&mut inner, "annotations", annotations);
    inner
}

fn add_missing(object: &mut Value, field: &str, pairs: Vec<(&str, String)>) {
    let Some(metadata) = map_in(object, "metadata") else { return };
    let Some(map) = metadata.entry(field).or_insert_with(|| Value::Object(Map::new())).as_object_mut() else { return };
    for (key, value) in pairs {
        map.entry(key).or_insert(Value::String(value));
    }
}

fn map_in<'a>(object: &'a mut Value, field: &str) -> Option<&'a mut Map<String, Value>> {
    object.as_object_mut()?.entry(field).or_insert_with(|| Value::Object(Map::new())).as_object_mut()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Preemptibility;
    use crate::related::ObjectStore;
    use crate::settings::{KindDefaults, Settings};
    use crate::testing::{outline, try_group, try_group_with};

    fn object(api_version: &str, kind: &str, name: &str, labels: &Value) -> Value {
        json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "uid": format!("{name}-u"), "labels": labels}})
    }

    fn workflow(labels: &Value) -> Value {
        object("argoproj.io/v1alpha1", "Workflow", "flow", labels)
    }

    #[test]
    fn a_plain_step_is_grouped_as_a_bare_pod_in_the_queue_of_the_workflow() {
        let pod = object("v1", "Pod", "step", &json!({}));
        let flow = workflow(&json!({"kai.scheduler/queue": "ci"}));
        let spec = try_group(&[flow], &pod, &ObjectStore::default()).unwrap();
        assert_eq!((spec.name.as_str(), spec.queue.as_str()), ("pg-step-step-u", "ci"));
        assert_eq!((spec.owner.kind.as_str(), outline(&spec).as_str()), ("Pod", "* 1"));
    }

    #[test]
    fn wrappers_of_wrappers_end_at_the_workload_inside() {
        let mut job_set = object("jobset.x-k8s.io/v1alpha2", "JobSet", "js", &json!({}));
        job_set["spec"] = json!({"replicatedJobs": [{"name": "node", "template": {"spec": {"parallelism": 4}}}]});
        let train_job = object("trainer.kubeflow.org/v1alpha1", "TrainJob", "ft", &json!({"project": "x"}));
        let flow = workflow(&json!({"kai.scheduler/queue": "research"}));
        let pod = json!({"metadata": {"name": "p", "labels": {
            "jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "0"}}});
        let job = object("batch/v1", "Job", "j", &json!({}));
        let owners = [job, job_set.clone(), train_job.clone(), flow];
        let related: ObjectStore = [job_set, train_job].into_iter().collect();
        let spec = try_group(&owners, &pod, &related).unwrap();
        assert_eq!((spec.name.as_str(), spec.queue.as_str()), ("pg-js-js-u", "research"));
        assert_eq!(spec.labels["project"], "x");
        assert_eq!(outline(&spec), "* 1!\nnode 1!\nnode-replica-0 4 < node [p]");
    }

    #[test]
    fn labels_of_the_wrapper_beat_the_defaults_of_its_kind() {
        let types = r#"[{"typeName":"Workflow","priorityName":"low","preemptibility":"Preemptible"}]"#;
        let kind_defaults = KindDefaults::from_config_map(&json!({"data": {"types": types}})).unwrap();
        let settings = Settings { kind_defaults, ..Settings::default() };
        let class = |name: &str| object("scheduling.k8s.io/v1", "PriorityClass", name, &json!({}));
        let set = object("apps/v1", "StatefulSet", "db", &json!({}));
        let related: ObjectStore = [class("low"), class("high"), set.clone()].into_iter().collect();
        let pod = object("v1", "Pod", "db-0", &json!({}));
        let group =
            |labels: Value| try_group_with(&[set.clone(), workflow(&labels)], &pod, &related, &settings).unwrap();
        let spec = group(json!({}));
        assert_eq!(spec.priority_class, "low");
        assert_eq!(spec.preemptibility, Some(Preemptibility::Preemptible), "whatever its case");
        assert_eq!(group(json!({label::PRIORITY_CLASS_NAME: "high"})).priority_class, "high");
    }

    #[test]
    fn the_object_inside_must_be_readable() {
        let set = object("apps/v1", "StatefulSet", "db", &json!({}));
        let error = try_group(&[set, workflow(&json!({}))], &json!({}), &ObjectStore::default()).unwrap_err();
        assert!(error.to_string().contains("StatefulSet db"), "{error}");
    }

    #[test]
    fn a_pod_that_claims_to_be_a_wrapper_comes_to_an_end() {
        let spec = try_group(&[], &workflow(&json!({})), &ObjectStore::default()).unwrap();
        assert_eq!(spec.name, "pg-flow-flow-u");
    }
}
