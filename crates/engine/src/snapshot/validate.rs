//! The invariants of a snapshot, one function per column family. A broken one is a bug of the caller of the builder.

use std::collections::BTreeMap;

use crate::ids::{PodMatcherId, QueueId, TaskId};
use crate::snapshot::{LevelRef, Nodes, Queue, Snapshot, Status, UnmanagedPod};

/// Panics where rows contradict each other, and says which.
pub(super) fn snapshot(snapshot: &Snapshot) {
    nodes(snapshot);
    queues(&snapshot.queues);
    node_filters(snapshot);
    topologies(snapshot);
    inter_pod(snapshot);
    zones(snapshot);
    claims(snapshot);
    volumes(snapshot);
    jobs(snapshot);
    tasks(snapshot);
}

fn nodes(snapshot: &Snapshot) {
    let Nodes { allocatable, unmanaged_releasing, unmanaged_used, ports, .. } = &snapshot.nodes;
    assert_eq!(allocatable.len(), snapshot.nodes.len() * snapshot.resources.len());
    let within = unmanaged_releasing.iter().zip(unmanaged_used).all(|(releasing, used)| releasing <= used);
    assert!(within, "a node releases no more than is used");
    for port in ports.iter().flatten() {
        assert!(port.index() < snapshot.port_conflicts.len(), "{port:?} does not exist");
    }
    for device in &snapshot.devices {
        assert!(device.node.index() < snapshot.nodes.len(), "{:?} of a device does not exist", device.node);
    }
}

fn zones(snapshot: &Snapshot) {
    let width = snapshot.resources.len();
    assert!(snapshot.numa.nodes.len() <= snapshot.nodes.len(), "zones of a node that does not exist");
    for zone in snapshot.numa.nodes.iter().flatten().flat_map(|node| &node.zones) {
        let vectors = [&zone.allocatable, &zone.unmanaged_used, &zone.unmanaged_releasing];
        assert!(vectors.iter().all(|vector| vector.len() == width), "a zone has one amount per column");
    }
}

fn claims(snapshot: &Snapshot) {
    let claims = &snapshot.claims;
    for set in &claims.node_sets {
        assert_eq!(set.len(), snapshot.nodes.len(), "a set of nodes has one bit per node");
    }
    for matches in &claims.selector_matches {
        let sets = [&matches.matching, &matches.failing];
        assert!(sets.iter().all(|set| set.len() == claims.devices.len()), "selector matches have one bit per device");
    }
    assert!(claims.attributes.iter().all(|column| column.len() == claims.devices.len()), "one value per device");
    for (index, claim) in claims.claims.iter().enumerate() {
        assert!((claim.ask as usize) < claims.asks.len(), "claim {index}: what it asks for does not exist");
        assert!(
            !claim.held_externally || claim.allocated.is_some(),
            "claim {index} is held externally but has no allocation"
        );
        for pick in claim.allocated.iter().flat_map(|allocation| &allocation.picks) {
            assert!((pick.device as usize) < claims.devices.len(), "claim {index}: {pick:?} does not exist");
        }
    }
    for claim in claims.lists.iter().flatten() {
        assert!(claim.index() < claims.claims.len(), "{claim:?} does not exist");
    }
}

fn queues(queues: &[Queue]) {
    for start in (0..queues.len()).map(QueueId::at) {
        let mut at = start;
        // A chain without a cycle is shorter than the list.
        for _ in 0..=queues.len() {
            let Some(parent) = queues[at.index()].parent else { break };
            assert!(parent.index() < queues.len(), "{at:?}: parent {parent:?} does not exist");
            assert_ne!(parent, start, "{start:?} is above itself");
            at = parent;
        }
    }
}

fn node_filters(snapshot: &Snapshot) {
    let nodes = snapshot.nodes.len();
    for (index, node_filter) in snapshot.node_filters.iter().enumerate() {
        assert_eq!(node_filter.feasible.len(), nodes, "node filter {index}: one bit per node");
        let mut seen = node_filter.feasible.clone();
        for (rule, set) in &node_filter.excluded {
            assert_eq!(set.len(), nodes, "node filter {index}, {rule:?}: one bit per node");
            assert!(
                seen.is_disjoint(set),
                "node filter {index}, {rule:?}: a node is counted once, for the first rule it fails"
            );
            seen.union_with(set);
        }
        assert_eq!(seen.count_ones(..), nodes, "node filter {index}: a node that is not feasible fails a rule");
    }
}

fn topologies(snapshot: &Snapshot) {
    let nodes = snapshot.nodes.len();
    for (index, topology) in snapshot.topologies.iter().enumerate() {
        for level in &topology.levels {
            assert_eq!(level.len(), nodes, "topology {index}: one domain per node");
        }
        for pair in topology.levels.windows(2) {
            nesting(index, &pair[0], &pair[1]);
        }
    }
    for (index, constraint) in snapshot.constraints.iter().enumerate() {
        let levels = constraint.topology.map(|id| snapshot.topologies[id.index()].levels.len());
        for level in [constraint.required, constraint.preferred].into_iter().flatten() {
            if let (Some(levels), LevelRef::At(at)) = (levels, level) {
                assert!((at as usize) < levels, "constraint {index}: level {at} does not exist");
            }
        }
    }
}

/// A narrow domain lies in one wide domain, and a node is in all levels or in none.
fn nesting(topology: usize, wide: &[Option<u32>], narrow: &[Option<u32>]) {
    let mut above: BTreeMap<u32, u32> = BTreeMap::new();
    for (outer, inner) in wide.iter().zip(narrow) {
        match (outer, inner) {
            (None, None) => {}
            (Some(outer), Some(inner)) => {
                let known = above.entry(*inner).or_insert(*outer);
                assert_eq!(known, outer, "topology {topology}: domain {inner} lies in two wider domains");
            }
            _ => panic!("topology {topology}: a node is in all levels or in none"),
        }
    }
}

fn inter_pod(snapshot: &Snapshot) {
    let nodes = snapshot.nodes.len();
    for (index, topology_key) in snapshot.topology_keys.iter().enumerate() {
        assert_eq!(topology_key.domains.len(), nodes, "topology key {index}: one domain per node");
    }
    let matcher_exists = |matcher: &PodMatcherId| matcher.index() < snapshot.matchers.len();
    for matcher in &snapshot.matchers {
        assert!(
            matcher.topology_key.index() < snapshot.topology_keys.len(),
            "{:?} of a matcher does not exist",
            matcher.topology_key
        );
    }
    assert!(snapshot.matcher_lists.iter().flatten().all(matcher_exists), "a matcher of a list does not exist");
    for (index, inter_pod) in snapshot.inter_pod.iter().enumerate() {
        assert!(
            inter_pod.matchers().all(|matcher| matcher_exists(&matcher)),
            "inter-pod rules {index}: a matcher does not exist"
        );
    }
    for UnmanagedPod { node, matchers, volumes, .. } in &snapshot.unmanaged_pods {
        assert!(node.index() < nodes, "{node:?} of an unmanaged pod does not exist");
        assert!(exists(*matchers, &snapshot.matcher_lists), "matchers of an unmanaged pod do not exist");
        assert!(exists(*volumes, &snapshot.volumes.needs), "volumes of an unmanaged pod do not exist");
    }
}

fn exists<T>(number: Option<u32>, table: &[T]) -> bool {
    number.is_none_or(|number| (number as usize) < table.len())
}

fn volumes(snapshot: &Snapshot) {
    let (volumes, nodes) = (&snapshot.volumes, snapshot.nodes.len());
    assert!(volumes.limits.iter().all(|limits| limits.len() == nodes), "a driver has one limit per node");
    assert!(volumes.drivers.iter().all(|driver| exists(Some(*driver), &volumes.limits)), "a driver does not exist");
    for pools in &volumes.storage_classes {
        assert_eq!(pools.len(), nodes, "a storage class has one pool per node");
        assert!(pools.iter().all(|pool| exists(*pool, &volumes.storage_pools)), "a storage pool does not exist");
    }
    for (index, need) in volumes.needs.iter().enumerate() {
        let attached = need.attached.iter().all(|volume| exists(Some(*volume), &volumes.drivers));
        let stored = need.storage_needs.iter().all(|(class, _)| exists(Some(*class), &volumes.storage_classes));
        assert!(attached && stored, "need {index}: a volume or a storage class does not exist");
    }
}

fn jobs(snapshot: &Snapshot) {
    let constraint_exists =
        |constraint: Option<u32>| constraint.is_none_or(|at| (at as usize) < snapshot.constraints.len());
    for job in snapshot.job_ids() {
        let row = snapshot.job(job);
        assert!(row.queue.is_none_or(|queue| queue.index() < snapshot.queues.len()), "{job:?}: queue does not exist");
        assert!(!row.groups.is_empty(), "{job:?} has a root");
        assert!(
            snapshot.groups[row.groups.indices()].iter().all(|group| constraint_exists(group.constraint))
                && snapshot.pod_sets[row.pod_sets.indices()].iter().all(|set| constraint_exists(set.constraint)),
            "{job:?}: constraint does not exist"
        );
    }
}

fn tasks(snapshot: &Snapshot) {
    for (index, task) in snapshot.tasks.iter().enumerate() {
        let id = TaskId::at(index);
        assert!(task.shape.index() < snapshot.shapes.len(), "{id:?}: {:?} does not exist", task.shape);
        assert!(
            task.node_filter.index() < snapshot.node_filters.len(),
            "{id:?}: {:?} does not exist",
            task.node_filter
        );
        for node in [task.node, task.nominated].into_iter().flatten() {
            assert!(node.index() < snapshot.nodes.len(), "{id:?}: {node:?} does not exist");
        }
        let waits = matches!(task.status, Status::Pending | Status::Gated);
        assert!(!waits || task.node.is_none(), "{id:?} waits for a node and has one");
        if let Some(list) = task.devices {
            assert!(snapshot.shape(task.shape).gpu.shared_devices().is_some(), "{id:?} shares no GPU but holds one");
            for device in &snapshot.device_lists[list as usize] {
                let node = snapshot.devices[device.index()].node;
                assert_eq!(Some(node), task.node, "{id:?}: {device:?} is in another node");
            }
        }
        for share in task.extras.iter().flat_map(|at| &snapshot.extras[*at as usize].zones) {
            let zones = task.node.and_then(|node| snapshot.numa.nodes.get(node.index())?.as_ref());
            let exists = zones.is_some_and(|node| (share.zone as usize) < node.zones.len());
            assert!(exists, "{id:?} holds {share:?} of a zone that its node does not have");
        }
        let granted = task.extras.iter().flat_map(|at| &snapshot.extras[*at as usize].grants);
        let list = task.claims.map_or(&[][..], |list| &snapshot.claims.lists[list as usize]);
        for grant in granted {
            assert!(list.contains(&grant.claim), "{id:?} was granted {:?}, which it does not claim", grant.claim);
        }
        assert!(task.ports.is_none_or(|set| (set as usize) < snapshot.port_sets.len()), "{id:?}: ports do not exist");
        assert!(
            task.inter_pod.is_none_or(|at| (at as usize) < snapshot.inter_pod.len()),
            "{id:?}: its inter-pod rules do not exist"
        );
        assert!(exists(task.matchers, &snapshot.matcher_lists), "{id:?}: its matchers do not exist");
        assert!(exists(task.volumes, &snapshot.volumes.needs), "{id:?}: its volumes do not exist");
    }
}
