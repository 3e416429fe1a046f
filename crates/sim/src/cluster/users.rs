//! What users do to objects beside the steps of a scenario: they create and change them while controllers run.

use serde_json::Value;

use super::Cluster;
use crate::manifest::{Id, Kind, complete_pod};

/// Whether admission is asked about a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    Asked,
    /// The webhook is not registered for it, or did not answer in time and may be ignored.
    Skipped,
}

impl Cluster {
    /// Creates an object as its user wrote it. Nothing happens if the name is taken, or if admission denies it.
    pub(crate) fn create_for_user(&mut self, id: &Id, mut value: Value) -> bool {
        if self.store.get(id).is_some() {
            return false;
        }
        if id.kind == Kind::Pod {
            complete_pod(&mut value);
        }
        self.try_create(id.clone(), value).is_ok()
    }

    /// Deletes an object, and what it owns.
    pub(crate) fn delete_for_user(&mut self, id: &Id) {
        self.remove(id);
    }

    /// Changes an object as its user wants it, unless admission denies it. Returns whether that made a difference.
    pub(crate) fn edit_for_user(&mut self, id: &Id, review: Review, edit: impl FnOnce(&mut Value)) -> bool {
        let Some(stored) = self.store.get(id) else { return false };
        let mut new = stored.clone();
        edit(&mut new);
        let denied = review == Review::Asked && self.admit_user_change(id, stored, &new).is_err();
        if denied || *stored == new {
            return false;
        }
        self.store.change(id, |value| *value = new);
        self.enqueue_owners(id);
        true
    }
}
