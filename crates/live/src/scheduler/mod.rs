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

use crate::api_writer::ApiWriter;
use crate::controller_loop::{Context, ControllerLoop, Writers};
use crate::planned_channel::PlannedReceiver;
use crate::{FatalError, LeaderElectionOptions};
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
    let mut controller = MeteredScheduler::new(settings, period, usage, metrics, writers.action.clone());
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
    period: Span,
    /// When to poll even if nothing changes: usage may have changed.
    recheck: Timestamp,
    /// Problems of objects, to log each of them once.
    logged_problems: BTreeSet<Problem>,
    /// Where the plugin server reads the records of the last cycles, if it runs.
    history: Option<Arc<Mutex<CycleHistory>>>,
}

impl MeteredScheduler {
    fn new(settings: Settings, period: Duration, usage: UsageFetcher, metrics: Metrics, writer: ApiWriter) -> Self {
        let period = Span(i64::try_from(period.as_micros()).unwrap_or(i64::MAX));
        Self {
            inner: SchedulerController::new(settings, period),
            usage,
            metrics,
            writer,
            period,
            recheck: Timestamp(0),
            logged_problems: BTreeSet::new(),
            history: None,
        }
    }

    fn cycle(&mut self, now: Clock) -> Output {
        let before = thread_cpu_time();
        let mut watch = Stopwatch::start();
        let (inner, passed) = (&mut self.inner, |moment| watch.pass(moment));
        let run = || catch_unwind(AssertUnwindSafe(|| inner.decide(now, passed)));
        // Others go on meanwhile: watches are read, writes are finished.
        let Ok(cycle) = tokio::task::block_in_place(run) else {
            // What it was about was printed where it happened.
            tracing::error!("scheduling cycle panicked, its decisions were discarded");
            self.metrics.failed();
            return Output::default();
        };
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
        Some(cycle.filter(|_| self.inner.has_run()).unwrap_or(self.recheck).min(self.recheck))
    }
}
