//! Binds and deletions that were performed but not yet observed on the pod watch. A bind request can be gone before the
//! update of its pod arrives; without this the node's capacity would be given out twice.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::units::{Span, Timestamp};

use super::remove_from_index;
use super::rows::PodRow;
use crate::controller::Assumed;
use crate::key::PodKey;

#[derive(Clone, Debug, Default)]
pub(super) struct AssumedPods {
    /// Pods that were deleted, by their uid.
    deleted: Assumed<PodKey, String>,
    /// Pods that were bound, or may have been.
    bound: Assumed<PodKey, AssumedBind>,
    /// The same by node.
    on_node: BTreeMap<String, BTreeSet<PodKey>>,
}

#[derive(Clone, Debug)]
pub(super) struct AssumedBind {
    pub(super) uid: String,
    pub(super) node: String,
    /// Shared GPUs.
    pub(super) groups: Vec<String>,
}

/// How long a bind counts whose reply was lost: longer than a watch is late.
const UNKNOWN_BIND_TTL: Span = Span::seconds(120);

impl AssumedPods {
    /// A watch shows the pod, perhaps as it was before.
    pub(super) fn on_apply(&mut self, row: &mut PodRow) {
        match self.deleted.get(&row.key) {
            Some(uid) if *uid == row.uid => row.deleting = true,
            Some(_) => drop(self.deleted.confirm(&row.key)),
            None => {}
        }
        if self.bound.get(&row.key).is_some_and(|bind| row.node.is_some() || bind.uid != row.uid) {
            self.forget(&row.key);
        }
    }

    /// A watch shows that the pod is gone.
    pub(super) fn on_delete(&mut self, pod: &PodKey) {
        self.deleted.confirm(pod);
        self.forget(pod);
    }

    pub(super) fn assume_deleted(&mut self, pod: PodKey, uid: String) {
        self.deleted.assume(pod, uid);
    }

    /// The pod is about to be bound.
    pub(super) fn assume_bound(&mut self, pod: PodKey, uid: String, node: String, groups: Vec<String>) {
        self.forget(&pod);
        self.on_node.entry(node.clone()).or_default().insert(pod.clone());
        self.bound.assume(pod, AssumedBind { uid, node, groups });
    }

    /// It was not bound after all, or a watch shows that it was.
    pub(super) fn forget(&mut self, pod: &PodKey) {
        if let Some(bind) = self.bound.forget(pod) {
            remove_from_index(&mut self.on_node, &bind.node, pod);
        }
    }

    /// The reply of its bind was lost.
    pub(super) fn mark_unknown(&mut self, pod: &PodKey, now: Timestamp) {
        self.bound.limit(pod, now, UNKNOWN_BIND_TTL);
    }

    /// Forgets binds whose reply was lost and that no watch has shown in time.
    pub(super) fn expire(&mut self, now: Timestamp) {
        for (pod, bind) in self.bound.expire(now) {
            remove_from_index(&mut self.on_node, &bind.node, &pod);
        }
    }

    pub(super) fn on_node(&self, node: &str, now: Timestamp) -> impl Iterator<Item = (&PodKey, &AssumedBind)> {
        let pods = self.on_node.get(node).into_iter().flatten();
        pods.filter_map(move |pod| Some((pod, self.bound.live(pod, now)?)))
    }

    /// Whether a pod that shares the GPU is being bound.
    pub(super) fn uses(&self, group: &str, now: Timestamp) -> bool {
        self.bound.iter_live(now).any(|(_, bind)| bind.groups.iter().any(|own| own == group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_whose_reply_was_lost_is_forgotten_after_its_ttl() {
        let (pod, now) = (PodKey::new("lab", "p"), Timestamp(0));
        let mut assumed = AssumedPods::default();
        assumed.assume_bound(pod.clone(), "u".to_owned(), "n".to_owned(), vec!["g".to_owned()]);
        assumed.mark_unknown(&pod, now);
        assumed.expire(Timestamp(UNKNOWN_BIND_TTL.0 - 1));
        assert_eq!(assumed.on_node("n", now).count(), 1);
        assumed.expire(Timestamp(UNKNOWN_BIND_TTL.0));
        assert!(assumed.bound.is_empty() && assumed.on_node.is_empty());
    }
}
