//! Decides who runs where: a pure function from a [`snapshot::Snapshot`] and a [`policy::Policy`] to an
//! [`outcome::Outcome`].
//!
//! Never does I/O, reads a clock, draws a random number or depends on the order of a hash map. Sees numbers,
//! not names. Start reading at [`cycle`].
#![warn(missing_docs)]

// The modules in the order in which they build on each other: each may use only those above it, tests excepted.
// `cargo xtask tidy` checks that, by the table in ARCHITECTURE.md.
//
// Callers need `units`, `ids`, `policy`, `snapshot`, `outcome` and what is re-exported below. The other public modules are
// so for tests: those of this crate and of `tests/conformance`.

// Integers with units, ceilings, exact ratios, and the rounding rules of KAI.
pub mod units;

// Dense ids in the order of names, and sets of nodes.
pub mod ids;

// The configuration of the scheduler, as switches and numbers.
pub mod policy;

// The input: nodes, queues, jobs, pods and their requests; the builder, which checks it.
pub mod snapshot;

// The output: decisions, reasons, obstacles, times to persist.
pub mod outcome;

// The working state: the state of every pod, and all sums that follow.
pub mod ledger;

// What a job needs next, what it could give up.
pub mod gang;

// Capacity, fair shares, reclaim rules, and the order of queues and jobs.
pub mod queues;

// Filters and scores of nodes, the best node for a pod, explanations.
pub mod nodes;

// One cycle in progress: placing gangs, committing decisions, writing the outcome.
pub mod session;

// The search for victims.
pub(crate) mod solve;

// Allocate, consolidate, reclaim, preempt, evict stale gangs.
pub mod actions;

pub use outcome::Outcome;
pub use policy::Policy;
pub use session::ActionStats;
pub use snapshot::{Snapshot, builder};

/// Runs one scheduling cycle.
pub fn cycle(snapshot: &Snapshot, policy: &Policy, now: units::Timestamp) -> Outcome {
    cycle_with_progress(snapshot, policy, now, |_| ())
}

/// A point that a cycle passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CycleProgress {
    /// Everything is ready for the first action.
    SessionOpened,
    /// An action has ended, and this is what it took.
    ActionDone(policy::Action, ActionStats),
}

/// Runs one scheduling cycle and reports its progress, so that a caller with a clock can measure its parts.
pub fn cycle_with_progress(
    snapshot: &Snapshot,
    policy: &Policy,
    now: units::Timestamp,
    mut passed: impl FnMut(CycleProgress),
) -> Outcome {
    let mut session = session::Session::open(snapshot, policy, now);
    passed(CycleProgress::SessionOpened);
    let runs = |action: &&policy::Action| policy.disruption.allowed || !action.is_disruptive();
    for action in policy.actions.iter().filter(runs) {
        match action {
            policy::Action::Allocate => actions::allocate::run(&mut session),
            policy::Action::Consolidate => actions::consolidate::run(&mut session),
            policy::Action::Reclaim => actions::reclaim::run(&mut session),
            policy::Action::Preempt => actions::preempt::run(&mut session),
            policy::Action::EvictStale => actions::stale::run(&mut session),
        }
        passed(CycleProgress::ActionDone(*action, std::mem::take(&mut session.stats)));
        if cfg!(debug_assertions) {
            session.ledger.assert_consistent();
        }
    }
    session.close()
}
