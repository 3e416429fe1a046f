//! The informer caches of the cluster as typed tables: one per kind, of stripped objects, ordered by name.
//!
//! Watches feed it: [`World::apply`] adds or replaces, [`World::delete`] removes. What follows from several objects is kept
//! here as well: pods of implicit groups are linked to them, and batches of bind requests are unpacked.

use std::collections::BTreeMap;

use crate::ancestors::with_ancestors;
use crate::bind_batch;
use crate::for_each_kind;
use crate::key::{GroupKey, Key, PodKey};
use crate::kinds::{Object, ObjectId, key_of, key_type};
use crate::objects::{self, BindRequest, Namespace, Node, Pod, PodGroup, Queue, Request};

macro_rules! tables {
    ($($variant:ident $table:ident $name:literal $api_version:literal $plural:literal $scope:ident $presence:ident
        $list:literal;)*) => {
        /// Typed object tables.
        #[derive(Clone, Debug, Default)]
        pub struct World {
            $(pub $table: BTreeMap<key_type!($scope), objects::$variant>,)*
            /// Groups of pods without owners, by the pod.
            implicit_groups: BTreeMap<PodKey, GroupKey>,
            /// What pods may hold whose requests cannot be read: cut to what their nodes have.
            unclear_requests: BTreeMap<PodKey, Request>,
            changes: ChangeLog,
        }

        impl World {
            /// Puts an object into its table and returns what it replaces.
            fn insert(&mut self, object: Object) -> Result<Option<Object>, Unchanged> {
                match object {
                    $(Object::$variant(row) => insert(&mut self.$table, key_of!($scope row), *row, Object::$variant),)*
                }
            }

            /// Whether there is such an object.
            pub fn contains(&self, id: &ObjectId) -> bool {
                match id {
                    $(ObjectId::$variant(key) => self.$table.contains_key(key),)*
                }
            }

            /// Takes an object out of its table.
            fn remove(&mut self, id: &ObjectId) -> Option<Object> {
                match id {
                    $(ObjectId::$variant(key) => self.$table.remove(key).map(|row| Object::$variant(Box::new(row))),)*
                }
            }
        }
    };
}

for_each_kind!(tables);

/// Changes since the last [`World::take_changes`].
#[derive(Clone, Debug, Default)]
pub(crate) enum ChangeLog {
    /// More changes than the log keeps: read all tables.
    #[default]
    Overflowed,
    /// These objects, each with what it was before.
    Entries(BTreeMap<ObjectId, Option<Object>>),
}

impl ChangeLog {
    /// Whether nothing changed.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Entries(objects) if objects.is_empty())
    }
}

/// The log holds as many entries as this and the number of pods. A pod that starts changes several objects: itself, its
/// group and its bind request.
const CHANGE_LOG_BASE: usize = 100;

impl World {
    /// Adds the object, or replaces the one of the same name.
    pub fn apply(&mut self, mut object: Object) {
        let mut found = None;
        match &mut object {
            Object::Pod(pod) => {
                let own = self.implicit_groups.get(&pod.key).and_then(|group| self.pod_groups.get(group));
                if let Some(group) = own.filter(|group| group.is_implicit_group_of(pod)) {
                    pod.set_pod_group(&group.key);
                }
                self.settle_request(pod);
            }
            Object::PodGroup(group) => {
                if let Some(pod) = group.owner_key() {
                    found = self.pods.get(&pod).filter(|pod| group.is_implicit_group_of(pod)).cloned();
                    if let Some(pod) = &mut found {
                        pod.set_pod_group(&group.key);
                    }
                    self.implicit_groups.insert(pod, group.key.clone());
                }
            }
            Object::BindRequest(request) => {
                if let Some(batch) = request.batch.take() {
                    return self.apply_batch(&request.key, batch);
                }
            }
            _ => {}
        }
        let refit = match &object {
            Object::Node(node) if !self.unclear_requests.is_empty() => self.unclear_pods_on(node),
            _ => Vec::new(),
        };
        self.put(object);
        for pod in found.into_iter().chain(refit) {
            self.put(Object::Pod(Box::new(pod)));
        }
    }

    /// What a pod held earlier it still holds, and what cannot be read is at most what its node has.
    fn settle_request(&mut self, pod: &mut Pod) {
        if let Some(earlier) = self.pods.get(&pod.key) {
            pod.keep_held(earlier);
        }
        if !pod.request_unclear {
            self.unclear_requests.remove(&pod.key);
            return;
        }
        self.unclear_requests.insert(pod.key.clone(), pod.request.clone());
        if let Some(node) = pod.node.as_ref().and_then(|name| self.nodes.get(name)) {
            pod.lower_to(&node.allocatable);
        }
    }

    /// Pods on the node whose requests cannot be read, cut to what it has now.
    fn unclear_pods_on(&self, node: &Node) -> Vec<Pod> {
        let pods = self.unclear_requests.iter().filter_map(|(key, request)| Some((self.pods.get(key)?, request)));
        let here = pods.filter(|(pod, _)| pod.node.as_ref() == Some(&node.name));
        here.map(|(pod, request)| {
            let mut pod = Pod { request: request.clone(), ..pod.clone() };
            pod.lower_to(&node.allocatable);
            pod
        })
        .collect()
    }

    /// The requests in a batch stand in the table themselves.
    fn apply_batch(&mut self, batch: &Key, requests: Vec<BindRequest>) {
        for gone in bind_batch::requests_in(&self.bind_requests, batch) {
            if requests.iter().all(|request| request.key != gone) {
                self.delete(&ObjectId::BindRequest(gone));
            }
        }
        for request in requests {
            self.put(Object::BindRequest(Box::new(request)));
        }
    }

    /// The first queue, from that of the group upwards, that is not for its namespace.
    pub(crate) fn queue_refusing(&self, group: &PodGroup) -> Option<&Queue> {
        let name = group.key.namespace.as_str();
        let unknown = Namespace::named(name);
        let namespace = self.namespaces.get(name).unwrap_or(&unknown);
        let path = with_ancestors(&group.queue, |queue| self.queues.get(queue)?.parent.as_deref());
        let refuses = |queue: &&Queue| queue.namespaces.as_ref().is_some_and(|rule| !rule.allows(namespace));
        path.into_iter().filter_map(|queue| self.queues.get(queue)).find(refuses)
    }

    fn put(&mut self, object: Object) {
        let id = object.id();
        if let Ok(before) = self.insert(object) {
            self.record_change(id, before);
        }
    }

    /// Removes an object; `false` if there was none.
    pub fn delete(&mut self, which: &ObjectId) -> bool {
        if let ObjectId::BindRequest(key) = which {
            for request in bind_batch::requests_in(&self.bind_requests, key) {
                self.delete(&ObjectId::BindRequest(request));
            }
        }
        if let ObjectId::Pod(key) = which {
            self.unclear_requests.remove(key);
        }
        let before = self.remove(which);
        if let Some(Object::PodGroup(group)) = &before
            && let Some(pod) = group.owner_key()
            && self.implicit_groups.get(&pod) == Some(&group.key)
        {
            self.implicit_groups.remove(&pod);
        }
        let existed = before.is_some();
        if existed {
            self.record_change(which.clone(), before);
        }
        existed
    }

    fn record_change(&mut self, which: ObjectId, before: Option<Object>) {
        let most = CHANGE_LOG_BASE + self.pods.len();
        if let ChangeLog::Entries(changes) = &mut self.changes {
            // Of several changes the first one knows what was there when changes were taken last.
            changes.entry(which).or_insert(before);
            if changes.len() > most {
                self.changes = ChangeLog::Overflowed;
            }
        }
    }

    /// What changed since this was last asked.
    pub(crate) fn take_changes(&mut self) -> ChangeLog {
        std::mem::replace(&mut self.changes, ChangeLog::Entries(BTreeMap::new()))
    }
}

/// The row that was there already.
struct Unchanged;

/// Puts a row into its table and returns what it replaces.
fn insert<K: Ord, V: PartialEq>(
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
        assert!(!world.delete(&ObjectId::BindRequest(Key::new("n", "batc"))));
        world.delete(&ObjectId::BindRequest(Key::new("n", "batch")));
        assert_eq!(asked(&world), [""; 0]);
    }

    #[test]
    fn what_a_pod_held_earlier_it_still_holds() {
        let shared = |annotations: &serde_json::Value, labels: &serde_json::Value| {
            let metadata =
                json!({"namespace": "n", "name": "p", "uid": "u", "annotations": annotations, "labels": labels});
            Object::parse(&json!({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "a"}})).unwrap().unwrap()
        };
        let held = |changes: &[Object]| {
            let mut world = World::default();
            for object in changes {
                world.apply(object.clone());
            }
            let pod = &world.pods[&PodKey::new("n", "p")];
            (pod.request.sharing, pod.gpu_groups().join(" "))
        };
        let label = json!({"runai-gpu-group": "g"});
        let bound = shared(&json!({"gpu-fraction": "0.9"}), &label);
        let expected = held(std::slice::from_ref(&bound));
        for later in [
            shared(&json!({"gpu-fraction": "0.1"}), &label),
            shared(&json!({"gpu-fraction": "none"}), &label),
            shared(&json!({"gpu-memory": "1"}), &json!({})),
            shared(&json!({}), &json!({"runai-gpu-group": "other"})),
        ] {
            assert_eq!(held(&[bound.clone(), later]), expected);
        }
        let small = shared(&json!({"gpu-fraction": "0.1"}), &label);
        assert_ne!(held(&[pod("v"), small]), expected, "another pod of its name");
    }

    #[test]
    fn what_cannot_be_read_is_at_most_what_the_node_has() {
        let node = |gpus: i32| {
            let has = json!({"cpu": 8, "memory": "1Gi", "nvidia.com/gpu": gpus});
            Object::parse(&json!({"kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": has}}))
                .unwrap()
                .unwrap()
        };
        let asked = json!({"requests": {"nvidia.com/gpu": "lots", "memory": "200Ti", "cpu": 2}});
        let spec = json!({"nodeName": "a", "containers": [{"resources": asked}]});
        let pod = json!({"kind": "Pod", "metadata": {"namespace": "n", "name": "p"}, "spec": spec});
        let pod = Object::parse(&pod).unwrap().unwrap();
        let mut world = World::default();
        let held = |world: &World| {
            let resources = &world.pods[&PodKey::new("n", "p")].request.resources;
            (resources.cpu_milli, resources.memory_bytes, resources.gpus)
        };
        world.apply(pod.clone());
        world.apply(node(4));
        assert_eq!(held(&world), (2_000, 1 << 30, 4));
        world.apply(node(8));
        assert_eq!(held(&world), (2_000, 1 << 30, 8));
        world.apply(pod);
        assert_eq!(held(&world), (2_000, 1 << 30, 8));
    }

    #[test]
    fn not_to_the_group_of_an_earlier_pod_of_its_name() {
        assert_eq!(group_of([pod("v"), group()]), None);
        assert_eq!(group_of([group(), pod("v")]), None);
    }
}
