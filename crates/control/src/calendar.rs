//! When to look at what. What is under way is not looked at before it has ended.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::units::Timestamp;

use crate::key::Key;

#[derive(Debug, Default)]
pub(crate) struct Calendar {
    due: BTreeMap<Key, Timestamp>,
    /// The same of those that nothing keeps from being looked at, earliest first.
    open: BTreeSet<(Timestamp, Key)>,
    under_way: BTreeSet<Key>,
}

impl Calendar {
    /// Look at it then, and not when it was to be looked at before.
    pub(crate) fn look_at(&mut self, key: Key, at: Timestamp) {
        self.forget(&key);
        if !self.under_way.contains(&key) {
            self.open.insert((at, key.clone()));
        }
        self.due.insert(key, at);
    }

    /// The same unless it is to be looked at anyway.
    pub(crate) fn look_at_last(&mut self, key: Key, at: Timestamp) {
        if !self.due.contains_key(&key) {
            self.look_at(key, at);
        }
    }

    /// There is nothing to look at.
    pub(crate) fn forget(&mut self, key: &Key) {
        if let Some(at) = self.due.remove(key) {
            self.open.remove(&(at, key.clone()));
        }
    }

    /// Something about it is under way.
    pub(crate) fn begin(&mut self, key: Key) {
        if let Some(at) = self.due.get(&key) {
            self.open.remove(&(*at, key.clone()));
        }
        self.under_way.insert(key);
    }

    pub(crate) fn end(&mut self, key: &Key) {
        self.under_way.remove(key);
        if let Some(at) = self.due.get(key) {
            self.open.insert((*at, key.clone()));
        }
    }

    /// When there will be something to look at.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.open.first().map(|(at, _)| *at)
    }

    /// What to look at now. It is not due any more.
    pub(crate) fn take(&mut self, now: Timestamp) -> Option<Key> {
        let (_, key) = self.open.first().filter(|(at, _)| *at <= now)?.clone();
        self.forget(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_waits_for_its_end() {
        let (mut calendar, key) = (Calendar::default(), Key::new("n", "a"));
        calendar.look_at(key.clone(), Timestamp(5));
        calendar.look_at_last(key.clone(), Timestamp(1));
        assert_eq!((calendar.next(), calendar.take(Timestamp(4))), (Some(Timestamp(5)), None));
        calendar.begin(key.clone());
        assert_eq!((calendar.next(), calendar.take(Timestamp(9))), (None, None));
        calendar.look_at(key.clone(), Timestamp(7));
        assert_eq!(calendar.next(), None);
        calendar.end(&key);
        assert_eq!((calendar.take(Timestamp(7)), calendar.next()), (Some(key), None));
    }
}
