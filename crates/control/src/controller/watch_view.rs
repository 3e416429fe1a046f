//! What a watch has shown to one subscriber: which updates it gets, given what it was shown before.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::{FieldSelector, WatchUpdate};
use crate::key::Key;

/// The objects of a watch that match a selector.
#[derive(Debug, Default)]
pub struct WatchView {
    selector: FieldSelector,
    /// Objects that were shown and exist. Keys only, most of them shared with other subscribers.
    known: BTreeSet<Arc<Key>>,
}

impl WatchView {
    pub fn new(selector: FieldSelector) -> Self {
        Self { selector, known: BTreeSet::new() }
    }

    /// These are all objects there are.
    pub fn relist<'o>(&mut self, all: impl IntoIterator<Item = (&'o Arc<Key>, &'o Arc<Value>)>) -> WatchUpdate {
        let (mut objects, mut present) = (Vec::new(), BTreeSet::new());
        for (key, value) in all.into_iter().filter(|(_, value)| self.selector.matches(value)) {
            objects.push(Arc::clone(value));
            present.insert(Arc::clone(key));
        }
        let removed = self.known.difference(&present).map(|key| Key::clone(key)).collect();
        self.known = present;
        WatchUpdate::Relisted { objects, removed }
    }

    pub fn apply(&mut self, key: &Arc<Key>, value: &Arc<Value>) -> Option<WatchUpdate> {
        if !self.selector.matches(value) {
            // As the API server does with a selector: what matches no longer counts as deleted.
            return self.delete(key);
        }
        self.known.insert(Arc::clone(key));
        Some(WatchUpdate::Applied(Arc::clone(value)))
    }

    /// Nothing if the object was never shown.
    pub fn delete(&mut self, key: &Key) -> Option<WatchUpdate> {
        self.known.remove(key).then(|| WatchUpdate::Deleted(key.clone()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, scheduler: &str) -> (Arc<Key>, Arc<Value>) {
        let value = json!({"metadata": {"namespace": "lab", "name": name}, "spec": {"schedulerName": scheduler}});
        (Arc::new(Key::of(&value)), Arc::new(value))
    }

    fn relisted(objects: &[&(Arc<Key>, Arc<Value>)], removed: &[&str]) -> WatchUpdate {
        WatchUpdate::Relisted {
            objects: objects.iter().map(|(_, value)| Arc::clone(value)).collect(),
            removed: removed.iter().map(|name| Key::new("lab", *name)).collect(),
        }
    }

    #[test]
    fn only_objects_that_were_shown_are_deleted() {
        let mut view = WatchView::new(FieldSelector::scheduler("kai"));
        let (own, other) = (pod("a", "kai"), pod("b", "default"));
        let list = |pods: &[&(Arc<Key>, Arc<Value>)], view: &mut WatchView| {
            view.relist(pods.iter().map(|(key, value)| (key, value)))
        };
        assert_eq!(list(&[&own, &other], &mut view), relisted(&[&own], &[]));
        assert_eq!((view.delete(&other.0), view.apply(&other.0, &other.1)), (None, None));
        let changed = pod("a", "default");
        assert_eq!(view.apply(&changed.0, &changed.1), Some(WatchUpdate::Deleted(Key::new("lab", "a"))));
        assert_eq!(view.apply(&own.0, &own.1), Some(WatchUpdate::Applied(Arc::clone(&own.1))));
        assert_eq!(list(&[&changed, &other], &mut view), relisted(&[], &["a"]));
    }
}
