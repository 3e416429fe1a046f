//! Which volumes are attached where, and what is taken from stores of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{DeviceLoad, Ledger};
use crate::bonds::Heads;
use crate::ids::NodeId;
use crate::snapshot::Snapshot;

/// An amount that will be taken for good, and one that is given back. Wide, since people write down sizes of any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Taken, now or as promised.
    pub settled: i128,
    /// Taken by those who leave, and by nobody else.
    pub leaving: i128,
}

/// Users of volumes by node, and what follows from them. Nothing is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VolumeBook {
    /// Pods that use a volume on a node.
    users: BTreeMap<(NodeId, u32), Heads>,
    /// Volumes of a driver that are attached to a node.
    attached: BTreeMap<(NodeId, u32), Taken>,
    stored: BTreeMap<u32, Taken>,
}

impl VolumeBook {
    /// Those of pods that belong to no job here.
    pub(super) fn of_bystanders(snapshot: &Snapshot) -> Self {
        let mut book = Self::default();
        for bystander in &snapshot.bystanders {
            let load = if bystander.leaving { DeviceLoad::Leaving } else { DeviceLoad::Held };
            if let Some(need) = bystander.volumes {
                book.load(snapshot, need, bystander.node, load, 1);
            }
        }
        book
    }

    /// Books what a pod needs on a node, or takes it out again.
    pub(super) fn load(&mut self, snapshot: &Snapshot, need: u32, node: NodeId, load: DeviceLoad, sign: i64) {
        let need = &snapshot.volumes.needs[need as usize];
        for volume in &need.attached {
            let users = self.users.entry((node, *volume)).or_default();
            let before = share(*users);
            users.count(load, sign);
            let after = share(*users);
            if users.all() == 0 {
                self.users.remove(&(node, *volume));
            }
            let difference = Taken { settled: after.settled - before.settled, leaving: after.leaving - before.leaving };
            change(&mut self.attached, (node, snapshot.volumes.drivers[*volume as usize]), difference);
        }
        for (kind, amount) in &need.stored {
            let Some(store) = snapshot.volumes.kinds[*kind as usize][node.index()] else { continue };
            let amount = i128::from(sign * amount);
            let difference = match load {
                DeviceLoad::Held | DeviceLoad::Promised => Taken { settled: amount, leaving: 0 },
                DeviceLoad::Leaving => Taken { settled: 0, leaving: amount },
            };
            change(&mut self.stored, store, difference);
        }
    }
}

/// How a volume with these users counts against the limit of its node.
fn share(users: Heads) -> Taken {
    let stays = users.settled() > 0;
    Taken { settled: i128::from(stays), leaving: i128::from(!stays && users.leaving > 0) }
}

fn change<K: Ord>(sums: &mut BTreeMap<K, Taken>, key: K, difference: Taken) {
    let mut entry = match sums.entry(key) {
        Entry::Occupied(entry) => entry,
        Entry::Vacant(entry) => entry.insert_entry(Taken::default()),
    };
    let sum = entry.get_mut();
    sum.settled += difference.settled;
    sum.leaving += difference.leaving;
    if *sum == Taken::default() {
        entry.remove();
    }
}

impl Ledger<'_> {
    /// How many pods use a volume on a node.
    pub fn volume_users(&self, node: NodeId, volume: u32) -> Heads {
        self.volumes.users.get(&(node, volume)).copied().unwrap_or_default()
    }

    /// How many volumes of a driver are attached to a node.
    pub fn volumes_attached(&self, node: NodeId, driver: u32) -> Taken {
        self.volumes.attached.get(&(node, driver)).copied().unwrap_or_default()
    }

    /// What is taken from a store.
    pub fn stored(&self, store: u32) -> Taken {
        self.volumes.stored.get(&store).copied().unwrap_or_default()
    }
}
