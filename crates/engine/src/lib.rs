//! Decides who runs where: a pure function from a [`snapshot::Snapshot`] and a [`policy::Policy`] to an
//! [`outcome::Outcome`].
//!
//! Never does I/O, reads a clock, draws a random number or depends on the order of a hash map. Sees numbers,
//! not names. Start reading at [`cycle`].
#![warn(missing_docs)]

pub mod builder;
pub mod capacity;
pub mod ids;
pub mod order;
pub mod outcome;
pub mod policy;
pub mod queues;
pub mod share;
pub mod snapshot;
pub mod solve;
pub mod units;

pub use outcome::Outcome;
pub use policy::Policy;
pub use snapshot::Snapshot;

/// Runs one scheduling cycle.
pub fn cycle(snapshot: &Snapshot, policy: &Policy, now: units::Timestamp) -> Outcome {
    let _ = (snapshot, policy, now);
    Outcome::default()
}
