//! Volumes, claims and config maps: what a pod lacks on every node, and how they explain that a node is refused.

use kai_engine::outcome::{NodeObstacle, ObstacleCounts};
use kai_engine::snapshot::NodeRule;

use crate::key::Key;
use crate::objects::{PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};
use crate::scheduler::lower::zones_of;
use crate::scheduler::reasons::{MissingObject, UnboundClaim, VolumeNote};
use crate::world::World;

/// The claims of a pod that exist.
pub(in crate::scheduler) fn claims<'w>(
    world: &'w World,
    pod: &'w Pod,
) -> impl Iterator<Item = &'w PersistentVolumeClaim> {
    let names = pod.prerequisites.iter().flat_map(|prerequisites| prerequisites.all_claims());
    names.filter_map(|name| world.volume_claims.get(&Key::new(&*pod.key.namespace, name)))
}

/// The volume that a claim has.
pub(in crate::scheduler) fn volume_of<'w>(
    world: &'w World,
    claim: &PersistentVolumeClaim,
) -> Option<&'w PersistentVolume> {
    world.volumes.get(claim.volume.as_ref()?).filter(|_| claim.bound)
}

/// The class of a claim that gets its volume when its pod has a node.
pub(in crate::scheduler) fn waits_for<'w>(world: &'w World, claim: &PersistentVolumeClaim) -> Option<&'w StorageClass> {
    let class = world.storage_classes.get(&claim.class);
    class.filter(|class| class.wait_for_first_consumer && claim.volume.is_none())
}

/// What the pod lacks on every node.
pub(in crate::scheduler) fn missing(world: &World, pod: &Pod) -> Vec<MissingObject> {
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

/// How the claims of the pod explain the nodes that were refused.
pub(super) fn notes(world: &World, pod: &Pod, obstacles: &ObstacleCounts) -> Vec<VolumeNote> {
    let refused = |rule: NodeRule| obstacles.counts.iter().any(|(obstacle, _)| *obstacle == NodeObstacle::Rule(rule));
    let (far, other_zone) = (refused(NodeRule::VolumeUnreachable), refused(NodeRule::VolumeZone));
    let (none, full) = (refused(NodeRule::NoVolume), refused(NodeRule::StorageFull));
    let mut notes = Vec::new();
    for claim in claims(world, pod) {
        let key = || claim.key.clone();
        if let Some(PersistentVolume { name, nodes, labels, .. }) = volume_of(world, claim) {
            if far && nodes.is_some() {
                notes.push(VolumeNote::NodeAffinity { volume: name.clone(), claim: key() });
            }
            if other_zone && let Some((label, zone)) = zones_of(labels).next() {
                let (label, zone) = (label.to_string(), zone.to_string());
                notes.push(VolumeNote::Zone { volume: name.clone(), claim: key(), label, zone });
            }
        } else if let Some(class) = waits_for(world, claim) {
            let name = || class.name.clone();
            if full {
                let driver = class.provisioner.clone();
                notes.push(VolumeNote::Capacity { driver, claim: key(), class: name() });
            }
            match &claim.selected_node {
                _ if !none => {}
                Some(node) => notes.push(VolumeNote::Provisioning { claim: key(), node: node.clone() }),
                None if class.provisions() => {
                    notes.push(VolumeNote::AllowedTopologies { class: name(), claim: key() });
                }
                None => notes.push(VolumeNote::NoProvisioner { class: name(), claim: key() }),
            }
        }
    }
    notes
}
