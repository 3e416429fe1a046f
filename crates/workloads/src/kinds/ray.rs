//! `RayCluster`, `RayJob`, `RayService`: one group per top owner, a leaf for the head and each worker group.
//!
//! The minimum of a worker group is its `minReplicas`, so an autoscaled cluster starts at its smallest size;
//! further replicas are elastic pods of the same leaf.

use kai_api::keys::{annotation, label};

use crate::error::GroupError;
use crate::group::{GroupSpec, Minimum, SubGroupSpec, TopologyConstraint};
use crate::object::{FieldRef, Object};
use crate::object_ref::ObjectRef;
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::topology;
use crate::workload::Workload;

const GROUP: &str = "ray.io/group";
const HEAD_LEAF: &str = "headgroup";
/// Home of pods that belong to no group of the cluster, such as the submitter of a `RayJob`.
const STRAY_LEAF: &str = "other";

pub const ABOUT: RuleDoc = RuleDoc {
    group: "per owner",
    minimum: "the head, and `minReplicas` or else `replicas` of each worker group, times `numOfHosts`",
    sub_groups: "`headgroup`, and one per worker group",
    class: TRAIN,
};

pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let cluster = cluster_of(workload)?;
    let mut spec = workload.base();
    if let Some(class) = workload.object.label(label::RAY_PRIORITY_CLASS_NAME) {
        class.clone_into(&mut spec.priority_class);
    }
    let mine = workload.pod.label(GROUP);
    let mut members = 1_i32;
    let head = cluster.root().field("spec.headGroupSpec.template")?;
    let head_topology = leaf_topology(head.as_ref())?;
    spec.sub_groups
        .push(SubGroupSpec::leaf(HEAD_LEAF, 1).within(head_topology).holding(workload.pod, mine == Some(HEAD_LEAF)));
    for workers in worker_groups(cluster)? {
        let Some(minimum) = workers.minimum else { continue };
        members = members.saturating_add(minimum);
        let belongs = mine == Some(&workers.name);
        spec.sub_groups
            .push(SubGroupSpec::leaf(workers.name, minimum).within(workers.topology).holding(workload.pod, belongs));
    }
    spec.minimum = Minimum::Members(members);
    // A group made by an older release without sub-groups stays flat: its pods carry no leaf label.
    let stored = workload.related.pod_group(&spec.namespace, &spec.name);
    if stored.is_some_and(|stored| stored.sub_groups.is_empty()) {
        spec.sub_groups.clear();
    }
    Ok(spec)
}

/// Gives pods without a leaf an elastic one; without it they would never be scheduled.
///
/// Once such a leaf is stored it stays, so that the pods of one cluster do not take turns in rewriting the group.
pub fn adopt_strays(workload: &Workload<'_>, spec: &mut GroupSpec) -> Result<(), GroupError> {
    if spec.sub_groups.is_empty() {
        return Ok(());
    }
    let pod = workload.pod;
    let stored = workload.related.pod_group(&spec.namespace, &spec.name).unwrap_or_default();
    let idle = worker_groups(cluster_of(workload)?)?.into_iter().filter(|workers| workers.minimum.is_none());
    for leaf in idle.map(|workers| workers.name).chain([STRAY_LEAF.to_owned()]) {
        let homeless = spec.leaf_of(pod.name()).is_none();
        let belongs = homeless && (leaf == STRAY_LEAF || pod.label(GROUP) == Some(&leaf));
        if let Some(taken) = spec.sub_groups.iter_mut().find(|sub_group| sub_group.name == leaf) {
            taken.pods.extend(belongs.then(|| pod.name().to_owned()));
        } else if belongs || stored.sub_groups.contains(&leaf) {
            spec.sub_groups.push(SubGroupSpec::leaf(leaf, 0).holding(pod, belongs));
        }
    }
    Ok(())
}

/// The cluster that is running for this owner: itself, or the one its status names.
fn cluster_of<'a>(workload: &Workload<'a>) -> Result<Object<'a>, GroupError> {
    let owner = workload.object;
    let status = owner.root();
    let (field, name) = match owner.kind {
        "RayJob" => ("status.rayClusterName", status.text("status.rayClusterName")?),
        "RayService" => {
            let active = status.text("status.activeServiceStatus.rayClusterName")?;
            let name = match active {
                Some(name) => Some(name),
                None => status.text("status.pendingServiceStatus.rayClusterName")?,
            };
            ("status.activeServiceStatus.rayClusterName", name)
        }
        _ => return Ok(owner),
    };
    // The operator writes the name once it has made the cluster; until then there is nothing to size.
    let name = name.filter(|name| !name.is_empty()).ok_or_else(|| status.missing(field))?;
    let at = ObjectRef::new(owner.api_version, "RayCluster", owner.namespace(), name);
    Ok(Object::read_as(workload.read(at, owner, field)?, owner.api_version, "RayCluster"))
}

struct WorkerGroup {
    name: String,
    /// `None` while it is suspended or scaled to nothing.
    minimum: Option<i32>,
    topology: Option<TopologyConstraint>,
}

fn worker_groups(cluster: Object<'_>) -> Result<Vec<WorkerGroup>, GroupError> {
    let list = cluster.root().list("spec.workerGroupSpecs")?;
    list.iter().enumerate().map(|(i, entry)| worker_group(i, entry)).collect()
}

fn worker_group(position: usize, entry: &FieldRef<'_>) -> Result<WorkerGroup, GroupError> {
    let name = entry.text("groupName")?.filter(|name| !name.is_empty());
    let name = name.map_or_else(|| format!("worker-group-{position}"), ToOwned::to_owned);
    // KubeRay's field is `suspend`; the other spelling is what earlier schedulers looked for.
    if entry.flag("suspend")? || entry.flag("suspended")? {
        return Ok(WorkerGroup { name, minimum: None, topology: None });
    }
    let replicas = entry.int("replicas")?.unwrap_or(0);
    let least = entry.field("minReplicas")?;
    let minimum = least.as_ref().map_or(Ok(0), FieldRef::as_int)?;
    if let (Some(least), true) = (&least, minimum > replicas) {
        return Err(least.malformed(format!("at most replicas, which is {replicas}")));
    }
    let count = if minimum > 0 { minimum } else { replicas };
    let hosts = entry.int("numOfHosts")?.unwrap_or(1);
    let template = entry.field("template")?;
    Ok(WorkerGroup {
        name,
        minimum: (count != 0).then(|| count.saturating_mul(hosts)),
        topology: if count == 0 { None } else { leaf_topology(template.as_ref())? },
    })
}

fn leaf_topology(template: Option<&FieldRef<'_>>) -> Result<Option<TopologyConstraint>, GroupError> {
    let Some(template) = template else { return Ok(None) };
    let Some(constraint) = topology::of_template(template).filter(TopologyConstraint::has_level) else {
        return Ok(None);
    };
    if constraint.topology.is_none() {
        return Err(template.missing(&format!("annotation {}", annotation::TOPOLOGY)));
    }
    Ok(Some(constraint))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::related::ObjectStore;
    use crate::testing::{outline, try_group};

    fn object(kind: &str, body: &Value) -> Value {
        let mut object = json!({"apiVersion": "ray.io/v1", "kind": kind,
            "metadata": {"name": "rc", "namespace": "lab", "uid": "u"}});
        object.as_object_mut().unwrap().append(&mut body.as_object().unwrap().clone());
        object
    }

    fn cluster() -> Value {
        object(
            "RayCluster",
            &json!({"spec": {"workerGroupSpecs": [
                {"groupName": "gpu", "replicas": 3, "minReplicas": 1, "numOfHosts": 2, "template": {"metadata": {
                    "annotations": {annotation::TOPOLOGY: "dc", annotation::TOPOLOGY_REQUIRED: "rack"}}}},
                {"replicas": 2},
                {"groupName": "spare", "replicas": 0},
                {"groupName": "paused", "replicas": 4, "suspend": true},
            ]}}),
        )
    }

    fn pod(group: &Value) -> Value {
        json!({"metadata": {"name": "p", "namespace": "lab", "labels": {GROUP: group}}})
    }

    fn stored(leaves: &[&str]) -> ObjectStore {
        let sub_groups: Vec<_> = leaves.iter().map(|name| json!({"name": name})).collect();
        [json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": "pg-rc-u", "namespace": "lab"}, "spec": {"subGroups": sub_groups}})]
        .into_iter()
        .collect()
    }

    const TREE: &str = "* 5\nheadgroup 1\ngpu 2 @dc:rack:\nworker-group-1 2";

    #[test]
    fn a_leaf_for_the_head_and_each_active_worker_group() {
        let outlined = |pod: Value| outline(&try_group(&[cluster()], &pod, &ObjectStore::default()).unwrap());
        assert_eq!(outlined(pod(&json!("headgroup"))), TREE.replace("headgroup 1", "headgroup 1 [p]"));
        assert_eq!(outlined(pod(&json!("worker-group-1"))), format!("{TREE} [p]"));
    }

    #[test]
    fn pods_without_a_leaf_get_an_elastic_one_that_stays() {
        let outlined = |pod: Value, leaves: &[&str]| outline(&try_group(&[cluster()], &pod, &stored(leaves)).unwrap());
        assert_eq!(outlined(pod(&json!("spare")), &["gpu"]), format!("{TREE}\nspare 0 [p]"));
        assert_eq!(outlined(pod(&Value::Null), &["gpu"]), format!("{TREE}\nother 0 [p]"));
        assert_eq!(
            outlined(pod(&json!("worker-group-1")), &["spare", "other"]),
            format!("{TREE} [p]\nspare 0\nother 0")
        );
    }

    #[test]
    fn a_flat_group_stays_flat() {
        let spec = try_group(&[cluster()], &pod(&json!("gpu")), &stored(&[])).unwrap();
        assert_eq!(outline(&spec), "* 5");
    }

    #[test]
    fn jobs_and_services_take_the_size_of_their_cluster() {
        let related: ObjectStore = [cluster()].into_iter().collect();
        let job = object("RayJob", &json!({"status": {"rayClusterName": "rc"}}));
        let service = object("RayService", &json!({"status": {"pendingServiceStatus": {"rayClusterName": "rc"}}}));
        for owner in [job, service] {
            let spec = try_group(std::slice::from_ref(&owner), &pod(&json!("gpu")), &related).unwrap();
            assert_eq!(outline(&spec), TREE.replace("@dc:rack:", "@dc:rack: [p]"));
            assert!(try_group(&[owner], &pod(&json!("gpu")), &ObjectStore::default()).is_err(), "no such cluster");
        }
        let upgrading = object(
            "RayService",
            &json!({"status": {
            "activeServiceStatus": {"rayClusterName": ""}, "pendingServiceStatus": {"rayClusterName": "rc"}}}),
        );
        for owner in [upgrading, object("RayJob", &json!({}))] {
            assert!(try_group(&[owner], &pod(&json!("gpu")), &related).is_err());
        }
    }

    #[test]
    fn worker_groups_must_make_sense() {
        for workers in [
            json!({"replicas": 1, "minReplicas": 2}),
            json!({"replicas": "1"}),
            json!({"replicas": 1, "template": {"metadata": {"annotations": {annotation::TOPOLOGY_REQUIRED: "rack"}}}}),
            json!(7),
        ] {
            let broken = object("RayCluster", &json!({"spec": {"workerGroupSpecs": [workers]}}));
            assert!(try_group(&[broken], &pod(&Value::Null), &ObjectStore::default()).is_err(), "{workers}");
        }
    }
}
