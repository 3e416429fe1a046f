//! The scheduler around the engine: lowers a [`World`] to a snapshot, runs a cycle, decodes the outcome.

pub mod cache;
mod collect;
mod component;
pub mod config;
mod controller;
mod effect;
mod eviction_backoff;
mod eviction_pacing;
mod eviction_stats;
mod explain;
mod gpu_groups;
mod lower;
mod malformed;
mod outcome;
mod pod_volumes;
pub mod reasons;
mod recent_cache;
pub mod record;
mod settings;
pub mod usage;
mod writes;

#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod device_tests;
#[cfg(test)]
mod test_cluster;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod volume_tests;

pub use component::COMPONENT;
pub use config::{Configured, action_name};
pub use controller::{CYCLE_DEBOUNCE, SchedulerController};
pub use effect::{
    BindExtras, Blocked, ClaimedDevices, CycleResult, Effect, Explanation, ExtendedDevices, GpuGroup, NumaZone,
    PendingJob, Problem, QueueView, Received, ResourceType,
};
pub use eviction_pacing::{EvictionPacing, EvictionsAllowed};
pub use eviction_stats::EvictionStats;
pub use explain::JobNames;
pub(crate) use explain::namespace_not_allowed;
pub use settings::{EvictionSettings, MoveBudget, NumaSettings, SCHEDULE_PERIOD, Settings, TaskOrder};
pub use usage::Usage;
pub use writes::{Assumption, Event, InvolvedObject, Write, WritePlanner};

pub use kai_engine::CycleProgress;

use kai_engine::units::Timestamp;

use self::explain::cache::ExplanationCache;
use self::record::InputChanges;
use crate::world::World;

/// Runs one scheduling cycle.
pub fn cycle(world: &World, settings: &Settings, usage: &Usage, now: Timestamp) -> CycleResult {
    cycle_with_progress(world, settings, usage, now, |_| ())
}

/// Runs one scheduling cycle and reports progress to `passed`; lowering is over at [`CycleProgress::SessionOpened`].
pub fn cycle_with_progress(
    world: &World,
    settings: &Settings,
    usage: &Usage,
    now: Timestamp,
    passed: impl FnMut(CycleProgress),
) -> CycleResult {
    run(world, &lower::lower(world, settings, usage, now), settings, now, passed, None).0
}

/// Also returns the explanations of pending jobs; `last` are those of the last cycle, if nothing has changed since.
fn run(
    world: &World,
    lowered: &lower::Lowered<'_>,
    settings: &Settings,
    now: Timestamp,
    passed: impl FnMut(CycleProgress),
    last: Option<&ExplanationCache>,
) -> (CycleResult, ExplanationCache) {
    let outcome = kai_engine::cycle_with_progress(&lowered.snapshot, &settings.policy, now, passed);
    let (cycle, explained) = outcome::decode(world, lowered, &outcome, now, last);
    (cycle, ExplanationCache::new(outcome.verdicts, explained))
}

/// A scheduler that lowers incrementally, so that a cycle costs what changed since the last one. It decides as [`cycle`]
/// does.
///
/// It must be given the same world each time: what changed is in the change log of that world.
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    incremental: Option<lower::IncrementalSnapshot>,
    explanations: Option<ExplanationCache>,
    changes: Option<InputChanges>,
}

impl Scheduler {
    /// A scheduler before its first cycle.
    pub fn new(settings: Settings) -> Self {
        Self { settings, incremental: None, explanations: None, changes: None }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the next cycles may take from running jobs, by what those before have taken.
    pub fn set_evictions(&mut self, allowed: EvictionsAllowed) {
        allowed.apply(&mut self.settings.policy);
    }

    /// What had changed before the last cycle; `None` if the whole cluster was read anew.
    pub fn changes(&self) -> Option<&InputChanges> {
        self.changes.as_ref()
    }

    /// Runs one scheduling cycle.
    pub fn cycle(&mut self, world: &mut World, usage: &Usage, now: Timestamp) -> CycleResult {
        self.cycle_with_progress(world, usage, now, |_| ())
    }

    /// The same, with progress reported to `passed`.
    pub fn cycle_with_progress(
        &mut self,
        world: &mut World,
        usage: &Usage,
        now: Timestamp,
        passed: impl FnMut(CycleProgress),
    ) -> CycleResult {
        let changes = world.take_changes();
        self.changes = InputChanges::new(&changes, world);
        let settings = &self.settings;
        let last = self.explanations.take().filter(|_| changes.is_empty());
        let updated = self.incremental.take().and_then(|last| last.try_update(world, settings, usage, now, &changes));
        let incremental = match updated {
            Some(incremental) => incremental,
            None if lower::IncrementalSnapshot::is_unsupported(world, settings) => {
                return cycle_with_progress(world, settings, usage, now, passed);
            }
            None => match lower::lower_incremental(world, settings, usage, now) {
                Ok(incremental) => incremental,
                Err(lowered) => {
                    let (cycle, explanations) = run(world, &lowered, settings, now, passed, last.as_ref());
                    self.explanations = Some(explanations);
                    return cycle;
                }
            },
        };
        let lowered = incremental.lowered(world, settings);
        let (cycle, explanations) = run(world, &lowered, settings, now, passed, last.as_ref());
        (self.incremental, self.explanations) = (Some(incremental), Some(explanations));
        cycle
    }
}
