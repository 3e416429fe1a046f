//! Volumes of a pod to bind: unbound claims are prebound to a matching volume, or get selected-node for dynamic
//! provisioning, as in kube-scheduler.

use std::collections::BTreeSet;

use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::plan::Stop;
use super::rows::{BindInputs, RequestRow};
use super::{BindEffect, Binder};
use crate::key::Key;
use crate::objects::{Node, PersistentVolume, PersistentVolumeClaim, StorageClass, best_volume};

/// How long a volume counts as prebound before a watch shows it.
const PREBIND_TTL: Span = Span::seconds(10);

impl Binder {
    pub fn apply_volume_claim(&mut self, claim: &Value) -> Result<(), String> {
        let claim = PersistentVolumeClaim::parse(claim).map_err(|malformed| malformed.to_string())?;
        self.volume_claims.insert(claim.key.clone(), claim);
        Ok(())
    }

    pub fn delete_volume_claim(&mut self, key: &Key) {
        self.volume_claims.remove(key);
        self.assumed_prebinds.forget_where(|claim| claim == key);
    }

    pub fn apply_volume(&mut self, volume: &Value) -> Result<(), String> {
        let volume = PersistentVolume::parse(volume).map_err(|malformed| malformed.to_string())?;
        if volume.claim.is_some() {
            self.assumed_prebinds.confirm(&volume.name);
        }
        self.persistent_volumes.insert(volume.name.clone(), volume);
        Ok(())
    }

    pub fn delete_volume(&mut self, name: &str) {
        self.persistent_volumes.remove(name);
        self.assumed_prebinds.forget(name);
    }

    pub fn apply_storage_class(&mut self, class: &Value) -> Result<(), String> {
        let class = StorageClass::parse(class).map_err(|malformed| malformed.to_string())?;
        self.storage_classes.insert(class.name.clone(), class);
        Ok(())
    }

    pub fn delete_storage_class(&mut self, name: &str) {
        self.storage_classes.remove(name);
    }

    /// Remembers which volumes are about to be marked: others should not take them meanwhile.
    pub(super) fn assume_prebinds(&mut self, effects: &[BindEffect], now: Timestamp) {
        for effect in effects {
            if let BindEffect::PrebindVolume { volume, claim, .. } = effect {
                self.assumed_prebinds.forget_where(|other| other == claim);
                self.assumed_prebinds.assume_for(volume.clone(), claim.clone(), now, PREBIND_TTL);
            }
        }
    }

    /// Binding waits until all claims of the pod have their volume.
    pub(super) fn volumes(
        &self,
        request: &RequestRow,
        user: &BindInputs,
        node: &Node,
        now: Timestamp,
    ) -> Result<(), Stop> {
        let mut effects = Vec::new();
        let mut waiting = Vec::new();
        let mut unbound_claims = Vec::new();
        for name in &user.volumes {
            let key = Key::new(&request.bind_request.key.namespace, name);
            match self.volume_claims.get(&key) {
                Some(claim) if claim.bound => self.check_reach(claim, node)?,
                claim => {
                    waiting.push(key.to_string());
                    unbound_claims.extend(claim);
                }
            }
        }
        // The smallest first, so that it does not take what only a larger one needs.
        unbound_claims.sort_by_key(|claim| (claim.bytes, &claim.key));
        let mut chosen = BTreeSet::new();
        for claim in unbound_claims {
            if let Some(effect) = self.provision_or_prebind(claim, node, &chosen, now)? {
                if let BindEffect::PrebindVolume { volume, .. } = &effect {
                    chosen.insert(volume.clone());
                }
                effects.push(effect);
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        let timeout = Timestamp(request.created.0 + self.settings.volume_timeout.0);
        let waiting = waiting.join(", ");
        if now >= timeout {
            return Err(Stop::Fail(format!(
                "plugin volumebinding failed in PreBind: no volume for the claims {waiting} after {} s",
                self.settings.volume_timeout.0 / 1_000_000
            )));
        }
        Err(Stop::Wait { why: format!("volumes for the claims {waiting}"), until: Some(timeout), effects })
    }

    /// Another pod may have had the claim bound at its own node meanwhile.
    fn check_reach(&self, claim: &PersistentVolumeClaim, node: &Node) -> Result<(), Stop> {
        let volume = claim.volume.as_ref().and_then(|name| self.persistent_volumes.get(name));
        match volume.filter(|volume| !volume.reaches(&node.name, &node.labels)) {
            None => Ok(()),
            Some(volume) => Err(Stop::Fail(format!(
                "plugin volumebinding failed in PreBind: volume {} of the claim {} cannot be reached from node {}",
                volume.name, claim.key, node.name
            ))),
        }
    }

    /// What to do so that the claim gets a volume at the node; nothing, if others are about to bind it.
    fn provision_or_prebind(
        &self,
        claim: &PersistentVolumeClaim,
        node: &Node,
        chosen: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<Option<BindEffect>, Stop> {
        let assign = || BindEffect::SetSelectedNode { claim: claim.key.clone(), node: node.name.clone() };
        if let Some(selected) = &claim.selected_node {
            return Ok((*selected != node.name).then(assign));
        }
        let volumes = self.persistent_volumes.values();
        if claim.volume.is_some() || volumes.clone().any(|volume| volume.is_prebound_to(claim)) {
            return Ok(None);
        }
        let class = match self.storage_classes.get(&claim.class) {
            Some(class) if class.wait_for_first_consumer => class,
            // Bound as soon as there is a volume, whichever pod uses it.
            _ => return Ok(None),
        };
        let others = |volume: &str| self.assumed_prebinds.live(volume, now).is_some_and(|other| *other != claim.key);
        let free = volumes.filter(|volume| !chosen.contains(&volume.name) && !others(&volume.name));
        if let Some(volume) = best_volume(claim, Some((&node.name, &node.labels)), free) {
            return Ok(Some(BindEffect::PrebindVolume {
                volume: volume.name.clone(),
                claim: claim.key.clone(),
                uid: claim.uid.clone(),
            }));
        }
        if class.can_provision_on(&node.labels) {
            return Ok(Some(assign()));
        }
        Err(Stop::Fail(format!(
            "plugin volumebinding failed in Filter: no available PersistentVolume of StorageClass {} fits claim {} on \
             node {}, and the class does not provision",
            class.name, claim.key, node.name
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binder::{Plan, Settings};
    use serde_json::json;

    const NOW: Timestamp = Timestamp(1_000_000_000);
    const GIB: i64 = 1 << 30;

    /// Node `n1`, and pods that are to be bound to it and mount these claims each.
    fn binder(provisioner: &str, pods: &[(&str, &[&str])]) -> Binder {
        let mut binder = Binder::new(Settings::default());
        binder.apply_node(&json!({"metadata": {"name": "n1", "labels": {"zone": "east"}}})).unwrap();
        let class = json!({
            "metadata": {"name": "local"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
        });
        binder.apply_storage_class(&class).unwrap();
        for (pod, claims) in pods {
            let volumes: Vec<Value> = claims
                .iter()
                .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
                .collect();
            let spec = json!({"containers": [{"name": "main"}], "volumes": volumes});
            let metadata = json!({"name": pod, "namespace": "lab", "uid": pod});
            binder.apply_pod(&json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})).unwrap();
            let metadata =
                json!({"name": pod, "namespace": "lab", "uid": "r", "creationTimestamp": "1970-01-01T00:16:40Z"});
            let spec = json!({"podName": pod, "selectedNode": "n1", "receivedResourceType": "Regular"});
            binder.apply_request(&json!({"metadata": metadata, "spec": spec})).unwrap();
        }
        binder
    }

    fn claim(name: &str, gib: i64) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "lab", "uid": format!("uid-of-{name}")},
            "spec": {
                "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": (gib * GIB).to_string()}},
            },
        })
    }

    fn volume(name: &str, gib: i64, zone: &str) -> Value {
        let there = json!({"key": "zone", "operator": "In", "values": [zone]});
        json!({
            "metadata": {"name": name},
            "spec": {
                "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": (gib * GIB).to_string()},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}},
            },
            "status": {"phase": "Available"},
        })
    }

    fn plan(binder: &mut Binder, pod: &str) -> Plan {
        binder.plan(&Key::new("lab", pod), NOW)
    }

    /// Which volume is given to which claim, and which claims get the node.
    fn given(plan: &Plan) -> Vec<(&str, &str)> {
        let mut given = Vec::new();
        for effect in &plan.effects {
            match effect {
                BindEffect::PrebindVolume { volume, claim, uid } => {
                    assert_eq!(*uid, format!("uid-of-{}", claim.name));
                    given.push((claim.name.as_str(), volume.as_str()));
                }
                BindEffect::SetSelectedNode { claim, node } => given.push((claim.name.as_str(), node.as_str())),
                other => panic!("{other:?}"),
            }
        }
        given
    }

    const BY_HAND: &str = "kubernetes.io/no-provisioner";

    #[test]
    fn the_smallest_volume_that_will_do_and_that_the_node_reaches_is_taken() {
        let mut binder = binder(BY_HAND, &[("a", &["data"])]);
        binder.apply_volume_claim(&claim("data", 10)).unwrap();
        for (name, gib, zone) in [("small", 5, "east"), ("far", 10, "west"), ("fits", 12, "east"), ("big", 20, "east")]
        {
            binder.apply_volume(&volume(name, gib, zone)).unwrap();
        }
        let first = plan(&mut binder, "a");
        assert_eq!(given(&first), [("data", "fits")]);
        assert!(first.requeue_at.is_some(), "the controllers of Kubernetes do the rest");

        // They have seen the mark; nothing more is to be done until they have bound both.
        let mut marked = volume("fits", 12, "east");
        marked["spec"]["claimRef"] = json!({"namespace": "lab", "name": "data", "uid": "uid-of-data"});
        binder.apply_volume(&marked).unwrap();
        assert_eq!(given(&plan(&mut binder, "a")), []);
        let mut bound = claim("data", 10);
        bound["spec"]["volumeName"] = json!("fits");
        bound["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
        binder.apply_volume_claim(&bound).unwrap();
        let last = plan(&mut binder, "a");
        assert!(last.effects.iter().any(|effect| matches!(effect, BindEffect::Bind { .. })), "{last:?}");
    }

    #[test]
    fn a_pod_is_not_bound_where_its_volume_cannot_be_reached() {
        let mut binder = binder(BY_HAND, &[("a", &["data"])]);
        binder.apply_volume(&volume("far", 10, "west")).unwrap();
        let mut bound = claim("data", 10);
        bound["spec"]["volumeName"] = json!("far");
        bound["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
        binder.apply_volume_claim(&bound).unwrap();
        let refused = plan(&mut binder, "a");
        let reason = refused.effects.iter().find_map(|effect| match effect {
            BindEffect::SetPhase { reason, .. } => Some(reason.as_str()),
            _ => None,
        });
        assert!(reason.is_some_and(|reason| reason.contains("volume far of the claim lab/data")), "{refused:?}");
    }

    #[test]
    fn claims_of_a_pod_and_of_others_never_get_the_same_volume() {
        let mut binder = binder(BY_HAND, &[("a", &["large", "little"]), ("b", &["other"])]);
        for (name, gib) in [("large", 10), ("little", 1), ("other", 1)] {
            binder.apply_volume_claim(&claim(name, gib)).unwrap();
        }
        for (name, gib) in [("v1", 10), ("v2", 11), ("v3", 12)] {
            binder.apply_volume(&volume(name, gib, "east")).unwrap();
        }
        // The smallest claim first; before a watch shows anything the other pod already looks elsewhere.
        assert_eq!(given(&plan(&mut binder, "a")), [("little", "v1"), ("large", "v2")]);
        assert_eq!(given(&plan(&mut binder, "b")), [("other", "v3")]);
        // Asking again is harmless.
        assert_eq!(given(&plan(&mut binder, "a")), [("little", "v1"), ("large", "v2")]);
    }

    #[test]
    fn where_no_volume_is_there_the_provisioner_is_asked_if_there_is_one() {
        let mut by_driver = binder("csi.example.com", &[("a", &["data"])]);
        by_driver.apply_volume_claim(&claim("data", 10)).unwrap();
        by_driver.apply_volume(&volume("far", 10, "west")).unwrap();
        assert_eq!(given(&plan(&mut by_driver, "a")), [("data", "n1")]);
        by_driver.apply_volume(&volume("near", 10, "east")).unwrap();
        assert_eq!(given(&plan(&mut by_driver, "a")), [("data", "near")]);

        let mut by_hand = binder(BY_HAND, &[("a", &["data"])]);
        by_hand.apply_volume_claim(&claim("data", 10)).unwrap();
        let refused = plan(&mut by_hand, "a");
        let reason = refused.effects.iter().find_map(|effect| match effect {
            BindEffect::SetPhase { reason, .. } => Some(reason.as_str()),
            _ => None,
        });
        assert!(
            reason.unwrap().contains("fits claim lab/data on node n1, and the class does not provision"),
            "{reason:?}"
        );
    }

    #[test]
    fn a_volume_that_was_made_for_a_claim_is_waited_for() {
        let mut binder = binder("csi.example.com", &[("a", &["data"])]);
        let mut selected = claim("data", 10);
        selected["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": "n1"});
        binder.apply_volume_claim(&selected).unwrap();
        binder.apply_volume(&volume("near", 10, "east")).unwrap();
        assert_eq!(given(&plan(&mut binder, "a")), []);
    }
}
