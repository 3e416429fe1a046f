//! What the scheduler counts.
#![allow(clippy::disallowed_types, reason = "how long a cycle takes is measured")]

use std::sync::atomic::AtomicU64;
use std::time::Instant;

use kai_control::scheduler::{Cycle, Effect};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::Health;

#[derive(Debug, Default)]
pub(super) struct Metrics {
    latency: Gauge<f64, AtomicU64>,
    cycles: Counter,
    failed: Counter,
    binds: Counter,
    evictions: Counter,
    waiting: Gauge,
}

#[derive(Debug)]
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }
}

impl Metrics {
    pub(super) fn register(health: &Health) -> Self {
        let metrics = Self::default();
        health.register(|registry| {
            let latency = "Milliseconds that the last cycle took";
            registry.register("e2e_scheduling_latency_milliseconds", latency, metrics.latency.clone());
            registry.register("scheduling_cycles", "Cycles", metrics.cycles.clone());
            registry.register(
                "scheduling_cycles_failed",
                "Cycles that ended in a fault of ours",
                metrics.failed.clone(),
            );
            registry.register("bind_requests", "Pods for which a node was chosen", metrics.binds.clone());
            registry.register("evictions", "Pods that were evicted", metrics.evictions.clone());
            registry.register("podgroups_waiting", "Groups that the last cycle left waiting", metrics.waiting.clone());
        });
        metrics
    }

    pub(super) fn cycle(&self, watch: &Stopwatch, cycle: &Cycle) {
        self.latency.set(watch.0.elapsed().as_secs_f64() * 1000.0);
        self.cycles.inc();
        self.waiting.set(cycle.pending.len() as i64);
        for effect in &cycle.effects {
            match effect {
                Effect::Bind { .. } => self.binds.inc(),
                Effect::Evict { .. } => self.evictions.inc(),
                _ => 0,
            };
        }
    }

    pub(super) fn failed(&self) {
        self.failed.inc();
    }
}
