//! Exponential backoff.

use kai_engine::units::Span;

/// Pauses between attempts: twice as long each time, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Span,
    pub max: Span,
}

impl Backoff {
    pub const fn new(first: Span, max: Span) -> Self {
        Self { first, max }
    }

    /// The pause after so many attempts before this one.
    pub fn after(self, attempts: u32) -> Span {
        Span(self.first.0.saturating_mul(1 << attempts.min(32))).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit() {
        let backoff = Backoff::new(Span::seconds(1), Span::seconds(5));
        let pauses = [0, 1, 2, 3, u32::MAX].map(|attempts| backoff.after(attempts));
        assert_eq!(pauses, [1, 2, 4, 5, 5].map(Span::seconds));
    }
}
