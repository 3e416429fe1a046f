//! How often an API call is repeated whose error may pass. After that its controller decides anew.

use kai_engine::units::Span;

/// Before the second attempt: a busy API server answers within that time.
pub const RETRY_DELAY_MIN: Span = Span(100_000);

/// Each delay is so many times the one before: about 0.1, 0.4 and 1.6 s.
pub const RETRY_FACTOR: u8 = 4;

/// Attempts after the first.
pub const RETRIES: u8 = 3;

/// The delay after this failed attempt, counted from 0; nothing after the last.
pub fn retry_delay(attempt: u32) -> Option<Span> {
    (attempt < RETRIES.into()).then(|| Span(RETRY_DELAY_MIN.0 * i64::from(RETRY_FACTOR).pow(attempt)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_repeated_three_times_within_about_two_seconds() {
        let delays: Vec<_> = (0..5).map(retry_delay).collect();
        assert_eq!(delays, [Some(Span(100_000)), Some(Span(400_000)), Some(Span(1_600_000)), None, None]);
    }
}
