//! How fast the API server may be asked: so many calls a second, and some at once after a quiet time.
#![allow(clippy::disallowed_types, reason = "keeping a pace needs a clock")]

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Calls a second on average, `burst` of them at once after a quiet time. No calls a second means no limit.
#[derive(Debug)]
pub(crate) struct Pace {
    gap: Option<Duration>,
    burst: u32,
    /// When the next call would be due if there were no bursts.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) fn new(per_second: f64, burst: u32) -> Self {
        let limited = per_second.is_finite() && per_second > 0.0;
        let gap = limited.then(|| Duration::from_secs_f64(1.0 / per_second));
        Self { gap, burst: burst.max(1), next: Mutex::new(None) }
    }

    /// Waits for one's turn.
    pub(crate) async fn turn(&self) {
        let wait = self.book(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Books the next turn and tells how long it takes until then.
    fn book(&self, now: Instant) -> Duration {
        let Some(gap) = self.gap else { return Duration::ZERO };
        let mut next = self.next.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Turns not taken are kept, up to a burst of them.
        let oldest = now.checked_sub(gap * (self.burst - 1)).unwrap_or(now);
        let due = next.unwrap_or(oldest).max(oldest);
        *next = Some(due + gap);
        due.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_pace() {
        let pace = Pace::new(10.0, 3);
        let now = Instant::now();
        let waits: Vec<u128> = (0..5).map(|_| pace.book(now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        let later = now + Duration::from_secs(1);
        let waits: Vec<u128> = (0..4).map(|_| pace.book(later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100], "a quiet time earns one burst, not more");
    }

    #[test]
    fn no_pace_is_no_limit() {
        let pace = Pace::new(0.0, 1);
        assert!((0..1000).all(|_| pace.book(Instant::now()).is_zero()));
    }
}
