//! Volumes: claims are bound as soon as they can be, or, where their class says so, when their pod has a node.
//!
//! Plays the controllers of Kubernetes and the provisioner of a driver: takes a volume that is there, else makes one, and
//! takes it out of the space that the driver reports.

use std::collections::BTreeMap;

use kai_control::key::{Key, PodKey};
use kai_control::objects::{PersistentVolumeClaim, Requirement, StorageClass, best_volume};
use serde_json::{Value, json};

use super::Cluster;
use super::claims::owner;
use super::store::uid;
use crate::json::object_at;
use crate::manifest::{Id, Kind};

/// On volumes that were made on demand: they go with their claim.
const MADE_BY: &str = "pv.kubernetes.io/provisioned-by";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Where a made volume says out of which space it was taken.
const TAKEN_FROM: &str = "/spec/csi/volumeAttributes/capacity";

impl Cluster {
    /// Makes the volume claims that a pod brings along.
    pub(super) fn make_volume_claims_of(&mut self, pod: &Id) {
        let Some(value) = self.store.get(pod) else { return };
        let volumes = value.pointer("/spec/volumes").and_then(Value::as_array).cloned().unwrap_or_default();
        let owner = owner(pod, value);
        for volume in volumes {
            let (Some(name), Some(template)) =
                (volume.get("name").and_then(Value::as_str), volume.pointer("/ephemeral/volumeClaimTemplate"))
            else {
                continue;
            };
            let id = Id::namespaced(Kind::PersistentVolumeClaim, pod.namespace.clone(), format!("{}-{name}", pod.name));
            if self.store.get(&id).is_some() {
                continue;
            }
            let mut claim = template.clone();
            set(&mut claim, &["metadata"], "ownerReferences", json!([owner]));
            self.create(id, claim);
        }
    }

    /// Binds every claim that need not wait for a pod.
    pub(super) fn bind_claims(&mut self) {
        let open = self.world().volume_claims.values().filter(|claim| !claim.bound);
        let open: Vec<Key> = open.map(|claim| claim.key.clone()).collect();
        for key in open {
            self.give_default_class(&key);
            let world = self.world();
            let Some(claim) = world.volume_claims.get(&key) else { continue };
            let waits = world.storage_classes.get(&claim.class).is_some_and(|class| class.wait_for_first_consumer);
            let kept = world.volumes.values().any(|volume| volume.is_prebound_to(claim));
            if !waits || kept || claim.volume.is_some() {
                self.bind_claim(&key, None);
            }
        }
    }

    fn give_default_class(&mut self, key: &Key) {
        let default = self.world().storage_classes.values().find(|class| class.is_default);
        let unnamed = |claim: &Value| claim.pointer("/spec/storageClassName").is_none_or(Value::is_null);
        let id = claim_id(key);
        if let Some(name) = default.map(|class| class.name.clone())
            && self.store.get(&id).is_some_and(unnamed)
        {
            self.store.change(&id, |claim| set(claim, &["spec"], "storageClassName", json!(name)));
        }
    }

    /// Binds the claims of a pod that goes to a node.
    pub(super) fn bind_claims_of(&mut self, pod: &PodKey, node: &str) -> Result<(), String> {
        let prerequisites = self.world().pods.get(pod).and_then(|pod| pod.prerequisites.clone());
        for name in prerequisites.iter().flat_map(|prerequisites| prerequisites.all_claims()) {
            let key = Key::new(&*pod.namespace, name);
            if !self.bind_claim(&key, Some(node)) {
                return Err(format!("pod {pod} was bound to {node}, where claim {key} finds no volume"));
            }
        }
        Ok(())
    }

    /// Whether the claim has a volume now.
    pub(super) fn bind_claim(&mut self, key: &Key, node: Option<&str>) -> bool {
        let world = self.world();
        let Some(claim) = world.volume_claims.get(key).cloned() else { return false };
        if claim.bound {
            return true;
        }
        let nowhere = BTreeMap::new();
        let labels = node.and_then(|name| world.nodes.get(name)).map_or(&nowhere, |node| &node.labels).clone();
        let class = world.storage_classes.get(&claim.class).cloned();
        let volume = match best_volume(&claim, node.map(|node| (node, &labels)), world.volumes.values()) {
            Some(volume) => volume.name.clone(),
            None if claim.volume.is_some() => return false,
            None => {
                match class.filter(|class| class.provisions() && (node.is_none() || class.can_provision_on(&labels))) {
                    Some(class) => self.make_volume(&claim, &class, &labels),
                    None => return false,
                }
            }
        };
        let uid = self.store.get(&claim_id(key)).map(uid).unwrap_or_default().to_owned();
        self.store.change(&volume_id(&volume), |value| {
            let claim = json!({"namespace": key.namespace, "name": key.name, "uid": uid});
            set(value, &["spec"], "claimRef", claim);
            set(value, &["status"], "phase", json!("Bound"));
        });
        self.store.change(&claim_id(key), |value| {
            set(value, &["spec"], "volumeName", json!(volume));
            set(value, &["metadata", "annotations"], BIND_COMPLETED, json!("yes"));
            set(value, &["status"], "phase", json!("Bound"));
        });
        true
    }

    /// A new volume that nodes like this one reach.
    fn make_volume(
        &mut self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
        labels: &BTreeMap<String, String>,
    ) -> String {
        let name = format!("pvc-{}", claim.uid);
        let reported = self.world().storage_capacities.values().find(|capacity| capacity.concerns(&class.name, labels));
        let reported = reported.cloned();
        let bytes = claim.bytes.unwrap_or(0);
        let mut spec = json!({
            "capacity": {"storage": bytes.to_string()},
            "accessModes": claim.access_modes,
            "storageClassName": class.name,
            "csi": {"driver": class.provisioner, "volumeHandle": name},
        });
        // A volume that is made before a pod needs it is in the first topology of its class.
        let here = class.topology_at(labels).or_else(|| class.topologies.first().map(Vec::as_slice));
        let here = match (here, &reported) {
            (Some(labelled), _) => {
                labelled.iter().map(|(key, values)| among(key, labels.get(key).or(values.first()))).collect()
            }
            (None, Some(reported)) => {
                reported.nodes.iter().flat_map(|nodes| &nodes.requirements).map(written).collect()
            }
            (None, None) => Vec::new(),
        };
        if !here.is_empty() {
            spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}});
        }
        if let Some(reported) = reported.filter(|reported| reported.bytes.is_some()) {
            spec["csi"]["volumeAttributes"] = json!({"capacity": reported.key.to_string()});
            self.change_capacity(&reported.key, -bytes);
        }
        let value = json!({"metadata": {"name": name, "annotations": {MADE_BY: class.provisioner}}, "spec": spec});
        self.create(volume_id(&name), value);
        name
    }

    fn change_capacity(&mut self, key: &Key, by: i64) {
        let Some(bytes) = self.world().storage_capacities.get(key).and_then(|capacity| capacity.bytes) else { return };
        let id = Id::namespaced(Kind::CsiStorageCapacity, &*key.namespace, &*key.name);
        let left = json!(bytes.saturating_add(by).max(0).to_string());
        self.store.change(&id, |value| set(value, &[], "capacity", left));
    }

    /// What becomes of the volume of a claim that is gone: one that was made for it goes, too.
    pub(super) fn release(&mut self, claim: &Id, value: &Value) {
        if claim.kind != Kind::PersistentVolumeClaim {
            return;
        }
        let Some(volume) = value.pointer("/spec/volumeName").and_then(Value::as_str).map(volume_id) else { return };
        let Some(value) = self.store.get(&volume).cloned() else { return };
        if value.pointer("/metadata/annotations").and_then(|all| all.get(MADE_BY)).is_none() {
            self.store.change(&volume, |value| set(value, &["status"], "phase", json!("Released")));
            return;
        }
        let taken_from = value.pointer(TAKEN_FROM).and_then(Value::as_str).and_then(|text| text.split_once('/'));
        let bytes = self.world().volumes.get(&volume.name).map_or(0, |volume| volume.bytes);
        if let Some((namespace, name)) = taken_from {
            self.change_capacity(&Key::new(namespace, name), bytes);
        }
        self.remove(&volume);
    }
}

fn among(key: &str, value: Option<&String>) -> Value {
    json!({"key": key, "operator": "In", "values": [value]})
}

fn written(requirement: &Requirement) -> Value {
    let Requirement { key, operator, values } = requirement;
    json!({"key": key, "operator": format!("{operator:?}"), "values": values})
}

fn claim_id(key: &Key) -> Id {
    Id::namespaced(Kind::PersistentVolumeClaim, &*key.namespace, &*key.name)
}

fn volume_id(name: &str) -> Id {
    Id::cluster(Kind::PersistentVolume, name)
}

fn set(value: &mut Value, keys: &[&str], key: &str, new: Value) {
    if let Some(object) = object_at(value, keys) {
        object.insert(key.to_owned(), new);
    }
}
