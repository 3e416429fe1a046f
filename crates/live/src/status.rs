//! The pod group and queue controllers on a cluster: whatever a tally finds untrue in a status is written anew.

mod metrics;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kai_api::{PodGroup, Queue};
use kai_control::Key;
use kai_control::status::{PodGroupStatus, QueueStatus, StatusController};
use kube::api::{Api, ApiResource, Patch};
use kube::{Client, Resource};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::api_error::ignore_not_found;
use crate::api_writer::{ApiWriter, PATCH};
use crate::health::ReadinessHandle;
use crate::stripped_object::StrippedObject;
use crate::watch::{FieldSelector, SharedWatches, WatchSpec, WatchUpdate, forward_updates};
use crate::{ApiLimits, FatalError, Health, LeaderElectionOptions, kinds, leader_election};
use metrics::QueueMetrics;

#[derive(Clone, Debug)]
pub struct StatusOptions {
    pub scheduler_name: String,
    /// API calls at the same time.
    pub workers: usize,
    /// Labels of queues that their metrics carry, too.
    pub queue_labels: Vec<QueueLabel>,
    pub election: Option<LeaderElectionOptions>,
}

/// A label of queues as a label of metrics.
#[derive(Clone, Debug)]
pub struct QueueLabel {
    pub label: String,
    pub metric_label: String,
    /// For queues without the label.
    pub default: String,
}

/// Changes that come within this time are written as one.
const PERIOD: Duration = Duration::from_millis(250);

/// So many pods that change within a period are a flood: most of what could be said now would be wrong a moment later,
/// and the API server has more urgent things to do.
const FLOOD: usize = 25;
/// Periods that status waits for the end of a flood, at most.
const FLOOD_MAX: u32 = 40;

/// Keeps the status of pod groups until stopped.
pub(crate) async fn run_pod_group_status(
    client: Client,
    watches: SharedWatches,
    options: StatusOptions,
    limits: Arc<ApiLimits>,
    health: Health,
    stop: CancellationToken,
) -> Result<(), FatalError> {
    let mut watched = vec![
        WatchSpec::with::<Pod>(FieldSelector::scheduler(&options.scheduler_name)),
        WatchSpec::all::<PodGroup>(),
        WatchSpec::all::<Node>(),
        WatchSpec::all::<PriorityClass>(),
    ];
    let claims = WatchSpec::all::<ResourceClaim>();
    if kinds::is_served(&client, &claims.resource).await {
        watched.push(claims);
    }
    let tally = PodGroupStatus::default();
    let shell = Shell::new::<PodGroup>(
        client.clone(),
        tally,
        watched,
        &options,
        limits,
        health.add_component("podgroupcontroller"),
    );
    leader_election::run_as_leader(
        client,
        (&health, "podgroupcontroller"),
        options.election,
        stop.clone(),
        shell.run(watches, stop, |_| {}),
    )
    .await?;
    tracing::info!("podgroupcontroller has ended");
    Ok(())
}

/// Keeps the status and the metrics of queues until stopped.
pub(crate) async fn run_queue_status(
    client: Client,
    watches: SharedWatches,
    options: StatusOptions,
    limits: Arc<ApiLimits>,
    health: Health,
    stop: CancellationToken,
) -> Result<(), FatalError> {
    let metrics = QueueMetrics::register(&health, options.queue_labels.clone());
    let watched = vec![WatchSpec::all::<Queue>(), WatchSpec::all::<PodGroup>()];
    let tally = QueueStatus::default();
    let shell =
        Shell::new::<Queue>(client.clone(), tally, watched, &options, limits, health.add_component("queuecontroller"));
    let tell = move |tally: &QueueStatus| metrics.update(tally);
    leader_election::run_as_leader(
        client,
        (&health, "queuecontroller"),
        options.election,
        stop.clone(),
        shell.run(watches, stop, tell),
    )
    .await?;
    tracing::info!("queuecontroller has ended");
    Ok(())
}

struct Shell<T> {
    client: Client,
    tally: T,
    /// Kinds to watch; told apart by their place.
    watched: Vec<WatchSpec>,
    /// Kinds that were listed.
    listed: BTreeSet<usize>,
    /// Whose status is kept.
    target: ApiResource,
    writer: ApiWriter,
    /// Corrections under way. While there are some, others wait, so that each says the latest.
    under_way: usize,
    /// Pods that changed in this period.
    changed: usize,
    /// Periods since the last status_patches, while there is a flood.
    held_up: u32,
    readiness: ReadinessHandle,
}

enum Input {
    Update(usize, WatchUpdate),
    /// This one was written, or not.
    Written(Key, bool),
}

impl<T: StatusController> Shell<T> {
    fn new<K: Resource<DynamicType = ()>>(
        client: Client,
        tally: T,
        watched: Vec<WatchSpec>,
        options: &StatusOptions,
        limits: Arc<ApiLimits>,
        readiness: ReadinessHandle,
    ) -> Self {
        // Status is for people to read; what others wait for comes first.
        let writer = ApiWriter::new(client.clone(), limits, options.workers).at_status_priority();
        let target = ApiResource::erase::<K>(&());
        Self {
            client,
            tally,
            watched,
            listed: BTreeSet::new(),
            target,
            writer,
            under_way: 0,
            changed: 0,
            held_up: 0,
            readiness,
        }
    }

    async fn run(mut self, watches: SharedWatches, stop: CancellationToken, tell: impl Fn(&T)) {
        let (out, mut news) = mpsc::channel(1024);
        let mut followed = tokio::task::JoinSet::new();
        for (place, watched) in self.watched.iter().cloned().enumerate() {
            followed
                .spawn(forward_updates(watches.clone(), watched, out.clone(), move |seen| Input::Update(place, seen)));
        }
        let (finish, mut finished) = mpsc::unbounded_channel();
        let mut tick = tokio::time::interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(seen) = news.recv() => self.take(seen),
                Some(written) = finished.recv() => self.take(written),
                _ = tick.tick(), if self.is_known() => {
                    let _busy = self.readiness.busy();
                    if !self.waits_for_calm() && self.under_way == 0 {
                        self.correct(&finish);
                    }
                    tell(&self.tally);
                }
            }
        }
        drop(followed);
        self.writer.drain().await;
    }

    /// Before everything was seen, sums would be too small.
    fn is_known(&self) -> bool {
        self.listed.len() == self.watched.len()
    }

    /// Whether so much happens that status had better wait, and has not waited for long.
    fn waits_for_calm(&mut self) -> bool {
        let flood = std::mem::take(&mut self.changed) >= FLOOD;
        self.held_up = if flood && self.held_up < FLOOD_MAX { self.held_up + 1 } else { 0 };
        self.held_up > 0
    }

    fn take(&mut self, news: Input) {
        match news {
            Input::Update(place, WatchUpdate::Applied(value)) => {
                self.changed += usize::from(self.watched[place].resource.kind == "Pod");
                self.see(place, &value);
            }
            Input::Update(place, WatchUpdate::Deleted(key)) => self.lose(place, &key),
            Input::Update(place, WatchUpdate::Relisted { objects, removed }) => {
                for key in &removed {
                    self.lose(place, key);
                }
                for value in &objects {
                    self.see(place, value);
                }
                self.listed.insert(place);
                if self.is_known() && !self.readiness.is_ready() {
                    tracing::info!(kind = self.target.kind, "caches synced");
                    self.readiness.ready();
                }
            }
            Input::Written(key, done) => {
                self.under_way -= 1;
                if !done {
                    self.tally.requeue(&key);
                }
            }
        }
    }

    fn see(&mut self, place: usize, value: &Value) {
        if let Err(why) = self.tally.apply(value) {
            tracing::warn!(kind = self.watched[place].resource.kind, key = %Key::of(value), error = %why, "object left out of status totals");
        }
    }

    fn lose(&mut self, place: usize, key: &Key) {
        self.tally.delete(&self.watched[place].resource.kind, key);
    }

    fn correct(&mut self, finish: &mpsc::UnboundedSender<Input>) {
        for (key, patch) in self.tally.status_patches() {
            self.under_way += 1;
            let api: Api<StrippedObject> = if key.namespace.is_empty() {
                Api::all_with(self.client.clone(), &self.target)
            } else {
                Api::namespaced_with(self.client.clone(), &key.namespace, &self.target)
            };
            let (writer, finish, kind) = (self.writer.clone(), finish.clone(), self.target.kind.clone());
            self.writer.spawn(move || async move {
                let patch = Patch::Merge(patch);
                let done = ignore_not_found(writer.call(|| api.patch_status(&key.name, &PATCH, &patch)).await);
                if let Err(error) = &done {
                    tracing::warn!(kind, %key, %error, "the status was not written");
                }
                // The loop may have ended.
                let _ = finish.send(Input::Written(key, done.is_ok()));
            });
        }
    }
}
