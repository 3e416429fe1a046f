//! The scheduler on a cluster: the controller of control, with usage from Prometheus, metrics and `/get-snapshot`.

mod metrics;
mod snapshot_server;
mod usage_fetcher;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kai_control::controller::{Clock, Output, Wrapped, Wrapper};
use kai_control::registry::SCHEDULER;
use kai_control::scheduler::record::CycleHistory;
use kai_control::scheduler::{CycleResult, Problem, SchedulerController, Settings};
use kai_engine::units::{Span, Timestamp};
use kai_process_stats::thread_cpu_time;
use tokio::time::Instant;

use crate::api_writer::ApiWriter;
use crate::controller_loop::{Context, ControllerLoop, Writers};
use crate::planned_channel::PlannedReceiver;
use crate::{FatalError, Health, LeaderElectionOptions};
use metrics::{Metrics, Stopwatch};
pub use snapshot_server::{SnapshotEncoder, SnapshotOptions};
use usage_fetcher::UsageFetcher;

#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    pub settings: Settings,
    /// Between the beginnings of two cycles, at most; while there are changes they follow each other sooner.
    pub period: Duration,
    /// Delete victims instead of asking for their eviction: budgets for disruptions do not count then.
    pub evict_by_delete: bool,
    /// API calls at the same time.
    pub writers: usize,
    pub election: Option<LeaderElectionOptions>,
    /// Whether and how `/get-snapshot` is answered.
    pub snapshots: Option<SnapshotOptions>,
}

/// Until it is asked again for usage that has not been fetched yet.
const USAGE_WAIT: Span = Span(100_000);

/// After a cycle that panicked, doubled with each further one up to the longest: the next one decides from the same
/// objects, if none has changed.
const PANIC_DELAY_MIN: Span = Span::seconds(1);
const PANIC_DELAY_MAX: Span = Span::seconds(30);

/// Schedules until stopped.
pub(crate) async fn run(
    options: SchedulerOptions,
    planned_from: Option<PlannedReceiver>,
    context: Context,
) -> Result<(), FatalError> {
    let metrics = Metrics::register(&context.health);
    let SchedulerOptions { settings, period, evict_by_delete, writers, election, snapshots } = options;
    let usage = UsageFetcher::start(settings.usage.clone(), metrics.usage_query_latency.clone())?;
    let mut beside = tokio::task::JoinSet::new();
    let history = snapshots.as_ref().map(|_| Arc::new(Mutex::new(CycleHistory::default())));
    if let (Some(snapshots), Some(history)) = (snapshots, history.clone()) {
        let (client, stop) = (context.client.clone(), context.stop.clone());
        beside.spawn(snapshot_server::serve(client, snapshots, settings.clone(), usage.last(), history, stop));
    }
    let writers = Writers::new(&context, writers);
    let (reporter, latency) = (settings.scheduler_name.clone(), metrics.bind_request_latency.clone());
    let (writer, health) = (writers.action.clone(), context.health.clone());
    let mut controller = MeteredScheduler::new(settings, period, usage, metrics, writer, health);
    controller.history = history;
    ControllerLoop::new(SCHEDULER.component.name, &reporter, Wrapped(controller), writers, context)
        .map_executor(|executor| executor.with_scheduling(evict_by_delete, latency))
        .with_planned_from(planned_from)
        .run(election)
        .await
}

/// The scheduler with what it needs of its process: usage, CPU time, metrics, and a guard against panics.
struct MeteredScheduler {
    inner: SchedulerController,
    usage: UsageFetcher,
    metrics: Metrics,
    writer: ApiWriter,
    health: Health,
    period: Span,
    /// Cycles that panicked since the last one that did not, and when to try again.
    panics: u32,
    not_before: Timestamp,
    /// When to poll even if nothing changes: usage may have changed.
    recheck: Timestamp,
    /// Problems of objects, to log each of them once.
    logged_problems: BTreeSet<Problem>,
    /// Where the plugin server reads the records of the last cycles, if it runs.
    history: Option<Arc<Mutex<CycleHistory>>>,
}

impl MeteredScheduler {
    fn new(
        settings: Settings,
        period: Duration,
        usage: UsageFetcher,
        metrics: Metrics,
        writer: ApiWriter,
        health: Health,
    ) -> Self {
        let period = Span(i64::try_from(period.as_micros()).unwrap_or(i64::MAX));
        Self {
            inner: SchedulerController::new(settings, period),
            usage,
            metrics,
            writer,
            health,
            period,
            panics: 0,
            not_before: Timestamp(0),
            recheck: Timestamp(0),
            logged_problems: BTreeSet::new(),
            history: None,
        }
    }

    fn cycle(&mut self, now: Clock) -> Output {
        let before = thread_cpu_time();
        let mut watch = Stopwatch::start();
        let decided = self.guard(now, |inner| inner.decide(now, |moment| watch.pass(moment)));
        let Some(cycle) = decided else { return Output::default() };
        if let Some(history) = &self.history {
            // A reader that panicked has changed nothing.
            history.lock().unwrap_or_else(PoisonError::into_inner).clone_from(self.inner.history());
        }
        self.log_new_problems(&cycle);
        let seen = (self.inner.world(), self.inner.settings());
        self.metrics.cycle(&watch, &cycle, seen, self.inner.usage(), now.wall);
        let (effects, pending) = (cycle.effects.len(), cycle.pending.len());
        let output = self.inner.finish(cycle, now);
        let stats = self.inner.eviction_stats();
        self.metrics.evicted(stats);
        tracing::debug!(
            ms = watch.milliseconds(),
            effects,
            pending,
            evicted = stats.evicted_pods(),
            lost_gpu_seconds = stats.lost_gpu_seconds(),
            evictions_per_finished_pod = stats.evictions_per_finished_pod(),
            "scheduling cycle ended"
        );
        let cpu_time = thread_cpu_time().saturating_sub(before);
        self.inner.set_cpu_time(Span(i64::try_from(cpu_time.as_micros()).unwrap_or(i64::MAX)));
        output
    }

    /// Runs a cycle; nothing if it panicked.
    fn guard<T>(&mut self, now: Clock, decide: impl FnOnce(&mut SchedulerController) -> T) -> Option<T> {
        let run = || catch_unwind(AssertUnwindSafe(|| decide(&mut self.inner)));
        // Others go on meanwhile: watches are read, writes are finished.
        let decided = tokio::task::block_in_place(run).ok();
        self.health.cycle_ended(SCHEDULER.component.name, decided.is_some(), Instant::now());
        if decided.is_some() {
            self.panics = 0;
        } else {
            let doubled = PANIC_DELAY_MIN.0.saturating_mul(1 << self.panics.min(16));
            let delay = Span(doubled.min(PANIC_DELAY_MAX.0));
            self.panics += 1;
            self.not_before = now.steady.plus(delay);
            self.metrics.failed();
            // What it was about was printed where it happened.
            let (panics, retry_in) = (self.panics, delay.0 / 1_000_000);
            tracing::error!(panics, retry_in, "scheduling cycle panicked, its decisions were discarded");
        }
        decided
    }

    fn log_new_problems(&mut self, cycle: &CycleResult) {
        let problems: BTreeSet<Problem> = cycle.problems.iter().cloned().collect();
        for problem in problems.difference(&self.logged_problems) {
            tracing::warn!(%problem, "object cannot be used as written");
        }
        self.logged_problems = problems;
    }
}

impl Wrapper for MeteredScheduler {
    type Inner = SchedulerController;

    fn inner(&self) -> &SchedulerController {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut SchedulerController {
        &mut self.inner
    }

    fn poll(&mut self, now: Clock) -> Output {
        if self.next_poll(now).is_none_or(|at| at > now.steady) {
            return Output::default();
        }
        self.recheck = now.steady.plus(self.period);
        let Some(usage) = self.usage.usage(now.wall) else {
            self.recheck = now.steady.plus(USAGE_WAIT);
            return Output::default();
        };
        self.inner.set_usage(usage);
        if self.inner.next_cycle(now, 0).is_none() {
            return Output::default();
        }
        self.cycle(now)
    }

    fn next_poll(&self, now: Clock) -> Option<Timestamp> {
        let cycle = self.inner.next_cycle(now, self.writer.urgent_in_flight());
        // The first cycle may wait for the first usage.
        let next = cycle.filter(|_| self.inner.has_run()).unwrap_or(self.recheck).min(self.recheck);
        Some(next.max(self.not_before))
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::StatusCode;
    use kube::Client;
    use prometheus_client::metrics::histogram::Histogram;

    use super::*;
    use crate::ApiLimits;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_cycle_that_panics_every_time_is_repeated_less_often_and_ends_health() {
        let health = Health::new("kai");
        let _readiness = health.add_component(SCHEDULER.component.name);
        let limits = ApiLimits::new(0.0, 1, Arc::default(), health.api_metrics().clone());
        let writer = ApiWriter::new(Client::new(Router::new(), "default"), Arc::new(limits), 1);
        let usage = UsageFetcher::start(None, Histogram::new([])).unwrap();
        let period = Duration::from_secs(1);
        let metrics = Metrics::register(&health);
        let mut scheduler = MeteredScheduler::new(Settings::default(), period, usage, metrics, writer, health.clone());
        let mut now = Clock { wall: Timestamp(0), steady: Timestamp(0) };
        let mut delays = Vec::new();
        for _ in 0..8 {
            assert!(scheduler.guard(now, |_| -> () { panic!("as this test wants it") }).is_none());
            let next = scheduler.next_poll(now).unwrap();
            delays.push(next.since(now.steady).0 / 1_000_000);
            now.steady = next;
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30, 30]);
        let later = Instant::now() + Duration::from_mins(2);
        assert_eq!(health.liveness(later).0, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(scheduler.guard(now, |_| ()).is_some());
        assert_eq!(health.liveness(later).0, StatusCode::OK);
    }
}
