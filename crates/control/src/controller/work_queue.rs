//! A delaying work queue. A key becomes ready at its time and is not handed out while it is being processed.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::units::Timestamp;

use crate::key::Key;

/// Keys, and when each is to be reconciled.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    due: BTreeMap<Key, Timestamp>,
    /// The keys of `due` that are not being processed, earliest first.
    ready: BTreeSet<(Timestamp, Key)>,
    processing: BTreeSet<Key>,
}

impl WorkQueue {
    /// Schedules the key at this time, instead of at the time it had before.
    pub(crate) fn schedule_at(&mut self, key: Key, at: Timestamp) {
        self.remove(&key);
        if !self.processing.contains(&key) {
            self.ready.insert((at, key.clone()));
        }
        self.due.insert(key, at);
    }

    /// Schedules the key unless it is queued already.
    pub(crate) fn schedule_if_absent(&mut self, key: Key, at: Timestamp) {
        if !self.due.contains_key(&key) {
            self.schedule_at(key, at);
        }
    }

    /// Takes the key off the queue.
    pub(crate) fn remove(&mut self, key: &Key) {
        if let Some(at) = self.due.remove(key) {
            self.ready.remove(&(at, key.clone()));
        }
    }

    /// The key is being processed.
    pub(crate) fn start(&mut self, key: Key) {
        if let Some(at) = self.due.get(&key) {
            self.ready.remove(&(*at, key.clone()));
        }
        self.processing.insert(key);
    }

    pub(crate) fn done(&mut self, key: &Key) {
        self.processing.remove(key);
        if let Some(at) = self.due.get(key) {
            self.ready.insert((*at, key.clone()));
        }
    }

    /// When the next key becomes ready.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.ready.first().map(|(at, _)| *at)
    }

    /// A key that is ready. It is off the queue then.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Key> {
        let (_, key) = self.ready.first().filter(|(at, _)| *at <= now)?.clone();
        self.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_processed_waits_for_its_end() {
        let (mut queue, key) = (WorkQueue::default(), Key::new("n", "a"));
        queue.schedule_at(key.clone(), Timestamp(5));
        queue.schedule_if_absent(key.clone(), Timestamp(1));
        assert_eq!((queue.next_due(), queue.pop_due(Timestamp(4))), (Some(Timestamp(5)), None));
        queue.start(key.clone());
        assert_eq!((queue.next_due(), queue.pop_due(Timestamp(9))), (None, None));
        queue.schedule_at(key.clone(), Timestamp(7));
        assert_eq!(queue.next_due(), None);
        queue.done(&key);
        assert_eq!((queue.pop_due(Timestamp(7)), queue.next_due()), (Some(key), None));
    }
}
