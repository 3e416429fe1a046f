//! Decides who runs where: a pure function from a [`snapshot::Snapshot`] and a [`policy::Policy`] to an
//! [`outcome::Outcome`].
//!
//! Never does I/O, reads a clock, draws a random number or depends on the order of a hash map. Sees numbers,
//! not names. Start reading at [`cycle`].
#![warn(missing_docs)]

pub mod actions;
pub mod builder;
pub mod capacity;
pub mod claims;
pub mod explain;
pub mod finder;
pub mod fit;
pub mod free_bounds;
pub mod gang;
pub mod ids;
pub mod inter_pod;
pub mod ledger;
pub mod numa;
pub mod order;
pub mod outcome;
pub mod place;
pub mod policy;
pub mod queues;
pub mod score;
pub mod session;
pub mod share;
pub mod snapshot;
pub mod solve;
pub mod topology;
pub mod units;
pub mod volumes;

pub use outcome::Outcome;
pub use policy::Policy;
pub use session::Effort;
pub use snapshot::Snapshot;

/// Runs one scheduling cycle.
pub fn cycle(snapshot: &Snapshot, policy: &Policy, now: units::Timestamp) -> Outcome {
    watched_cycle(snapshot, policy, now, |_| ())
}

/// A point that a cycle passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Everything is ready for the first action.
    Opened,
    /// An action has ended, and this is what it took.
    Acted(policy::Action, Effort),
}

/// Runs one scheduling cycle and says how far it is: whoever has a clock can tell what each part takes.
pub fn watched_cycle(
    snapshot: &Snapshot,
    policy: &Policy,
    now: units::Timestamp,
    mut passed: impl FnMut(Moment),
) -> Outcome {
    let mut session = session::Session::open(snapshot, policy, now);
    passed(Moment::Opened);
    for action in &policy.actions {
        match action {
            policy::Action::Allocate => actions::allocate::run(&mut session),
            policy::Action::Consolidate => actions::consolidate::run(&mut session),
            policy::Action::Reclaim => actions::reclaim::run(&mut session),
            policy::Action::Preempt => actions::preempt::run(&mut session),
            policy::Action::EvictStale => actions::stale::run(&mut session),
        }
        passed(Moment::Acted(*action, std::mem::take(&mut session.effort)));
        if cfg!(debug_assertions) {
            session.ledger.assert_consistent();
        }
    }
    session.close()
}
