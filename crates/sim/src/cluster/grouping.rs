//! The pod grouper at work on the store: finds the owners of a new pod, asks for its group, writes both.

use kai_api::keys::{annotation, label};
use kai_control::world::PodKey;
use kai_workloads::owners::{Lookup, walk};
use kai_workloads::{
    GroupSpec, Grouping, Minimum, ObjectRef, Related, RelatedPod, Settings, StoredGroup, TopologyConstraint, group,
};
use serde_json::{Map, Value, json};

use super::kubelet::is_leaving;
use super::{Cluster, Store, pod_id};
use crate::journal::Event;
use crate::manifest::{Id, Kind, annotation as annotation_of, object_at};

impl Cluster {
    /// Groups one pod. A pod that cannot be grouped waits, and its user is told why.
    pub(super) fn group(&mut self, pod: &Id) {
        let Some(value) = self.store.get(pod) else { return };
        let spec = match describe(&self.store, value, &self.grouper) {
            Ok(Some(spec)) => spec,
            Ok(None) => return,
            Err(problem) => {
                self.ungrouped.insert(pod.clone(), problem.clone());
                self.note(Event::Warn, pod, None, problem);
                return;
            }
        };
        let leaf = spec.leaf_of(&pod.name).map(str::to_owned);
        let name = spec.name.clone();
        self.write_group(&spec);
        self.store.change(pod, |value| {
            if let Some(annotations) = object_at(value, &["metadata", "annotations"]) {
                annotations.insert(annotation::POD_GROUP_NAME.to_owned(), json!(name));
            }
            if let (Some(leaf), Some(labels)) = (leaf, object_at(value, &["metadata", "labels"])) {
                labels.insert(label::SUB_GROUP_NAME.to_owned(), json!(leaf));
            }
        });
    }

    /// Creates the group, or brings the stored one up to date. What users and assigners own is kept.
    fn write_group(&mut self, spec: &GroupSpec) {
        let id = Id::namespaced(Kind::PodGroup, spec.namespace.clone(), spec.name.clone());
        if self.store.get(&id).is_none() {
            self.store.create(id, new_group(spec), self.now);
            return;
        }
        let wanted = group_spec(spec);
        let differs =
            self.store.get(&id).and_then(|group| group.get("spec")).is_some_and(|stored| {
                wanted.iter().any(|(key, value)| key != "queue" && stored.get(key) != Some(value))
            });
        if differs {
            self.store.change(&id, |group| {
                let Some(stored) = object_at(group, &["spec"]) else { return };
                for (key, value) in wanted {
                    // The queue is decided once, when the group is made.
                    if key != "queue" {
                        stored.insert(key, value);
                    }
                }
            });
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

fn describe(store: &Store, pod: &Value, settings: &Settings) -> Result<Option<GroupSpec>, String> {
    if kai_workloads::left_alone(pod, settings).is_some() {
        return Ok(None);
    }
    let owners = walk(pod, |query| match store.object(&query.object) {
        Some(owner) => Lookup::Found(owner),
        // Kinds that are not simulated are like kinds that the grouper may not read: the walk ends below them.
        None if Kind::from_word(&query.object.kind).is_none() => Lookup::Forbidden,
        None => Lookup::Missing,
    });
    let owners = match owners {
        Ok(owners) => owners,
        // Copied from a cluster without its owners, but with its group: nothing is left to find out.
        Err(_) if is_grouped(store, pod) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    match group(&owners, pod, store, settings).map_err(|error| error.to_string())? {
        Grouping::Grouped(spec) => Ok(Some(*spec)),
        Grouping::LeftAlone(_) => Ok(None),
    }
}

/// Whether the pod names a group that exists.
fn is_grouped(store: &Store, pod: &Value) -> bool {
    let namespace = pod.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    annotation_of(pod, annotation::POD_GROUP_NAME)
        .is_some_and(|name| store.get(&Id::namespaced(Kind::PodGroup, namespace, name)).is_some())
}

impl Related for Store {
    fn object(&self, at: &ObjectRef) -> Option<&Value> {
        let kind = Kind::from_word(&at.kind).filter(|kind| kind.api_version() == at.api_version)?;
        let namespace = if kind.namespaced() { at.namespace.as_str() } else { "" };
        self.get(&Id { kind, namespace: namespace.to_owned(), name: at.name.clone() })
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

fn new_group(spec: &GroupSpec) -> Value {
    let owner = &spec.owner;
    json!({
        "metadata": {
            "labels": spec.labels,
            "annotations": spec.annotations,
            "ownerReferences": [
                {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid},
            ],
        },
        "spec": group_spec(spec),
    })
}

fn group_spec(spec: &GroupSpec) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("queue".to_owned(), json!(spec.queue));
    out.insert("priorityClassName".to_owned(), json!(spec.priority_class));
    write_minimum(&mut out, spec.minimum);
    if let Some(preemptibility) = spec.preemptibility {
        out.insert("preemptibility".to_owned(), json!(preemptibility.as_str()));
    }
    if let Some(delay) = spec.preemption_delay {
        out.insert("preemptionDelay".to_owned(), json!(delay.to_string()));
    }
    if let Some(grace) = spec.staleness_grace_period {
        out.insert("stalenessGracePeriod".to_owned(), json!(grace.to_string()));
    }
    write_constraint(&mut out, spec.topology.as_ref());
    let sub_groups: Vec<Value> = spec
        .sub_groups
        .iter()
        .map(|sub_group| {
            let mut out = Map::new();
            out.insert("name".to_owned(), json!(sub_group.name));
            if let Some(parent) = &sub_group.parent {
                out.insert("parent".to_owned(), json!(parent));
            }
            write_minimum(&mut out, sub_group.minimum);
            write_constraint(&mut out, sub_group.topology.as_ref());
            Value::Object(out)
        })
        .collect();
    if !sub_groups.is_empty() {
        out.insert("subGroups".to_owned(), Value::Array(sub_groups));
    }
    out
}

fn write_minimum(out: &mut Map<String, Value>, minimum: Minimum) {
    match minimum {
        Minimum::Members(members) => out.insert("minMember".to_owned(), json!(members)),
        Minimum::SubGroups(children) => out.insert("minSubGroup".to_owned(), json!(children)),
    };
}

fn write_constraint(out: &mut Map<String, Value>, constraint: Option<&TopologyConstraint>) {
    let Some(constraint) = constraint else { return };
    let mut fields = Map::new();
    for (key, value) in [
        ("topology", &constraint.topology),
        ("requiredTopologyLevel", &constraint.required_level),
        ("preferredTopologyLevel", &constraint.preferred_level),
    ] {
        if let Some(value) = value {
            fields.insert(key.to_owned(), json!(value));
        }
    }
    out.insert("topologyConstraint".to_owned(), Value::Object(fields));
}
