//! Explains volumes and ConfigMaps: what a pod lacks on every node, and why a node is refused.

use kai_engine::outcome::VolumeObstacle;
use kai_engine::outcome::{NodeObstacle, ObstacleCounts};
use kai_engine::snapshot::NodeRule;

use super::amounts::count;
use crate::key::Key;
use crate::objects::{PersistentVolume, PersistentVolumeClaim, Pod, StorageClass};
use crate::scheduler::lower::{Lowered, zones_of};
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
pub(in crate::scheduler) fn missing(world: &World, pod: &Pod) -> Vec<String> {
    let Some(prerequisites) = pod.prerequisites.as_deref() else { return Vec::new() };
    let namespace = pod.key.namespace.as_str();
    let mut problems = Vec::new();
    for name in &prerequisites.config_maps {
        let key = Key::new(namespace, name);
        if !world.config_maps.contains_key(&key) {
            problems.push(format!("ConfigMap {key} does not exist: create it, or make the reference to it optional"));
        }
    }
    for name in prerequisites.all_claims() {
        let (key, own) = (Key::new(namespace, name), prerequisites.ephemeral_claims.contains(name));
        match world.volume_claims.get(&key) {
            None if own => problems.push(format!("PersistentVolumeClaim {key} has not been created for it yet")),
            None => problems.push(format!("PersistentVolumeClaim {key} does not exist: create it")),
            Some(claim) if own && claim.controller.as_ref() != Some(&pod.uid) => problems.push(format!(
                "PersistentVolumeClaim {key} was not created for it: delete the claim, or rename the pod or its volume"
            )),
            Some(claim) => problems.extend(unusable(world, claim)),
        }
    }
    problems
}

fn unusable(world: &World, claim: &PersistentVolumeClaim) -> Option<String> {
    let PersistentVolumeClaim { key, class, .. } = claim;
    if claim.deleting {
        return Some(format!("PersistentVolumeClaim {key} is being deleted"));
    }
    if claim.lost {
        return Some(format!("PersistentVolumeClaim {key} has lost its volume: create another claim"));
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

/// How the claims of the pod explain the nodes that were refused.
pub(in crate::scheduler) fn advice(world: &World, pod: &Pod, tally: &ObstacleCounts) -> Vec<String> {
    let refused = |rule: NodeRule| tally.counts.iter().any(|(obstacle, _)| *obstacle == NodeObstacle::Rule(rule));
    let (far, other_zone) = (refused(NodeRule::VolumeUnreachable), refused(NodeRule::VolumeZone));
    let (none, full) = (refused(NodeRule::NoVolume), refused(NodeRule::StorageFull));
    let mut advice = Vec::new();
    for claim in claims(world, pod) {
        let key = &claim.key;
        if let Some(PersistentVolume { name, nodes, labels, .. }) = volume_of(world, claim) {
            if far && nodes.is_some() {
                advice.push(format!(
                    "Volume {name} of claim {key} is only accessible from nodes that match its spec.nodeAffinity."
                ));
            }
            if other_zone && let Some((label, zone)) = zones_of(labels).next() {
                advice.push(format!("Volume {name} of claim {key} is labelled {label}={zone}."));
            }
        } else if let Some(class) = waits_for(world, claim) {
            let name = &class.name;
            if full {
                advice.push(format!(
                    "CSI driver {} reports too little capacity for claim {key}, see CSIStorageCapacity of class {name}.",
                    class.provisioner
                ));
            }
            match &claim.selected_node {
                _ if !none => {}
                Some(node) => {
                    advice.push(format!("A volume for claim {key} is being provisioned for node {node}."));
                }
                None if class.provisions() => {
                    advice.push(format!("StorageClass {name} of claim {key} only provisions in its allowedTopologies."))
                }
                None => advice.push(format!(
                    "StorageClass {name} does not provision: create a PersistentVolume that fits claim {key}."
                )),
            }
        }
    }
    advice
}

/// Which volumes or storage a number of nodes lack.
pub(in crate::scheduler) fn phrase(lowered: &Lowered<'_>, overfull: VolumeObstacle, number: u32) -> String {
    let nodes = count(number, "node", "nodes");
    let have = if number == 1 { "has" } else { "have" };
    match overfull {
        VolumeObstacle::Driver(driver) => {
            let driver = lowered.names.volume_drivers[driver as usize];
            format!("{nodes} {have} as many volumes of driver {driver} as CSINode allows")
        }
        VolumeObstacle::Storage(kind) => {
            let class = lowered.names.storage_kinds[kind as usize];
            format!("{nodes} {have} insufficient capacity of StorageClass {class} after other pods' claims")
        }
    }
}
