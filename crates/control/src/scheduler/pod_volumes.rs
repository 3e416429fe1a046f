//! Volumes, claims and config maps of a pod: what it has, and what it lacks on every node.

use std::collections::BTreeMap;

use super::reasons::{MissingObject, UnboundClaim};
use crate::key::Key;
use crate::objects::{PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};
use crate::world::World;

/// Node labels that say where a volume is. Those of the first pair are called like those of the second nowadays.
pub(super) const ZONE_LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// The claims of a pod that exist.
pub(super) fn claims<'w>(world: &'w World, pod: &'w Pod) -> impl Iterator<Item = &'w PersistentVolumeClaim> {
    let names = pod.prerequisites.iter().flat_map(|prerequisites| prerequisites.all_claims());
    names.filter_map(|name| world.volume_claims.get(&Key::new(&*pod.key.namespace, name)))
}

/// The volume that a claim has.
pub(super) fn volume_of<'w>(world: &'w World, claim: &PersistentVolumeClaim) -> Option<&'w PersistentVolume> {
    world.volumes.get(claim.volume.as_ref()?).filter(|_| claim.bound)
}

/// The class of a claim that gets its volume when its pod has a node.
pub(super) fn waits_for<'w>(world: &'w World, claim: &PersistentVolumeClaim) -> Option<&'w StorageClass> {
    let class = world.storage_classes.get(&claim.class);
    class.filter(|class| class.wait_for_first_consumer && claim.volume.is_none())
}

/// What the pod lacks on every node.
pub(super) fn missing(world: &World, pod: &Pod) -> Vec<MissingObject> {
    let Some(prerequisites) = pod.prerequisites.as_deref() else { return Vec::new() };
    let namespace = pod.key.namespace.as_str();
    let mut missing = Vec::new();
    for name in &prerequisites.config_maps {
        let config_map = Key::new(namespace, name);
        if !world.config_maps.contains_key(&config_map) {
            missing.push(MissingObject::ConfigMap { config_map });
        }
    }
    for name in prerequisites.all_claims() {
        let (claim, own) = (Key::new(namespace, name), prerequisites.ephemeral_claims.contains(name));
        match world.volume_claims.get(&claim) {
            None if own => missing.push(MissingObject::OwnClaim { claim }),
            None => missing.push(MissingObject::Claim { claim }),
            Some(known) if own && known.controller.as_ref() != Some(&pod.uid) => {
                missing.push(MissingObject::ForeignClaim { claim });
            }
            Some(known) => missing.extend(unusable(world, known)),
        }
    }
    missing
}

fn unusable(world: &World, claim: &PersistentVolumeClaim) -> Option<MissingObject> {
    let PersistentVolumeClaim { key, class, .. } = claim;
    let key = key.clone();
    if claim.deleting {
        return Some(MissingObject::ClaimDeleting { claim: key });
    }
    if claim.lost {
        return Some(MissingObject::ClaimLost { claim: key });
    }
    if let Some(volume) = claim.volume.as_ref().filter(|_| claim.bound) {
        let gone = !world.volumes.contains_key(volume);
        return gone.then(|| MissingObject::Volume { volume: volume.clone(), claim: key });
    }
    if waits_for(world, claim).is_some() {
        return None;
    }
    let cause = match &claim.volume {
        Some(volume) => UnboundClaim::VolumeNamed { volume: volume.clone() },
        None if class.is_empty() => UnboundClaim::NoClass,
        None if !world.storage_classes.contains_key(class) => UnboundClaim::UnknownClass { class: class.clone() },
        None => UnboundClaim::ImmediateBinding { class: class.clone() },
    };
    Some(MissingObject::ClaimUnbound { claim: key, cause })
}

/// Labels of a volume that say where it is.
pub(super) fn zones_of(labels: &BTreeMap<String, String>) -> impl Iterator<Item = (&'static str, &str)> {
    ZONE_LABELS.into_iter().filter_map(|label| Some((label, labels.get(label)?.as_str())))
}
