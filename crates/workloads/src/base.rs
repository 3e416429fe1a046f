//! The base rule: what every group has, whatever made the pods.

use std::collections::BTreeMap;

use kai_api::Duration;
use kai_api::keys::{annotation, label};

use crate::group::{GroupSpec, IgnoredValue, Minimum, OwnerRef};
use crate::object::Object;
use crate::workload::Workload;
use crate::{preemptibility, priority, queue, top_owner_annotation, topology};

impl Workload<'_> {
    /// The base rule on the object, asking the whole owner chain.
    pub(crate) fn base_on_chain(&self) -> GroupSpec {
        if self.owners.is_empty() {
            return self.base();
        }
        group(self, self.object, &self.owners, priority::TRAIN)
    }

    /// The base rule on the object, without its owners.
    pub(crate) fn base(&self) -> GroupSpec {
        self.base_on(self.object, priority::TRAIN)
    }

    /// The base rule on another object, or with another default class.
    pub(crate) fn base_on(&self, object: Object<'_>, class: &str) -> GroupSpec {
        group(self, object, &[object], class)
    }
}

/// One group for `object`, minimum one pod.
///
/// `lineage` are the objects asked for priority, preemptibility and durations, nearest first.
fn group(workload: &Workload<'_>, object: Object<'_>, lineage: &[Object<'_>], default_class: &str) -> GroupSpec {
    let Workload { pod, settings, .. } = workload;
    let mut ignored_values = Vec::new();
    GroupSpec {
        name: group_name(object),
        namespace: pod.namespace().to_owned(),
        queue: queue::of(object, *pod, settings),
        priority_class: priority::of(workload, lineage, default_class, &mut ignored_values),
        preemptibility: preemptibility::of(lineage, *pod, settings, &mut ignored_values),
        preemption_delay: span(
            lineage,
            *pod,
            annotation::PREEMPTION_DELAY,
            |span| span.as_nanos() >= 0,
            &mut ignored_values,
        ),
        staleness_grace_period: span(lineage, *pod, annotation::STALENESS_GRACE_PERIOD, |_| true, &mut ignored_values),
        minimum: Minimum::Members(1),
        owner: OwnerRef::of(object),
        labels: labels(object, *pod),
        annotations: annotations(object, *pod),
        topology: topology::of_object(object),
        sub_groups: Vec::new(),
        ignored_values,
    }
}

pub(crate) fn group_name(object: Object<'_>) -> String {
    default_group_name(object.name(), object.uid())
}

/// The name of the pod group of a top owner, unless the rule of its kind gives another one. A pod without owners is its
/// own top owner.
pub fn default_group_name(name: &str, uid: &str) -> String {
    format!("pg-{name}-{uid}")
}

fn labels(object: Object<'_>, pod: Object<'_>) -> BTreeMap<String, String> {
    let user = pod.label(label::USER).map(|user| (label::USER, user));
    owned(user.into_iter().chain(object.labels()))
}

fn annotations(object: Object<'_>, pod: Object<'_>) -> BTreeMap<String, String> {
    let record = top_owner_annotation::of(object);
    let user = pod.annotation(label::USER).map(|user| (label::USER, user));
    owned(user.into_iter().chain([(annotation::TOP_OWNER_METADATA, record.as_str())]).chain(object.annotations()))
}

/// Later pairs replace earlier ones.
fn owned<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The first usable duration on the owners, then on the pod.
fn span(
    lineage: &[Object<'_>],
    pod: Object<'_>,
    key: &'static str,
    usable: fn(&Duration) -> bool,
    ignored_values: &mut Vec<IgnoredValue>,
) -> Option<Duration> {
    for object in lineage.iter().chain([&pod]) {
        let Some(text) = object.annotation(key) else { continue };
        if let Some(span) = text.parse().ok().filter(usable) {
            return Some(span);
        }
        ignored_values.push(IgnoredValue::InvalidDuration { object: object.reference(), key, value: text.to_owned() });
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::check_group;

    #[test]
    fn labels_and_annotations_of_the_owner_win() {
        let owner = json!({"apiVersion": "x.io/v1", "kind": "X", "metadata": {
            "name": "x", "uid": "u",
            "labels": {"a": "1"},
            "annotations": {"user": "owner", "kai.scheduler/topology": "dc"},
        }});
        let pod = json!({"metadata": {"name": "p", "namespace": "lab",
            "labels": {"user": "ada", "b": "2"}, "annotations": {"user": "ada", "c": "3"}}});
        let spec = check_group(&[owner], &pod);
        assert_eq!(spec.name, "pg-x-u");
        assert_eq!(spec.labels, [("a", "1"), ("user", "ada")].map(|(k, v)| (k.into(), v.into())).into());
        assert_eq!(spec.annotations["user"], "owner");
        assert!(!spec.annotations.contains_key("c"));
        assert_eq!(spec.topology.unwrap().topology.as_deref(), Some("dc"), "copied although no level is named");
    }

    #[test]
    fn state_of_components_is_never_copied() {
        let owner = json!({"apiVersion": "x.io/v1", "kind": "X", "metadata": {
            "name": "x", "uid": "u",
            "labels": {"runai-gpu-group": "g", "runai-gpu-group/h": "h", "a": "1"},
            "annotations": {
                "kai.scheduler/last-start-timestamp": "2999-01-01T00:00:00Z",
                "kai.scheduler/stale-podgroup-timestamp": "2999-01-01T00:00:00Z",
                "kai.scheduler/last-eviction-timestamp": "2999-01-01T00:00:00Z",
                "kai.scheduler/top-owner-metadata": "name: another",
                "received-resource-type": "Regular",
                "b": "2",
            },
        }});
        let spec = check_group(&[owner], &json!({"metadata": {"name": "p", "namespace": "lab"}}));
        assert_eq!(spec.labels, [("a".to_owned(), "1".to_owned())].into());
        assert_eq!(spec.annotations.keys().collect::<Vec<_>>(), ["b", "kai.scheduler/top-owner-metadata"]);
        assert!(spec.annotations["kai.scheduler/top-owner-metadata"].starts_with("name: x"));
    }

    #[test]
    fn durations_pass_over_what_they_cannot_read() {
        let owner = json!({"kind": "X", "metadata": {"annotations": {
            annotation::PREEMPTION_DELAY: "-5s", annotation::STALENESS_GRACE_PERIOD: "-1s"}}});
        let pod = json!({"metadata": {"annotations": {annotation::PREEMPTION_DELAY: "5s"}}});
        let spec = check_group(&[owner], &pod);
        assert_eq!(spec.preemption_delay.unwrap().to_string(), "5s");
        assert_eq!(spec.staleness_grace_period.unwrap().to_string(), "-1s");
        assert_eq!(spec.ignored_values.len(), 1);
    }
}
