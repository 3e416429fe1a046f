//! How fast the API server may be asked: so many calls a second, and some at once after a quiet time. And who comes
//! first: deeds, for which somebody waits, before explanations of why nothing is done, and these before other words.
#![allow(clippy::disallowed_types, reason = "keeping a pace needs a clock")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

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
#[derive(Debug)]
pub(crate) struct Deeds {
    under_way: Mutex<[UnderWay; 2]>,
    /// Words that have waited long enough go one at a time, whoever says them, while there is no end of deeds.
    impatient: Semaphore,
}

impl Default for Deeds {
    fn default() -> Self {
        Self { under_way: Mutex::default(), impatient: Semaphore::new(1) }
    }
}

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
/// And so long words wait for that at most.
const PATIENCE: Duration = Duration::from_secs(3);
/// While so many others are under way or wait for their turn, words would only make them wait longer.
const FLOOD: usize = 16;
/// And so long words wait for the end of that.
const FLOOD_PATIENCE: Duration = Duration::from_mins(1);

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
        lock(&self.deeds.under_way)[place].count += 1;
        Some(Deed(Arc::clone(&self.deeds), place))
    }

    /// How many others than words are under way in the process.
    pub(crate) fn in_a_hurry(&self) -> usize {
        lock(&self.deeds.under_way).iter().map(|rank| rank.count).sum()
    }

    /// Waits for one's turn, which lasts until the value is dropped.
    pub(crate) async fn turn(&self, rank: Rank, hurry: Hurry) -> Option<SemaphorePermit<'_>> {
        let alone = match hurry {
            Hurry::Now => None,
            Hurry::Spare => self.calm(rank, Instant::now() + PATIENCE).await,
            Hurry::SpareUntil(until) => self.calm(rank, until).await,
        };
        loop {
            let (booked, wait) = self.book(hurry, Instant::now());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            if booked {
                return alone;
            }
        }
    }

    /// Waits until nothing of higher rank is under way. Explanations do so only for a time; words then take turns.
    async fn calm(&self, rank: Rank, patient_until: Instant) -> Option<SemaphorePermit<'_>> {
        let flood_until = Instant::now() + FLOOD_PATIENCE;
        while let Some((wait, others)) = self.calm_in(rank, Instant::now()) {
            let flood = rank == Rank::Word && others >= FLOOD;
            let patient_until = if flood { patient_until.max(flood_until) } else { patient_until };
            let patience = patient_until.saturating_duration_since(Instant::now());
            if !patience.is_zero() {
                tokio::time::sleep(wait.min(patience)).await;
            } else if rank == Rank::Word {
                let alone = self.deeds.impatient.acquire().await.ok();
                return alone.filter(|_| self.calm_in(rank, Instant::now()).is_some());
            } else {
                return None;
            }
        }
        None
    }

    /// How long it is not calm, at least, and how many are under way; nothing if it is.
    fn calm_in(&self, rank: Rank, now: Instant) -> Option<(Duration, usize)> {
        let under_way = lock(&self.deeds.under_way);
        let before = match rank {
            Rank::Deed => 0,
            Rank::Explanation => 1,
            Rank::Word => under_way.len(),
        };
        let calm_at = |first: &UnderWay| if first.count > 0 { Some(now + CALM) } else { Some(first.ended? + CALM) };
        let wait = under_way[..before].iter().filter_map(calm_at).max()?.saturating_duration_since(now);
        let others = under_way[..before].iter().map(|first| first.count).sum();
        (!wait.is_zero()).then_some((wait, others))
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
        let under_way = &mut lock(&self.0.under_way)[self.1];
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
    fn words_wait_for_the_end_of_all_deeds_of_a_process() {
        let deeds = Arc::new(Deeds::default());
        let (other, pace) = (Pace::new(0.0, 1, Arc::clone(&deeds)), Pace::new(0.0, 1, deeds));
        let now = Instant::now();
        let word = |now: Instant| pace.calm_in(Rank::Word, now);
        assert_eq!(word(now), None);
        let deed = other.begin(Rank::Deed);
        assert_eq!(word(now), Some((CALM, 1)));
        drop(deed);
        assert!(word(Instant::now()).is_some_and(|(wait, others)| wait <= CALM && others == 0));
        assert_eq!(word(Instant::now() + CALM), None);
    }

    #[tokio::test]
    async fn words_that_have_waited_long_enough_go_one_at_a_time() {
        let deeds = Arc::new(Deeds::default());
        let (other, pace) = (Pace::new(0.0, 1, Arc::clone(&deeds)), Pace::new(0.0, 1, deeds));
        let late = Hurry::SpareUntil(Instant::now());
        let deed = other.begin(Rank::Deed);
        let first = pace.turn(Rank::Word, late).await;
        assert!(first.is_some());
        let moment = Duration::from_millis(20);
        assert!(tokio::time::timeout(moment, other.turn(Rank::Word, late)).await.is_err(), "whoever says them");
        assert!(pace.turn(Rank::Explanation, late).await.is_none(), "explanations need not");
        drop(first);
        assert!(other.turn(Rank::Word, late).await.is_some());
        drop(deed);
        tokio::time::sleep(CALM).await;
        let both = (pace.turn(Rank::Word, late).await, other.turn(Rank::Word, late).await);
        assert!(both.0.is_none() && both.1.is_none(), "it is calm");
    }

    #[tokio::test]
    async fn a_flood_of_deeds_goes_before_words_that_have_waited_long_enough() {
        let pace = Pace::new(0.0, 1, Arc::default());
        let late = Hurry::SpareUntil(Instant::now());
        let mut flood: Vec<_> = (0..FLOOD).map(|_| pace.begin(Rank::Deed)).collect();
        let moment = Duration::from_millis(20);
        assert!(tokio::time::timeout(moment, pace.turn(Rank::Word, late)).await.is_err());
        assert!(pace.turn(Rank::Explanation, late).await.is_none());
        flood.pop();
        assert!(pace.turn(Rank::Word, late).await.is_some());
    }

    #[test]
    fn explanations_come_after_deeds_and_before_other_words() {
        let pace = Pace::new(0.0, 1, Arc::default());
        let waits =
            |now: Instant| [Rank::Deed, Rank::Explanation, Rank::Word].map(|rank| pace.calm_in(rank, now).is_some());
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
