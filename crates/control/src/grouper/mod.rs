//! Gives pods of our scheduler a pod group: what to write, given the pod, its owners and the stored group.
//!
//! Which group a workload needs is decided by [`kai_workloads`]; here it becomes an object, is held against the
//! stored one, and the pod is linked to it. Level-triggered: asking again about a grouped pod changes nothing.

mod cache;
mod component;
mod controller;

pub use crate::calls::{GroupEffect, Link, PlannedWrite};
pub use component::COMPONENT;
pub use controller::GrouperController;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kai_api::keys::{annotation, label};
use kai_api::{PodGroup, PodGroupSpec, Preemptibility, SubGroup, TopologyConstraint};
use kai_workloads::owners::{Lookup, OwnerQuery, WalkError, walk};
use kai_workloads::{
    ClusterReader, GroupError, GroupSpec, Grouping, IgnoredValue, Minimum, ObjectRef, Settings, default_group_name,
};
use serde_json::Value;
use thiserror::Error;

use crate::key::PodKey;
use crate::kinds::Kind;

/// What to do about one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReconcileOutput {
    pub effects: Vec<GroupEffect>,
    /// The group is the pod's own, and the pod belongs to it without a link.
    pub link_can_wait: bool,
    /// Values that were there but could not be used, for the log.
    pub ignored_values: Vec<IgnoredValue>,
}

/// Why a pod has no group for now.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum GroupingError {
    #[error(transparent)]
    Owners(#[from] WalkError),
    #[error(transparent)]
    Rule(#[from] GroupError),
    #[error("pod group {0} cannot be read: {1}")]
    Stored(PodKey, String),
}

impl GroupingError {
    /// An owner that was never asked for: read it, then ask again.
    pub fn unfetched_owner(&self) -> Option<&OwnerQuery> {
        match self {
            Self::Owners(WalkError::NotFetched(query)) => Some(query),
            _ => None,
        }
    }
}

/// Groups one pod. `read` looks up cached owners; `related` shows the rest of the cluster, stored
/// pod groups included.
pub fn reconcile<'a>(
    pod: &Value,
    read: impl FnMut(&OwnerQuery) -> Lookup<'a>,
    related: &dyn ClusterReader,
    settings: &Settings,
) -> Result<ReconcileOutput, GroupingError> {
    if kai_workloads::skip_reason(pod, settings).is_some() {
        return Ok(ReconcileOutput::default());
    }
    let owners = match walk(pod, read) {
        Ok(owners) => owners,
        // Owners are often deleted first, and a terminating pod needs no group.
        Err(_) if !pod["metadata"]["deletionTimestamp"].is_null() => return Ok(ReconcileOutput::default()),
        Err(error) => return Err(error.into()),
    };
    let Grouping::Grouped(spec) = kai_workloads::group(&owners, pod, related, settings)? else {
        return Ok(ReconcileOutput::default());
    };
    let mut effects = Vec::new();
    effects.extend(write_group(&spec, related, settings)?);
    effects.extend(link(pod, &spec));
    let own = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    // The scheduler finds it by its name.
    let link_can_wait = spec.sub_groups.is_empty() && spec.name == default_group_name(own("name"), own("uid"));
    Ok(ReconcileOutput { effects, link_can_wait, ignored_values: spec.ignored_values })
}

fn write_group(
    spec: &GroupSpec,
    related: &dyn ClusterReader,
    settings: &Settings,
) -> Result<Option<GroupEffect>, GroupingError> {
    let wanted = desired(spec);
    let at = ObjectRef::new(pod_group_api(), "PodGroup", &spec.namespace, &spec.name);
    let Some(stored) = related.object(&at) else {
        return Ok(Some(GroupEffect::CreatePodGroup(Box::new(wanted))));
    };
    let stored: PodGroup = serde_json::from_value(stored.clone())
        .map_err(|error| GroupingError::Stored(PodKey::new(&spec.namespace, &spec.name), error.to_string()))?;
    let merged = merge(&stored, wanted, settings);
    Ok((merged != stored).then(|| GroupEffect::ReplacePodGroup(Box::new(merged))))
}

/// As rules ask for it.
fn pod_group_api() -> &'static str {
    Kind::PodGroup.row().api_version
}

/// The group as its rule wants it.
fn desired(spec: &GroupSpec) -> PodGroup {
    let (min_member, min_sub_group) = minimum(spec.minimum);
    let mut group = PodGroup::new(
        &spec.name,
        PodGroupSpec {
            min_member,
            min_sub_group,
            queue: spec.queue.clone(),
            priority_class_name: spec.priority_class.clone(),
            preemptibility: spec.preemptibility.map(|word| match word {
                kai_workloads::Preemptibility::Preemptible => Preemptibility::Preemptible,
                kai_workloads::Preemptibility::NonPreemptible => Preemptibility::NonPreemptible,
            }),
            preemption_delay: spec.preemption_delay,
            staleness_grace_period: spec.staleness_grace_period,
            topology_constraint: constraint(spec.topology.as_ref()),
            sub_groups: spec.sub_groups.iter().map(sub_group).collect(),
            ..PodGroupSpec::default()
        },
    );
    group.metadata.namespace = Some(spec.namespace.clone());
    group.metadata.labels = non_empty(spec.labels.clone());
    group.metadata.annotations = non_empty(spec.annotations.clone());
    let owner = &spec.owner;
    group.metadata.owner_references = Some(vec![OwnerReference {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        ..OwnerReference::default()
    }]);
    group
}

fn sub_group(spec: &kai_workloads::SubGroupSpec) -> SubGroup {
    let (min_member, min_sub_group) = minimum(spec.minimum);
    SubGroup {
        name: spec.name.clone(),
        parent: spec.parent.clone(),
        min_member,
        min_sub_group,
        topology_constraint: constraint(spec.topology.as_ref()),
    }
}

/// A level counts pods or children, never both.
fn minimum(minimum: Minimum) -> (Option<i32>, Option<i32>) {
    match minimum {
        Minimum::Members(members) => (Some(members), None),
        Minimum::SubGroups(children) => (None, Some(children)),
    }
}

fn constraint(spec: Option<&kai_workloads::TopologyConstraint>) -> TopologyConstraint {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    spec.map_or_else(TopologyConstraint::default, |spec| TopologyConstraint {
        topology: text(&spec.topology),
        required_topology_level: text(&spec.required_level),
        preferred_topology_level: text(&spec.preferred_level),
    })
}

/// The stored group brought up to date. What users and queue assigners own is kept; nothing of others is removed.
fn merge(stored: &PodGroup, wanted: PodGroup, settings: &Settings) -> PodGroup {
    let mut merged = stored.clone();
    let kept = &stored.spec;
    merged.spec = PodGroupSpec {
        queue: kept.queue.clone(),
        mark_unschedulable: kept.mark_unschedulable,
        scheduling_backoff: kept.scheduling_backoff,
        ..wanted.spec
    };
    if merged.spec.topology_constraint.topology.is_empty() {
        merged.spec.topology_constraint = kept.topology_constraint.clone();
    }
    merged.metadata.owner_references = wanted.metadata.owner_references;

    let mut labels = stored.metadata.labels.clone().unwrap_or_default();
    for (key, value) in wanted.metadata.labels.unwrap_or_default() {
        let assigned = key == settings.node_pool_label_key
            || (key == settings.queue_label_key && labels.contains_key(&settings.queue_label_key));
        if !assigned {
            labels.insert(key, value);
        }
    }
    merged.metadata.labels = non_empty(labels);
    let mut annotations = stored.metadata.annotations.clone().unwrap_or_default();
    annotations.extend(wanted.metadata.annotations.unwrap_or_default());
    merged.metadata.annotations = non_empty(annotations);
    merged
}

/// An empty map is written as none.
fn non_empty(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    Some(map).filter(|map| !map.is_empty())
}

/// Links the pod to its group. The label of a leaf is never taken away, only changed.
fn link(pod: &Value, spec: &GroupSpec) -> Option<GroupEffect> {
    let metadata = &pod["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let mut annotations = BTreeMap::new();
    if metadata["annotations"][annotation::POD_GROUP_NAME].as_str() != Some(&spec.name) {
        annotations.insert(annotation::POD_GROUP_NAME.to_owned(), spec.name.clone());
    }
    let mut labels = BTreeMap::new();
    if let Some(leaf) = spec.leaf_of(name)
        && metadata["labels"][label::SUB_GROUP_NAME].as_str() != Some(leaf)
    {
        labels.insert(label::SUB_GROUP_NAME.to_owned(), leaf.to_owned());
    }
    let pod = PodKey::new(&spec.namespace, name);
    let linked = annotations.is_empty() && labels.is_empty();
    (!linked).then_some(GroupEffect::LinkPod { pod, annotations, labels })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use kai_workloads::ObjectStore;
    use serde_json::json;

    use super::*;

    fn job() -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sweep", "namespace": "lab", "uid": "u1",
            "labels": {"kai.scheduler/queue": "team", "color": "red"}}, "spec": {"parallelism": 2}})
    }

    fn pod() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "sweep-x", "namespace": "lab", "uid": "u2", "ownerReferences":
                [{"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "u1"}]},
            "spec": {"schedulerName": "kai-scheduler"}})
    }

    /// Asks about a pod, with owners and everything else among the objects.
    fn ask(pod: &Value, objects: &[Value]) -> Result<ReconcileOutput, GroupingError> {
        let store: ObjectStore = objects.iter().cloned().collect();
        let read = |query: &OwnerQuery| store.object(&query.object).map_or(Lookup::NotFetched, Lookup::Found);
        reconcile(pod, read, &store, &Settings::default())
    }

    fn written(output: &ReconcileOutput) -> Value {
        match &output.effects[0] {
            GroupEffect::CreatePodGroup(group) | GroupEffect::ReplacePodGroup(group) => {
                serde_json::to_value(group).unwrap()
            }
            GroupEffect::LinkPod { .. } => panic!("no group is written"),
        }
    }

    fn check(value: &Value, want: &Expect) {
        want.assert_eq(&format!("{value:#}\n"));
    }

    #[test]
    fn a_pod_gets_the_group_of_its_job() {
        let output = ask(&pod(), &[job()]).unwrap();
        check(
            &written(&output)["spec"],
            &expect![[r#"
            {
              "minMember": 1,
              "priorityClassName": "train",
              "queue": "team"
            }
        "#]],
        );
        let [_, GroupEffect::LinkPod { pod, annotations, labels }] = &output.effects[..] else { panic!("not linked") };
        assert_eq!((pod.to_string().as_str(), annotations["pod-group-name"].as_str()), ("lab/sweep-x", "pg-sweep-u1"));
        assert!(labels.is_empty());
    }

    #[test]
    fn asking_again_changes_nothing() {
        let group = written(&ask(&pod(), &[job()]).unwrap());
        let mut linked = pod();
        linked["metadata"]["annotations"] = json!({"pod-group-name": "pg-sweep-u1"});
        assert_eq!(ask(&linked, &[job(), group]).unwrap().effects, []);
    }

    #[test]
    fn what_users_and_assigners_own_is_kept() {
        let mut group = written(&ask(&pod(), &[job()]).unwrap());
        group["spec"]["queue"] = json!("moved");
        group["spec"]["markUnschedulable"] = json!(false);
        group["spec"]["minMember"] = json!(7);
        group["metadata"]["labels"] = json!({"kai.scheduler/queue": "moved", "mine": "yes"});
        group["metadata"]["resourceVersion"] = json!("12");
        let mut pooled = pod();
        pooled["metadata"]["labels"] = json!({"kai.scheduler/node-pool": "blue"});
        let merged = written(&ask(&pooled, &[job(), group]).unwrap());
        assert_eq!((&merged["spec"]["queue"], &merged["spec"]["markUnschedulable"]), (&json!("moved"), &json!(false)));
        assert_eq!(merged["spec"]["minMember"], json!(1));
        assert_eq!(
            merged["metadata"]["labels"],
            json!({"kai.scheduler/queue": "moved", "mine": "yes", "color": "red"})
        );
        assert_eq!(merged["metadata"]["resourceVersion"], json!("12"));
    }

    #[test]
    fn times_that_the_scheduler_wrote_are_kept_and_those_of_owners_are_not_copied() {
        let started = "kai.scheduler/last-start-timestamp";
        let mut job = job();
        job["metadata"]["annotations"] = json!({started: "2999-01-01T00:00:00Z"});
        let mut group = written(&ask(&pod(), &[job.clone()]).unwrap());
        assert!(group["metadata"]["annotations"][started].is_null());
        group["metadata"]["annotations"][started] = json!("2026-01-01T00:00:00Z");
        group["spec"]["minMember"] = json!(7);
        let merged = written(&ask(&pod(), &[job, group]).unwrap());
        assert_eq!(merged["spec"]["minMember"], json!(1));
        assert_eq!(merged["metadata"]["annotations"][started], json!("2026-01-01T00:00:00Z"));
    }

    #[test]
    fn an_owner_that_was_never_read_is_asked_for() {
        let ungrouped = ask(&pod(), &[]).unwrap_err();
        assert_eq!(ungrouped.unfetched_owner().unwrap().object.name, "sweep");
        let mut leaving = pod();
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(ask(&leaving, &[]), Ok(ReconcileOutput::default()));
    }

    #[test]
    fn pods_of_others_are_left_alone() {
        let mut other = pod();
        other["spec"]["schedulerName"] = json!("default-scheduler");
        assert_eq!(ask(&other, &[job()]), Ok(ReconcileOutput::default()));
    }
}
