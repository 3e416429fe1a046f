//! Backoff of evictions that the API server rejects, for example because a `PodDisruptionBudget` forbids them.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::units::{Span, Timestamp};

use super::Effect;
use crate::controller::Backoff;
use crate::key::{GroupKey, PodKey};

/// Between calls for one pod. A disruption budget lasts until other pods are ready again, which takes seconds to minutes.
const BACKOFF: Backoff = Backoff::new(Span::seconds(1), Span::seconds(60));

/// Pods whose last eviction failed, until one succeeds or the pod is deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct EvictionBackoff(BTreeMap<PodKey, FailedEvictions>);

#[derive(Clone, Debug)]
struct FailedEvictions {
    uid: String,
    /// In a row.
    attempts: u32,
    /// By the steady clock.
    retry_at: Timestamp,
}

impl EvictionBackoff {
    pub(super) fn on_failed(&mut self, pod: &PodKey, uid: &str, now: Timestamp) {
        let before = self.0.get(pod).filter(|failed| failed.uid == uid);
        let attempts = before.map_or(0, |failed| failed.attempts);
        let retry_at = now.plus(BACKOFF.after(attempts));
        let failed = FailedEvictions { uid: uid.to_owned(), attempts: attempts.saturating_add(1), retry_at };
        self.0.insert(pod.clone(), failed);
    }

    /// The pod was evicted or deleted.
    pub(super) fn reset(&mut self, pod: &PodKey) {
        self.0.remove(pod);
    }

    /// Takes out the evictions of pods that back off, and the timestamps of groups that lose no pod without them.
    /// Returns whether there were any.
    pub(super) fn withhold(&self, effects: &mut Vec<Effect>, now: Timestamp) -> bool {
        let backs_off = |pod: &PodKey| self.0.get(pod).is_some_and(|failed| now < failed.retry_at);
        let mut withheld: BTreeSet<GroupKey> = BTreeSet::new();
        effects.retain(|effect| match effect {
            Effect::Evict { pod, job, .. } if backs_off(pod) => {
                withheld.insert(job.clone());
                false
            }
            _ => true,
        });
        if withheld.is_empty() {
            return false;
        }
        let mut unchanged = withheld;
        for effect in effects.iter() {
            if let Effect::Evict { job, .. } | Effect::Bind { job, .. } = effect {
                unchanged.remove(job);
            }
        }
        effects.retain(|effect| !matches!(effect, Effect::SetGroupTimestamps { job, .. } if unchanged.contains(job)));
        true
    }
}

#[cfg(test)]
mod tests {
    use kai_engine::policy::Action;

    use super::*;
    use crate::key::Key;
    use crate::scheduler::reasons::EvictionReason;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    fn evict(pod: &str, job: &str) -> Effect {
        Effect::Evict {
            pod: Key::new("n", pod),
            job: Key::new("n", job),
            node: None,
            action: Action::Reclaim,
            preemptor: None,
            gang_size: 1,
            why: EvictionReason::Other { preemptor: None },
        }
    }

    fn timestamps(job: &str) -> Effect {
        Effect::SetGroupTimestamps {
            job: Key::new("n", job),
            last_start: None,
            stale_since: None,
            last_eviction: Some(at(0)),
        }
    }

    fn left(backoff: &EvictionBackoff, now: Timestamp) -> Vec<Effect> {
        let mut effects =
            vec![evict("a-0", "a"), evict("a-1", "a"), evict("b-0", "b"), timestamps("a"), timestamps("b")];
        let before = effects.len();
        assert_eq!(backoff.withhold(&mut effects, now), effects.len() < before);
        effects
    }

    #[test]
    fn evictions_are_withheld_until_the_backoff_ends() {
        let mut backoff = EvictionBackoff::default();
        assert_eq!(left(&backoff, at(0)).len(), 5);
        backoff.on_failed(&Key::new("n", "a-0"), "u", at(0));
        backoff.on_failed(&Key::new("n", "b-0"), "u", at(0));
        assert_eq!(left(&backoff, at(0)), [evict("a-1", "a"), timestamps("a")], "another pod of group a is evicted");
        assert_eq!(left(&backoff, at(1)).len(), 5);
        backoff.on_failed(&Key::new("n", "b-0"), "u", at(1));
        assert_eq!((left(&backoff, at(2)).len(), left(&backoff, at(3)).len()), (3, 5), "twice as long");
    }

    #[test]
    fn a_success_a_deletion_or_another_uid_resets_the_backoff() {
        let pod = Key::new("n", "b-0");
        let mut backoff = EvictionBackoff::default();
        (0..5).for_each(|_| backoff.on_failed(&pod, "old", at(0)));
        backoff.on_failed(&pod, "new", at(0));
        assert_eq!((left(&backoff, at(0)).len(), left(&backoff, at(1)).len()), (3, 5));
        backoff.reset(&pod);
        assert_eq!(left(&backoff, at(0)).len(), 5);
    }
}
