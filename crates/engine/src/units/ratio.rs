//! Quotients that compare exactly.

use std::cmp::Ordering;

/// An exact quotient, so that equal shares tie.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    part: i64,
    whole: i64,
}

impl Ratio {
    /// `part` of `whole`.
    pub fn new(part: i64, whole: i64) -> Self {
        Self { part, whole }
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        let (left, right) =
            (i128::from(self.part) * i128::from(other.whole), i128::from(other.part) * i128::from(self.whole));
        left.cmp(&right)
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ratio {}
