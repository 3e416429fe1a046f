//! Volumes, as far as a node or a place can run out of them.

/// Volumes that count. Nothing where no pod has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    /// The driver of each volume.
    pub drivers: Vec<u32>,
    /// For each driver, how many volumes each node takes; `None` is any number.
    pub limits: Vec<Vec<Option<u32>>>,
    /// What each storage pool has: bytes, or volumes that are ready.
    pub storage_pools: Vec<i64>,
    /// For each storage class, the pool that each node takes from; `None` is unlimited.
    pub storage_classes: Vec<Vec<Option<u32>>>,
    /// Distinct needs; a task points at one.
    pub needs: Vec<VolumeNeed>,
}

/// What the volumes of a pod take.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeNeed {
    /// Volumes that are attached to the pod's node, those of one driver side by side. Pods may share one.
    pub attached: Vec<u32>,
    /// Storage class and how much of it.
    pub storage_needs: Vec<(u32, i64)>,
}

impl VolumeNeed {
    /// Whether the pod has no volume that counts.
    pub fn is_empty(&self) -> bool {
        self.attached.is_empty() && self.storage_needs.is_empty()
    }
}
