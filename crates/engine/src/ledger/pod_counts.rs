//! How many pods of each matcher are in each domain.

use std::collections::BTreeMap;

use super::HoldKind;
use crate::ids::{NodeId, PodMatcherId};
use crate::snapshot::Snapshot;

/// Pods by matcher and domain; a domain without any has no entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodMatchCounts {
    counts: BTreeMap<(PodMatcherId, u32), PodCounts>,
}

impl PodMatchCounts {
    /// The counts of unmanaged pods.
    pub(super) fn of_unmanaged_pods(snapshot: &Snapshot) -> Self {
        let mut counts = Self::default();
        for unmanaged_pod in &snapshot.unmanaged_pods {
            let kind = if unmanaged_pod.releasing { HoldKind::Releasing } else { HoldKind::Allocated };
            if let Some(list) = unmanaged_pod.matchers {
                counts.count(snapshot, list, unmanaged_pod.node, kind, 1);
            }
        }
        counts
    }

    /// Counts a pod of these matchers on the node, or takes it out again.
    pub(super) fn count(&mut self, snapshot: &Snapshot, list: u32, node: NodeId, kind: HoldKind, sign: i64) {
        for matcher in &snapshot.matcher_lists[list as usize] {
            let Some(domain) = snapshot.domain(*matcher, node) else { continue };
            let counts = self.counts.entry((*matcher, domain)).or_default();
            counts.count(kind, sign);
            if counts.all() == 0 {
                self.counts.remove(&(*matcher, domain));
            }
        }
    }

    pub(super) fn count_in(&self, matcher: PodMatcherId, domain: u32) -> PodCounts {
        self.counts.get(&(matcher, domain)).copied().unwrap_or_default()
    }

    /// Domains with matching pods.
    pub(super) fn domains(&self, matcher: PodMatcherId) -> impl Iterator<Item = (u32, PodCounts)> + '_ {
        self.counts.range((matcher, 0)..=(matcher, u32::MAX)).map(|((_, domain), counts)| (*domain, *counts))
    }
}

/// Pods by how they hold something: those of a matcher in a domain, or those that use a volume or a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    /// Hold it and stay.
    pub allocated: u32,
    /// Are assigned to it.
    pub pipelined: u32,
    /// Are being released.
    pub releasing: u32,
}

impl PodCounts {
    /// Pods that hold it once all that are being released are gone.
    pub fn staying(self) -> u32 {
        self.allocated + self.pipelined
    }

    /// Counts a pod, or takes it out again.
    pub(super) fn count(&mut self, kind: HoldKind, sign: i64) {
        let counter = match kind {
            HoldKind::Allocated => &mut self.allocated,
            HoldKind::Pipelined => &mut self.pipelined,
            HoldKind::Releasing => &mut self.releasing,
        };
        *counter = if sign > 0 { *counter + 1 } else { *counter - 1 };
    }

    /// All of them.
    pub fn all(self) -> u32 {
        self.allocated + self.pipelined + self.releasing
    }
}
