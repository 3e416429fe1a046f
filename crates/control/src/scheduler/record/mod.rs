//! What a cycle saw, decided and why, as data: the scheduler's controller, the simulator and `kai replay` make the same
//! record of the same cycle. `docs/reference/cycle-record.md` describes its fields.
//!
//! A record explains a cycle. To run the cycle once more, `kai replay` needs the objects too: a snapshot file.

mod history;
mod input;
mod policy;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kai_engine::ActionStats;
use kai_engine::policy::Action;
use kai_engine::units::Timestamp;
use serde::{Deserialize, Serialize};

use super::effect::{CycleResult, Effect, PendingJob, Problem, QueueView};
use super::reasons::wire;
use super::settings::Settings;
use super::usage::Usage;
use crate::world::World;

pub use history::{CycleHistory, CycleSummary};
pub use input::{ChangeKind, CycleInput, InputChanges, NodeTotals, ObjectChange};
pub use policy::{
    BudgetPolicy, CyclePolicy, DepthPolicy, EvictionPolicy, LabelPolicy, MinRuntimePolicy, NumaPolicy, PlacementPolicy,
    PlacementRules, RepairPolicy, TaskOrderPolicy, UsagePolicy, WindowPolicy,
};

/// Version of the format. It grows when a field changes its meaning or is removed, or when an older record could not be
/// read any more; optional fields and reasons may be added without.
pub const FORMAT_VERSION: u32 = 2;

/// One scheduling cycle. Amounts are milli-cores, bytes and millionths of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CycleRecord {
    pub format_version: u32,
    /// Number of the cycle, from 1 on, since its scheduler started.
    pub cycle: u64,
    #[serde(with = "wire::time")]
    pub now: Timestamp,
    pub input: CycleInput,
    pub policy: CyclePolicy,
    /// What was decided, in order; everything that follows from the cycle.
    pub outcome: Vec<Effect>,
    /// When the next cycle may decide otherwise though nothing has changed in the cluster; absent if only a change can make
    /// a difference.
    #[serde(default, with = "wire::maybe_time", skip_serializing_if = "Option::is_none")]
    pub next_change_at: Option<Timestamp>,
    /// Queues that take part, by name, as the cycle leaves them.
    pub queues: Vec<QueueView>,
    /// Jobs that wait, by name, and why.
    #[serde(with = "shared_jobs")]
    pub pending: Vec<Arc<PendingJob>>,
    /// Objects that could not be used as written.
    pub problems: Vec<Problem>,
    /// What each action did, in order.
    pub statistics: Vec<ActionRecord>,
}

/// What an action did in a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionRecord {
    #[serde(with = "wire::action")]
    pub action: Action,
    /// Turns of jobs.
    pub job_attempts: u64,
    /// Sets of victims that were tried out.
    pub simulated: u64,
    /// Sets of victims that could not help, as was known without trying.
    pub filtered: u64,
}

impl ActionRecord {
    pub fn new(action: Action, stats: ActionStats) -> Self {
        let ActionStats { job_attempts, simulated, filtered } = stats;
        Self { action, job_attempts, simulated, filtered }
    }
}

impl CycleRecord {
    /// The record of a cycle. `world` is what the cycle saw: without its own effects.
    pub fn new(
        number: u64,
        now: Timestamp,
        (world, settings, usage): (&World, &Settings, &Usage),
        cycle: &CycleResult,
        statistics: Vec<ActionRecord>,
    ) -> Self {
        let CycleResult { effects, pending, queues, problems, next_change_at } = cycle;
        Self {
            format_version: FORMAT_VERSION,
            cycle: number,
            now,
            input: input::input(world, usage),
            policy: settings.into(),
            outcome: effects.clone(),
            next_change_at: *next_change_at,
            queues: queues.clone(),
            pending: pending.clone(),
            problems: problems.clone(),
            statistics,
        }
    }

    /// The same, of a cycle of which it is known what changed since the one before.
    #[must_use]
    pub fn with_changes(mut self, changes: Option<InputChanges>) -> Self {
        self.input.changes = changes;
        self
    }
}

mod shared_jobs {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::PendingJob;

    pub(super) fn serialize<S: Serializer>(jobs: &[Arc<PendingJob>], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(jobs.iter().map(Arc::as_ref))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Arc<PendingJob>>, D::Error> {
        Ok(Vec::<PendingJob>::deserialize(from)?.into_iter().map(Arc::new).collect())
    }
}
