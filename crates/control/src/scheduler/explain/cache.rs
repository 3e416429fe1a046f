//! Explanations of the last cycle, reused while the cluster is unchanged and a job's reasons are the same; and recent
//! sentences, reused within a cycle.

use std::collections::VecDeque;
use std::sync::Arc;

use kai_engine::ids::JobId;
use kai_engine::outcome::{Reason, Verdict};

use crate::scheduler::effect::PendingJob;

/// Reasons of the last cycle and their explanations, by job.
#[derive(Debug)]
pub(in crate::scheduler) struct ExplanationCache(Vec<Option<(Vec<Reason>, Arc<PendingJob>)>>);

impl ExplanationCache {
    /// `explained` is by job; `None` where the explanation depends on more than the reasons.
    pub(in crate::scheduler) fn new(verdicts: Vec<Verdict>, mut explained: Vec<Option<Arc<PendingJob>>>) -> Self {
        let mut cache: Vec<_> = explained.iter().map(|_| None).collect();
        for Verdict { job, reasons } in verdicts {
            cache[job.index()] = explained[job.index()].take().map(|explanation| (reasons, explanation));
        }
        Self(cache)
    }

    /// The last explanation of the job, if it was for the same reasons.
    pub(in crate::scheduler) fn get(&self, job: JobId, reasons: &[Reason]) -> Option<&Arc<PendingJob>> {
        let (known, explanation) = self.0.get(job.index())?.as_ref()?;
        (known == reasons).then_some(explanation)
    }
}

/// About as many as there are kinds of jobs in a queue.
const KEPT: usize = 8;

/// The last few values, for keys that come in runs.
#[derive(Debug)]
pub(in crate::scheduler) struct RecentCache<K, V> {
    known: VecDeque<(K, V)>,
}

impl<K, V> Default for RecentCache<K, V> {
    fn default() -> Self {
        Self { known: VecDeque::new() }
    }
}

impl<K: PartialEq, V: Clone> RecentCache<K, V> {
    /// The cached value, or a newly computed one.
    pub(in crate::scheduler) fn get_or_compute(&mut self, key: K, compute: impl FnOnce(&K) -> V) -> V {
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
        let mut worked_out = Vec::new();
        for question in [1, 2, 1, 2].into_iter().chain(3..=KEPT + 1).chain([2, 1]) {
            let answer = recent.get_or_compute(question, |question| {
                worked_out.push(*question);
                10 * question
            });
            assert_eq!(answer, 10 * question);
        }
        assert_eq!(worked_out, (1..=KEPT + 1).chain([1]).collect::<Vec<_>>());
    }
}
