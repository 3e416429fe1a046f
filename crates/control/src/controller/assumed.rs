//! What was done and watches do not show yet. As in kube-scheduler's cache: assumed, then confirmed, forgotten or expired.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use kai_engine::units::{Span, Timestamp};

/// Assumptions by key. One counts until a watch confirms it, until it is forgotten because it was not done after all, or
/// until its TTL is over, if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumed<K, T> {
    entries: BTreeMap<K, Entry<T>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry<T> {
    value: T,
    until: Option<Timestamp>,
}

impl<K, T> Default for Assumed<K, T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

impl<T> Entry<T> {
    fn is_live(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl<K: Ord, T> Assumed<K, T> {
    /// Counts as done from now on, without a limit.
    pub fn assume(&mut self, key: K, value: T) {
        self.entries.insert(key, Entry { value, until: None });
    }

    /// Counts as done for so long at most.
    pub fn assume_for(&mut self, key: K, value: T, now: Timestamp, ttl: Span) {
        self.entries.insert(key, Entry { value, until: Some(now.plus(ttl)) });
    }

    /// What is assumed already counts for so long from now on.
    pub fn limit<Q>(&mut self, key: &Q, now: Timestamp, ttl: Span)
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.until = Some(now.plus(ttl));
        }
    }

    /// A watch shows it, or something newer.
    pub fn confirm<Q>(&mut self, key: &Q) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.entries.remove(key).map(|entry| entry.value)
    }

    /// It was not done, or does not matter any more.
    pub fn forget<Q>(&mut self, key: &Q) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.entries.remove(key).map(|entry| entry.value)
    }

    pub fn forget_where(&mut self, mut is: impl FnMut(&T) -> bool) {
        self.entries.retain(|_, entry| !is(&entry.value));
    }

    /// Forgets what has been assumed for too long, and returns it.
    pub fn expire(&mut self, now: Timestamp) -> Vec<(K, T)> {
        let expired = self.entries.extract_if(.., |_, entry| !entry.is_live(now));
        expired.map(|(key, entry)| (key, entry.value)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get<Q>(&self, key: &Q) -> Option<&T>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.entries.get(key).map(|entry| &entry.value)
    }

    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut T>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// What still counts.
    pub fn live<Q>(&self, key: &Q, now: Timestamp) -> Option<&T>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.entries.get(key).filter(|entry| entry.is_live(now)).map(|entry| &entry.value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &T)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }

    /// From this key on.
    pub fn iter_from(&self, first: K) -> impl Iterator<Item = (&K, &T)> {
        self.entries.range(first..).map(|(key, entry)| (key, &entry.value))
    }

    /// All that still count.
    pub fn iter_live(&self, now: Timestamp) -> impl Iterator<Item = (&K, &T)> {
        self.entries.iter().filter(move |(_, entry)| entry.is_live(now)).map(|(key, entry)| (key, &entry.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assumption_counts_until_it_is_confirmed_forgotten_or_too_old() {
        let at = |seconds: i64| Timestamp(seconds * 1_000_000);
        let mut assumed = Assumed::default();
        assumed.assume("bound", 1);
        assumed.assume_for("marked", 2, at(0), Span::seconds(10));
        assert_eq!((assumed.live(&"bound", at(1000)), assumed.live(&"marked", at(9))), (Some(&1), Some(&2)));
        assert_eq!((assumed.live(&"marked", at(10)), assumed.get(&"marked")), (None, Some(&2)));
        assert_eq!((assumed.expire(at(10)), assumed.get(&"marked")), (vec![("marked", 2)], None));
        assumed.limit(&"bound", at(10), Span::seconds(5));
        assert_eq!(assumed.iter_live(at(15)).count(), 0);
        assert_eq!((assumed.confirm(&"bound"), assumed.forget(&"bound")), (Some(1), None));
    }
}
