//! How the volumes and claims of a pod explain that nodes are refused.

use kai_engine::outcome::{NodeObstacle, ObstacleCounts};
use kai_engine::snapshot::NodeRule;

use crate::objects::{PersistentVolume, Pod};
use crate::scheduler::pod_volumes::{claims, volume_of, waits_for, zones_of};
use crate::scheduler::reasons::VolumeNote;
use crate::world::World;

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
