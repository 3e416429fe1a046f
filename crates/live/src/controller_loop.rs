//! The loop around every controller: watch updates and results go in, API calls come out.

use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kai_control::Kind;
use kai_control::controller::{
    Admitted, Clock, Controller, Driver, LeftOut, NewEvent, OutputHandler, QueuedWrites, Skipped, WatchUpdate,
    WorkItem, WorkResult, WritePriority,
};
use kai_control::grouper::PlannedWrite;
use kai_control::kinds::Presence;
use kai_engine::units::{Span, Timestamp};
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api_calls::{CallFields, Executor};
use crate::api_writer::ApiWriter;
use crate::events::EventRecorder;
use crate::health::ReadinessHandle;
use crate::leader_election::{LeaseClient, run_as_leader};
use crate::planned_channel::{PlannedReceiver, PlannedSender};
use crate::watch::{SharedWatches, forward_updates};
use crate::{ApiLimits, FatalError, Health, LeaderElectionOptions, api_resource, clock};

/// What the components of a process share, and the limits of this one.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) leases: LeaseClient,
    pub(crate) watches: SharedWatches,
    pub(crate) limits: Arc<ApiLimits>,
    pub(crate) health: Health,
    pub(crate) stop: CancellationToken,
}

/// Updates that may wait for the loop. Few: objects are large until a controller has taken from them what it needs.
const CHANNEL_CAPACITY: usize = 64;

/// Lists take a few seconds on the largest clusters. A kind that has not been listed for longer is reported, again and
/// again: the component waits for it.
const SYNC_REPORT_PERIOD: Duration = Duration::from_secs(30);

/// Added to every wait: rules speak of times that have passed.
const AFTER_DUE: Duration = Duration::from_millis(1);

pub(crate) struct ControllerLoop<C> {
    name: &'static str,
    driver: Driver<C>,
    context: Context,
    outputs: LiveOutputs,
    results: mpsc::UnboundedReceiver<WorkResult>,
    readiness: ReadinessHandle,
    /// From the grouper of this process, if it has one.
    planned_from: Option<PlannedReceiver>,
    began: Instant,
}

/// Makes the calls of a controller, in tasks of their own.
struct LiveOutputs {
    writers: Writers,
    queued: Arc<Mutex<QueuedWrites>>,
    executor: Executor,
    events: EventRecorder,
    /// To the scheduler of this process, if it has one.
    planned_to: Option<PlannedSender>,
    /// Unbounded: there are no more results than items in flight.
    finish: mpsc::UnboundedSender<WorkResult>,
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

/// What the loop waits for.
enum Input {
    Timer,
    /// The first lists are late.
    Unsynced,
    Result(WorkResult),
    Planned(PlannedWrite),
    Update(usize, WatchUpdate),
}

impl<C: Controller + Send + 'static> ControllerLoop<C> {
    /// `name` is the component's; events are published in the name of `reporter`.
    pub(crate) fn new(name: &'static str, reporter: &str, controller: C, writers: Writers, context: Context) -> Self {
        let events = EventRecorder::new(&writers.action, reporter);
        let (finish, results) = mpsc::unbounded_channel();
        let executor = Executor::new(events.clone());
        let outputs = LiveOutputs { writers, queued: Arc::default(), executor, events, planned_to: None, finish };
        Self {
            name,
            driver: Driver::new(controller),
            readiness: context.health.add_component(name),
            context,
            outputs,
            results,
            planned_from: None,
            began: Instant::now(),
        }
    }

    pub(crate) fn map_executor(mut self, form: impl FnOnce(Executor) -> Executor) -> Self {
        self.outputs.executor = form(self.outputs.executor);
        self
    }

    pub(crate) fn with_planned_to(mut self, planned_to: Option<PlannedSender>) -> Self {
        self.outputs.planned_to = planned_to;
        self
    }

    pub(crate) fn with_planned_from(self, planned_from: Option<PlannedReceiver>) -> Self {
        Self { planned_from, ..self }
    }

    /// Runs until stopped: at once, or as the leader.
    pub(crate) async fn run(self, election: Option<LeaderElectionOptions>) -> Result<(), FatalError> {
        let (name, stop, leases) = (self.name, self.context.stop.clone(), self.context.leases.clone());
        let (health, limits) = (self.context.health.clone(), Arc::clone(&self.context.limits));
        // Boxed: it holds the state of the loop, which is large.
        let work = Box::pin(self.work());
        run_as_leader(leases, (&health, name), election, limits.fence(), stop, work).await?;
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
        if let Some(planned) = &self.planned_from {
            planned.start();
        }
        let started = Instant::now();
        let mut report = started + SYNC_REPORT_PERIOD;
        loop {
            let due = self.next_poll();
            let unsynced = (!self.driver.has_synced()).then_some(report);
            // In this order: a flood of updates must not keep the controller from its work.
            let input = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = sleep_until(due) => Input::Timer,
                () = sleep_until(unsynced) => Input::Unsynced,
                Some(result) = self.results.recv() => Input::Result(result),
                planned = next_planned(&mut self.planned_from) => Input::Planned(planned),
                Some((watch, update)) = updates.recv() => Input::Update(watch, update),
            };
            let _busy = self.readiness.busy();
            match input {
                Input::Timer => {}
                Input::Unsynced => {
                    report = Instant::now() + SYNC_REPORT_PERIOD;
                    self.report_unsynced(started.elapsed());
                }
                Input::Result(result) => self.on_result(result),
                Input::Planned(planned) => self.driver.controller.on_planned(planned),
                Input::Update(watch, update) => self.on_update(watch, &update),
            }
            // All that is there already, so that nothing is decided that is done.
            while let Ok(result) = self.results.try_recv() {
                self.on_result(result);
            }
            while let Ok((watch, update)) = updates.try_recv() {
                self.on_update(watch, &update);
            }
            self.poll();
        }
        drop(watching);
        self.outputs.writers.action.drain().await;
    }

    /// Watches everything that the controller wants to and the cluster has.
    async fn start_watches(&mut self, watching: &mut JoinSet<()>, out: &mpsc::Sender<(usize, WatchUpdate)>) {
        for (watch, spec) in self.driver.watches().to_vec().into_iter().enumerate() {
            let optional = spec.kind.row().presence == Presence::Optional;
            let resource = api_resource::resource(spec.kind);
            if optional && !api_resource::is_served(&self.context.client, &resource).await {
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
        while let Some(planned) = self.planned_from.as_mut().and_then(PlannedReceiver::try_next) {
            self.driver.controller.on_planned(planned);
        }
        let skipped = self.driver.on_update(watch, update, self.now());
        skipped.iter().for_each(log_skipped);
        if self.driver.has_synced() && !self.readiness.is_ready() {
            tracing::info!(component = self.name, objects = self.driver.controller.size(), "caches synced");
            self.readiness.ready();
        }
    }

    fn report_unsynced(&self, waited: Duration) {
        let mut kinds: Vec<&str> = self.driver.unsynced().map(Kind::name).collect();
        kinds.dedup();
        tracing::warn!(
            component = self.name,
            kinds = kinds.join(", "),
            waited = waited.as_secs(),
            "some kinds could not be listed yet, the component waits for them"
        );
        self.readiness.late(kinds);
    }

    fn on_result(&mut self, result: WorkResult) {
        let now = self.now();
        self.driver.controller.on_result(result, now);
    }

    fn poll(&mut self) {
        let now = self.now();
        self.driver.poll(now, &mut self.outputs);
    }
}

impl OutputHandler for LiveOutputs {
    fn has_receiver(&self) -> bool {
        self.planned_to.as_ref().is_some_and(PlannedSender::has_receiver)
    }

    fn plan(&mut self, planned: PlannedWrite) {
        if let Some(receiver) = &self.planned_to {
            receiver.send(planned);
        }
    }

    fn skip(&mut self, skipped: &Skipped) {
        log_skipped(skipped);
    }

    fn publish(&mut self, event: NewEvent) {
        self.events.publish(event);
    }

    fn admit(&mut self, item: WorkItem) -> Vec<WorkResult> {
        let (admitted, superseded) = lock(&self.queued).admit(item);
        let (executor, writers, finish) = (self.executor.clone(), self.writers.clone(), self.finish.clone());
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
        superseded
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
                let CallFields { step, object, node } = CallFields::of(call);
                if !writer.may_write() {
                    tracing::debug!(step, object, node, %error, "leader lease was lost, API call abandoned");
                } else if priority == WritePriority::Action {
                    tracing::warn!(step, object, node, %error, "API call failed, will be decided again");
                } else {
                    tracing::debug!(step, object, node, %error, "status write failed, will be decided again");
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

async fn next_planned(planned: &mut Option<PlannedReceiver>) -> PlannedWrite {
    match planned {
        Some(planned) => planned.next().await,
        None => pending().await,
    }
}

fn log_skipped(skipped: &Skipped) {
    let Skipped { left_out, kind, key, problem, hint } = skipped;
    let kind = kind.name();
    match left_out {
        LeftOut::Object => tracing::warn!(kind, %key, problem, hint, "object skipped"),
        LeftOut::Change => tracing::warn!(kind, %key, problem, hint, "change of an object skipped"),
        LeftOut::Fields => tracing::warn!(kind, %key, problem, hint, "field of a pod with a node skipped"),
        LeftOut::Totals => tracing::warn!(kind, %key, problem, hint, "object left out of status totals"),
        LeftOut::Setting => tracing::warn!(kind, %key, problem, hint, "ignored a setting of the workload"),
        LeftOut::Grouping => tracing::warn!(kind, %key, problem, hint, "cannot determine pod group, will retry"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as blocking;

    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use kai_control::Key;
    use kai_control::controller::{Controller, Output, WatchSpec};
    use serde_json::{Value, json};

    use super::*;
    use crate::health::STUCK_AFTER;
    use crate::planned_channel::planned_channel;
    use crate::test_server::connect_to;

    /// Blocks in one of its methods until the test lets it go on.
    struct Stuck {
        in_poll: bool,
        entered: blocking::Sender<()>,
        go_on: blocking::Receiver<()>,
    }

    impl Stuck {
        fn block(&self) {
            self.entered.send(()).unwrap();
            // The test may have ended.
            let _ = self.go_on.recv();
        }
    }

    impl Controller for Stuck {
        fn watches(&self) -> Vec<WatchSpec> {
            Vec::new()
        }

        fn on_apply(&mut self, _: Kind, _: &Arc<Value>, _: Clock) -> Vec<Skipped> {
            Vec::new()
        }

        fn on_delete(&mut self, _: Kind, _: &Key, _: Clock) {}

        fn poll(&mut self, _: Clock) -> Output {
            if self.in_poll {
                self.block();
            }
            Output::default()
        }

        fn on_result(&mut self, _: WorkResult, _: Clock) {}

        fn next_poll(&self, now: Clock) -> Option<Timestamp> {
            self.in_poll.then_some(now.steady)
        }

        fn on_planned(&mut self, _: PlannedWrite) {
            self.block();
        }

        fn size(&self) -> usize {
            0
        }
    }

    fn context(client: &Client, health: &Health, stop: &CancellationToken) -> Context {
        let metrics = health.api_metrics().clone();
        Context {
            client: client.clone(),
            leases: LeaseClient::here(client.clone()),
            watches: SharedWatches::new(client.clone(), metrics.clone(), false),
            limits: Arc::new(ApiLimits::new(0.0, 1, Arc::default(), metrics)),
            health: health.clone(),
            stop: stop.clone(),
        }
    }

    /// What `/healthz` answers five minutes after the controller got stuck.
    async fn health_while_stuck(in_poll: bool) -> StatusCode {
        let health = Health::new("kai");
        let client = connect_to(Router::new(), &health).await;
        let stop = CancellationToken::new();
        let context = context(&client, &health, &stop);
        let ((entered, wait), (release, go_on)) = (blocking::channel(), blocking::channel());
        let (sender, receiver) = planned_channel();
        let writers = Writers::new(&context, 1);
        let controller = Stuck { in_poll, entered, go_on };
        let running = ControllerLoop::new("binder", "binder", controller, writers, context);
        let running = tokio::spawn(running.with_planned_from(Some(receiver)).run(None));
        sender.send(PlannedWrite::CancelAll);
        tokio::task::spawn_blocking(move || wait.recv().unwrap()).await.unwrap();
        let (code, _) = health.liveness(Instant::now() + STUCK_AFTER);
        stop.cancel();
        drop(release);
        drop(running);
        code
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_controller_that_is_stuck_is_not_healthy() {
        assert_eq!(health_while_stuck(true).await, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(health_while_stuck(false).await, StatusCode::INTERNAL_SERVER_ERROR);
    }

    /// Waits for queues and pods.
    struct Waiting;

    impl Controller for Waiting {
        fn watches(&self) -> Vec<WatchSpec> {
            vec![WatchSpec::all(Kind::Pod), WatchSpec::all(Kind::Queue)]
        }

        fn on_apply(&mut self, _: Kind, _: &Arc<Value>, _: Clock) -> Vec<Skipped> {
            Vec::new()
        }

        fn on_delete(&mut self, _: Kind, _: &Key, _: Clock) {}

        fn poll(&mut self, _: Clock) -> Output {
            Output::default()
        }

        fn on_result(&mut self, _: WorkResult, _: Clock) {}

        fn next_poll(&self, _: Clock) -> Option<Timestamp> {
            None
        }

        fn size(&self) -> usize {
            0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn kinds_that_cannot_be_listed_are_named_by_the_readiness_probe() {
        let answer = |uri: Uri| async move {
            if uri.path().ends_with("/queues") {
                return (StatusCode::FORBIDDEN, String::new());
            }
            let list =
                json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []});
            (StatusCode::OK, list.to_string())
        };
        let (health, stop) = (Health::new("kai"), CancellationToken::new());
        let client = Client::new(Router::new().fallback(answer), "default");
        let context = context(&client, &health, &stop);
        let running = ControllerLoop::new("binder", "binder", Waiting, Writers::new(&context, 1), context);
        let running = tokio::spawn(running.run(None));
        tokio::time::sleep(SYNC_REPORT_PERIOD * 2).await;
        let expected = "not ready: waiting for the first lists of binder (Queue)";
        assert_eq!(health.readiness(), (StatusCode::SERVICE_UNAVAILABLE, expected.to_owned()));
        stop.cancel();
        running.await.unwrap().unwrap();
    }
}
