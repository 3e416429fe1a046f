//! What is known of the cluster: one table of stripped objects per kind, ordered by name.
//!
//! Fed by whoever watches: [`World::apply`] adds or replaces, [`World::delete`] removes. Nothing here decides.

use std::collections::BTreeMap;
use std::fmt;

use crate::objects::{
    BindRequest, DeviceClass, Namespace, Node, NodeResourceTopology, Object, Pod, PodGroup, PriorityClass, Queue,
    ResourceClaim, ResourceSlice, Topology,
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

/// So many objects, and one for so many pods, may change before all of them count as changed.
const CHANGED_MIN: usize = 100;
const CHANGED_PART: usize = 8;

impl World {
    /// Adds the object, or replaces the one of the same name.
    pub fn apply(&mut self, object: Object) {
        let reference = object.reference();
        let before = self.get(&reference);
        if before.as_ref() == Some(&object) {
            return;
        }
        self.note(reference, before);
        match object {
            Object::Node(node) => {
                self.nodes.insert(node.name.clone(), *node);
            }
            Object::Pod(pod) => {
                self.pods.insert(pod.key.clone(), *pod);
            }
            Object::Queue(queue) => {
                self.queues.insert(queue.name.clone(), *queue);
            }
            Object::PodGroup(group) => {
                self.pod_groups.insert(group.key.clone(), *group);
            }
            Object::PriorityClass(class) => {
                self.priority_classes.insert(class.name.clone(), *class);
            }
            Object::Topology(topology) => {
                self.topologies.insert(topology.name.clone(), *topology);
            }
            Object::BindRequest(request) => {
                self.bind_requests.insert(request.key.clone(), *request);
            }
            Object::Namespace(namespace) => {
                self.namespaces.insert(namespace.name.clone(), *namespace);
            }
            Object::NodeResourceTopology(topology) => {
                self.numa_topologies.insert(topology.name.clone(), *topology);
            }
            Object::DeviceClass(class) => {
                self.device_classes.insert(class.name.clone(), *class);
            }
            Object::ResourceSlice(slice) => {
                self.resource_slices.insert(slice.name.clone(), *slice);
            }
            Object::ResourceClaim(claim) => {
                self.resource_claims.insert(claim.key.clone(), *claim);
            }
        }
    }

    /// Removes an object; `false` if there was none.
    pub fn delete(&mut self, which: &Ref) -> bool {
        if let Some(before) = self.get(which) {
            self.note(which.clone(), Some(before));
        }
        match which {
            Ref::Node(name) => self.nodes.remove(name).is_some(),
            Ref::Pod(key) => self.pods.remove(key).is_some(),
            Ref::Queue(name) => self.queues.remove(name).is_some(),
            Ref::PodGroup(key) => self.pod_groups.remove(key).is_some(),
            Ref::PriorityClass(name) => self.priority_classes.remove(name).is_some(),
            Ref::Topology(name) => self.topologies.remove(name).is_some(),
            Ref::BindRequest(key) => self.bind_requests.remove(key).is_some(),
            Ref::Namespace(name) => self.namespaces.remove(name).is_some(),
            Ref::NodeResourceTopology(name) => self.numa_topologies.remove(name).is_some(),
            Ref::DeviceClass(name) => self.device_classes.remove(name).is_some(),
            Ref::ResourceSlice(name) => self.resource_slices.remove(name).is_some(),
            Ref::ResourceClaim(key) => self.resource_claims.remove(key).is_some(),
        }
    }

    /// A copy of an object.
    fn get(&self, which: &Ref) -> Option<Object> {
        Some(match which {
            Ref::Node(name) => Object::Node(Box::new(self.nodes.get(name)?.clone())),
            Ref::Pod(key) => Object::Pod(Box::new(self.pods.get(key)?.clone())),
            Ref::Queue(name) => Object::Queue(Box::new(self.queues.get(name)?.clone())),
            Ref::PodGroup(key) => Object::PodGroup(Box::new(self.pod_groups.get(key)?.clone())),
            Ref::PriorityClass(name) => Object::PriorityClass(Box::new(self.priority_classes.get(name)?.clone())),
            Ref::Topology(name) => Object::Topology(Box::new(self.topologies.get(name)?.clone())),
            Ref::BindRequest(key) => Object::BindRequest(Box::new(self.bind_requests.get(key)?.clone())),
            Ref::Namespace(name) => Object::Namespace(Box::new(self.namespaces.get(name)?.clone())),
            Ref::NodeResourceTopology(name) => {
                Object::NodeResourceTopology(Box::new(self.numa_topologies.get(name)?.clone()))
            }
            Ref::DeviceClass(name) => Object::DeviceClass(Box::new(self.device_classes.get(name)?.clone())),
            Ref::ResourceSlice(name) => Object::ResourceSlice(Box::new(self.resource_slices.get(name)?.clone())),
            Ref::ResourceClaim(key) => Object::ResourceClaim(Box::new(self.resource_claims.get(key)?.clone())),
        })
    }

    fn note(&mut self, which: Ref, before: Option<Object>) {
        let most = CHANGED_MIN + self.pods.len() / CHANGED_PART;
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
