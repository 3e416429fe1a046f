//! Gangs as newer versions of Kubernetes describe them, whatever made the pods.
//!
//! ```text
//! pod.spec.workloadRef        ─▶ Workload  scheduling.k8s.io/v1alpha1   spec.podGroups[].policy.gang.minCount
//! pod.spec.schedulingGroup    ─▶ PodGroup  scheduling.k8s.io/v1alpha2   spec.schedulingPolicy.gang.minCount
//! ```
//!
//! An API server that does not know these kinds drops the fields, so a pod that has one belongs to such an object. Queue
//! and priority come from the top owner, as ever; the object has the minimum.

use crate::error::GroupError;
use crate::group::{GroupSpec, Minimum, OwnerRef};
use crate::object::{FieldRef, Object};
use crate::object_ref::ObjectRef;
use crate::workload::Workload;

const WORKLOAD: (&str, &str) = ("scheduling.k8s.io/v1alpha1", "Workload");
const POD_GROUP: (&str, &str) = ("scheduling.k8s.io/v1alpha2", "PodGroup");

/// The group of a pod that names one of these objects; `None` if it names none.
pub(crate) fn group(workload: &Workload<'_>) -> Result<Option<GroupSpec>, GroupError> {
    let pod = workload.pod.root();
    if let Some(reference) = pod.field("spec.workloadRef")? {
        return in_workload(workload, &reference).map(Some);
    }
    let Some(name) = pod.text("spec.schedulingGroup.podGroupName")? else { return Ok(None) };
    let object = read(workload, POD_GROUP, name, "spec.schedulingGroup.podGroupName")?;
    let minimum = minimum(&object.root(), "spec.schedulingPolicy")?;
    Ok(Some(named(workload, object, format!("pg-{name}-{}", object.uid()), minimum)))
}

/// Each group of a Workload, and each replica of one, is a gang of its own.
fn in_workload(workload: &Workload<'_>, reference: &FieldRef<'_>) -> Result<GroupSpec, GroupError> {
    let name = reference.text_required("name")?;
    let group = reference.text_required("podGroup")?;
    let replica = reference.text("podGroupReplicaKey")?.map(|key| format!("-{key}")).unwrap_or_default();
    let object = read(workload, WORKLOAD, name, "spec.workloadRef.name")?;
    for entry in object.root().list("spec.podGroups")? {
        if entry.text("name")? == Some(group) {
            let minimum = minimum(&entry, "policy")?;
            return Ok(named(workload, object, format!("pg-{name}-{group}{replica}-{}", object.uid()), minimum));
        }
    }
    let expected = format!("a group of Workload {name}");
    Err(workload.pod.malformed("spec.workloadRef.podGroup", expected, group))
}

fn read<'a>(
    workload: &Workload<'a>,
    (api_version, kind): (&'static str, &'static str),
    name: &str,
    field: &str,
) -> Result<Object<'a>, GroupError> {
    let at = ObjectRef::new(api_version, kind, workload.pod.namespace(), name);
    Ok(Object::read_as(workload.read(at, workload.pod, field)?, api_version, kind))
}

/// Pods that start together; one by one without a gang.
fn minimum(part: &FieldRef<'_>, policy: &str) -> Result<i32, GroupError> {
    let Some(gang) = part.field(&format!("{policy}.gang"))? else { return Ok(1) };
    let count = gang.field_required("minCount")?;
    match count.as_int()? {
        least if least > 0 => Ok(least),
        _ => Err(count.malformed("a number of pods from 1 up")),
    }
}

fn named(workload: &Workload<'_>, object: Object<'_>, name: String, minimum: i32) -> GroupSpec {
    GroupSpec { name, owner: OwnerRef::of(object), minimum: Minimum::Members(minimum), ..workload.base() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{ObjectStore, Owners, Settings, group};

    fn grouped(spec: &Value) -> Result<(String, String, String), String> {
        let workload = json!({"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload",
            "metadata": {"name": "train", "namespace": "lab", "uid": "w"}, "spec": {"podGroups": [
                {"name": "workers", "policy": {"gang": {"minCount": 4}}}, {"name": "driver", "policy": {"basic": {}}},
                {"name": "odd", "policy": {"gang": {"minCount": 0}}}]}});
        let native = json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
            "metadata": {"name": "gang", "namespace": "lab", "uid": "g"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j", "uid": "u", "labels": {"kai.scheduler/queue": "team"}}});
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": "p", "namespace": "lab", "ownerReferences": [{"kind": "Job", "name": "j"}]}});
        pod["spec"]["schedulerName"] = json!("kai-scheduler");
        let objects: ObjectStore = [workload, native].into_iter().collect();
        let owners: Owners<'_> = [&job].into_iter().collect();
        let spec = group(&owners, &pod, &objects, &Settings::default()).map_err(|error| error.to_string())?;
        let spec = spec.grouped().unwrap();
        Ok((spec.name.clone(), crate::testing::outline(&spec), format!("{} {}", spec.owner.kind, spec.queue)))
    }

    #[test]
    fn the_object_that_a_pod_names_has_the_minimum() {
        let answer =
            |name: &str, minimum: &str, owner: &str| Ok((name.to_owned(), minimum.to_owned(), owner.to_owned()));
        let reference = |group: &str| json!({"workloadRef": {"name": "train", "podGroup": group}});
        assert_eq!(grouped(&reference("workers")), answer("pg-train-workers-w", "* 4", "Workload team"));
        assert_eq!(grouped(&reference("driver")), answer("pg-train-driver-w", "* 1", "Workload team"));
        let mut replica = reference("workers");
        replica["workloadRef"]["podGroupReplicaKey"] = json!("b");
        assert_eq!(grouped(&replica), answer("pg-train-workers-b-w", "* 4", "Workload team"));
        let native = json!({"schedulingGroup": {"podGroupName": "gang"}});
        assert_eq!(grouped(&native), answer("pg-gang-g", "* 3", "PodGroup team"));
        assert_eq!(grouped(&json!({})), answer("pg-j-u", "* 1", "Job team"));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (spec, error) in [
            (
                json!({"workloadRef": {"name": "train", "podGroup": "none"}}),
                "Pod lab/p: spec.workloadRef.podGroup must be a group of Workload train, but is \"none\"",
            ),
            (json!({"workloadRef": {"name": "train"}}), "Pod lab/p: spec.workloadRef.podGroup is missing"),
            (
                json!({"workloadRef": {"name": "train", "podGroup": "odd"}}),
                "Workload lab/train: spec.podGroups.2.policy.gang.minCount must be a number of pods from 1 up, but is 0",
            ),
            (
                json!({"schedulingGroup": {"podGroupName": "other"}}),
                "Pod lab/p: spec.schedulingGroup.podGroupName refers to PodGroup lab/other, which does not exist",
            ),
        ] {
            assert_eq!(grouped(&spec), Err(error.to_owned()));
        }
    }
}
