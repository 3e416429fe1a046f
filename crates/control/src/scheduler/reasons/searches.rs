//! What searches for victims found.

use kai_engine::policy::Action;
use kai_engine::units::{Span, Timestamp};
use serde::{Deserialize, Serialize};

use super::{QueueBound, QueueRef, wire};
use crate::key::GroupKey;

/// A search for victims that did not help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchResult {
    #[serde(with = "wire::action")]
    pub action: Action,
    pub stop: SearchStop,
    /// Scenarios that were tried.
    pub scenarios: u32,
    /// Most pods of the job that a scenario made room for.
    pub placed: u32,
    /// Pods that it needs.
    pub wanted: u32,
    pub rejections: Rejections,
    /// Jobs that had to be left alone because they have not run for long enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected: Option<ProtectedJobs>,
}

/// Why scenarios were rejected, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejections {
    /// The job did not fit, even without the victims.
    pub unplaced: u32,
    /// A victim would lose what it may not lose.
    pub by_rules: u32,
    /// It would be undone in the next cycle.
    pub unstable: u32,
    /// It would take more from running jobs than they may lose now.
    #[serde(default)]
    pub too_costly: u32,
}

/// Why a search ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SearchStop {
    /// The cluster has fewer free GPUs, now or later, than the job requests: millionths.
    TooFewFreeGpus { requested: i64, free: i64 },
    /// The same for GPU memory, in MiB.
    TooLittleFreeGpuMemory { requested: i64, free: i64 },
    /// The queue would exceed its fair share.
    OverFairShare { bound: QueueBound },
    /// Work that cannot be preempted would exceed a quota.
    OverQuota { bound: QueueBound },
    /// Consolidation has moved as many pods as it may for now.
    MoveBudgetSpent,
    /// No job may be evicted for this one.
    NoCandidates,
    /// Evicting all that may be evicted is not enough, or the rules forbid it.
    Exhausted,
    /// That job is ahead in the queue and so large that all possible victims would be scheduled again before.
    HeadOfLineBlocked {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<GroupKey>,
    },
    /// The search budget of the cycle was used up.
    Budget,
    /// A job that is no harder to place has failed in this cycle.
    NoEasierThan {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<GroupKey>,
    },
    /// The configuration enables no scenario generator.
    NoGenerator,
}

/// Jobs that are protected by a minimum runtime, or because they were evicted a short time ago.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProtectedJobs {
    pub jobs: u32,
    /// The job whose protection ends first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<GroupKey>,
    #[serde(with = "wire::time")]
    pub until: Timestamp,
    /// Its minimum runtime, or the cooldown after an eviction.
    #[serde(rename = "minRuntimeMicros", with = "wire::micros")]
    pub min_runtime: Span,
    /// The queue that sets it; absent for the scheduler's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueRef>,
    /// It was evicted a short time ago.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_eviction: bool,
}
