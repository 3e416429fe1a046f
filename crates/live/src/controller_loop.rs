//! The loop around every controller: watch updates and results go in, API calls come out.

use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kai_control::Kind;
use kai_control::controller::{
    Admitted, Clock, Controller, Driver, NewEvent, Output, QueuedWrites, Skipped, WatchUpdate, WorkItem, WorkResult,
    WritePriority,
};
use kai_control::grouper::PlannedWrite;
use kai_control::kinds::Presence;
use kai_engine::units::{Span, Timestamp};
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api_calls::Executor;
use crate::api_writer::ApiWriter;
use crate::draft_channel::{DraftReceiver, DraftSender};
use crate::events::{self, EventRecorder, reference};
use crate::health::ReadinessHandle;
use crate::watch::{SharedWatches, forward_updates};
use crate::{ApiLimits, FatalError, Health, LeaderElectionOptions, clock, kinds, leader_election};

/// What the components of a process share, and the limits of this one.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) watches: SharedWatches,
    pub(crate) limits: Arc<ApiLimits>,
    pub(crate) health: Health,
    pub(crate) stop: CancellationToken,
}

/// Updates that may wait for the loop. Few: objects are large until a controller has taken from them what it needs.
const CHANNEL_CAPACITY: usize = 64;

/// Added to every wait: rules speak of times that have passed.
const AFTER_DUE: Duration = Duration::from_millis(1);

pub(crate) struct ControllerLoop<C> {
    name: &'static str,
    driver: Driver<C>,
    context: Context,
    writers: Writers,
    queued: Arc<Mutex<QueuedWrites>>,
    executor: Executor,
    events: EventRecorder,
    readiness: ReadinessHandle,
    /// To the scheduler of this process, if it has one.
    drafts_to: Option<DraftSender>,
    /// From the grouper of this process, if it has one.
    drafts_from: Option<DraftReceiver>,
    began: Instant,
}

/// A writer for each priority.
#[derive(Clone)]
pub(crate) struct Writers {
    pub(crate) action: ApiWriter,
    pending_reason: ApiWriter,
    status: ApiWriter,
}

impl Writers {
    /// With so many actions at the same time.
    pub(crate) fn new(context: &Context, workers: usize) -> Self {
        let action = ApiWriter::new(context.client.clone(), Arc::clone(&context.limits), workers);
        Self { pending_reason: action.at_pending_reason_priority(), status: action.at_status_priority(), action }
    }

    fn of(&self, priority: WritePriority, max_defer: Option<Span>) -> ApiWriter {
        let writer = match priority {
            WritePriority::Action => return self.action.clone(),
            WritePriority::PendingReason => &self.pending_reason,
            WritePriority::Status => &self.status,
        };
        max_defer.map_or_else(
            || writer.clone(),
            |at_most| writer.defer_up_to(Duration::from_micros(at_most.0.max(0).unsigned_abs())),
        )
    }
}

impl<C: Controller> ControllerLoop<C> {
    /// `name` is the component's; events are published in the name of `reporter`.
    pub(crate) fn new(name: &'static str, reporter: &str, controller: C, writers: Writers, context: Context) -> Self {
        let events = EventRecorder::new(&writers.action, reporter);
        Self {
            name,
            driver: Driver::new(controller),
            executor: Executor::new(writers.status.clone(), events.clone()),
            readiness: context.health.add_component(name),
            context,
            writers,
            queued: Arc::default(),
            events,
            drafts_to: None,
            drafts_from: None,
            began: Instant::now(),
        }
    }

    pub(crate) fn map_executor(self, form: impl FnOnce(Executor) -> Executor) -> Self {
        Self { executor: form(self.executor), ..self }
    }

    pub(crate) fn with_drafts_to(self, drafts_to: Option<DraftSender>) -> Self {
        Self { drafts_to, ..self }
    }

    pub(crate) fn with_drafts_from(self, drafts_from: Option<DraftReceiver>) -> Self {
        Self { drafts_from, ..self }
    }

    /// Runs until stopped: at once, or as the leader.
    pub(crate) async fn run(self, election: Option<LeaderElectionOptions>) -> Result<(), FatalError> {
        let (name, client, stop) = (self.name, self.context.client.clone(), self.context.stop.clone());
        let health = self.context.health.clone();
        // Boxed: it holds the state of the loop, which is large.
        Box::pin(leader_election::run_as_leader(client, (&health, name), election, stop, self.work())).await?;
        tracing::info!(component = name, "component stopped");
        Ok(())
    }

    async fn work(mut self) {
        let stop = self.context.stop.clone();
        let (out, mut updates) = mpsc::channel(CHANNEL_CAPACITY);
        let mut watching = JoinSet::new();
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.start_watches(&mut watching, &out) => {}
        }
        // Unbounded: there are no more results than items in flight.
        let (finish, mut results) = mpsc::unbounded_channel();
        if let Some(drafts) = &self.drafts_from {
            drafts.start();
        }
        loop {
            let due = self.next_poll();
            // In this order: a flood of updates must not keep the controller from its work.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = sleep_until(due) => {}
                Some(result) = results.recv() => self.on_result(result),
                draft = next_draft(&mut self.drafts_from) => self.driver.controller.on_planned(draft),
                Some((watch, update)) = updates.recv() => self.on_update(watch, &update),
            }
            let _busy = self.readiness.busy();
            // All that is there already, so that nothing is decided that is done.
            while let Ok(result) = results.try_recv() {
                self.on_result(result);
            }
            while let Ok((watch, update)) = updates.try_recv() {
                self.on_update(watch, &update);
            }
            self.poll(&finish);
        }
        drop(watching);
        self.writers.action.drain().await;
    }

    /// Watches everything that the controller wants to and the cluster has.
    async fn start_watches(&mut self, watching: &mut JoinSet<()>, out: &mpsc::Sender<(usize, WatchUpdate)>) {
        for (watch, spec) in self.driver.watches().to_vec().into_iter().enumerate() {
            let optional = spec.kind.row().presence == Presence::Optional;
            if optional && !kinds::is_served(&self.context.client, &kinds::resource(spec.kind)).await {
                tracing::info!(component = self.name, kind = spec.kind.name(), "kind is not served, not watching it");
                self.driver.without(watch);
                continue;
            }
            let input = move |update| (watch, update);
            watching.spawn(forward_updates(self.context.watches.clone(), spec, out.clone(), input));
        }
    }

    fn now(&self) -> Clock {
        let steady = Timestamp(i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX));
        Clock { wall: clock::now(), steady }
    }

    /// When to poll even if nothing happens.
    fn next_poll(&self) -> Option<Instant> {
        let at = self.driver.next_poll(self.now())?;
        Some(self.began + Duration::from_micros(at.0.max(0).unsigned_abs()) + AFTER_DUE)
    }

    fn on_update(&mut self, watch: usize, update: &WatchUpdate) {
        // First: what is planned is announced before a watch can show it.
        while let Some(draft) = self.drafts_from.as_mut().and_then(DraftReceiver::try_next) {
            self.driver.controller.on_planned(draft);
        }
        let skipped = self.driver.on_update(watch, update, self.now());
        skipped.iter().for_each(log_skipped);
        if self.driver.has_synced() && !self.readiness.is_ready() {
            tracing::info!(component = self.name, objects = self.driver.controller.size(), "caches synced");
            self.readiness.ready();
        }
    }

    fn on_result(&mut self, result: WorkResult) {
        let now = self.now();
        self.driver.controller.on_result(result, now);
    }

    fn poll(&mut self, finish: &mpsc::UnboundedSender<WorkResult>) {
        let has_receiver = self.drafts_to.as_ref().is_some_and(DraftSender::has_receiver);
        self.driver.controller.announce_planned(has_receiver);
        let now = self.now();
        let Output { planned, events, skipped, work } = self.driver.poll(now);
        // Before it is written: what a watch shows of it comes later.
        for draft in planned {
            if let Some(drafts) = &self.drafts_to {
                drafts.send(draft);
            }
        }
        skipped.iter().for_each(log_skipped);
        for event in events {
            self.events.publish(new_event(event));
        }
        for item in work {
            self.start(item, finish);
        }
    }

    fn start(&mut self, item: WorkItem, finish: &mpsc::UnboundedSender<WorkResult>) {
        let (admitted, superseded) = lock(&self.queued).admit(item);
        for result in superseded {
            self.on_result(result);
        }
        let (executor, writers, finish) = (self.executor.clone(), self.writers.clone(), finish.clone());
        match admitted {
            Admitted::Start(item) if item.is_read() => {
                let writer = self.writers.action.clone();
                self.writers
                    .action
                    .spawn_read(move || perform(executor, writers, writer, WorkResult::new(item), finish));
            }
            Admitted::Start(item) => {
                let writer = self.writers.of(item.priority, item.max_defer);
                let slots = writer.clone();
                slots.spawn(move || perform(executor, writers, writer, WorkResult::new(item), finish));
            }
            Admitted::Queued(WorkItem { key, priority, max_defer, .. }) => {
                let writer = self.writers.of(priority, max_defer);
                let (slots, queued) = (writer.clone(), Arc::clone(&self.queued));
                slots.spawn(move || async move {
                    let item = lock(&queued).begin(&key);
                    if let Some(item) = item {
                        perform(executor, writers, writer, WorkResult::new(item), finish).await;
                    }
                });
            }
            Admitted::Replaced => {}
        }
    }
}

/// Makes the calls of an item one after the other. Those of another priority get a slot of their own.
fn perform(
    executor: Executor,
    writers: Writers,
    writer: ApiWriter,
    mut result: WorkResult,
    finish: mpsc::UnboundedSender<WorkResult>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let priority = result.next_priority();
        while let Some(call) = result.next_call() {
            if result.next_priority() != priority {
                let writer = writers.of(result.next_priority(), result.item.max_defer);
                let slots = writer.clone();
                slots.spawn(move || perform(executor, writers, writer, result, finish));
                return;
            }
            let reply = executor.call(&writer, call).await;
            if let Err(error) = &reply {
                if priority == WritePriority::Action {
                    tracing::warn!(%call, %error, "API call failed, will be decided again");
                } else {
                    tracing::debug!(%call, %error, "status write failed, will be decided again");
                }
            }
            result.record(reply);
        }
        // The loop may have ended.
        let _ = finish.send(result);
    })
}

fn lock(queued: &Mutex<QueuedWrites>) -> MutexGuard<'_, QueuedWrites> {
    queued.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => pending().await,
    }
}

async fn next_draft(drafts: &mut Option<DraftReceiver>) -> PlannedWrite {
    match drafts {
        Some(drafts) => drafts.next().await,
        None => pending().await,
    }
}

fn log_skipped(skipped: &Skipped) {
    let Skipped { kind, key, problem, hint } = skipped;
    tracing::warn!(kind = kind.name(), %key, problem, hint, "object skipped");
}

fn new_event(event: NewEvent) -> events::NewEvent {
    let NewEvent { regarding, warning, reason, message, annotations } = event;
    let row = Kind::row(regarding.kind);
    let regarding = reference(row.api_version, row.name, &regarding.key, &regarding.uid);
    events::NewEvent { regarding, warning, reason, message, annotations }
}
