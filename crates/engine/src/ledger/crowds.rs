//! How many pods of each crowd are in each domain.

use std::collections::BTreeMap;

use super::DeviceLoad;
use crate::bonds::Heads;
use crate::ids::{CrowdId, NodeId};
use crate::snapshot::Snapshot;

/// Pods by crowd and domain; a domain without any has no entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Crowds {
    heads: BTreeMap<(CrowdId, u32), Heads>,
}

impl Crowds {
    /// Those who belong to no job here.
    pub(super) fn of_bystanders(snapshot: &Snapshot) -> Self {
        let mut crowds = Self::default();
        for bystander in &snapshot.bystanders {
            let load = if bystander.leaving { DeviceLoad::Leaving } else { DeviceLoad::Held };
            if let Some(list) = bystander.crowds {
                crowds.count(snapshot, list, bystander.node, load, 1);
            }
        }
        crowds
    }

    /// Counts a pod of these crowds on the node, or takes it out again.
    pub(super) fn count(&mut self, snapshot: &Snapshot, list: u32, node: NodeId, load: DeviceLoad, sign: i64) {
        for crowd in &snapshot.crowd_lists[list as usize] {
            let Some(domain) = snapshot.domain(*crowd, node) else { continue };
            let heads = self.heads.entry((*crowd, domain)).or_default();
            heads.count(load, sign);
            if heads.all() == 0 {
                self.heads.remove(&(*crowd, domain));
            }
        }
    }

    pub(super) fn heads(&self, crowd: CrowdId, domain: u32) -> Heads {
        self.heads.get(&(crowd, domain)).copied().unwrap_or_default()
    }

    /// Domains of a crowd with anybody in them.
    pub(super) fn domains(&self, crowd: CrowdId) -> impl Iterator<Item = (u32, Heads)> + '_ {
        self.heads.range((crowd, 0)..=(crowd, u32::MAX)).map(|((_, domain), heads)| (*domain, *heads))
    }
}
