//! When to ask whether an action can still do anything.

/// Counts turns that changed nothing. Asking everybody who is left costs as much as many turns, so that each vain
/// question is followed by twice as many turns before the next.
#[derive(Debug, Default)]
pub(super) struct EarlyExitBackoff {
    idle_turns: usize,
    next_check: usize,
}

/// The first question is free; if it was in vain, these turns come before the next.
const TURNS_MIN: usize = 32;

impl EarlyExitBackoff {
    /// Whether to ask now; at first, yes.
    pub(super) fn should_check(&mut self) -> bool {
        let over = self.idle_turns >= self.next_check;
        if over {
            (self.idle_turns, self.next_check) = (0, (2 * self.next_check).max(TURNS_MIN));
        }
        over
    }

    /// A turn changed nothing.
    pub(super) fn record_idle_turn(&mut self) {
        self.idle_turns += 1;
    }

    /// A turn changed something.
    pub(super) fn reset_idle(&mut self) {
        self.idle_turns = 0;
    }
}
