//! The cluster as a rule may see it: read-only, from memory, never fetched from here.
//!
//! The grouper implements [`ClusterReader`] over what it watches; [`ObjectStore`] is a plain store for tests,
//! simulations and one-off use.

use std::collections::BTreeMap;

use kai_api::keys::{annotation, label};
use serde_json::Value;

use crate::object::Object;
use crate::object_ref::ObjectRef;

pub trait ClusterReader {
    /// One object of a kind the row declares, in full.
    fn object(&self, at: &ObjectRef) -> Option<&Value>;

    fn has_priority_class(&self, name: &str) -> bool;

    /// Pods of our scheduler with all of these labels.
    fn pods(&self, namespace: &str, labels: &[(&str, &str)]) -> Vec<RelatedPod>;

    fn pod_group(&self, namespace: &str, name: &str) -> Option<StoredGroup>;

    /// Pod groups whose name starts so.
    fn pod_groups(&self, namespace: &str, name_prefix: &str) -> Vec<StoredGroup>;

    /// Kartas of this kind, see [`is_karta_of`].
    fn kartas(&self, api_version: &str, kind: &str) -> Vec<&Value>;
}

/// Whether a Karta carries the labels of this kind.
pub fn is_karta_of(karta: &Value, api_version: &str, kind: &str) -> bool {
    let karta = Object::new(karta);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    karta.label(label::KARTA_GROUP).unwrap_or_default() == group
        && karta.label(label::KARTA_VERSION) == Some(version)
        && karta.label(label::KARTA_KIND) == Some(kind)
}

/// What a rule wants to know of another pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelatedPod {
    /// Group it is already linked to.
    pub pod_group: Option<String>,
    pub terminating: bool,
}

/// What a rule wants to know of a group that exists already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredGroup {
    pub name: String,
    /// Kind of its first owner.
    pub owner_kind: Option<String>,
    /// Names of its sub-groups, parents and leaves.
    pub sub_groups: Vec<String>,
}

/// Objects by kind and name, in memory. Its filler decides which pods count.
#[derive(Debug, Clone, Default)]
pub struct ObjectStore {
    by_ref: BTreeMap<ObjectRef, Value>,
}

const POD_GROUP_API: &str = "scheduling.run.ai/v2alpha2";
const PRIORITY_CLASS_API: &str = "scheduling.k8s.io/v1";
const KARTA_API: &str = "run.ai/v1alpha1";

impl ObjectStore {
    pub fn insert(&mut self, object: Value) {
        let at = Object::new(&object).reference();
        self.by_ref.insert(at, object);
    }

    /// For objects that do not carry their own kind.
    pub fn insert_as(&mut self, api_version: &str, kind: &str, object: Value) {
        let at = Object::read_as(&object, api_version, kind).reference();
        self.by_ref.insert(at, object);
    }

    pub fn remove(&mut self, at: &ObjectRef) {
        self.by_ref.remove(at);
    }

    fn of_kind<'a>(&'a self, api_version: &'a str, kind: &'a str) -> impl Iterator<Item = Object<'a>> + use<'a> {
        self.by_ref
            .range(ObjectRef::new(api_version, kind, "", "")..)
            .take_while(move |(at, _)| at.api_version == api_version && at.kind == kind)
            .map(move |(_, value)| Object::read_as(value, api_version, kind))
    }
}

impl FromIterator<Value> for ObjectStore {
    fn from_iter<I: IntoIterator<Item = Value>>(objects: I) -> Self {
        let mut all = Self::default();
        objects.into_iter().for_each(|object| all.insert(object));
        all
    }
}

impl ClusterReader for ObjectStore {
    fn object(&self, at: &ObjectRef) -> Option<&Value> {
        self.by_ref.get(at)
    }

    fn has_priority_class(&self, name: &str) -> bool {
        self.by_ref.contains_key(&ObjectRef::new(PRIORITY_CLASS_API, "PriorityClass", "", name))
    }

    fn pods(&self, namespace: &str, labels: &[(&str, &str)]) -> Vec<RelatedPod> {
        self.of_kind("v1", "Pod")
            .filter(|pod| pod.namespace() == namespace)
            .filter(|pod| labels.iter().all(|(key, value)| pod.label(key) == Some(value)))
            .map(|pod| RelatedPod {
                pod_group: pod.annotation(annotation::POD_GROUP_NAME).map(ToOwned::to_owned),
                terminating: !pod.value["metadata"]["deletionTimestamp"].is_null(),
            })
            .collect()
    }

    fn pod_group(&self, namespace: &str, name: &str) -> Option<StoredGroup> {
        self.by_ref.get(&ObjectRef::new(POD_GROUP_API, "PodGroup", namespace, name)).map(stored)
    }

    fn pod_groups(&self, namespace: &str, name_prefix: &str) -> Vec<StoredGroup> {
        self.of_kind(POD_GROUP_API, "PodGroup")
            .filter(|group| group.namespace() == namespace && group.name().starts_with(name_prefix))
            .map(|group| stored(group.value))
            .collect()
    }

    fn kartas(&self, api_version: &str, kind: &str) -> Vec<&Value> {
        let all = self.of_kind(KARTA_API, "Karta").map(|karta| karta.value);
        all.filter(|karta| is_karta_of(karta, api_version, kind)).collect()
    }
}

fn stored(pod_group: &Value) -> StoredGroup {
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let sub_groups = pod_group["spec"]["subGroups"].as_array();
    StoredGroup {
        name: text(&pod_group["metadata"]["name"]).unwrap_or_default(),
        owner_kind: text(&pod_group["metadata"]["ownerReferences"][0]["kind"]),
        sub_groups: sub_groups.into_iter().flatten().filter_map(|sub| text(&sub["name"])).collect(),
    }
}
