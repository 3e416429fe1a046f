//! The scheduler around the engine: lowers a [`World`] to a snapshot, runs a cycle, raises the outcome.

mod amounts;
mod bursts;
pub mod config;
mod effect;
mod gpu_groups;
mod lower;
mod obstacles;
mod queue_details;
mod raise;
mod recent;
mod relations;
mod said;
mod settings;
pub mod usage;
mod victims;
mod volumes;
mod words;
mod writes;

#[cfg(test)]
mod device_tests;
#[cfg(test)]
mod picture;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod volume_tests;

pub use config::Configured;
pub use effect::{
    Blocked, ClaimedDevices, Cycle, Effect, ExtendedDevices, Given, GpuGroup, NumaZone, PendingJob, Problem, QueueView,
    Received, ResourceType, Words,
};
pub use settings::{NumaSettings, Settings, TaskOrder, Usage};
pub use writes::{About, Event, Reporter, Write, action_name};

pub use kai_engine::Moment;

use kai_engine::units::Timestamp;

use self::said::Said;
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
    run(world, &lower::lower(world, settings, usage, now), settings, now, passed, None).0
}

/// Also returns what was said of waiting jobs; `said` is what was said before, if nothing has changed since.
fn run(
    world: &World,
    lowered: &lower::Lowered<'_>,
    settings: &Settings,
    now: Timestamp,
    passed: impl FnMut(Moment),
    said: Option<&Said>,
) -> (Cycle, Said) {
    let outcome = kai_engine::watched_cycle(&lowered.snapshot, &settings.policy, now, passed);
    let (cycle, words) = raise::raise(world, lowered, &outcome, now, said);
    (cycle, Said::new(outcome.verdicts, words))
}

/// A scheduler that remembers the last cycle, so that the next one costs what changed. It decides as [`cycle`] does.
///
/// It must see the same world each time: what changed is what that world noted since.
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    memory: Option<lower::Memory>,
    said: Option<Said>,
}

impl Scheduler {
    /// A scheduler that has seen nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, memory: None, said: None }
    }

    /// What it was told at start.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs one scheduling cycle over everything known of the cluster.
    pub fn cycle(&mut self, world: &mut World, usage: &Usage, now: Timestamp) -> Cycle {
        self.watched_cycle(world, usage, now, |_| ())
    }

    /// The same, and says how far it is.
    pub fn watched_cycle(
        &mut self,
        world: &mut World,
        usage: &Usage,
        now: Timestamp,
        passed: impl FnMut(Moment),
    ) -> Cycle {
        let changes = world.take_changes();
        let settings = &self.settings;
        let said = self.said.take().filter(|_| changes.is_none());
        let updated = self.memory.take().and_then(|memory| memory.updated(world, settings, usage, now, &changes));
        let memory = match updated {
            Some(memory) => memory,
            None if lower::Memory::cannot_hold(world, settings) => {
                return watched_cycle(world, settings, usage, now, passed);
            }
            None => lower::remember(world, settings, usage, now),
        };
        let (cycle, said) = run(world, &memory.lowered(world, settings), settings, now, passed, said.as_ref());
        (self.memory, self.said) = (Some(memory), Some(said));
        cycle
    }
}
