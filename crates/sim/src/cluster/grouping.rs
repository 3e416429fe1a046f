//! The pod grouper at work on the store: it is asked about every new pod, and what it wants written is written.

use kai_api::keys::annotation;
use kai_control::grouper::{self, GroupEffect};
use kai_control::key::PodKey;
use kai_workloads::owners::{Lookup, OwnerQuery};
use kai_workloads::{ClusterReader, ObjectRef, RelatedPod, StoredGroup, is_karta_of};
use serde_json::{Value, json};

use super::kubelet::is_leaving;
use super::{Cluster, Store, pod_id};
use crate::journal::Event;
use crate::json::{annotation as annotation_of, object_at};
use crate::manifest::{Id, Kind};

impl Cluster {
    /// Groups one pod. A pod that cannot be grouped stays pending, with a reason.
    pub(super) fn group(&mut self, pod: &Id) {
        let Some(value) = self.store.get(pod) else { return };
        let read = |query: &OwnerQuery| match self.store.object(&query.object) {
            Some(owner) => Lookup::Found(owner),
            // Kinds that are not simulated are like kinds that the grouper may not read: the walk ends below them.
            None if Kind::parse(&query.object.kind).is_none() => Lookup::Forbidden,
            None => Lookup::Missing,
        };
        match grouper::reconcile(value, read, &self.store, &self.grouper) {
            Ok(answer) => answer.effects.into_iter().for_each(|effect| self.write_grouping(effect)),
            // Copied from a cluster without its owners, but with its group: nothing is left to find out.
            Err(_) if is_grouped(&self.store, value) => {}
            Err(ungrouped) => {
                self.ungrouped.insert(pod.clone(), ungrouped.to_string());
                self.note(Event::Warn, pod, None, ungrouped.to_string());
            }
        }
    }

    fn write_grouping(&mut self, effect: GroupEffect) {
        match effect {
            GroupEffect::CreatePodGroup(group) => {
                let (id, value) = as_object(&group);
                match self.admit(&id, value) {
                    Ok(value) => self.store.create(id, value, self.now),
                    Err(why) => self.note(Event::Warn, &id, None, format!("refused: {why}")),
                }
            }
            GroupEffect::ReplacePodGroup(group) => {
                let (id, value) = as_object(&group);
                self.store.change(&id, |stored| *stored = value);
            }
            GroupEffect::LinkPod { pod, annotations, labels } => self.store.change(&pod_id(&pod), |value| {
                for (map, entries) in [("annotations", annotations), ("labels", labels)] {
                    if let Some(map) = object_at(value, &["metadata", map]) {
                        map.extend(entries.into_iter().map(|(key, text)| (key, json!(text))));
                    }
                }
            }),
        }
    }

    /// Why a pod has no group, if that could not be found out.
    pub(crate) fn grouping_problem(&self, pod: &PodKey) -> Option<&str> {
        self.ungrouped.get(&pod_id(pod)).map(String::as_str)
    }

    /// The queue that an object's pods are charged to, as far as is known.
    pub(crate) fn queue_of(&self, id: &Id) -> Option<String> {
        let uid = super::uid(self.store.get(id)?);
        let own = match id.kind {
            Kind::Pod => annotation_of(self.store.get(id)?, annotation::POD_GROUP_NAME).map(str::to_owned),
            _ => None,
        };
        let group = if let Some(name) = own {
            Id::namespaced(Kind::PodGroup, id.namespace.clone(), name)
        } else {
            let owned: Vec<&Id> = self.store.owned_by(uid).collect();
            let Some(group) = owned.iter().find(|owned| owned.kind == Kind::PodGroup) else {
                // A Deployment owns a ReplicaSet, which owns pods, which own their groups.
                return owned.into_iter().find_map(|owned| self.queue_of(owned));
            };
            (*group).clone()
        };
        self.store.get(&group)?.pointer("/spec/queue")?.as_str().map(str::to_owned)
    }
}

/// Whether the pod names a group that exists.
fn is_grouped(store: &Store, pod: &Value) -> bool {
    let namespace = pod.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    annotation_of(pod, annotation::POD_GROUP_NAME)
        .is_some_and(|name| store.get(&Id::namespaced(Kind::PodGroup, namespace, name)).is_some())
}

impl ClusterReader for Store {
    fn object(&self, at: &ObjectRef) -> Option<&Value> {
        let mut id = Id::referred(&at.api_version, &at.kind, &at.namespace, &at.name);
        if !id.kind.namespaced() {
            id.namespace.clear();
        }
        self.get(&id).filter(|object| object.get("apiVersion").and_then(Value::as_str) == Some(&at.api_version))
    }

    fn has_priority_class(&self, name: &str) -> bool {
        self.world().priority_classes.contains_key(name)
    }

    fn pods(&self, namespace: &str, labels: &[(&str, &str)]) -> Vec<RelatedPod> {
        let matches = |pod: &Value| {
            let found = pod.pointer("/metadata/labels");
            labels.iter().all(|(key, value)| found.and_then(|found| found.get(key)?.as_str()) == Some(value))
        };
        self.of_kind(Kind::Pod)
            .filter(|(id, pod)| id.namespace == namespace && matches(pod))
            .map(|(_, pod)| RelatedPod {
                pod_group: annotation_of(pod, annotation::POD_GROUP_NAME).map(str::to_owned),
                terminating: is_leaving(pod),
            })
            .collect()
    }

    fn pod_group(&self, namespace: &str, name: &str) -> Option<StoredGroup> {
        self.get(&Id::namespaced(Kind::PodGroup, namespace, name)).map(stored)
    }

    fn pod_groups(&self, namespace: &str, name_prefix: &str) -> Vec<StoredGroup> {
        self.of_kind(Kind::PodGroup)
            .filter(|(id, _)| id.namespace == namespace && id.name.starts_with(name_prefix))
            .map(|(_, group)| stored(group))
            .collect()
    }

    fn kartas(&self, api_version: &str, kind: &str) -> Vec<&Value> {
        let all = self.of_kind(Kind::Karta).map(|(_, karta)| karta);
        all.filter(|karta| is_karta_of(karta, api_version, kind)).collect()
    }
}

fn stored(group: &Value) -> StoredGroup {
    let text = |pointer: &str| group.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let sub_groups = group.pointer("/spec/subGroups").and_then(Value::as_array).into_iter().flatten();
    StoredGroup {
        name: text("/metadata/name").unwrap_or_default(),
        owner_kind: text("/metadata/ownerReferences/0/kind"),
        sub_groups: sub_groups.filter_map(|group| group.get("name")?.as_str().map(str::to_owned)).collect(),
    }
}

/// A pod group as it is stored.
pub(super) fn as_object(group: &kai_api::PodGroup) -> (Id, Value) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let id = Id::namespaced(Kind::PodGroup, text(&group.metadata.namespace), text(&group.metadata.name));
    (id, serde_json::to_value(group).expect("API types are plain data"))
}

#[cfg(test)]
mod tests {
    use kai_engine::units::Timestamp;

    use super::*;

    #[test]
    fn rules_see_the_kartas_of_the_store() {
        let karta = json!({"apiVersion": "run.ai/v1alpha1", "kind": "Karta", "metadata": {"name": "graphs", "labels":
            {"run.ai/karta-group": "x.io", "run.ai/karta-version": "v1", "run.ai/karta-kind": "Graph"}}});
        let mut store = Store::default();
        store.create(Id::cluster(Kind::Karta, "graphs"), karta, Timestamp(0));
        assert_eq!(store.kartas("x.io/v1", "Graph").len(), 1);
        assert!(store.kartas("x.io/v2", "Graph").is_empty());
    }
}
