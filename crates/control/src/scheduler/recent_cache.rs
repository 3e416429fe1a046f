//! The last few values of a computation, reused while keys come in runs.

use std::collections::VecDeque;

/// About as many as there are kinds of jobs in a queue.
const KEPT: usize = 8;

/// The last few values, for keys that come in runs.
#[derive(Debug)]
pub(super) struct RecentCache<K, V> {
    known: VecDeque<(K, V)>,
}

impl<K, V> Default for RecentCache<K, V> {
    fn default() -> Self {
        Self { known: VecDeque::new() }
    }
}

impl<K: PartialEq, V: Clone> RecentCache<K, V> {
    /// The cached value, or a newly computed one.
    pub(super) fn get_or_compute(&mut self, key: K, compute: impl FnOnce(&K) -> V) -> V {
        if let Some((_, known)) = self.known.iter().find(|(known, _)| *known == key) {
            return known.clone();
        }
        let value = compute(&key);
        self.known.truncate(KEPT - 1);
        self.known.push_front((key, value.clone()));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_computed_again_once_it_is_dropped() {
        let mut recent = RecentCache::default();
        let mut computed = Vec::new();
        for key in [1, 2, 1, 2].into_iter().chain(3..=KEPT + 1).chain([2, 1]) {
            let value = recent.get_or_compute(key, |key| {
                computed.push(*key);
                10 * key
            });
            assert_eq!(value, 10 * key);
        }
        assert_eq!(computed, (1..=KEPT + 1).chain([1]).collect::<Vec<_>>());
    }
}
