//! Turns a pod and the objects that own it into the description of the pod group it belongs to.
//!
//! ```text
//! pod ── owners::walk ──> Owners ── group ──> Grouping::Grouped(GroupSpec)
//!                                    │              name, queue, class, minimum, sub-groups
//!                                    └── TABLE: group, version, kind -> rule (kinds/<kind>.rs)
//! ```
//!
//! A rule computes from the top owner, the pod and what [`ClusterReader`] shows of the cluster. It fetches
//! nothing, reads no clock, and gives the same answer for the same input. Objects are plain JSON, since
//! most kinds are not ours; a field that is missing or absurd is a [`GroupError`], never a panic.
//!
//! ```
//! use kai_workloads::{ObjectStore, Owners, Settings, group};
//! use serde_json::json;
//!
//! let job = json!({"apiVersion": "batch/v1", "kind": "Job",
//!     "metadata": {"name": "sweep", "uid": "u1", "labels": {"kai.scheduler/queue": "team-a"}}});
//! let pod = json!({"apiVersion": "v1", "kind": "Pod",
//!     "metadata": {"name": "sweep-x7k", "namespace": "lab", "uid": "u2", "ownerReferences":
//!         [{"apiVersion": "batch/v1", "kind": "Job", "name": "sweep", "uid": "u1"}]},
//!     "spec": {"schedulerName": "kai-scheduler"}});
//!
//! let owners: Owners = [&job].into_iter().collect();
//! let spec = group(&owners, &pod, &ObjectStore::default(), &Settings::default())?.grouped().unwrap();
//! assert_eq!((spec.name.as_str(), spec.queue.as_str()), ("pg-sweep-u1", "team-a"));
//! # Ok::<(), kai_workloads::GroupError>(())
//! ```

mod base;
mod brief;
mod declared;
#[cfg(test)]
mod docs_page;
mod error;
mod group;
mod jq;
pub mod kinds;
mod native;
mod nesting;
mod object;
mod object_ref;
pub mod owners;
mod preemptibility;
mod priority;
mod queue;
mod related;
mod row;
mod settings;
#[cfg(test)]
mod testing;
mod top_owner_annotation;
mod topology;
mod workload;

use kai_api::keys::annotation;
use serde_json::Value;

pub use crate::base::default_group_name;
pub use crate::brief::brief;
pub use crate::declared::DeclaredKinds;
pub use crate::error::{Fault, GroupError};
pub use crate::group::{GroupSpec, IgnoredValue, Minimum, OwnerRef, Preemptibility, SubGroupSpec, TopologyConstraint};
pub use crate::nesting::nests_too_deep;
pub use crate::object::{FieldRef, Object};
pub use crate::object_ref::ObjectRef;
pub use crate::owners::Owners;
pub use crate::related::{ClusterReader, ObjectStore, RelatedPod, StoredGroup, is_karta_of};
pub use crate::settings::{KindDefault, KindDefaults, Settings};
pub use crate::workload::Workload;

/// What is to be done about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grouping {
    /// Create or update this group, link the pod to it.
    Grouped(Box<GroupSpec>),
    /// Touch neither pod nor groups.
    Skipped(SkipReason),
}

impl Grouping {
    pub fn grouped(self) -> Option<GroupSpec> {
        match self {
            Self::Grouped(spec) => Some(*spec),
            Self::Skipped(_) => None,
        }
    }
}

/// Why a pod is skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipReason {
    OtherScheduler,
    /// This object, the pod or one of its owners, carries the opt-out annotation.
    OptedOut(ObjectRef),
    /// A bare pod that already names its group, made by its user, or earlier by the podgrouper.
    AlreadyLinked,
}

/// Describes the group of one pod. Everything the answer depends on is an argument.
pub fn group(
    owners: &Owners<'_>,
    pod: &Value,
    related: &dyn ClusterReader,
    settings: &Settings,
) -> Result<Grouping, GroupError> {
    if let Some(reason) = skip_reason(pod, settings) {
        return Ok(Grouping::Skipped(reason));
    }
    let chain: Vec<Object<'_>> = owners.chain.iter().map(|owner| Object::new(owner)).collect();
    if let Some(owner) = chain.iter().find(|owner| opts_out(**owner)) {
        return Ok(Grouping::Skipped(SkipReason::OptedOut(owner.reference())));
    }
    let pod = Object::new(pod);
    let top = chain.last().copied().unwrap_or(pod);
    let workload = Workload::new(top, chain, pod, related, settings);
    let native = native::group(&workload)?;
    let mut spec = native.map_or_else(|| kinds::apply(&workload), Ok)?;
    inherit_node_pool(&mut spec, pod, settings);
    Ok(Grouping::Grouped(Box::new(spec)))
}

/// Decided from the pod alone, before its owners are fetched.
pub fn skip_reason(pod: &Value, settings: &Settings) -> Option<SkipReason> {
    let object = Object::new(pod);
    if pod["spec"]["schedulerName"].as_str() != Some(&settings.scheduler_name) {
        return Some(SkipReason::OtherScheduler);
    }
    if opts_out(object) {
        return Some(SkipReason::OptedOut(object.reference()));
    }
    let bare = owners::references(pod).next().is_none();
    (bare && object.annotation(annotation::POD_GROUP_NAME).is_some()).then_some(SkipReason::AlreadyLinked)
}

fn opts_out(object: Object<'_>) -> bool {
    object.annotation(annotation::SKIP_POD_GROUPER) == Some("true")
}

/// Shards pick their groups by this label, which often stands on the pod template only.
fn inherit_node_pool(spec: &mut GroupSpec, pod: Object<'_>, settings: &Settings) {
    let key = &settings.node_pool_label_key;
    if key.is_empty() {
        return;
    }
    if let Some(pool) = pod.label(key) {
        spec.labels.entry(key.clone()).or_insert_with(|| pool.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use kai_api::keys::label;
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "lab", "uid": "u"},
               "spec": {"schedulerName": "kai-scheduler"}})
    }

    fn check(owners: &[&Value], pod: &Value) -> Grouping {
        let owners = owners.iter().copied().collect();
        group(&owners, pod, &ObjectStore::default(), &Settings::default()).unwrap()
    }

    #[test]
    fn pods_of_other_schedulers_are_left_alone() {
        let mut other = pod();
        other["spec"]["schedulerName"] = json!("default-scheduler");
        assert_eq!(check(&[], &other), Grouping::Skipped(SkipReason::OtherScheduler));
    }

    #[test]
    fn the_annotation_opts_out_on_the_pod_and_on_any_owner() {
        let out = json!({"metadata": {"name": "o", "annotations": {annotation::SKIP_POD_GROUPER: "true"}}});
        let on = json!({"metadata": {"name": "x", "annotations": {annotation::SKIP_POD_GROUPER: "yes"}}});
        assert!(matches!(check(&[&out, &on], &pod()), Grouping::Skipped(SkipReason::OptedOut(_))));
        assert!(matches!(check(&[&on], &pod()), Grouping::Grouped(_)));
        let mut skipped = pod();
        skipped["metadata"]["annotations"] = json!({annotation::SKIP_POD_GROUPER: "true"});
        assert!(matches!(check(&[&on], &skipped), Grouping::Skipped(SkipReason::OptedOut(_))));
    }

    #[test]
    fn a_linked_pod_is_left_alone_only_without_owners() {
        let mut linked = pod();
        linked["metadata"]["annotations"] = json!({annotation::POD_GROUP_NAME: "duo"});
        assert_eq!(check(&[], &linked), Grouping::Skipped(SkipReason::AlreadyLinked));
        linked["metadata"]["ownerReferences"] = json!([{"kind": "Job", "name": "j"}]);
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": "k"}});
        assert_eq!(check(&[&job], &linked).grouped().unwrap().name, "pg-j-k");
    }

    #[test]
    fn the_node_pool_of_the_pod_reaches_the_group() {
        let mut pooled = pod();
        pooled["metadata"]["labels"] = json!({label::NODE_POOL: "a100"});
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "db", "uid": "s", "labels": {"project": "ml"}}});
        let spec = check(&[&set], &pooled).grouped().unwrap();
        assert_eq!((spec.name.as_str(), spec.queue.as_str()), ("pg-db-s", "ml-a100"));
        assert_eq!(spec.labels[label::NODE_POOL], "a100");
    }
}
