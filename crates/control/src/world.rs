//! What is known of the cluster: one table of stripped objects per kind, ordered by name.
//!
//! Fed by whoever watches: [`World::apply`] adds or replaces, [`World::delete`] removes. Nothing here decides.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::bind_batch;
use crate::objects::{
    BindRequest, ConfigMap, CsiDriver, CsiNode, DeviceClass, Namespace, Node, NodeResourceTopology, Object, Pod,
    PodGroup, PriorityClass, Queue, ResourceClaim, ResourceSlice, StorageCapacity, StorageClass, Topology, Volume,
    VolumeClaim,
};

/// Identity of a namespaced object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

/// Identity of a pod.
pub type PodKey = Key;
/// Identity of a pod group.
pub type GroupKey = Key;

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object as the API server shows it; empty where it does not say.
    pub fn of(object: &Value) -> Self {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        Self::new(text("namespace"), text("name"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// Names one object of one table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ref {
    Node(String),
    Pod(PodKey),
    Queue(String),
    PodGroup(GroupKey),
    PriorityClass(String),
    Topology(String),
    BindRequest(Key),
    Namespace(String),
    NodeResourceTopology(String),
    DeviceClass(String),
    ResourceSlice(String),
    ResourceClaim(Key),
    VolumeClaim(Key),
    Volume(String),
    StorageClass(String),
    CsiNode(String),
    CsiDriver(String),
    StorageCapacity(Key),
    ConfigMap(Key),
}

impl Ref {
    /// The object of this kind and name; kinds without namespaces use the name only. `None` for kinds that are not kept.
    pub fn of(kind: &str, key: Key) -> Option<Self> {
        Some(match kind {
            "Node" => Self::Node(key.name),
            "Pod" => Self::Pod(key),
            "Queue" => Self::Queue(key.name),
            "PodGroup" => Self::PodGroup(key),
            "PriorityClass" => Self::PriorityClass(key.name),
            "Topology" => Self::Topology(key.name),
            "BindRequest" => Self::BindRequest(key),
            "Namespace" => Self::Namespace(key.name),
            "NodeResourceTopology" => Self::NodeResourceTopology(key.name),
            "DeviceClass" => Self::DeviceClass(key.name),
            "ResourceSlice" => Self::ResourceSlice(key.name),
            "ResourceClaim" => Self::ResourceClaim(key),
            "PersistentVolumeClaim" => Self::VolumeClaim(key),
            "PersistentVolume" => Self::Volume(key.name),
            "StorageClass" => Self::StorageClass(key.name),
            "CSINode" => Self::CsiNode(key.name),
            "CSIDriver" => Self::CsiDriver(key.name),
            "CSIStorageCapacity" => Self::StorageCapacity(key),
            "ConfigMap" => Self::ConfigMap(key),
            _ => return None,
        })
    }
}

/// Typed object tables.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub nodes: BTreeMap<String, Node>,
    pub pods: BTreeMap<PodKey, Pod>,
    pub queues: BTreeMap<String, Queue>,
    pub pod_groups: BTreeMap<GroupKey, PodGroup>,
    pub priority_classes: BTreeMap<String, PriorityClass>,
    pub topologies: BTreeMap<String, Topology>,
    pub bind_requests: BTreeMap<Key, BindRequest>,
    pub namespaces: BTreeMap<String, Namespace>,
    /// NUMA zones, by node.
    pub numa_topologies: BTreeMap<String, NodeResourceTopology>,
    pub device_classes: BTreeMap<String, DeviceClass>,
    pub resource_slices: BTreeMap<String, ResourceSlice>,
    pub resource_claims: BTreeMap<Key, ResourceClaim>,
    pub volume_claims: BTreeMap<Key, VolumeClaim>,
    pub volumes: BTreeMap<String, Volume>,
    pub storage_classes: BTreeMap<String, StorageClass>,
    pub csi_nodes: BTreeMap<String, CsiNode>,
    pub csi_drivers: BTreeMap<String, CsiDriver>,
    pub storage_capacities: BTreeMap<Key, StorageCapacity>,
    pub config_maps: BTreeMap<Key, ConfigMap>,
    /// Groups that pods own, by the pod.
    own_groups: BTreeMap<PodKey, GroupKey>,
    changes: Changes,
}

/// What changed since somebody last took note.
#[derive(Clone, Debug, Default)]
pub(crate) enum Changes {
    /// So much that looking at everything is as cheap.
    #[default]
    Everything,
    /// These objects, each with what it was before.
    These(BTreeMap<Ref, Option<Object>>),
}

impl Changes {
    /// Whether all is as it was.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::These(objects) if objects.is_empty())
    }
}

/// So many objects, and one more for each pod, may change before all of them count as changed. A pod that starts changes
/// several: itself, its group and its bind request.
const CHANGED_MIN: usize = 100;

impl World {
    /// Adds the object, or replaces the one of the same name.
    pub fn apply(&mut self, mut object: Object) {
        let mut found = None;
        match &mut object {
            Object::Pod(pod) => {
                let own = self.own_groups.get(&pod.key).and_then(|group| self.pod_groups.get(group));
                if let Some(group) = own.filter(|group| group.is_own_group_of(pod)) {
                    pod.link_to(&group.key);
                }
            }
            Object::PodGroup(group) => {
                if let Some(pod) = group.owner_key() {
                    found = self.pods.get(&pod).filter(|pod| group.is_own_group_of(pod)).cloned();
                    if let Some(pod) = &mut found {
                        pod.link_to(&group.key);
                    }
                    self.own_groups.insert(pod, group.key.clone());
                }
            }
            Object::BindRequest(request) => {
                if let Some(batch) = request.batch.take() {
                    return self.apply_batch(&request.key, batch);
                }
            }
            _ => {}
        }
        self.put(object);
        if let Some(pod) = found {
            self.put(Object::Pod(Box::new(pod)));
        }
    }

    /// The requests in a batch stand in the table themselves.
    fn apply_batch(&mut self, batch: &Key, requests: Vec<BindRequest>) {
        for gone in bind_batch::requests_in(&self.bind_requests, batch) {
            if requests.iter().all(|request| request.key != gone) {
                self.delete(&Ref::BindRequest(gone));
            }
        }
        for request in requests {
            self.put(Object::BindRequest(Box::new(request)));
        }
    }

    fn put(&mut self, object: Object) {
        let reference = object.reference();
        let before = match object {
            Object::Node(row) => put(&mut self.nodes, row.name.clone(), *row, Object::Node),
            Object::Pod(row) => put(&mut self.pods, row.key.clone(), *row, Object::Pod),
            Object::Queue(row) => put(&mut self.queues, row.name.clone(), *row, Object::Queue),
            Object::PodGroup(row) => put(&mut self.pod_groups, row.key.clone(), *row, Object::PodGroup),
            Object::PriorityClass(row) => {
                put(&mut self.priority_classes, row.name.clone(), *row, Object::PriorityClass)
            }
            Object::Topology(row) => put(&mut self.topologies, row.name.clone(), *row, Object::Topology),
            Object::BindRequest(row) => put(&mut self.bind_requests, row.key.clone(), *row, Object::BindRequest),
            Object::Namespace(row) => put(&mut self.namespaces, row.name.clone(), *row, Object::Namespace),
            Object::NodeResourceTopology(row) => {
                put(&mut self.numa_topologies, row.name.clone(), *row, Object::NodeResourceTopology)
            }
            Object::DeviceClass(row) => put(&mut self.device_classes, row.name.clone(), *row, Object::DeviceClass),
            Object::ResourceSlice(row) => put(&mut self.resource_slices, row.name.clone(), *row, Object::ResourceSlice),
            Object::ResourceClaim(row) => put(&mut self.resource_claims, row.key.clone(), *row, Object::ResourceClaim),
            Object::VolumeClaim(row) => put(&mut self.volume_claims, row.key.clone(), *row, Object::VolumeClaim),
            Object::Volume(row) => put(&mut self.volumes, row.name.clone(), *row, Object::Volume),
            Object::StorageClass(row) => put(&mut self.storage_classes, row.name.clone(), *row, Object::StorageClass),
            Object::CsiNode(row) => put(&mut self.csi_nodes, row.name.clone(), *row, Object::CsiNode),
            Object::CsiDriver(row) => put(&mut self.csi_drivers, row.name.clone(), *row, Object::CsiDriver),
            Object::StorageCapacity(row) => {
                put(&mut self.storage_capacities, row.key.clone(), *row, Object::StorageCapacity)
            }
            Object::ConfigMap(row) => put(&mut self.config_maps, row.key.clone(), *row, Object::ConfigMap),
        };
        if let Ok(before) = before {
            self.note(reference, before);
        }
    }

    /// Removes an object; `false` if there was none.
    pub fn delete(&mut self, which: &Ref) -> bool {
        if let Ref::BindRequest(key) = which {
            for request in bind_batch::requests_in(&self.bind_requests, key) {
                self.delete(&Ref::BindRequest(request));
            }
        }
        let before = match which {
            Ref::Node(name) => take(&mut self.nodes, name, Object::Node),
            Ref::Pod(key) => take(&mut self.pods, key, Object::Pod),
            Ref::Queue(name) => take(&mut self.queues, name, Object::Queue),
            Ref::PodGroup(key) => take(&mut self.pod_groups, key, Object::PodGroup),
            Ref::PriorityClass(name) => take(&mut self.priority_classes, name, Object::PriorityClass),
            Ref::Topology(name) => take(&mut self.topologies, name, Object::Topology),
            Ref::BindRequest(key) => take(&mut self.bind_requests, key, Object::BindRequest),
            Ref::Namespace(name) => take(&mut self.namespaces, name, Object::Namespace),
            Ref::NodeResourceTopology(name) => take(&mut self.numa_topologies, name, Object::NodeResourceTopology),
            Ref::DeviceClass(name) => take(&mut self.device_classes, name, Object::DeviceClass),
            Ref::ResourceSlice(name) => take(&mut self.resource_slices, name, Object::ResourceSlice),
            Ref::ResourceClaim(key) => take(&mut self.resource_claims, key, Object::ResourceClaim),
            Ref::VolumeClaim(key) => take(&mut self.volume_claims, key, Object::VolumeClaim),
            Ref::Volume(name) => take(&mut self.volumes, name, Object::Volume),
            Ref::StorageClass(name) => take(&mut self.storage_classes, name, Object::StorageClass),
            Ref::CsiNode(name) => take(&mut self.csi_nodes, name, Object::CsiNode),
            Ref::CsiDriver(name) => take(&mut self.csi_drivers, name, Object::CsiDriver),
            Ref::StorageCapacity(key) => take(&mut self.storage_capacities, key, Object::StorageCapacity),
            Ref::ConfigMap(key) => take(&mut self.config_maps, key, Object::ConfigMap),
        };
        if let Some(Object::PodGroup(group)) = &before
            && let Some(pod) = group.owner_key()
            && self.own_groups.get(&pod) == Some(&group.key)
        {
            self.own_groups.remove(&pod);
        }
        let existed = before.is_some();
        if existed {
            self.note(which.clone(), before);
        }
        existed
    }

    fn note(&mut self, which: Ref, before: Option<Object>) {
        let most = CHANGED_MIN + self.pods.len();
        if let Changes::These(changes) = &mut self.changes {
            // Of several changes the first one knows what was there when somebody looked.
            changes.entry(which).or_insert(before);
            if changes.len() > most {
                self.changes = Changes::Everything;
            }
        }
    }

    /// What changed since this was last asked.
    pub(crate) fn take_changes(&mut self) -> Changes {
        std::mem::replace(&mut self.changes, Changes::These(BTreeMap::new()))
    }
}

/// The row that was there already.
struct Unchanged;

/// Puts a row into its table and returns what it replaces.
fn put<K: Ord, V: PartialEq>(
    table: &mut BTreeMap<K, V>,
    key: K,
    row: V,
    object: fn(Box<V>) -> Object,
) -> Result<Option<Object>, Unchanged> {
    if table.get(&key) == Some(&row) {
        return Err(Unchanged);
    }
    Ok(table.insert(key, row).map(|old| object(Box::new(old))))
}

/// Takes a row out of its table.
fn take<K: Ord, V>(table: &mut BTreeMap<K, V>, key: &K, object: fn(Box<V>) -> Object) -> Option<Object> {
    table.remove(key).map(|old| object(Box::new(old)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str) -> Object {
        let metadata = json!({"namespace": "n", "name": "p", "uid": uid});
        Object::parse(&json!({"kind": "Pod", "metadata": metadata, "spec": {}})).unwrap().unwrap()
    }

    fn group() -> Object {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
        let metadata = json!({"namespace": "n", "name": "pg-p-u", "ownerReferences": [owner]});
        Object::parse(&json!({"kind": "PodGroup", "metadata": metadata, "spec": {"queue": "q"}})).unwrap().unwrap()
    }

    fn group_of(objects: [Object; 2]) -> Option<GroupKey> {
        let mut world = World::default();
        for object in objects {
            world.apply(object);
        }
        world.pods[&PodKey::new("n", "p")].group()
    }

    #[test]
    fn a_pod_belongs_to_its_own_group_before_it_is_linked() {
        let own = Some(GroupKey::new("n", "pg-p-u"));
        assert_eq!(group_of([pod("u"), group()]), own);
        assert_eq!(group_of([group(), pod("u")]), own);
    }

    #[test]
    fn requests_in_a_batch_are_there_as_long_as_they_are_in_it() {
        let batch = |pods: &[&str]| {
            let entry = |pod: &&str| json!({"uid": "u", "spec": {"podName": pod, "selectedNode": "n1"}}).to_string();
            let entries: BTreeMap<String, String> =
                pods.iter().map(|pod| (format!("bind-batch.kai.scheduler/{pod}"), entry(pod))).collect();
            let labels = json!({"kai.scheduler/bind-batch": "2"});
            let metadata = json!({"namespace": "n", "name": "batch", "labels": labels, "annotations": entries});
            Object::parse(&json!({"kind": "BindRequest", "metadata": metadata})).unwrap().unwrap()
        };
        let asked =
            |world: &World| -> Vec<String> { world.bind_requests.values().map(|row| row.pod.name.clone()).collect() };
        let mut world = World::default();
        world.apply(batch(&["a", "b"]));
        assert_eq!(asked(&world), ["a", "b"]);
        world.apply(batch(&["b"]));
        assert_eq!(asked(&world), ["b"]);
        assert!(!world.delete(&Ref::BindRequest(Key::new("n", "batc"))));
        world.delete(&Ref::BindRequest(Key::new("n", "batch")));
        assert_eq!(asked(&world), [""; 0]);
    }

    #[test]
    fn not_to_the_group_of_an_earlier_pod_of_its_name() {
        assert_eq!(group_of([pod("v"), group()]), None);
        assert_eq!(group_of([group(), pod("v")]), None);
    }
}
