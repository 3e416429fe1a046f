//! Resource claims: made from templates beside pods, reserved when a pod is bound, free again once no pod uses them.

use std::collections::BTreeSet;

use kai_control::key::PodKey;
use kai_control::scheduler::BindExtras;
use serde_json::{Value, json};

use super::Cluster;
use super::effects::pod_id;
use super::kubelet::is_over;
use super::store::uid;
use crate::json::object_at;
use crate::manifest::{Id, Kind};

impl Cluster {
    /// Makes the claims of pods from their templates; a pod whose template does not exist waits for it.
    pub(super) fn make_claims(&mut self) {
        for pod in std::mem::take(&mut self.to_claim) {
            self.make_volume_claims_of(&pod);
            if !self.make_claims_of(&pod) {
                self.to_claim.insert(pod);
            }
        }
    }

    fn make_claims_of(&mut self, pod: &Id) -> bool {
        let Some(value) = self.store.get(pod).cloned() else { return true };
        let mut made = Vec::new();
        let mut complete = true;
        for claim in items(&value, "/spec/resourceClaims") {
            let (Some(name), Some(template)) = (text(claim, "name"), text(claim, "resourceClaimTemplateName")) else {
                continue;
            };
            let id = Id::namespaced(Kind::ResourceClaim, pod.namespace.clone(), format!("{}-{name}", pod.name));
            let template = Id::namespaced(Kind::ResourceClaimTemplate, pod.namespace.clone(), template);
            if self.store.get(&id).is_none() {
                let Some(template) = self.store.get(&template) else {
                    complete = false;
                    continue;
                };
                let mut claim = template.get("spec").cloned().unwrap_or_default();
                if let Some(metadata) = object_at(&mut claim, &["metadata"]) {
                    metadata.insert("ownerReferences".to_owned(), json!([owner(pod, &value)]));
                }
                self.create(id.clone(), claim);
            }
            made.push(json!({"name": name, "resourceClaimName": id.name}));
        }
        if !made.is_empty() {
            self.store.change(pod, |value| {
                if let Some(status) = object_at(value, &["status"]) {
                    status.insert("resourceClaimStatuses".to_owned(), json!(made));
                }
            });
        }
        complete
    }

    /// Does what the binder does: devices are written into claims that have none, and claims reserved for the pod.
    pub(super) fn give_devices(&mut self, pod: &PodKey, given: &BindExtras) {
        let id = pod_id(pod);
        let Some(value) = self.store.get(&id).cloned() else { return };
        let user = json!({"resource": "pods", "name": pod.name, "uid": uid(&value)});
        for devices in &given.claims {
            let claim = Id::namespaced(Kind::ResourceClaim, &*devices.claim.namespace, &*devices.claim.name);
            self.reserve(&claim, &devices.allocation, &user);
        }
        if let Some(extended) = &given.extended {
            let name = format!("{}-extended-resources", pod.name);
            let claim = Id::namespaced(Kind::ResourceClaim, &*pod.namespace, name);
            let annotations = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
            let metadata = json!({"annotations": annotations, "ownerReferences": [owner(&id, &value)]});
            self.create(
                claim.clone(),
                json!({"metadata": metadata, "spec": {"devices": {"requests": extended.requests}}}),
            );
            self.reserve(&claim, &extended.allocation, &user);
        }
    }

    pub(super) fn reserve(&mut self, claim: &Id, allocation: &Value, user: &Value) {
        self.store.change(claim, |value| {
            if let Some(status) = object_at(value, &["status"]) {
                status.entry("allocation").or_insert_with(|| allocation.clone());
                let users = status.entry("reservedFor").or_insert_with(|| json!([]));
                if let Some(users) = users.as_array_mut().filter(|users| !users.contains(user)) {
                    users.push(user.clone());
                }
            }
        });
    }

    /// A pod that is over, or gone, no longer uses its claims; a claim without users gives its devices back.
    pub(super) fn leave_claims(&mut self, pod: &Id, value: &Value) {
        if pod.kind != Kind::Pod {
            return;
        }
        let made: Vec<&Value> = items(value, "/status/resourceClaimStatuses").collect();
        let named = items(value, "/spec/resourceClaims").filter_map(|claim| text(claim, "resourceClaimName"));
        let made = made.into_iter().filter_map(|claim| text(claim, "resourceClaimName"));
        let extended = format!("{}-extended-resources", pod.name);
        let names: Vec<&str> = named.chain(made).chain([extended.as_str()]).collect();
        for name in names {
            let claim = Id::namespaced(Kind::ResourceClaim, pod.namespace.clone(), name);
            self.store.change(&claim, |claim| retain_users(claim, |user| user != uid(value)));
        }
    }

    /// Ends reservations for pods that do not exist or have terminated: the one of a call that was late, for instance.
    pub(super) fn end_stale_reservations(&mut self) {
        let alive = self.store.of_kind(Kind::Pod).filter(|(_, pod)| !is_over(pod));
        let alive: BTreeSet<String> = alive.map(|(_, pod)| uid(pod).to_owned()).collect();
        let is_stale = |user: &Value| user.get("uid").and_then(Value::as_str).is_some_and(|uid| !alive.contains(uid));
        let stale: Vec<Id> = self
            .store
            .of_kind(Kind::ResourceClaim)
            .filter(|(_, claim)| items(claim, "/status/reservedFor").any(is_stale))
            .map(|(id, _)| id.clone())
            .collect();
        for claim in stale {
            self.store.change(&claim, |claim| retain_users(claim, |user| alive.contains(user)));
        }
    }
}

/// Ends the reservations that are not to be kept. A claim without any gives its devices back.
fn retain_users(claim: &mut Value, keep: impl Fn(&str) -> bool) {
    let Some(status) = object_at(claim, &["status"]) else { return };
    let Some(users) = status.get_mut("reservedFor").and_then(Value::as_array_mut) else { return };
    users.retain(|user| user.get("uid").and_then(Value::as_str).is_some_and(&keep));
    if users.is_empty() {
        status.remove("reservedFor");
        status.remove("allocation");
    }
}

fn items<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

pub(super) fn owner(pod: &Id, value: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": uid(value), "controller": true})
}
