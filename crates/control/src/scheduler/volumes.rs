//! What volumes and config maps mean for a pod, in words: what is missing everywhere, and why a node will not do.

use kai_engine::outcome::{NodeObstacle, ObstacleCounts};
use kai_engine::snapshot::NodeRule;
use kai_engine::volumes::Overfull;

use super::amounts::count;
use super::lower::{Lowered, zones_of};
use crate::key::Key;
use crate::objects::{PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};
use crate::world::World;

/// The claims of a pod that exist.
pub(super) fn claims<'w>(world: &'w World, pod: &'w Pod) -> impl Iterator<Item = &'w PersistentVolumeClaim> {
    let names = pod.mounts.iter().flat_map(|mounts| mounts.all_claims());
    names.filter_map(|name| world.volume_claims.get(&Key::new(&*pod.key.namespace, name)))
}

/// The volume that a claim has.
pub(super) fn volume_of<'w>(world: &'w World, claim: &PersistentVolumeClaim) -> Option<&'w PersistentVolume> {
    world.volumes.get(claim.volume.as_ref()?).filter(|_| claim.bound)
}

/// The class of a claim that gets its volume when its pod has a node.
pub(super) fn waits_for<'w>(world: &'w World, claim: &PersistentVolumeClaim) -> Option<&'w StorageClass> {
    let class = world.storage_classes.get(&claim.class);
    class.filter(|class| class.waits && claim.volume.is_none())
}

/// What keeps the pod from running on whichever node.
pub(super) fn missing(world: &World, pod: &Pod) -> Vec<String> {
    let Some(mounts) = pod.mounts.as_deref() else { return Vec::new() };
    let namespace = pod.key.namespace.as_str();
    let mut words = Vec::new();
    for name in &mounts.config_maps {
        let key = Key::new(namespace, name);
        if !world.config_maps.contains_key(&key) {
            words.push(format!("ConfigMap {key} does not exist: create it, or make the reference to it optional"));
        }
    }
    for name in mounts.all_claims() {
        let (key, own) = (Key::new(namespace, name), mounts.own_claims.contains(name));
        match world.volume_claims.get(&key) {
            None if own => words.push(format!("PersistentVolumeClaim {key} has not been made for it yet")),
            None => words.push(format!("PersistentVolumeClaim {key} does not exist: create it")),
            Some(claim) if own && claim.controller.as_ref() != Some(&pod.uid) => words.push(format!(
                "PersistentVolumeClaim {key} was not made for it: delete the claim, or rename the pod or its volume"
            )),
            Some(claim) => words.extend(unusable(world, claim)),
        }
    }
    words
}

fn unusable(world: &World, claim: &PersistentVolumeClaim) -> Option<String> {
    let PersistentVolumeClaim { key, class, .. } = claim;
    if claim.deleting {
        return Some(format!("PersistentVolumeClaim {key} is being deleted"));
    }
    if claim.lost {
        return Some(format!("PersistentVolumeClaim {key} has lost its volume: make another claim"));
    }
    if let Some(volume) = claim.volume.as_ref().filter(|_| claim.bound) {
        let gone = !world.volumes.contains_key(volume);
        return gone.then(|| format!("PersistentVolume {volume} of claim {key} does not exist"));
    }
    if waits_for(world, claim).is_some() {
        return None;
    }
    let why = match &claim.volume {
        Some(volume) => format!("it asks for PersistentVolume {volume} in spec.volumeName"),
        None if class.is_empty() => {
            "it names no spec.storageClassName, so that it takes a volume without one".to_owned()
        }
        None if !world.storage_classes.contains_key(class) => format!("its StorageClass {class} does not exist"),
        None => format!("StorageClass {class} binds claims at once, whatever the node"),
    };
    Some(format!("PersistentVolumeClaim {key} is not bound yet: {why}"))
}

/// What the claims of the pod have to do with nodes that were refused.
pub(super) fn advice(world: &World, pod: &Pod, tally: &ObstacleCounts) -> Vec<String> {
    let refused = |rule: NodeRule| tally.counts.iter().any(|(obstacle, _)| *obstacle == NodeObstacle::Rule(rule));
    let (far, other_zone) = (refused(NodeRule::VolumeUnreachable), refused(NodeRule::VolumeZone));
    let (none, full) = (refused(NodeRule::NoVolume), refused(NodeRule::StorageFull));
    let mut words = Vec::new();
    for claim in claims(world, pod) {
        let key = &claim.key;
        if let Some(PersistentVolume { name, nodes, labels, .. }) = volume_of(world, claim) {
            if far && nodes.is_some() {
                words.push(format!(
                    "Volume {name} of claim {key} is reached from the nodes of its spec.nodeAffinity only."
                ));
            }
            if other_zone && let Some((label, zone)) = zones_of(labels).next() {
                words.push(format!("Volume {name} of claim {key} is labelled {label}={zone}."));
            }
        } else if let Some(class) = waits_for(world, claim) {
            let name = &class.name;
            if full {
                words.push(format!(
                    "CSI driver {} tells of too little space for claim {key}, see CSIStorageCapacity of class {name}.",
                    class.provisioner
                ));
            }
            match &claim.selected_node {
                _ if !none => {}
                Some(node) => {
                    words.push(format!("A volume for claim {key} is being made for node {node}."));
                }
                None if class.makes_volumes() => words.push(format!(
                    "StorageClass {name} of claim {key} makes volumes where its allowedTopologies say only."
                )),
                None => words.push(format!(
                    "StorageClass {name} makes no volumes itself: create a PersistentVolume that claim {key} can have."
                )),
            }
        }
    }
    words
}

/// What a number of nodes have too many or too little of.
pub(super) fn phrase(lowered: &Lowered<'_>, overfull: Overfull, number: u32) -> String {
    let nodes = count(number, "node", "nodes");
    match overfull {
        Overfull::Driver(driver) => {
            let driver = lowered.names.volume_drivers[driver as usize];
            let have = if number == 1 { "has as many volumes" } else { "have as many volumes" };
            format!("{nodes} {have} of driver {driver} as CSINode allows")
        }
        Overfull::Storage(kind) => {
            let class = lowered.names.storage_kinds[kind as usize];
            let have = if number == 1 { "has" } else { "have" };
            format!("{nodes} {have} too little left of storage class {class}, beside what other pods were given")
        }
    }
}
