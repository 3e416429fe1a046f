//! The binder on a cluster: carries out bind requests as their steps become possible.

mod perform;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kai_api::BindRequest;
use kai_control::Key;
use kai_control::binder::{BindEffect, BinderController, Ended, Followed, Job, RESYNC_PERIOD, Settings};
use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api_writer::ApiWriter;
use crate::events::EventRecorder;
use crate::health::ReadinessHandle;
use crate::watch::{SharedWatches, WatchSpec, WatchUpdate, forward_updates};
use crate::{ApiLimits, FatalError, Health, LeaderElectionOptions, clock, leader_election};
use perform::Performer;

#[derive(Clone, Debug)]
pub struct BinderOptions {
    pub settings: Settings,
    /// Requests carried out at the same time.
    pub workers: usize,
    pub election: Option<LeaderElectionOptions>,
}

const KINDS: [Followed; 6] = [
    Followed::Requests,
    Followed::Pods,
    Followed::Nodes,
    Followed::VolumeClaims,
    Followed::Volumes,
    Followed::StorageClasses,
];

enum Input {
    Update(Followed, WatchUpdate),
    Ended(Ended),
}

/// Binds until stopped.
pub(crate) async fn run(
    client: Client,
    watches: SharedWatches,
    options: BinderOptions,
    limits: Arc<ApiLimits>,
    health: Health,
    stop: CancellationToken,
) -> Result<(), FatalError> {
    let readiness = health.add_component("binder");
    let BinderOptions { settings, workers, election } = options;
    let writer = ApiWriter::new(client.clone(), limits, workers);
    let events = EventRecorder::new(&writer, "binder");
    let shell = Shell {
        agenda: BinderController::new(settings),
        unseen: KINDS.into(),
        performer: Performer::new(writer, events),
        readiness,
    };
    leader_election::run_as_leader(client, (&health, "binder"), election, stop.clone(), shell.run(watches, stop))
        .await?;
    tracing::info!("binder has ended");
    Ok(())
}

struct Shell {
    agenda: BinderController,
    unseen: BTreeSet<Followed>,
    performer: Performer,
    readiness: ReadinessHandle,
}

fn watched(kind: Followed) -> WatchSpec {
    match kind {
        Followed::Requests => WatchSpec::all::<BindRequest>(),
        Followed::Pods => WatchSpec::all::<Pod>(),
        Followed::Nodes => WatchSpec::all::<Node>(),
        Followed::VolumeClaims => WatchSpec::all::<PersistentVolumeClaim>(),
        Followed::Volumes => WatchSpec::all::<PersistentVolume>(),
        Followed::StorageClasses => WatchSpec::all::<StorageClass>(),
    }
}

impl Shell {
    async fn run(mut self, watches: SharedWatches, stop: CancellationToken) {
        let (out, mut news) = mpsc::channel(1024);
        let mut followed = tokio::task::JoinSet::new();
        for kind in KINDS {
            followed.spawn(forward_updates(watches.clone(), watched(kind), out.clone(), move |seen| {
                Input::Update(kind, seen)
            }));
        }
        // Never full: there are no more ends than jobs.
        let (finish, mut finished) = mpsc::unbounded_channel();
        let mut sync = tokio::time::interval(Duration::from_micros(RESYNC_PERIOD.0.unsigned_abs()));
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(ended) = finished.recv() => self.take(Input::Ended(ended)),
                Some(seen) = news.recv() => self.take(seen),
                _ = sync.tick() => self.agenda.resync(),
                () = tokio::time::sleep(self.until_next()) => {}
            }
            // All that is there already, so that nothing is planned that is over.
            while let Ok(ended) = finished.try_recv() {
                self.take(Input::Ended(ended));
            }
            while let Ok(seen) = news.try_recv() {
                self.take(seen);
            }
            if self.readiness.is_ready() {
                let _busy = self.readiness.busy();
                for job in self.agenda.jobs(clock::now()) {
                    self.start(job, finish.clone());
                }
            }
        }
        drop(followed);
        self.performer.writer.drain().await;
    }

    /// How long nothing is due.
    fn until_next(&self) -> Duration {
        let now = clock::now();
        let next = self.agenda.next(now).filter(|_| self.readiness.is_ready());
        // A little more than asked for: rules speak of times that have passed.
        next.map_or(Duration::MAX, |at| Duration::from_micros(at.since(now).0.max(0).unsigned_abs() + 1000))
    }

    fn take(&mut self, news: Input) {
        match news {
            Input::Update(kind, WatchUpdate::Applied(value)) => self.see(kind, &value),
            Input::Update(kind, WatchUpdate::Deleted(key)) => self.agenda.lose(kind, &key, clock::now()),
            Input::Update(kind, WatchUpdate::Relisted { objects, removed }) => {
                for key in &removed {
                    self.agenda.lose(kind, key, clock::now());
                }
                for value in &objects {
                    self.see(kind, value);
                }
                self.unseen.remove(&kind);
                if self.unseen.is_empty() && !self.readiness.is_ready() {
                    tracing::info!(requests = self.agenda.pending_count(), "caches synced");
                    self.readiness.ready();
                    self.agenda.resync();
                }
            }
            Input::Ended(ended) => self.agenda.ended(ended, clock::now()),
        }
    }

    fn see(&mut self, kind: Followed, value: &Value) {
        if let Err(why) = self.agenda.see(kind, value, clock::now()) {
            tracing::warn!(?kind, key = %Key::of(value), "ignored: {why}");
        }
    }

    fn start(&self, job: Job, finish: mpsc::UnboundedSender<Ended>) {
        let performer = self.performer.clone();
        for effect in &job.effects {
            if let BindEffect::ReportResult { pod, bound: false, message } = effect {
                tracing::warn!(%pod, "{message}");
            }
        }
        let bind = job.effects.iter().position(|effect| matches!(effect, BindEffect::Bind { .. }));
        self.performer.writer.spawn(move || async move {
            let deeds = bind.map_or(job.effects.len(), |bind| bind + 1);
            let mut ended = Ended { job, done: 0, refused: BTreeMap::new() };
            if performer.carry_on(&mut ended, deeds).await && deeds < ended.job.effects.len() {
                // Whoever waits for other pods does not wait for what is left to say about this one.
                let words = performer.words.clone();
                words.spawn(move || async move {
                    performer.with_words().carry_on(&mut ended, usize::MAX).await;
                    // The loop may have ended.
                    let _ = finish.send(ended);
                });
                return;
            }
            let _ = finish.send(ended);
        });
    }
}
