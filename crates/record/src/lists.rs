//! Which list holds which kind.

/// A list of `rawObjects` and the kind of its items, which do not name it. In KAI's order.
pub(crate) const LISTS: [(&str, &str); 19] = [
    ("pods", "Pod"),
    ("nodes", "Node"),
    ("queues", "Queue"),
    ("podGroups", "PodGroup"),
    ("bindRequests", "BindRequest"),
    ("priorityClasses", "PriorityClass"),
    ("configMaps", "ConfigMap"),
    ("persistentVolumes", "PersistentVolume"),
    ("persistentVolumeClaims", "PersistentVolumeClaim"),
    ("csiStorageCapacities", "CSIStorageCapacity"),
    ("storageClasses", "StorageClass"),
    ("csiDrivers", "CSIDriver"),
    ("resourceClaims", "ResourceClaim"),
    ("resourceSlices", "ResourceSlice"),
    ("deviceClasses", "DeviceClass"),
    ("topologies", "Topology"),
    ("nodeResourceTopologies", "NodeResourceTopology"),
    // KAI's snapshots lack these two, though its decisions depend on them.
    ("namespaces", "Namespace"),
    ("csiNodes", "CSINode"),
];

/// Written by every version from v0.17 on, filled or not, and by none before.
pub(crate) const SINCE_V17: &str = "nodeResourceTopologies";

pub(crate) fn kind_of(list: &str) -> Option<&'static str> {
    LISTS.iter().find(|(name, _)| *name == list).map(|(_, kind)| *kind)
}

pub(crate) fn position_of(kind: &str) -> Option<usize> {
    LISTS.iter().position(|(_, known)| *known == kind)
}
