//! When to check whether an action can still change anything.

/// Exponential backoff of the early-exit check, which visits every remaining job: after each failed check twice as many
/// fruitless attempts must pass.
#[derive(Debug, Default)]
pub(super) struct EarlyExitBackoff {
    idle_turns: usize,
    next_check: usize,
}

/// The first check is free; after it failed, this many attempts come before the next.
const TURNS_MIN: usize = 32;

impl EarlyExitBackoff {
    /// Whether to check now; at first, yes.
    pub(super) fn should_check(&mut self) -> bool {
        let over = self.idle_turns >= self.next_check;
        if over {
            (self.idle_turns, self.next_check) = (0, (2 * self.next_check).max(TURNS_MIN));
        }
        over
    }

    /// A job was tried and nothing changed.
    pub(super) fn record_idle_turn(&mut self) {
        self.idle_turns += 1;
    }

    /// A job was tried and something changed.
    pub(super) fn reset_idle(&mut self) {
        self.idle_turns = 0;
    }
}
