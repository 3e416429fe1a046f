//! What is known of the cluster: one table of stripped objects per kind, ordered by name.
//!
//! Fed by whoever watches: [`World::apply`] adds or replaces, [`World::delete`] removes. Nothing here decides.

use std::collections::BTreeMap;
use std::fmt;

use crate::objects::{BindRequest, Node, Object, Pod, PodGroup, PriorityClass, Queue, Topology};

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
}

impl World {
    /// Adds the object, or replaces the one of the same name.
    pub fn apply(&mut self, object: Object) {
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
        }
    }

    /// Removes an object; `false` if there was none.
    pub fn delete(&mut self, which: &Ref) -> bool {
        match which {
            Ref::Node(name) => self.nodes.remove(name).is_some(),
            Ref::Pod(key) => self.pods.remove(key).is_some(),
            Ref::Queue(name) => self.queues.remove(name).is_some(),
            Ref::PodGroup(key) => self.pod_groups.remove(key).is_some(),
            Ref::PriorityClass(name) => self.priority_classes.remove(name).is_some(),
            Ref::Topology(name) => self.topologies.remove(name).is_some(),
            Ref::BindRequest(key) => self.bind_requests.remove(key).is_some(),
        }
    }
}
