//! Recorded numbers -> engine units.

use kai_engine::units::{Ceiling, ONE};

/// A plain number in millionths, to the nearest one: recorded numbers have at most six decimals that matter.
pub(crate) fn millionths(value: f64) -> i64 {
    (value * ONE as f64).round() as i64
}

/// A quota or limit counted in `unit`s; every negative amount is none.
pub(crate) fn ceiling(value: f64, unit: i64) -> Ceiling {
    if value < 0.0 { Ceiling::Unlimited } else { Ceiling::At((value * unit as f64).round() as i64) }
}
