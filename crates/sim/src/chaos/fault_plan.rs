//! Chance: which faults happen when, all from one seed.

use std::collections::BTreeSet;
use std::ops::Range;

use kai_engine::units::{Span, Timestamp};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::api_faults::ApiFaults;
use super::hostile::Tenant;
use crate::manifest::Kind;

/// A fault that is planned ahead.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Crash {
        process: usize,
        down: Span,
    },
    /// The clock of a process jumps.
    SetClock {
        process: usize,
        clock_skew: Span,
    },
    /// A second process believes that it leads.
    SecondLeader {
        process: usize,
        lifetime: Span,
    },
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallOutcome {
    pub(super) delivered: bool,
    pub(super) acknowledged: bool,
}

/// Faults of one run.
pub(super) struct FaultPlan {
    rng: Pcg32,
    /// Until then something may go wrong.
    until: Timestamp,
    fault_window: Span,
    /// Percent of calls that go wrong.
    failed_calls_percent: u32,
    /// Whether grouper and scheduler are one process.
    pub(super) paired: bool,
    /// Whether the node-scale adjuster runs, which administrators switch on.
    pub(super) scales: bool,
    /// When webhooks do not answer.
    webhook_outage: Range<Timestamp>,
    /// For the kinds that are not served.
    rng_of_kinds: Option<Pcg32>,
    processes: ProcessFaults,
    pub(super) api: ApiFaults,
    pub(super) tenant: Option<Tenant>,
}

/// What happens to processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessFaults {
    /// They are neither killed nor doubled, and their clocks are right: what they accumulate stays.
    None,
    /// They are killed, and a second scheduler assumes that it leads.
    Doubled,
    /// They are killed, and two schedulers compete for a lease.
    Elected,
}

impl FaultPlan {
    pub(super) fn new(seed: u64, start: Timestamp) -> Self {
        // A stream that stories do not use.
        let rng = Pcg32::new(seed, 5);
        let paired = Pcg32::new(seed, 6).next_u32().is_multiple_of(2);
        let mut plan = Self {
            rng,
            until: start,
            fault_window: Span(0),
            failed_calls_percent: 0,
            paired,
            scales: Pcg32::new(seed, 10).next_u32().is_multiple_of(3),
            webhook_outage: start..start,
            rng_of_kinds: Some(Pcg32::new(seed, 9)),
            processes: match Pcg32::new(seed, 13).next_u32() % 4 {
                0 => ProcessFaults::Elected,
                _ => ProcessFaults::Doubled,
            },
            api: ApiFaults::none(),
            tenant: Tenant::new(seed),
        };
        plan.fault_window = Span::seconds(i64::from(plan.between(20, 120)));
        plan.until = start.plus(plan.fault_window);
        plan.failed_calls_percent = [0, 5, 20, 40][plan.between(0, 3) as usize];
        plan.webhook_outage = webhook_outage(seed, start, plan.fault_window);
        plan.api = ApiFaults::new(seed, start, plan.fault_window);
        plan
    }

    /// A run in which calls fail and watches lag for so long, and processes stay.
    pub(super) fn lasting(seed: u64, start: Timestamp, fault_window: Span) -> Self {
        Self {
            rng: Pcg32::new(seed, 5),
            until: start.plus(fault_window),
            fault_window,
            failed_calls_percent: 2,
            processes: ProcessFaults::None,
            ..Self::none(start, true)
        }
    }

    /// A run in which nothing goes wrong.
    pub(super) fn none(start: Timestamp, paired: bool) -> Self {
        Self {
            rng: Pcg32::new(0, 5),
            until: start,
            fault_window: Span(0),
            failed_calls_percent: 0,
            paired,
            scales: false,
            webhook_outage: start..start,
            rng_of_kinds: None,
            processes: ProcessFaults::None,
            api: ApiFaults::none(),
            tenant: None,
        }
    }

    /// Whether two schedulers compete for a lease.
    pub(super) fn has_lease(&self) -> bool {
        self.processes == ProcessFaults::Elected
    }

    /// How long things go wrong.
    pub(super) fn fault_window(&self) -> Span {
        self.fault_window
    }

    /// Faults of processes; the scheduler may be doubled.
    pub(super) fn plan(&mut self, processes: usize, scheduler: usize) -> Vec<(Span, Fault)> {
        let mut faults = Vec::new();
        if self.processes == ProcessFaults::None {
            return faults;
        }
        let last = processes as u32 - 1;
        for _ in 0..self.between(0, 4) {
            let down = self.span(0, 15_000);
            let fault = Fault::Crash { process: self.between(0, last) as usize, down };
            faults.push((self.moment(), fault));
        }
        for _ in 0..self.between(0, 2) {
            let clock_skew = Span(self.span(0, 120_000).0 - Span::seconds(60).0);
            let fault = Fault::SetClock { process: self.between(0, last) as usize, clock_skew };
            faults.push((self.moment(), fault));
        }
        if self.between(0, 1) == 0 {
            let fault = Fault::SecondLeader { process: scheduler, lifetime: self.span(1_000, 40_000) };
            let at = self.moment();
            if !self.has_lease() {
                faults.push((at, fault));
            }
        }
        faults
    }

    /// How long an update is on its way to a watch.
    pub(super) fn watch_delay(&mut self, now: Timestamp) -> Span {
        if self.one_in(now, 60) {
            return self.span(5_000, 60_000);
        }
        if self.one_in(now, 6) { self.span(100, 5_000) } else { self.span(1, 30) }
    }

    /// Whether a watch loses its place and starts over.
    pub(super) fn watch_restarts(&mut self, now: Timestamp) -> bool {
        self.one_in(now, 20)
    }

    /// How long a call or its answer is on its way.
    pub(super) fn call_delay(&mut self, now: Timestamp) -> Span {
        if self.one_in(now, 8) { self.span(20, 3_000) } else { self.span(1, 20) }
    }

    /// How long a call waits for others that are more urgent.
    pub(super) fn deferral(&mut self) -> Span {
        self.span(0, 3_000)
    }

    pub(super) fn call_outcome(&mut self, now: Timestamp) -> CallOutcome {
        if now >= self.until || self.between(0, 99) >= self.failed_calls_percent {
            return CallOutcome { delivered: true, acknowledged: true };
        }
        CallOutcome { delivered: self.between(0, 1) == 0, acknowledged: false }
    }

    /// Kinds that the API server does not have, of those that it could lack: some, in every other run.
    pub(super) fn kinds_not_served(&mut self, optional: impl Iterator<Item = Kind>) -> BTreeSet<Kind> {
        let Some(mut rng) = self.rng_of_kinds.take() else { return BTreeSet::new() };
        if rng.next_u32().is_multiple_of(2) {
            return BTreeSet::new();
        }
        optional.filter(|_| rng.next_u32().is_multiple_of(2)).collect()
    }

    /// Whether a call of a dead process was sent before it died.
    pub(super) fn late_delivery(&mut self) -> bool {
        self.between(0, 1) == 0
    }

    /// Whether the webhooks are unavailable.
    pub(super) fn webhooks_are_down(&self, now: Timestamp) -> bool {
        self.webhook_outage.contains(&now)
    }

    /// Whether a reservation pod never finds its GPU.
    pub(super) fn device_stays_unknown(&mut self, now: Timestamp) -> bool {
        self.one_in(now, 20)
    }

    /// Once in so many times, while things go wrong.
    fn one_in(&mut self, now: Timestamp, chances: u32) -> bool {
        now < self.until && self.between(1, chances) == 1
    }

    /// From `low` to `high` milliseconds.
    fn span(&mut self, low: u32, high: u32) -> Span {
        Span(i64::from(self.between(low, high)) * 1_000)
    }

    /// Some time while things go wrong.
    fn moment(&mut self) -> Span {
        let fault_window = u32::try_from(self.fault_window.0 / 1_000).unwrap_or(u32::MAX);
        self.span(0, fault_window)
    }

    fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.rng.next_u32() % (high - low + 1)
    }
}

/// In every other run, some of the time.
fn webhook_outage(seed: u64, start: Timestamp, fault_window: Span) -> Range<Timestamp> {
    let mut rng = Pcg32::new(seed, 8);
    let mut moment = || start.plus(Span(i64::from(rng.next_u32()) % fault_window.0.max(1)));
    let (one, other) = (moment(), moment());
    if rng.next_u32().is_multiple_of(2) { one.min(other)..one.max(other) } else { start..start }
}
