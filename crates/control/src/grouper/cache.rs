//! What watches have shown the grouper and GETs have found, as rules see it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use kai_api::PodGroup;
use kai_api::keys::annotation;
use kai_engine::units::Timestamp;
use kai_workloads::owners::{Lookup, OwnerQuery};
use kai_workloads::{ClusterReader, ObjectRef, RelatedPod, StoredGroup, is_karta_of};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::pod_group_api;
use crate::controller::Assumed;
use crate::key::Key;

#[derive(Debug, Default)]
pub(super) struct GrouperCache {
    /// Of our scheduler.
    pub(super) pods: BTreeMap<Key, CachedPod>,
    pub(super) groups: BTreeMap<Key, Value>,
    /// Groups that were created.
    assumed: Assumed<Key, Value>,
    pub(super) classes: BTreeSet<String>,
    /// By name.
    kartas: BTreeMap<String, Value>,
    pub(super) read: BTreeMap<ObjectRef, (GetOutcome, Timestamp)>,
}

/// Result of the GET of an object that is not watched.
#[derive(Clone, Debug)]
pub(super) enum GetOutcome {
    Found(Box<Value>),
    Forbidden,
    NotFound,
}

/// A pod without its status and without what runs in it, of which no rule asks anything. As text, which takes
/// much less memory: most pods are looked at once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CachedPod {
    text: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    /// The group it is linked to.
    pub(super) group: Option<Box<str>>,
    pub(super) placed: bool,
    terminating: bool,
}

impl CachedPod {
    pub(super) fn of(pod: &Value) -> Self {
        let metadata = &pod["metadata"];
        let labels = metadata["labels"].as_object().into_iter().flatten();
        Self {
            text: serde_json::to_string(&TrimmedPod(pod)).unwrap_or_default().into(),
            labels: labels
                .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into()))
                .collect(),
            group: metadata["annotations"][annotation::POD_GROUP_NAME].as_str().map(Into::into),
            placed: !pod["spec"]["nodeName"].is_null(),
            terminating: !metadata["deletionTimestamp"].is_null(),
        }
    }

    pub(super) fn value(&self) -> Value {
        serde_json::from_str(&self.text).expect("it was written here")
    }

    pub(super) fn carries(&self, label: &str) -> bool {
        self.labels.iter().any(|(own, _)| **own == *label)
    }

    fn has(&self, key: &str, value: &str) -> bool {
        self.labels.iter().any(|(own, set)| **own == *key && **set == *value)
    }
}

/// What is kept of a pod.
struct TrimmedPod<'a>(&'a Value);

impl Serialize for TrimmedPod<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let part = |field: &str, value| match field {
            "spec" => Without(value, &["containers", "initContainers", "ephemeralContainers", "volumes"]),
            // The version changes with everything else.
            "metadata" => Without(value, &["resourceVersion"]),
            _ => Without(value, &[]),
        };
        let fields = self.0.as_object().into_iter().flatten().filter(|(field, _)| *field != "status");
        to.collect_map(fields.map(|(field, value)| (field, part(field, value))))
    }
}

/// An object without these fields.
struct Without<'a>(&'a Value, &'static [&'static str]);

impl Serialize for Without<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) if !self.1.is_empty() => {
                to.collect_map(fields.iter().filter(|(field, _)| !self.1.contains(&field.as_str())))
            }
            whole => whole.serialize(to),
        }
    }
}

impl GrouperCache {
    pub(super) fn assume(&mut self, group: &PodGroup) {
        let value = serde_json::to_value(group).unwrap_or_default();
        self.assumed.assume(Key::of(&value), value);
    }

    /// One of them may be what failed; those that exist will be found to.
    pub(super) fn forget_assumed(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.assumed).iter().map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn on_apply_group(&mut self, key: Key, group: Value) {
        self.assumed.confirm(&key);
        self.groups.insert(key, group);
    }

    /// Keeps a Karta, without what is written about it. Whether that is a change.
    pub(super) fn see_karta(&mut self, name: String, karta: &Value) -> bool {
        let metadata = &karta["metadata"];
        let kept = json!({
            "metadata": {
                "name": metadata["name"],
                "labels": metadata["labels"],
                "deletionTimestamp": metadata["deletionTimestamp"],
            },
            "spec": karta["spec"],
        });
        let changed = self.kartas.get(&name) != Some(&kept);
        self.kartas.insert(name, kept);
        changed
    }

    pub(super) fn forget_karta(&mut self, name: &str) {
        self.kartas.remove(name);
    }

    fn group(&self, key: &Key) -> Option<&Value> {
        self.groups.get(key).or_else(|| self.assumed.get(key))
    }
}

/// What a rule sees, and what it would have liked to see.
pub(super) struct CacheView<'a> {
    known: &'a GrouperCache,
    misses: RefCell<BTreeSet<ObjectRef>>,
}

impl<'a> CacheView<'a> {
    pub(super) fn new(known: &'a GrouperCache) -> Self {
        Self { known, misses: RefCell::default() }
    }

    pub(super) fn misses(self) -> BTreeSet<ObjectRef> {
        self.misses.into_inner()
    }

    pub(super) fn owner(&self, query: &OwnerQuery) -> Lookup<'a> {
        match self.known.read.get(&query.object) {
            Some((GetOutcome::Found(value), _)) => Lookup::Found(value),
            Some((GetOutcome::Forbidden, _)) => Lookup::Forbidden,
            Some((GetOutcome::NotFound, _)) => Lookup::Missing,
            None => Lookup::NotFetched,
        }
    }
}

impl ClusterReader for CacheView<'_> {
    fn object(&self, at: &ObjectRef) -> Option<&Value> {
        if at.api_version == pod_group_api() && at.kind == "PodGroup" {
            return self.known.group(&Key::new(&at.namespace, &at.name));
        }
        match self.known.read.get(at) {
            Some((GetOutcome::Found(value), _)) => Some(value),
            Some(_) => None,
            None => {
                self.misses.borrow_mut().insert(at.clone());
                None
            }
        }
    }

    fn has_priority_class(&self, name: &str) -> bool {
        self.known.classes.contains(name)
    }

    fn pods(&self, namespace: &str, labels: &[(&str, &str)]) -> Vec<RelatedPod> {
        let wanted = |pod: &CachedPod| labels.iter().all(|(key, value)| pod.has(key, value));
        let pods = self.known.pods.iter().filter(|(key, pod)| key.namespace == namespace && wanted(pod));
        pods.map(|(_, pod)| RelatedPod {
            pod_group: pod.group.as_deref().map(str::to_owned),
            terminating: pod.terminating,
        })
        .collect()
    }

    fn pod_group(&self, namespace: &str, name: &str) -> Option<StoredGroup> {
        self.known.group(&Key::new(namespace, name)).map(stored)
    }

    fn pod_groups(&self, namespace: &str, name_prefix: &str) -> Vec<StoredGroup> {
        let named = |key: &Key| key.namespace == namespace && key.name.starts_with(name_prefix);
        let all: BTreeMap<&Key, &Value> = self.known.assumed.iter().chain(&self.known.groups).collect();
        all.into_iter().filter(|(key, _)| named(key)).map(|(_, group)| stored(group)).collect()
    }

    fn kartas(&self, api_version: &str, kind: &str) -> Vec<&Value> {
        self.known.kartas.values().filter(|karta| is_karta_of(karta, api_version, kind)).collect()
    }
}

fn stored(group: &Value) -> StoredGroup {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let sub_groups = group["spec"]["subGroups"].as_array().into_iter().flatten();
    StoredGroup {
        name: text(&group["metadata"]["name"]).unwrap_or_default(),
        owner_kind: text(&group["metadata"]["ownerReferences"][0]["kind"]),
        sub_groups: sub_groups.filter_map(|group| text(&group["name"])).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_the_same_whatever_becomes_of_it() {
        let mut pod = json!({
            "metadata": {"name": "a", "labels": {"app": "web"}, "resourceVersion": "1"},
            "spec": {"schedulerName": "kai-scheduler"},
            "status": {"phase": "Pending"},
        });
        let before = CachedPod::of(&pod);
        assert!(before.has("app", "web") && !before.has("app", "db") && !before.placed);
        pod["metadata"]["resourceVersion"] = json!("2");
        pod["status"]["phase"] = json!("Running");
        assert_eq!(CachedPod::of(&pod), before);
        pod["metadata"]["annotations"] = json!({"pod-group-name": "pg-a"});
        let linked = CachedPod::of(&pod);
        assert_ne!(linked, before);
        assert_eq!(linked.group.as_deref(), Some("pg-a"));
        assert_eq!(linked.value()["spec"]["schedulerName"], "kai-scheduler");
    }
}
