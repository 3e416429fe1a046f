//! When to ask whether an action can still do anything.

/// Counts turns that changed nothing. Asking everybody who is left costs as much as many turns, so that each vain
/// question is followed by twice as many turns before the next.
#[derive(Debug, Default)]
pub(super) struct Patience {
    lost: usize,
    allowed: usize,
}

/// The first question is free; if it was in vain, these turns come before the next.
const TURNS_MIN: usize = 32;

impl Patience {
    /// Whether to ask now; at first, yes.
    pub(super) fn is_over(&mut self) -> bool {
        let over = self.lost >= self.allowed;
        if over {
            (self.lost, self.allowed) = (0, (2 * self.allowed).max(TURNS_MIN));
        }
        over
    }

    /// A turn changed nothing.
    pub(super) fn lose(&mut self) {
        self.lost += 1;
    }

    /// A turn changed something.
    pub(super) fn renew(&mut self) {
        self.lost = 0;
    }
}
