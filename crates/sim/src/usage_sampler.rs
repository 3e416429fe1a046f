//! Samples the usage of queues in virtual time, and evaluates it when a scheduler would query its database.

use std::collections::BTreeMap;

use kai_control::World;
use kai_control::scheduler::usage::{History, Sample, UsageRule};
use kai_control::scheduler::{CycleResult, Settings, Usage};
use kai_engine::units::{GPU, ResourceQuantities, Span, Timestamp};

use crate::checkers::CycleObservation;
use crate::cluster::Performed;

#[derive(Debug)]
pub(crate) struct UsageSampler {
    rule: UsageRule,
    history: History,
    next_sample: Timestamp,
    next_fetch: Timestamp,
    /// As of the last query.
    usage: Usage,
}

impl UsageSampler {
    pub(crate) fn new(rule: UsageRule, start: Timestamp) -> Self {
        let (next_sample, next_fetch) = (start.plus(rule.resolution), start.plus(rule.fetch_interval));
        Self { rule, history: History::default(), next_sample, next_fetch, usage: Usage::default() }
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// When usage is queried next.
    pub(crate) fn next_fetch(&self) -> Timestamp {
        self.next_fetch
    }

    /// Takes the samples up to `now` of a cluster that has been as it is since the last call.
    pub(crate) fn advance_to(&mut self, now: Timestamp, world: &World, settings: &Settings) {
        if self.next_sample <= now {
            let (capacity, allocated) = (capacity(world), allocated(world, settings, now));
            // What is older than the window by the time of the next query need not be taken at all.
            let oldest = self.rule.window.start(self.last_fetch(now));
            let step = self.rule.resolution;
            let skipped = (oldest.since(self.next_sample).0 / step.0).max(0);
            self.next_sample = self.next_sample.plus(Span(skipped * step.0));
            while self.next_sample <= now {
                self.history.add(Sample { at: self.next_sample, capacity, allocated: allocated.clone() });
                self.next_sample = self.next_sample.plus(step);
            }
        }
        if self.next_fetch <= now {
            let fetch = self.last_fetch(now);
            self.usage = self.history.usage(&self.rule, fetch);
            self.history.forget(&self.rule, fetch);
            self.next_fetch = fetch.plus(self.rule.fetch_interval);
        }
    }

    /// The last query that is due by `now`; before the first, the time of the window does not matter yet.
    fn last_fetch(&self, now: Timestamp) -> Timestamp {
        let interval = self.rule.fetch_interval;
        let passed = now.since(self.next_fetch).0.div_euclid(interval.0);
        self.next_fetch.plus(Span(passed * interval.0))
    }
}

/// All that nodes offer.
fn capacity(world: &World) -> ResourceQuantities {
    let mut sum = ResourceQuantities::ZERO;
    for node in world.nodes.values() {
        let offered = &node.allocatable;
        sum += ResourceQuantities::new(offered.cpu_milli, offered.memory_bytes, offered.gpus * GPU);
    }
    sum
}

/// What pods hold, by queue at every level.
fn allocated(world: &World, settings: &Settings, now: Timestamp) -> BTreeMap<String, ResourceQuantities> {
    let (cycle, performed) = (CycleResult::default(), Performed::default());
    let observation = CycleObservation { world, settings, cycle: &cycle, performed: &performed, now };
    observation.allocated(|_| true).into_iter().map(|(queue, held)| (queue.to_owned(), held)).collect()
}
