//! The scheduler around the engine: lowers a [`World`] to a snapshot, runs a cycle, raises the outcome.

mod amounts;
pub mod config;
mod effect;
mod gpu_groups;
mod lower;
mod obstacles;
mod raise;
mod settings;
pub mod usage;
mod victims;
mod words;
mod writes;

#[cfg(test)]
mod picture;
#[cfg(test)]
mod tests;

pub use config::Configured;
pub use effect::{Cycle, Effect, GpuGroup, PendingJob, Problem, QueueView, Received, ResourceType, Words};
pub use settings::{Settings, TaskOrder, Usage};
pub use writes::{About, Event, Reporter, Write};

pub use kai_engine::Moment;

use kai_engine::units::Timestamp;

use crate::world::World;

/// Runs one scheduling cycle over everything known of the cluster.
pub fn cycle(world: &World, settings: &Settings, usage: &Usage, now: Timestamp) -> Cycle {
    watched_cycle(world, settings, usage, now, |_| ())
}

/// Runs one scheduling cycle and says how far it is; lowering is over when it says [`Moment::Opened`].
pub fn watched_cycle(
    world: &World,
    settings: &Settings,
    usage: &Usage,
    now: Timestamp,
    passed: impl FnMut(Moment),
) -> Cycle {
    let lowered = lower::lower(world, settings, usage, now);
    let outcome = kai_engine::watched_cycle(&lowered.snapshot, &settings.policy, now, passed);
    raise::raise(world, lowered, &outcome, now)
}
