//! What the binder has done and watches do not show yet. Requests may be gone sooner than a watch shows what became of
//! them, and whoever forgot that would give the same room away twice.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::units::{Span, Timestamp};

use super::remove_from_index;
use super::rows::PodRow;
use crate::key::PodKey;

#[derive(Clone, Debug, Default)]
pub(super) struct AssumedPods {
    /// Pods that were deleted, by their uid.
    deleted: BTreeMap<PodKey, String>,
    /// Pods that were bound, or may have been.
    bound: BTreeMap<PodKey, AssumedBind>,
    /// The same by node.
    on_node: BTreeMap<String, BTreeSet<PodKey>>,
}

#[derive(Clone, Debug)]
pub(super) struct AssumedBind {
    pub(super) uid: String,
    pub(super) node: String,
    /// Shared GPUs.
    pub(super) groups: Vec<String>,
    /// How long that is_live if nobody can tell whether it was done.
    until: Option<Timestamp>,
}

/// Longer than a watch is late.
const UNKNOWN_BIND_TTL: Span = Span::seconds(120);

impl AssumedPods {
    /// A watch shows the pod, perhaps as it was before.
    pub(super) fn on_apply(&mut self, row: &mut PodRow) {
        match self.deleted.get(&row.key) {
            Some(uid) if *uid == row.uid => row.deleting = true,
            Some(_) => drop(self.deleted.remove(&row.key)),
            None => {}
        }
        if self.bound.get(&row.key).is_some_and(|placed| row.node.is_some() || placed.uid != row.uid) {
            self.forget(&row.key);
        }
    }

    /// A watch shows that the pod is gone.
    pub(super) fn on_delete(&mut self, pod: &PodKey) {
        self.deleted.remove(pod);
        self.forget(pod);
    }

    pub(super) fn assume_deleted(&mut self, pod: PodKey, uid: String) {
        self.deleted.insert(pod, uid);
    }

    /// The pod is about to be bound.
    pub(super) fn assume_bound(&mut self, pod: PodKey, uid: String, node: String, groups: Vec<String>) {
        self.forget(&pod);
        self.on_node.entry(node.clone()).or_default().insert(pod.clone());
        self.bound.insert(pod, AssumedBind { uid, node, groups, until: None });
    }

    /// It was not bound after all.
    pub(super) fn forget(&mut self, pod: &PodKey) {
        if let Some(placed) = self.bound.remove(pod) {
            remove_from_index(&mut self.on_node, &placed.node, pod);
        }
    }

    /// Nobody can tell whether it was bound.
    pub(super) fn mark_unknown(&mut self, pod: &PodKey, now: Timestamp) {
        if let Some(placed) = self.bound.get_mut(pod) {
            placed.until = Some(now.plus(UNKNOWN_BIND_TTL));
        }
    }

    pub(super) fn on_node(&self, node: &str, now: Timestamp) -> impl Iterator<Item = (&PodKey, &AssumedBind)> {
        let pods = self.on_node.get(node).into_iter().flatten();
        pods.filter_map(|pod| self.bound.get_key_value(pod)).filter(move |(_, placed)| placed.is_live(now))
    }

    /// Whether anybody shares the GPU.
    pub(super) fn uses(&self, group: &str, now: Timestamp) -> bool {
        let mut placed = self.bound.values().filter(|placed| placed.is_live(now));
        placed.any(|placed| placed.groups.iter().any(|own| own == group))
    }
}

impl AssumedBind {
    fn is_live(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}
