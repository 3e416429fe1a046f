//! How fast the API server may be asked: so many calls a second, and some at once after a quiet time. And who comes
//! first: deeds, for which somebody waits, before explanations of why nothing is done, and these before other words.
#![allow(clippy::disallowed_types, reason = "keeping a pace needs a clock")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Calls a second on average, `burst` of them at once after a quiet time. No calls a second means no limit.
#[derive(Debug)]
pub(crate) struct Pace {
    gap: Option<Duration>,
    burst: u32,
    /// When the next call would be due if there were no bursts.
    next: Mutex<Option<Instant>>,
    deeds: Arc<Deeds>,
}

/// What is under way in a process, by rank: words of one component wait for deeds of all, which need the same API server.
#[derive(Debug, Default)]
pub(crate) struct Deeds(Mutex<[UnderWay; 2]>);

/// Who comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    Deed,
    /// What somebody reads who waits, and what it rests on.
    Explanation,
    Word,
}

#[derive(Debug, Default)]
struct UnderWay {
    count: usize,
    /// When the last one ended.
    ended: Option<Instant>,
}

/// A deed or explanation under way.
#[derive(Debug)]
pub(crate) struct Deed(Arc<Deeds>, usize);

/// After so long without deeds there will be none for a while.
const CALM: Duration = Duration::from_millis(250);
/// And so long words wait for that at most. With few at a time, they take up little of what deeds need.
const PATIENCE: Duration = Duration::from_secs(3);

/// Who waits for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hurry {
    /// As soon as the pace allows.
    Now,
    /// When no deeds are under way, within reason, and only while a part of a burst is left for others: words must not
    /// hold up deeds.
    Spare,
    /// The same, by somebody who waits for that until then at most.
    SpareUntil(Instant),
}

impl Hurry {
    pub(crate) fn spare_for(patience: Duration) -> Self {
        Self::SpareUntil(Instant::now() + patience)
    }
}

impl Pace {
    pub(crate) fn new(per_second: f64, burst: u32, deeds: Arc<Deeds>) -> Self {
        let limited = per_second.is_finite() && per_second > 0.0;
        let gap = limited.then(|| Duration::from_secs_f64(1.0 / per_second));
        Self { gap, burst: burst.max(1), next: Mutex::new(None), deeds }
    }

    /// Those of lower rank wait for its end, which is when the value is dropped.
    pub(crate) fn begin(&self, rank: Rank) -> Option<Deed> {
        let place = match rank {
            Rank::Deed => 0,
            Rank::Explanation => 1,
            Rank::Word => return None,
        };
        lock(&self.deeds.0)[place].count += 1;
        Some(Deed(Arc::clone(&self.deeds), place))
    }

    /// Waits for one's turn.
    pub(crate) async fn turn(&self, rank: Rank, hurry: Hurry) {
        let patient_until = match hurry {
            Hurry::Now => None,
            Hurry::Spare => Some(Instant::now() + PATIENCE),
            Hurry::SpareUntil(until) => Some(until),
        };
        if let Some(patient_until) = patient_until {
            while let Some(wait) = self.calm_in(rank, Instant::now(), patient_until) {
                tokio::time::sleep(wait).await;
            }
        }
        loop {
            let (booked, wait) = self.book(hurry, Instant::now());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            if booked {
                return;
            }
        }
    }

    /// How long to wait before asking again; nothing if it is calm, or if one has waited long enough.
    fn calm_in(&self, rank: Rank, now: Instant, patient_until: Instant) -> Option<Duration> {
        let under_way = lock(&self.deeds.0);
        let before = match rank {
            Rank::Deed => 0,
            Rank::Explanation => 1,
            Rank::Word => under_way.len(),
        };
        let calm_at = |first: &UnderWay| if first.count > 0 { Some(now + CALM) } else { Some(first.ended? + CALM) };
        let calm_at = under_way[..before].iter().filter_map(calm_at).max()?;
        Some(calm_at.min(patient_until).saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Books the next turn if there is one to be had, and tells how long it takes until then or until asking again.
    fn book(&self, hurry: Hurry, now: Instant) -> (bool, Duration) {
        let Some(gap) = self.gap else { return (true, Duration::ZERO) };
        let mut next = lock(&self.next);
        // Turns not taken are kept, up to a burst of them.
        let oldest = now.checked_sub(gap * (self.burst - 1)).unwrap_or(now);
        let due = next.unwrap_or(oldest).max(oldest);
        if hurry != Hurry::Now {
            let wait = (due + gap * (self.burst / 4)).saturating_duration_since(now);
            if !wait.is_zero() {
                return (false, wait);
            }
        }
        *next = Some(due + gap);
        (true, due.saturating_duration_since(now))
    }
}

impl Drop for Deed {
    fn drop(&mut self) {
        let under_way = &mut lock(&self.0.0)[self.1];
        under_way.count -= 1;
        under_way.ended = Some(Instant::now());
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wait_for_the_end_of_all_deeds_of_a_process_but_not_for_ever() {
        let deeds = Arc::new(Deeds::default());
        let (other, pace) = (Pace::new(0.0, 1, Arc::clone(&deeds)), Pace::new(0.0, 1, deeds));
        let now = Instant::now();
        let late = now + PATIENCE;
        let word = |now: Instant| pace.calm_in(Rank::Word, now, late);
        assert_eq!(word(now), None);
        let deed = other.begin(Rank::Deed);
        assert_eq!(word(now), Some(CALM));
        assert_eq!(word(late), None, "it has waited long enough");
        drop(deed);
        assert!(word(Instant::now()).is_some_and(|wait| wait <= CALM));
        assert_eq!(word(Instant::now() + CALM), None);
    }

    #[test]
    fn explanations_come_after_deeds_and_before_other_words() {
        let pace = Pace::new(0.0, 1, Arc::default());
        let waits = |now: Instant| {
            let waits = |rank| pace.calm_in(rank, now, now + PATIENCE).is_some();
            [Rank::Deed, Rank::Explanation, Rank::Word].map(waits)
        };
        let (deed, explanation) = (pace.begin(Rank::Deed), pace.begin(Rank::Explanation));
        assert_eq!(waits(Instant::now()), [false, true, true]);
        drop(deed);
        assert_eq!(waits(Instant::now() + CALM), [false, false, true]);
        drop(explanation);
        assert_eq!(waits(Instant::now() + CALM), [false, false, false]);
        assert!(pace.begin(Rank::Word).is_none(), "nobody waits for words");
    }

    fn waits(pace: &Pace, calls: usize, now: Instant) -> Vec<u128> {
        (0..calls).map(|_| pace.book(Hurry::Now, now).1.as_millis()).collect()
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_pace() {
        let pace = Pace::new(10.0, 3, Arc::default());
        let now = Instant::now();
        assert_eq!(waits(&pace, 5, now), [0, 0, 0, 100, 200]);
        let later = now + Duration::from_secs(1);
        assert_eq!(waits(&pace, 4, later), [0, 0, 0, 100], "a quiet time earns one burst, not more");
    }

    #[test]
    fn whoever_has_time_leaves_a_part_of_the_burst() {
        let pace = Pace::new(10.0, 8, Arc::default());
        let now = Instant::now();
        let spare: Vec<(bool, u128)> =
            (0..7).map(|_| pace.book(Hurry::Spare, now)).map(|(booked, wait)| (booked, wait.as_millis())).collect();
        let (had, not) = ((true, 0), (false, 100));
        assert_eq!(spare, [had, had, had, had, had, had, not]);
        assert_eq!(waits(&pace, 3, now), [0, 0, 100], "those in a hurry have the rest at once");
    }

    #[test]
    fn no_pace_is_no_limit() {
        let pace = Pace::new(0.0, 1, Arc::default());
        assert_eq!(waits(&pace, 1000, Instant::now()), [0; 1000]);
    }
}
