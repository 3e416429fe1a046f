//! Rate limit of API requests: `--qps` on average, `--burst` of them at once after a quiet time.
//!
//! A token bucket, kept as the time at which the next token is due (the generic cell rate algorithm).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::write_priority::Deferral;

/// One per component, as each of them has a connection of its own when it runs alone.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Nothing for no limit.
    interval: Option<Duration>,
    burst: u32,
    /// When the next token would be due if there were no bursts.
    next: Mutex<Option<Instant>>,
}

impl RateLimiter {
    /// 0 requests a second means no limit.
    pub(crate) fn new(per_second: f64, burst: u32) -> Self {
        let limited = per_second.is_finite() && per_second > 0.0;
        let interval = limited.then(|| Duration::from_secs_f64(1.0 / per_second));
        Self { interval, burst: burst.max(1), next: Mutex::new(None) }
    }

    /// Waits for a token, and returns how long that took.
    pub(crate) async fn acquire(&self, deferral: Deferral) -> Duration {
        let mut waited = Duration::ZERO;
        loop {
            let (reserved, wait) = self.reserve_token(deferral, Instant::now());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
                waited += wait;
            }
            if reserved {
                return waited;
            }
        }
    }

    /// Reserves the next token if one may be taken, and returns the time until it is due, or until the next attempt.
    /// Deferrable requests leave a quarter of the burst to urgent ones.
    fn reserve_token(&self, deferral: Deferral, now: Instant) -> (bool, Duration) {
        let Some(interval) = self.interval else { return (true, Duration::ZERO) };
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // Unused tokens are kept, up to a burst of them.
        let oldest = now.checked_sub(interval * (self.burst - 1)).unwrap_or(now);
        let due = next.unwrap_or(oldest).max(oldest);
        if deferral != Deferral::Immediate {
            let wait = (due + interval * (self.burst / 4)).saturating_duration_since(now);
            if !wait.is_zero() {
                return (false, wait);
            }
        }
        *next = Some(due + interval);
        (true, due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(limiter: &RateLimiter, requests: usize, now: Instant) -> Vec<u128> {
        (0..requests).map(|_| limiter.reserve_token(Deferral::Immediate, now).1.as_millis()).collect()
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let limiter = RateLimiter::new(10.0, 3);
        let now = Instant::now();
        assert_eq!(waits(&limiter, 5, now), [0, 0, 0, 100, 200]);
        let later = now + Duration::from_secs(1);
        assert_eq!(waits(&limiter, 4, later), [0, 0, 0, 100], "a quiet time earns one burst, not more");
    }

    #[test]
    fn deferrable_requests_leave_a_part_of_the_burst() {
        let limiter = RateLimiter::new(10.0, 8);
        let now = Instant::now();
        let deferrable: Vec<(bool, u128)> = (0..7)
            .map(|_| limiter.reserve_token(Deferral::Deferrable, now))
            .map(|(reserved, wait)| (reserved, wait.as_millis()))
            .collect();
        let (had, not) = ((true, 0), (false, 100));
        assert_eq!(deferrable, [had, had, had, had, had, had, not]);
        assert_eq!(waits(&limiter, 3, now), [0, 0, 100], "urgent ones have the rest at once");
    }

    #[test]
    fn no_rate_is_no_limit() {
        let limiter = RateLimiter::new(0.0, 1);
        assert_eq!(waits(&limiter, 1000, Instant::now()), [0; 1000]);
    }
}
