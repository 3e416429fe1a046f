//! Faults of the API server itself: it throttles, a kind or a verb fails for a while, a watcher is slow, all watches
//! lose their place at once, etcd is compacted. Drawn from a random stream of their own, in some of the runs.

use std::ops::Range;

use kai_control::binder::BindEffect;
use kai_control::controller::{ApiCall, CallError};
use kai_control::grouper::GroupEffect;
use kai_control::scheduler::Write;
use kai_engine::units::{Span, Timestamp};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use crate::manifest::Kind;

/// As in `live/retry.rs`: a longer `Retry-After` is not waited for.
const RETRY_AFTER_MAX_SECONDS: i64 = 5;

/// What a watch goes through besides its own lag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchFault {
    /// All watches of all kinds are answered 410 and list again.
    Expired,
    /// Old versions are compacted and connections cut: a watch that lags is answered 410.
    Compaction,
}

/// A call that the API server refuses for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) error: CallError,
    /// What its `Retry-After` asks for.
    pub(super) retry_after: Span,
    pub(super) counted_as: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Get,
    Create,
    Patch,
    Delete,
}

const VERBS: [Verb; 4] = [Verb::Get, Verb::Create, Verb::Patch, Verb::Delete];
const KINDS: [Kind; 5] = [Kind::Pod, Kind::PodGroup, Kind::BindRequest, Kind::Queue, Kind::ConfigMap];

/// What fails in a partial outage.
#[derive(Clone, Copy, Debug)]
enum Failing {
    Verb(Verb),
    Kind(Kind),
}

/// Faults of the API server in one run.
pub(super) struct ApiFaults {
    rng: Pcg32,
    /// One call in so many is throttled.
    throttled: Option<(Range<Timestamp>, u32)>,
    outage: Option<(Range<Timestamp>, Failing)>,
    /// The number of a process, to be taken modulo how many there are.
    slow_watcher: Option<(Range<Timestamp>, u32)>,
    watch_faults: Vec<(Timestamp, WatchFault)>,
}

impl ApiFaults {
    pub(super) fn none() -> Self {
        Self { rng: Pcg32::new(0, 12), throttled: None, outage: None, slow_watcher: None, watch_faults: Vec::new() }
    }

    /// In every third run; each kind of fault in half of these.
    pub(super) fn new(seed: u64, start: Timestamp, fault_window: Span) -> Self {
        let mut faults = Self { rng: Pcg32::new(seed, 12), ..Self::none() };
        if !faults.one_in(3) {
            return faults;
        }
        if faults.one_in(2) {
            faults.throttled = Some((faults.part_of(start, fault_window), faults.between(2, 10)));
        }
        if faults.one_in(2) {
            let failing = if faults.one_in(2) {
                Failing::Verb(VERBS[faults.between(0, VERBS.len() as u32 - 1) as usize])
            } else {
                Failing::Kind(KINDS[faults.between(0, KINDS.len() as u32 - 1) as usize])
            };
            faults.outage = Some((faults.part_of(start, fault_window), failing));
        }
        if faults.one_in(2) {
            faults.slow_watcher = Some((faults.part_of(start, fault_window), faults.between(0, u32::MAX - 1)));
        }
        for fault in [WatchFault::Expired, WatchFault::Compaction] {
            for _ in 0..faults.between(0, 2) {
                let at = faults.part_of(start, fault_window).start;
                faults.watch_faults.push((at, fault));
            }
        }
        faults
    }

    /// When watches are cut, and how.
    pub(super) fn watch_faults(&self) -> &[(Timestamp, WatchFault)] {
        &self.watch_faults
    }

    /// Whether the API server refuses the call at this time.
    pub(super) fn refuse(&mut self, now: Timestamp, call: &ApiCall) -> Option<Refusal> {
        let (verb, kind) = verb_and_kind(call);
        if let Some((during, failing)) = &self.outage {
            let fails = match failing {
                Failing::Verb(failing) => *failing == verb,
                Failing::Kind(failing) => *failing == kind,
            };
            if fails && during.contains(&now) {
                let error = CallError::Rejected("the server is currently unable to handle the request".to_owned());
                return Some(Refusal { error, retry_after: Span(0), counted_as: "partial outage" });
            }
        }
        let (during, chances) = self.throttled.clone()?;
        if !during.contains(&now) || !self.one_in(chances) {
            return None;
        }
        let asked = i64::from(self.between(0, 10)).min(RETRY_AFTER_MAX_SECONDS);
        let error = CallError::Rejected("too many requests, please try again later".to_owned());
        Some(Refusal { error, retry_after: Span::seconds(asked), counted_as: "throttled" })
    }

    /// How much later than others a process of so many sees what changes now.
    pub(super) fn watch_lag(&mut self, now: Timestamp, process: usize, processes: usize) -> Option<Span> {
        let (during, number) = self.slow_watcher.as_ref()?;
        let slow = *number as usize % processes == process && during.contains(&now);
        slow.then(|| Span(i64::from(self.between(10_000, 90_000)) * 1_000))
    }

    fn part_of(&mut self, start: Timestamp, window: Span) -> Range<Timestamp> {
        let moment = |rng: &mut Pcg32| start.plus(Span(i64::from(rng.next_u32()) % window.0.max(1)));
        let (one, other) = (moment(&mut self.rng), moment(&mut self.rng));
        one.min(other)..one.max(other)
    }

    fn one_in(&mut self, chances: u32) -> bool {
        self.between(1, chances) == 1
    }

    fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.rng.next_u32() % (high - low + 1)
    }
}

/// Whether the shell repeats the call when it is throttled. For evictions 429 is how a `PodDisruptionBudget` forbids them.
pub(super) fn repeats(call: &ApiCall) -> bool {
    !matches!(call, ApiCall::Schedule(Write::Evict { .. }))
}

fn verb_and_kind(call: &ApiCall) -> (Verb, Kind) {
    match call {
        ApiCall::Get(object) => (Verb::Get, Kind::parse(&object.kind).unwrap_or(Kind::Declared)),
        ApiCall::Schedule(write) => match write {
            Write::CreateBindRequest(_) | Write::CreateBindBatch { .. } => (Verb::Create, Kind::BindRequest),
            Write::DeleteBindRequest(_) => (Verb::Delete, Kind::BindRequest),
            Write::Evict { .. } => (Verb::Create, Kind::Pod),
            Write::PatchGroupTimestamps { .. } | Write::SetGroupConditions { .. } => (Verb::Patch, Kind::PodGroup),
            _ => (Verb::Patch, Kind::Pod),
        },
        ApiCall::Bind(effect) => match effect {
            BindEffect::CreatePod(_) | BindEffect::Bind { .. } => (Verb::Create, Kind::Pod),
            BindEffect::DeletePod { .. } => (Verb::Delete, Kind::Pod),
            BindEffect::WriteConfigMap(_) => (Verb::Patch, Kind::ConfigMap),
            BindEffect::AllocateClaim { .. } => (Verb::Patch, Kind::ResourceClaim),
            BindEffect::SetPhase { .. } => (Verb::Patch, Kind::BindRequest),
            BindEffect::DeleteRequest(_) => (Verb::Delete, Kind::BindRequest),
            BindEffect::SetSelectedNode { .. } => (Verb::Patch, Kind::PersistentVolumeClaim),
            BindEffect::PrebindVolume { .. } => (Verb::Patch, Kind::PersistentVolume),
            BindEffect::LabelPod { .. } | BindEffect::ReportResult { .. } => (Verb::Patch, Kind::Pod),
        },
        ApiCall::Group(effect) => match effect {
            GroupEffect::CreatePodGroup(_) => (Verb::Create, Kind::PodGroup),
            GroupEffect::ReplacePodGroup(_) => (Verb::Patch, Kind::PodGroup),
            GroupEffect::LinkPod { .. } => (Verb::Patch, Kind::Pod),
        },
        ApiCall::PatchStatus { kind, .. } => (Verb::Patch, (*kind).into()),
        ApiCall::CreateScalingPod(_) => (Verb::Create, Kind::Pod),
        ApiCall::DeleteScalingPod(_) => (Verb::Delete, Kind::Pod),
    }
}
