//! Which volumes are attached where, and what is taken from stores of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{HoldKind, Ledger, PodCounts};
use crate::ids::NodeId;
use crate::snapshot::Snapshot;

/// An amount that will be taken for good, and one that is given back. Wide, since people write down sizes of any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Used, now or as pipelined.
    pub staying: i128,
    /// Used by pods that are being released only.
    pub releasing: i128,
}

/// Users of volumes by node, and what follows from them. Nothing is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VolumeUsage {
    /// Pods that use a volume on a node.
    users: BTreeMap<(NodeId, u32), PodCounts>,
    /// Volumes of a driver that are attached to a node.
    attached: BTreeMap<(NodeId, u32), UsageTotals>,
    /// What is used of a storage pool.
    pools: BTreeMap<u32, UsageTotals>,
}

impl VolumeUsage {
    /// Those of pods that belong to no job here.
    pub(super) fn of_unmanaged_pods(snapshot: &Snapshot) -> Self {
        let mut usage = Self::default();
        for unmanaged_pod in &snapshot.unmanaged_pods {
            let kind = if unmanaged_pod.releasing { HoldKind::Releasing } else { HoldKind::Allocated };
            if let Some(need) = unmanaged_pod.volumes {
                usage.load(snapshot, need, unmanaged_pod.node, kind, 1);
            }
        }
        usage
    }

    /// Books what a pod needs on a node, or takes it out again.
    pub(super) fn load(&mut self, snapshot: &Snapshot, need: u32, node: NodeId, kind: HoldKind, sign: i64) {
        let need = &snapshot.volumes.needs[need as usize];
        for volume in &need.attached {
            let users = self.users.entry((node, *volume)).or_default();
            let before = share(*users);
            users.count(kind, sign);
            let after = share(*users);
            if users.all() == 0 {
                self.users.remove(&(node, *volume));
            }
            let difference =
                UsageTotals { staying: after.staying - before.staying, releasing: after.releasing - before.releasing };
            change(&mut self.attached, (node, snapshot.volumes.drivers[*volume as usize]), difference);
        }
        for (class, amount) in &need.storage_needs {
            let Some(pool) = snapshot.volumes.storage_classes[*class as usize][node.index()] else { continue };
            let amount = i128::from(sign * amount);
            let difference = match kind {
                HoldKind::Allocated | HoldKind::Pipelined => UsageTotals { staying: amount, releasing: 0 },
                HoldKind::Releasing => UsageTotals { staying: 0, releasing: amount },
            };
            change(&mut self.pools, pool, difference);
        }
    }
}

/// How a volume with these users counts against the limit of its node.
fn share(users: PodCounts) -> UsageTotals {
    let stays = users.staying() > 0;
    UsageTotals { staying: i128::from(stays), releasing: i128::from(!stays && users.releasing > 0) }
}

fn change<K: Ord>(sums: &mut BTreeMap<K, UsageTotals>, key: K, difference: UsageTotals) {
    let mut entry = match sums.entry(key) {
        Entry::Occupied(entry) => entry,
        Entry::Vacant(entry) => entry.insert_entry(UsageTotals::default()),
    };
    let sum = entry.get_mut();
    sum.staying += difference.staying;
    sum.releasing += difference.releasing;
    if *sum == UsageTotals::default() {
        entry.remove();
    }
}

impl Ledger<'_> {
    /// How many pods use a volume on a node.
    pub fn volume_users(&self, node: NodeId, volume: u32) -> PodCounts {
        self.volumes.users.get(&(node, volume)).copied().unwrap_or_default()
    }

    /// How many volumes of a driver are attached to a node.
    pub fn volumes_attached(&self, node: NodeId, driver: u32) -> UsageTotals {
        self.volumes.attached.get(&(node, driver)).copied().unwrap_or_default()
    }

    /// What is used of a storage pool.
    pub fn pool_used(&self, pool: u32) -> UsageTotals {
        self.volumes.pools.get(&pool).copied().unwrap_or_default()
    }
}
