//! The scheduler on a cluster: watches feed the World, cycles look at it soon after news and every period, effects are
//! performed.

mod cycle_throttle;
mod metrics;
mod perform;
mod snapshot_server;
mod usage_fetcher;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kai_control::Object;
use kai_control::grouper::PlannedWrite;
use kai_control::kinds::Presence;
use kai_control::scheduler::cache::SchedulerCache;
use kai_control::scheduler::record::{CycleHistory, CycleRecord};
use kai_control::scheduler::{Assumption, CycleResult, Problem, Scheduler, Settings, Usage, Write, WritePlanner};
use kai_control::{Key, Kind, ObjectId};
use kai_engine::units::Span;
use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api_writer::ApiWriter;
use crate::draft_channel::DraftReceiver;
use crate::events::EventRecorder;
use crate::health::ReadinessHandle;
use crate::watch::{FieldSelector, SharedWatches, WatchSpec, WatchUpdate, forward_updates};
use crate::{ApiLimits, FatalError, Health, LeaderElectionOptions, clock, kinds, leader_election};
use cycle_throttle::CycleThrottle;
use metrics::Metrics;
use perform::Performer;
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

/// How long an echo may take. A bind that was done all the same is then refused the second time.
const ECHO_PATIENCE: Span = Span::seconds(30);

/// Something that happened.
enum Input {
    Update(Kind, WatchUpdate),
    /// What was asked for was not done.
    Refused(Assumption),
}

/// Schedules until stopped.
pub(crate) async fn run(
    client: Client,
    watches: SharedWatches,
    options: SchedulerOptions,
    drafts: Option<DraftReceiver>,
    limits: Arc<ApiLimits>,
    health: Health,
    stop: CancellationToken,
) -> Result<(), FatalError> {
    let readiness = health.add_component("scheduler");
    let metrics = Metrics::register(&health);
    let election = options.election.clone();
    let past = UsageFetcher::start(options.settings.usage.clone(), metrics.usage_query_latency.clone())?;
    let history = Arc::new(Mutex::new(CycleHistory::default()));
    let mut beside = tokio::task::JoinSet::new();
    if let Some(snapshots) = options.snapshots.clone() {
        beside.spawn(snapshot_server::serve(
            client.clone(),
            snapshots,
            options.settings.clone(),
            past.last(),
            Arc::clone(&history),
            stop.clone(),
        ));
    }
    let mut shell = Shell::new(client.clone(), options, limits, readiness, metrics, past);
    shell.history = history;
    shell.drafts = drafts;
    Box::pin(leader_election::run_as_leader(
        client,
        (&health, "scheduler"),
        election,
        stop.clone(),
        shell.run(watches, stop),
    ))
    .await?;
    tracing::info!("scheduler has ended");
    Ok(())
}

struct Shell {
    client: Client,
    options: SchedulerOptions,
    known: SchedulerCache,
    /// From the grouper of this process, if it has one.
    drafts: Option<DraftReceiver>,
    scheduler: Scheduler,
    /// Kinds that no watch has shown yet.
    unseen: BTreeSet<Kind>,
    performer: Performer,
    planner: WritePlanner,
    /// Complaints about objects, to log each of them once.
    complaints: BTreeSet<String>,
    readiness: ReadinessHandle,
    metrics: Metrics,
    past: UsageFetcher,
    /// What the last cycle knew of the past.
    usage: Usage,
    /// Something changed since the last cycle.
    news: bool,
    last: CycleResult,
    /// Cycles so far.
    cycles: u64,
    /// Records of the last cycles, for those who ask.
    history: Arc<Mutex<CycleHistory>>,
}

/// Pods of other schedulers, too: they take up room. Those that have failed are as good as gone.
fn watched(kind: Kind) -> WatchSpec {
    let selector = if kind == Kind::Pod { FieldSelector::not_failed() } else { FieldSelector::default() };
    WatchSpec { resource: kinds::resource(kind), selector }
}

/// Kinds to watch: all but those that this cluster does not have.
async fn served(client: &Client) -> Vec<Kind> {
    let mut served = Vec::new();
    for &kind in Kind::ALL {
        if kind.row().presence == Presence::Required || kinds::is_served(client, &kinds::resource(kind)).await {
            served.push(kind);
        } else {
            tracing::info!(kind = kind.name(), "kind is not served by the API server, not watching it");
        }
    }
    served
}

impl Shell {
    fn new(
        client: Client,
        options: SchedulerOptions,
        limits: Arc<ApiLimits>,
        readiness: ReadinessHandle,
        metrics: Metrics,
        past: UsageFetcher,
    ) -> Self {
        let writer = ApiWriter::new(client.clone(), limits, options.writers);
        let events = EventRecorder::new(&writer, options.settings.scheduler_name.clone());
        Self {
            performer: Performer::new(writer, events, metrics.bind_request_latency.clone(), &options),
            scheduler: Scheduler::new(options.settings.clone()),
            client,
            options,
            known: SchedulerCache::default(),
            drafts: None,
            unseen: BTreeSet::new(),
            planner: WritePlanner::default(),
            complaints: BTreeSet::new(),
            readiness,
            metrics,
            past,
            usage: Usage::default(),
            news: false,
            last: CycleResult::default(),
            cycles: 0,
            history: Arc::default(),
        }
    }

    async fn run(mut self, watches: SharedWatches, stop: CancellationToken) {
        let (out, mut news) = mpsc::channel(1024);
        let mut followed = tokio::task::JoinSet::new();
        let served = tokio::select! {
            () = stop.cancelled() => return,
            served = served(&self.client) => served,
        };
        for kind in served {
            self.unseen.insert(kind);
            let news = move |seen| Input::Update(kind, seen);
            followed.spawn(forward_updates(watches.clone(), watched(kind), out.clone(), news));
        }
        // Never full: refusals are fewer than effects, and effects wait for slots.
        let (refuse, mut refused) = mpsc::unbounded_channel();
        let mut throttle = CycleThrottle::new(self.options.period);
        if let Some(drafts) = &self.drafts {
            drafts.start();
        }
        loop {
            let next = throttle.next_start(self.news, self.performer.writer.urgent_in_flight());
            // In this order: a flood of news must not keep the scheduler from scheduling.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(next) => {
                    throttle.run(|| self.cycle(&refuse));
                }
                Some(done) = refused.recv() => self.take(done),
                draft = next_draft(&mut self.drafts) => self.take_draft(draft),
                Some(seen) = news.recv() => {
                    self.take(seen);
                    // All that is there already, so that a cycle sees as much as it can.
                    while let Ok(seen) = news.try_recv() {
                        self.take(seen);
                    }
                }
            }
        }
        drop(followed);
        self.performer.writer.drain().await;
    }

    fn take_draft(&mut self, draft: PlannedWrite) {
        self.known.assume_planned(draft);
        self.news = true;
    }

    fn take(&mut self, news: Input) {
        // First: what is drafted is drafted before a watch can show it.
        while let Some(draft) = self.drafts.as_mut().and_then(DraftReceiver::try_next) {
            self.take_draft(draft);
        }
        match news {
            Input::Update(kind, WatchUpdate::Applied(value)) => self.see(kind, &value),
            Input::Update(kind, WatchUpdate::Deleted(key)) => self.forget(kind, key),
            Input::Update(kind, WatchUpdate::Relisted { objects, removed }) => {
                for key in removed {
                    self.forget(kind, key);
                }
                for value in &objects {
                    self.see(kind, value);
                }
                self.unseen.remove(&kind);
                if self.unseen.is_empty() && !self.readiness.is_ready() {
                    tracing::info!(component = "scheduler", nodes = self.known.world().nodes.len(), "caches synced");
                    self.readiness.ready();
                }
            }
            Input::Refused(asked) => self.known.forget(&asked),
        }
        self.news = true;
    }

    fn see(&mut self, kind: Kind, value: &Value) {
        match read(value) {
            Some(object) => self.known.on_apply(object),
            None => self.forget(kind, Key::of(value)),
        }
    }

    fn forget(&mut self, kind: Kind, key: Key) {
        self.known.on_delete(&ObjectId::new(kind, key));
    }

    fn cycle(&mut self, refuse: &mpsc::UnboundedSender<Input>) {
        if !self.readiness.is_ready() {
            return;
        }
        let now = clock::now();
        let Some(usage) = self.past.usage(now) else { return };
        // Shares follow usage, and people watch both even while nobody waits.
        if usage == self.usage && !self.is_worth_a_cycle() {
            return;
        }
        let _busy = self.readiness.busy();
        self.news = false;
        self.known.expire(now, ECHO_PATIENCE);
        let mut watch = metrics::Stopwatch::start();
        let (scheduler, world) = (&mut self.scheduler, self.known.world_mut());
        let passed = |moment| watch.pass(moment);
        let run = || catch_unwind(AssertUnwindSafe(|| scheduler.cycle_with_progress(world, &usage, now, passed)));
        // Others go on meanwhile: watches are read, writes are finished.
        let Ok(done) = tokio::task::block_in_place(run) else {
            // What it was about was printed where it happened. Nothing of this cycle leaves.
            tracing::error!("scheduling cycle panicked, its decisions were discarded");
            self.metrics.failed();
            self.news = true;
            return;
        };
        tracing::debug!(ms = watch.milliseconds(), effects = done.effects.len(), waiting = done.pending.len(), "cycle");
        self.cycles += 1;
        if self.options.snapshots.is_some() {
            let seen = (self.known.world(), &self.options.settings, &usage);
            let record = CycleRecord::new(self.cycles, now, seen, &done, watch.statistics());
            // A reader that panicked has changed nothing.
            self.history.lock().unwrap_or_else(PoisonError::into_inner).add(record);
        }
        self.complain(&done);
        let writes = self.planner.plan(self.known.world(), &done, &self.options.settings, now);
        self.metrics.cycle(&watch, &done, (self.known.world(), &self.options.settings), &usage, now);
        for effect in &done.effects {
            self.known.assume(effect, now);
        }
        let writes = self.known.defer_until_created(writes, now);
        self.write(writes, refuse);
        self.last = done;
        self.usage = usage;
    }

    /// Another look at the same would show the same, unless somebody waits for time to pass.
    fn is_worth_a_cycle(&self) -> bool {
        self.news
            || !self.last.effects.is_empty()
            || !self.last.pending.is_empty()
            || !self.known.is_empty()
            || self.known.world().pod_groups.values().any(|group| group.stale_since.is_some())
    }

    fn complain(&mut self, done: &CycleResult) {
        let line = |problem: &Problem| format!("{}: {}", problem.object, problem.reason.explain().message);
        let complaints: BTreeSet<String> = done.problems.iter().map(line).collect();
        for new in complaints.difference(&self.complaints) {
            tracing::warn!("{new}");
        }
        self.complaints = complaints;
    }

    /// One after the other on the same object, different ones side by side.
    fn write(&mut self, writes: Vec<Write>, refuse: &mpsc::UnboundedSender<Input>) {
        let mut deeds: BTreeMap<perform::Target, Vec<Write>> = BTreeMap::new();
        let mut words: BTreeMap<perform::Target, Vec<Write>> = BTreeMap::new();
        for write in writes {
            match write {
                Write::Emit(event) => self.performer.emit(event),
                write if perform::is_word(&write) => words.entry(perform::target(&write)).or_default().push(write),
                write => deeds.entry(perform::target(&write)).or_default().push(write),
            }
        }
        for unsaid in deeds.values().flatten().flat_map(|deed| self.performer.withdraw(deed)) {
            unsaid.assumptions().iter().for_each(|asked| self.known.forget(asked));
        }
        for (about, words) in words {
            self.performer.post(about, words, refuse);
        }
        for writes in deeds.into_values() {
            let (performer, refuse) = (self.performer.clone(), refuse.clone());
            self.performer.writer.spawn(move || async move { performer.perform_all(writes, &refuse).await });
        }
    }
}

async fn next_draft(drafts: &mut Option<DraftReceiver>) -> PlannedWrite {
    match drafts {
        Some(drafts) => drafts.next().await,
        None => std::future::pending().await,
    }
}

/// A malformed object is as good as none: it must not keep the others from being seen.
pub(crate) fn read(value: &Value) -> Option<Object> {
    match Object::parse(value) {
        Ok(object) => object,
        Err(malformed) => {
            let (kind, key) = (value["kind"].as_str(), Key::of(value));
            tracing::warn!(kind, %key, hint = malformed.hint, "ignored: {malformed}");
            None
        }
    }
}
