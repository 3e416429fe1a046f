//! What the binder has done and watches do not show yet. Requests may be gone sooner than a watch shows what became of
//! them, and whoever forgot that would give the same room away twice.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::units::{Span, Timestamp};

use super::leave;
use super::rows::PodRow;
use crate::key::PodKey;

#[derive(Clone, Debug, Default)]
pub(super) struct Unseen {
    /// Pods that were deleted, by their uid.
    gone: BTreeMap<PodKey, String>,
    /// Pods that were bound, or may have been.
    placed: BTreeMap<PodKey, Placed>,
    /// The same by node.
    on_node: BTreeMap<String, BTreeSet<PodKey>>,
}

#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) uid: String,
    pub(super) node: String,
    /// Shared GPUs.
    pub(super) groups: Vec<String>,
    /// How long that counts if nobody can tell whether it was done.
    until: Option<Timestamp>,
}

/// Longer than a watch is late.
const UNCLEAR_MAX: Span = Span::seconds(120);

impl Unseen {
    /// A watch shows the pod, perhaps as it was before.
    pub(super) fn see(&mut self, row: &mut PodRow) {
        match self.gone.get(&row.key) {
            Some(uid) if *uid == row.uid => row.deleting = true,
            Some(_) => drop(self.gone.remove(&row.key)),
            None => {}
        }
        if self.placed.get(&row.key).is_some_and(|placed| row.node.is_some() || placed.uid != row.uid) {
            self.not_placed(&row.key);
        }
    }

    /// A watch shows that the pod is gone.
    pub(super) fn lose(&mut self, pod: &PodKey) {
        self.gone.remove(pod);
        self.not_placed(pod);
    }

    pub(super) fn deleted(&mut self, pod: PodKey, uid: String) {
        self.gone.insert(pod, uid);
    }

    /// The pod is about to be bound.
    pub(super) fn place(&mut self, pod: PodKey, uid: String, node: String, groups: Vec<String>) {
        self.not_placed(&pod);
        self.on_node.entry(node.clone()).or_default().insert(pod.clone());
        self.placed.insert(pod, Placed { uid, node, groups, until: None });
    }

    /// It was not bound after all.
    pub(super) fn not_placed(&mut self, pod: &PodKey) {
        if let Some(placed) = self.placed.remove(pod) {
            leave(&mut self.on_node, &placed.node, pod);
        }
    }

    /// Nobody can tell whether it was bound.
    pub(super) fn maybe_placed(&mut self, pod: &PodKey, now: Timestamp) {
        if let Some(placed) = self.placed.get_mut(pod) {
            placed.until = Some(now.plus(UNCLEAR_MAX));
        }
    }

    pub(super) fn on_node(&self, node: &str, now: Timestamp) -> impl Iterator<Item = (&PodKey, &Placed)> {
        let pods = self.on_node.get(node).into_iter().flatten();
        pods.filter_map(|pod| self.placed.get_key_value(pod)).filter(move |(_, placed)| placed.counts(now))
    }

    /// Whether anybody shares the GPU.
    pub(super) fn uses(&self, group: &str, now: Timestamp) -> bool {
        let mut placed = self.placed.values().filter(|placed| placed.counts(now));
        placed.any(|placed| placed.groups.iter().any(|own| own == group))
    }
}

impl Placed {
    fn counts(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}
