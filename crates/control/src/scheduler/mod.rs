//! The scheduler around the engine: lowers a [`World`] to a snapshot, runs a cycle, raises the outcome.

mod effect;
mod settings;

pub use effect::{Cycle, Effect, GpuGroup, PendingJob, Problem, QueueView, Received, ResourceType, Words};
pub use settings::{Settings, Usage};

use kai_engine::units::Timestamp;

use crate::world::World;

/// Runs one scheduling cycle over everything known of the cluster.
pub fn cycle(world: &World, settings: &Settings, usage: &Usage, now: Timestamp) -> Cycle {
    let _ = (world, settings, usage, now);
    Cycle::default()
}
