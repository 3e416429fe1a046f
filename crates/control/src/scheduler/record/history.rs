//! The last records of a scheduler.

use std::collections::VecDeque;
use std::sync::Arc;

use kai_engine::units::Timestamp;
use serde::Serialize;

use super::CycleRecord;
use crate::scheduler::effect::Effect;
use crate::scheduler::reasons::wire;

/// The last cycles that bound, pipelined or evicted a pod, and the last of all. Bounded in number and, roughly, in bytes.
/// Copies share the records.
#[derive(Clone, Debug)]
pub struct CycleHistory {
    acted: VecDeque<Arc<CycleRecord>>,
    /// The sum of their sizes.
    bytes: usize,
    last: Option<Arc<CycleRecord>>,
    records_max: usize,
    bytes_max: usize,
}

/// A line of the list of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CycleSummary {
    pub cycle: u64,
    #[serde(with = "wire::time")]
    pub now: Timestamp,
    pub bound: usize,
    pub pipelined: usize,
    pub evicted: usize,
    pub pending: usize,
    pub problems: usize,
}

impl Default for CycleHistory {
    fn default() -> Self {
        Self::new(64, 64 << 20)
    }
}

impl CycleHistory {
    pub fn new(records_max: usize, bytes_max: usize) -> Self {
        Self { acted: VecDeque::new(), bytes: 0, last: None, records_max, bytes_max }
    }

    pub fn add(&mut self, record: CycleRecord) {
        let record = Arc::new(record);
        if record.outcome.iter().any(Effect::is_placement) {
            self.bytes += size(&record);
            self.acted.push_back(Arc::clone(&record));
        }
        while self.acted.len() > self.records_max || (self.bytes > self.bytes_max && !self.acted.is_empty()) {
            self.bytes -= self.acted.pop_front().map_or(0, |oldest| size(&oldest));
        }
        self.last = Some(record);
    }

    /// Oldest first.
    pub fn records(&self) -> impl Iterator<Item = &Arc<CycleRecord>> {
        let newest = self.acted.back().map(|record| record.cycle);
        let last = self.last.as_ref().filter(|last| newest != Some(last.cycle));
        self.acted.iter().chain(last)
    }

    /// The record of a cycle by its number, while it is kept.
    pub fn get(&self, cycle: u64) -> Option<Arc<CycleRecord>> {
        self.records().find(|record| record.cycle == cycle).cloned()
    }

    /// Oldest first.
    pub fn list(&self) -> Vec<CycleSummary> {
        self.records().map(|record| summary(record)).collect()
    }
}

fn summary(record: &CycleRecord) -> CycleSummary {
    let count = |is: fn(&Effect) -> bool| record.outcome.iter().filter(|effect| is(effect)).count();
    CycleSummary {
        cycle: record.cycle,
        now: record.now,
        bound: count(|effect| matches!(effect, Effect::Bind { .. })),
        pipelined: count(|effect| matches!(effect, Effect::Pipeline { .. })),
        evicted: count(|effect| matches!(effect, Effect::Evict { .. })),
        pending: record.pending.len(),
        problems: record.problems.len(),
    }
}

/// A rough upper bound of bytes in memory. Records share jobs that wait for the same reasons; here each counts.
fn size(record: &CycleRecord) -> usize {
    const ENTRY: usize = 512;
    const REASON: usize = 1024;
    let reasons: usize = record.pending.iter().map(|job| 1 + job.reasons.len()).sum();
    ENTRY * (1 + record.outcome.len() + record.queues.len() + record.problems.len()) + REASON * reasons
}
