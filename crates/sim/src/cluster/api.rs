//! The store as an API server for the shipped controllers: what each call of theirs changes, and what is refused.
//!
//! Answers mean what they mean to the live shell: what exists already or is gone already is as good as done where a
//! controller would say so, anything else is a refusal.

use std::collections::{BTreeMap, BTreeSet};

use kai_api::keys::{annotation, name, phase, reason};
use kai_control::bind_batch;
use kai_control::binder::{BindEffect, gpu_group_label_changes};
use kai_control::controller::{ApiCall, CallError};
use kai_control::gpu_config_maps::refusal;
use kai_control::grouper::GroupEffect;
use kai_control::key::{Key, PodKey};
use kai_control::scheduler::Write;
use kai_engine::units::Span;
use kai_workloads::ClusterReader as _;
use serde_json::{Value, json};

use super::effects::{group_id, pod_id};
use super::grouping::as_object;
use super::kubelet::{is_leaving, is_over, node_of};
use super::store::uid;
use super::{Cluster, Due};
use crate::journal::Event;
use crate::json::object_at;
use crate::manifest::{Id, Kind, complete_pod};

/// How long it takes until a scaling pod has a node.
const SCALE_UP: Span = Span::seconds(5);

impl Cluster {
    /// Does what a controller asks for; a GET returns what it found.
    pub(crate) fn call(&mut self, call: &ApiCall) -> Result<Option<Value>, CallError> {
        match call {
            ApiCall::Get(object) => return Ok(self.store.object(object).cloned()),
            ApiCall::Schedule(write) => self.write(write)?,
            ApiCall::Bind(effect) => self.bind_step(effect)?,
            ApiCall::Group(effect) => self.group_step(effect)?,
            ApiCall::PatchStatus { kind, key, patch } => {
                let object = Id::namespaced((*kind).into(), &*key.namespace, &*key.name);
                self.edit(&object, |value| json_patch::merge(value, patch));
            }
            ApiCall::CreateScalingPod(pod) => self.create_scaling_pod(pod),
            // No kubelet has it: it is deleted at once.
            ApiCall::DeleteScalingPod(pod) => self.change_scaling_pod(|cluster| cluster.remove(&pod_id(pod))),
        }
        Ok(None)
    }

    /// Marked as unschedulable, as autoscalers expect. A node comes a little later.
    fn create_scaling_pod(&mut self, pod: &Value) {
        let id = id_of(Kind::Pod, pod);
        self.change_scaling_pod(|cluster| {
            if cluster.store.get(&id).is_none() {
                let mut pod = pod.clone();
                complete_pod(&mut pod);
                cluster.create(id.clone(), pod);
                if let Some(uid) = cluster.store.get(&id).map(|pod| uid(pod).to_owned()) {
                    cluster.events.add(cluster.now.plus(SCALE_UP), Due::ScalingPodDone { pod: id.clone(), uid });
                }
            }
            let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason::UNSCHEDULABLE});
            cluster.edit(&id, |pod| set_condition(pod, condition));
        });
    }

    pub(super) fn scaling_pod_done(&mut self, pod: &Id) {
        self.change_scaling_pod(|cluster| {
            cluster.edit(pod, |pod| {
                set_condition(pod, json!({"type": "PodScheduled", "status": "True"}));
                pod["status"]["phase"] = json!("Succeeded");
            });
        });
    }

    fn change_scaling_pod(&mut self, change: impl FnOnce(&mut Self)) {
        let before = self.store.version();
        change(self);
        self.scaling_pod_changes += self.store.version() - before;
    }

    fn write(&mut self, write: &Write) -> Result<(), CallError> {
        match write {
            Write::CreateBindRequest(request) => {
                let value = serde_json::to_value(request).unwrap_or_default();
                return self.request_bind(value);
            }
            Write::CreateBindBatch { batch, .. } => {
                let value = serde_json::to_value(batch).unwrap_or_default();
                let id = id_of(Kind::BindRequest, &value);
                if self.store.get(&id).is_none() {
                    self.create(id, value);
                }
            }
            Write::DeleteBindRequest(request) => match bind_batch::batch_of(request) {
                Some((batch, place)) => {
                    self.edit(&request_id(&batch), |value| {
                        json_patch::merge(value, &bind_batch::removal_patch(&place));
                    });
                }
                None => self.remove(&request_id(request)),
            },
            Write::LabelPod { pod, key, value } => {
                self.edit(&pod_id(pod), |pod| set(pod, &["metadata", "labels"], key, json!(value)));
            }
            Write::Evict { pod, uid: wanted, message } => self.evict(pod, wanted, message),
            Write::Nominate { pod, node } => self.edit(&pod_id(pod), |pod| match node {
                Some(node) => set(pod, &["status"], "nominatedNodeName", json!(node)),
                None => unset(pod, &["status"], "nominatedNodeName"),
            }),
            Write::PatchGroupTimestamps { group, annotations } => self.edit(&group_id(group), |group| {
                for (key, text) in annotations {
                    match text {
                        Some(text) => set(group, &["metadata", "annotations"], key, json!(text)),
                        None => unset(group, &["metadata", "annotations"], key),
                    }
                }
            }),
            Write::SetGroupConditions { group, conditions, .. } => {
                let conditions = serde_json::to_value(conditions).unwrap_or_default();
                self.edit(&group_id(group), |group| set(group, &["status"], "schedulingConditions", conditions));
            }
            Write::SetUnschedulable { pod, reason, message, .. } => self.edit(&pod_id(pod), |pod| {
                let condition =
                    json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": message});
                set_condition(pod, condition);
            }),
            Write::Emit(_) => {}
        }
        Ok(())
    }

    fn request_bind(&mut self, value: Value) -> Result<(), CallError> {
        let id = id_of(Kind::BindRequest, &value);
        let Some(stored) = self.store.get(&id) else {
            self.create(id, value);
            return Ok(());
        };
        let owner = |request: &Value| request.pointer("/metadata/ownerReferences/0/uid").cloned();
        if owner(stored) != owner(&value) {
            self.remove(&id);
            return Err(CallError::Rejected("a request for an earlier pod of this name was in the way".to_owned()));
        }
        if stored.pointer("/spec/selectedNode") != value.pointer("/spec/selectedNode") {
            return Err(CallError::Rejected("is being bound elsewhere already".to_owned()));
        }
        Ok(())
    }

    fn evict(&mut self, pod: &PodKey, wanted: &str, message: &str) {
        let id = pod_id(pod);
        let Some(value) = self.store.get(&id).filter(|value| uid(value) == wanted && !is_leaving(value)) else {
            return;
        };
        let node = node_of(value).map(str::to_owned);
        self.expect_replacement(&id);
        self.note(Event::Evict, &id, node.as_deref(), message);
        self.stop_pod(&id);
    }

    fn bind_step(&mut self, effect: &BindEffect) -> Result<(), CallError> {
        match effect {
            BindEffect::CreatePod(pod) => {
                let id = id_of(Kind::Pod, pod);
                if self.store.get(&id).is_none() {
                    let mut pod = (**pod).clone();
                    complete_pod(&mut pod);
                    self.create(id.clone(), pod);
                    self.start_pod(&id);
                }
            }
            BindEffect::DeletePod { pod, uid: wanted, version } => {
                let id = pod_id(pod);
                let this = self.store.get(&id).filter(|value| wanted.is_empty() || uid(value) == wanted);
                if let Some(value) = this {
                    let stored = value.pointer("/metadata/resourceVersion").and_then(Value::as_str);
                    if version.is_some() && version.as_deref() != stored {
                        return Err(CallError::Rejected("it has changed meanwhile".to_owned()));
                    }
                    self.expect_replacement(&id);
                    self.note(Event::Delete, &id, None, "deleted by the binder");
                    self.remove(&id);
                }
            }
            BindEffect::LabelPod { pod, uid, node, labels } => self.label(pod, uid, node, labels)?,
            BindEffect::WriteConfigMap(map) => {
                let id = id_of(Kind::ConfigMap, map);
                match self.store.get(&id).map(|stored| refusal(stored, map)) {
                    None => self.create(id, (**map).clone()),
                    Some(Some(why)) => return Err(CallError::Rejected(why)),
                    Some(None) => self.edit(&id, |stored| set(stored, &[], "data", map["data"].clone())),
                }
            }
            BindEffect::AllocateClaim { claim, pod, uid, allocation } => {
                let claim = Id::namespaced(Kind::ResourceClaim, &*claim.namespace, &*claim.name);
                self.existing(&claim)?;
                self.reserve(&claim, allocation, &json!({"resource": "pods", "name": pod.name, "uid": uid}));
            }
            BindEffect::Bind { pod, uid, node, annotations } => self.assign(pod, uid, node, annotations)?,
            BindEffect::SetPhase { request, phase, .. } if let Some((batch, place)) = bind_batch::batch_of(request) => {
                if *phase != phase::SUCCEEDED {
                    self.edit(&request_id(&batch), |value| {
                        json_patch::merge(value, &bind_batch::removal_patch(&place));
                    });
                }
            }
            BindEffect::SetPhase { request, version, phase, reason, failed_attempts } => {
                let status = json!({"phase": phase, "reason": reason, "failedAttempts": failed_attempts});
                let id = request_id(request);
                let stored = self.store.get(&id).and_then(|stored| stored.pointer("/metadata/resourceVersion"));
                if stored.is_some_and(|stored| stored != version.as_str()) {
                    return Err(conflict());
                }
                self.edit(&id, |request| set(request, &[], "status", status));
            }
            BindEffect::DeleteRequest(request) => self.remove(&request_id(request)),
            BindEffect::ReportResult { pod, bound, message } => self.edit(&pod_id(pod), |pod| {
                let status = if *bound { "True" } else { "False" };
                set_condition(pod, json!({"type": reason::POD_BOUND, "status": status, "message": message}));
            }),
            BindEffect::SetSelectedNode { claim, node } => self.provision(claim, node)?,
            BindEffect::PrebindVolume { volume, claim, uid } => {
                let id = Id::cluster(Kind::PersistentVolume, &**volume);
                let holder = self.existing(&id)?.pointer("/spec/claimRef/uid").and_then(Value::as_str);
                if holder.is_some_and(|holder| holder != uid) {
                    return Err(conflict());
                }
                let claim = json!({"namespace": claim.namespace, "name": claim.name, "uid": uid});
                self.edit(&id, |volume| set(volume, &["spec"], "claimRef", claim));
            }
        }
        Ok(())
    }

    /// A provisioner makes the volume at once, if it can.
    fn provision(&mut self, claim: &Key, node: &str) -> Result<(), CallError> {
        let id = Id::namespaced(Kind::PersistentVolumeClaim, &*claim.namespace, &*claim.name);
        self.existing(&id)?;
        self.edit(&id, |claim| {
            set(claim, &["metadata", "annotations"], "volume.kubernetes.io/selected-node", json!(node));
        });
        self.bind_claim(claim, Some(node));
        Ok(())
    }

    /// The binding of a pod: once, and only of a pod that stays.
    fn assign(
        &mut self,
        pod: &PodKey,
        wanted: &str,
        node: &str,
        annotations: &BTreeMap<String, String>,
    ) -> Result<(), CallError> {
        let id = pod_id(pod);
        if self.check_assignable(&id, wanted, node)? {
            return Ok(());
        }
        self.edit(&id, |pod| {
            set(pod, &["spec"], "nodeName", json!(node));
            set_condition(pod, json!({"type": "PodScheduled", "status": "True"}));
            for (key, text) in annotations {
                set(pod, &["metadata", "annotations"], key, json!(text));
            }
        });
        self.note(Event::Bind, &id, Some(node), "bound");
        self.start_pod(&id);
        Ok(())
    }

    fn label(
        &mut self,
        pod: &PodKey,
        wanted: &str,
        node: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<(), CallError> {
        let id = pod_id(pod);
        if self.check_assignable(&id, wanted, node)? {
            return Ok(());
        }
        self.edit(&id, |pod| {
            let stored: BTreeMap<String, String> =
                serde_json::from_value(pod["metadata"]["labels"].clone()).unwrap_or_default();
            for (key, group) in gpu_group_label_changes(&stored, labels) {
                match group {
                    Some(group) => set(pod, &["metadata", "labels"], &key, json!(group)),
                    None => unset(pod, &["metadata", "labels"], &key),
                }
            }
        });
        Ok(())
    }

    /// Whether this pod is on the node already. Refused if it is another pod, on another node, or on its way out.
    fn check_assignable(&self, id: &Id, wanted: &str, node: &str) -> Result<bool, CallError> {
        let value = self.existing(id)?;
        if uid(value) != wanted {
            return Err(CallError::Rejected("it is another pod by now".to_owned()));
        }
        match node_of(value) {
            Some(found) if found == node => return Ok(true),
            Some(found) => return Err(CallError::Rejected(format!("it is on {found} already"))),
            None => {}
        }
        if is_leaving(value) || is_over(value) {
            return Err(CallError::Rejected("it is being deleted".to_owned()));
        }
        Ok(false)
    }

    fn group_step(&mut self, effect: &GroupEffect) -> Result<(), CallError> {
        match effect {
            GroupEffect::CreatePodGroup(group) => {
                let (id, value) = as_object(group);
                if self.store.get(&id).is_none() {
                    self.try_create(id, value).map_err(CallError::Rejected)?;
                }
            }
            GroupEffect::ReplacePodGroup(group) => {
                let (id, value) = as_object(group);
                let version = |value: &Value| value.pointer("/metadata/resourceVersion").cloned();
                let Some(stored) = self.store.get(&id) else { return Err(conflict()) };
                if version(&value).is_none() || version(stored) != version(&value) {
                    return Err(conflict());
                }
                self.admit_change(stored, &value).map_err(CallError::Rejected)?;
                // The status has another door.
                let status = stored.get("status").cloned();
                self.edit(&id, |stored| {
                    *stored = value;
                    if let Some(status) = status {
                        set(stored, &[], "status", status);
                    }
                });
            }
            GroupEffect::LinkPod { pod, annotations, labels } => self.edit(&pod_id(pod), |pod| {
                for (map, entries) in [("annotations", annotations), ("labels", labels)] {
                    for (key, text) in entries {
                        set(pod, &["metadata", map], key, json!(text));
                    }
                }
            }),
        }
        Ok(())
    }

    fn existing(&self, id: &Id) -> Result<&Value, CallError> {
        self.store.get(id).ok_or_else(|| CallError::Rejected(format!("{id} does not exist")))
    }

    /// Changes an object if it exists and that makes a difference: a patch that changes nothing is no event.
    fn edit(&mut self, id: &Id, edit: impl FnOnce(&mut Value)) {
        let Some(stored) = self.store.get(id) else { return };
        let mut new = stored.clone();
        edit(&mut new);
        if *stored != new {
            self.store.change(id, |value| *value = new);
            self.enqueue_owners(id);
        }
    }

    /// What Kubernetes clears up in time: objects whose owners are gone, claims reserved for pods that are gone, pods on
    /// nodes that are gone or long lost.
    pub(crate) fn collect_garbage(&mut self) {
        let uids: BTreeSet<String> = self.store.all().map(|(_, value)| uid(value).to_owned()).collect();
        let orphaned = |value: &Value| {
            let owners = value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            let gone = |owner: &Value| owner["uid"].as_str().is_some_and(|uid| !uids.contains(uid));
            owners.is_some_and(|owners| !owners.is_empty() && owners.iter().all(gone))
        };
        let orphans: Vec<Id> =
            self.store.all().filter(|(_, value)| orphaned(value)).map(|(id, _)| id.clone()).collect();
        for orphan in orphans {
            match orphan.kind {
                Kind::Pod => self.stop_pod(&orphan),
                _ => self.remove(&orphan),
            }
        }
        self.end_stale_reservations();
        let nodes = self.store.of_kind(Kind::Pod).filter_map(|(_, pod)| node_of(pod)).map(str::to_owned);
        for node in nodes.collect::<BTreeSet<_>>() {
            let exists = self.store.get(&Id::cluster(Kind::Node, &node)).is_some();
            let lost = |since: &kai_engine::units::Timestamp| self.now.since(*since) >= self.scenario.node_loss;
            if !exists || self.down.get(&node).is_some_and(lost) {
                self.lose_pods_of(&node, "its node is gone");
            }
        }
    }

    /// A reservation pod that runs says which GPU it got, as the program in it would.
    pub(crate) fn report_reserved_gpu(&mut self, due: &Due) {
        let Due::PodUp { pod, .. } = due else { return };
        if pod.namespace != name::RESOURCE_RESERVATION {
            return;
        }
        let Some(device) = self.store.get(pod).map(|pod| format!("GPU-{}", uid(pod))) else { return };
        self.edit(pod, |pod| set(pod, &["metadata", "annotations"], annotation::RESERVED_GPU, json!(device)));
    }
}

fn request_id(key: &Key) -> Id {
    Id::namespaced(Kind::BindRequest, &*key.namespace, &*key.name)
}

fn id_of(kind: Kind, value: &Value) -> Id {
    let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
    Id::namespaced(kind, text("namespace"), text("name"))
}

fn set(value: &mut Value, path: &[&str], key: &str, new: Value) {
    if let Some(object) = object_at(value, path) {
        object.insert(key.to_owned(), new);
    }
}

fn unset(value: &mut Value, path: &[&str], key: &str) {
    if let Some(object) = object_at(value, path) {
        object.remove(key);
    }
}

/// Puts the condition in the place of the one of its type.
fn set_condition(pod: &mut Value, condition: Value) {
    let Some(status) = object_at(pod, &["status"]) else { return };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

fn conflict() -> CallError {
    CallError::Conflict("the object was changed meanwhile".to_owned())
}
