//! The node-scale adjuster on a cluster: stand-ins for pods that share GPUs, for cluster autoscalers to see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kai_api::keys::reason;
use kai_control::Key;
use kai_control::node_scale::{Adjustment, Settings, adjust};
use kai_engine::units::Timestamp;
use kube::api::{Api, Patch};
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api_error::{is_already_exists, status_code};
use crate::api_writer::{ApiWriter, DELETE, PATCH, POST};
use crate::health::ReadinessHandle;
use crate::watch::{FieldSelector, SharedWatches, WatchSpec, WatchUpdate, forward_updates};
use crate::{ApiLimits, FatalError, Health, LeaderElectionOptions, clock, leader_election};

#[derive(Clone, Debug)]
pub struct NodeScaleOptions {
    pub settings: Settings,
    /// Pods that ask for this scheduler are looked at.
    pub scheduler_name: String,
    /// Objects written at the same time.
    pub workers: usize,
    pub election: Option<LeaderElectionOptions>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Pods,
    StandIns,
}

const KINDS: [Kind; 2] = [Kind::Pods, Kind::StandIns];

/// EventRecorder come in bursts; one look at the end of each is enough.
const SETTLE: Duration = Duration::from_millis(500);
const IDLE: Duration = Duration::from_mins(1);

/// Adjusts until stopped.
pub(crate) async fn run(
    client: Client,
    watches: SharedWatches,
    options: NodeScaleOptions,
    limits: Arc<ApiLimits>,
    health: Health,
    stop: CancellationToken,
) -> Result<(), FatalError> {
    let NodeScaleOptions { settings, scheduler_name, workers, election } = options;
    let shell = Shell {
        writer: ApiWriter::new(client.clone(), limits, workers),
        settings,
        scheduler_name,
        pods: BTreeMap::new(),
        scaling_pods: BTreeMap::new(),
        unseen: KINDS.into(),
        removed: None,
        readiness: health.add_component("nodescaleadjuster"),
    };
    // Boxed: it holds calls to the API server, which are large.
    Box::pin(leader_election::run_as_leader(
        client,
        (&health, "nodescaleadjuster"),
        election,
        stop.clone(),
        shell.run(watches, stop),
    ))
    .await?;
    tracing::info!("node-scale adjuster has ended");
    Ok(())
}

struct Shell {
    writer: ApiWriter,
    settings: Settings,
    scheduler_name: String,
    pods: BTreeMap<Key, Value>,
    scaling_pods: BTreeMap<Key, Value>,
    unseen: BTreeSet<Kind>,
    /// When a stand-in was last taken away.
    removed: Option<Timestamp>,
    readiness: ReadinessHandle,
}

impl Shell {
    async fn run(mut self, watches: SharedWatches, stop: CancellationToken) {
        let (out, mut news) = mpsc::channel(1024);
        let mut followed = tokio::task::JoinSet::new();
        for kind in KINDS {
            let condition = match kind {
                Kind::Pods => FieldSelector::scheduler(&self.scheduler_name),
                Kind::StandIns => FieldSelector::namespace(&self.settings.namespace),
            };
            let watched = WatchSpec::with::<Pod>(condition);
            followed.spawn(forward_updates(watches.clone(), watched, out.clone(), move |seen| (kind, seen)));
        }
        let mut pause = IDLE;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some((kind, seen)) = news.recv() => {
                    self.see(kind, seen);
                    pause = SETTLE;
                    continue;
                }
                () = tokio::time::sleep(pause) => {}
            }
            if self.readiness.is_ready() {
                pause = self.look().await;
            }
        }
        drop(followed);
        self.writer.drain().await;
    }

    fn see(&mut self, kind: Kind, seen: WatchUpdate) {
        let known = match kind {
            Kind::Pods => &mut self.pods,
            Kind::StandIns => &mut self.scaling_pods,
        };
        match seen {
            WatchUpdate::Applied(value) => {
                known.insert(Key::of(&value), Arc::unwrap_or_clone(value));
            }
            WatchUpdate::Deleted(key) => {
                known.remove(&key);
            }
            WatchUpdate::Relisted { objects, removed } => {
                for key in &removed {
                    known.remove(key);
                }
                known.extend(objects.into_iter().map(|value| (Key::of(&value), Arc::unwrap_or_clone(value))));
                self.unseen.remove(&kind);
                if self.unseen.is_empty() && !self.readiness.is_ready() {
                    self.readiness.ready();
                }
            }
        }
    }

    /// Does what is to be done, and tells how long nothing is due.
    async fn look(&mut self) -> Duration {
        let now = clock::now();
        let Adjustment { delete, create, requeue_at } =
            adjust(&self.pods, &self.scaling_pods, &self.settings, self.removed, now);
        for key in delete {
            match self.delete(&key).await {
                Ok(()) => {
                    tracing::info!(scaling_pod = key.name, "taken away");
                    self.scaling_pods.remove(&key);
                    self.removed = Some(now);
                }
                Err(error) => tracing::warn!(scaling_pod = key.name, "cannot be taken away: {error}"),
            }
        }
        for pod in create {
            let key = Key::of(&pod);
            match self.create(&key, &pod).await {
                Ok(()) => {
                    tracing::info!(scaling_pod = key.name, "stands in for a pod that shares GPUs");
                    self.scaling_pods.insert(key, pod);
                }
                Err(error) => tracing::warn!(scaling_pod = key.name, "cannot be made: {error}"),
            }
        }
        let wait = requeue_at.map(|at| at.since(now).0.max(0).unsigned_abs());
        wait.map_or(IDLE, |micros| Duration::from_micros(micros).min(IDLE).max(SETTLE))
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.writer.client.clone(), &self.settings.namespace)
    }

    async fn delete(&self, key: &Key) -> Result<(), Error> {
        let api = self.api();
        match self.writer.call(|| api.delete(&key.name, &DELETE)).await {
            Err(error) if status_code(&error) != Some(404) => Err(error),
            _ => Ok(()),
        }
    }

    /// Autoscalers look at pods that a scheduler has given up on; the default scheduler may take its time.
    async fn create(&self, key: &Key, pod: &Value) -> Result<(), Error> {
        let api = self.api();
        let typed: Pod = serde_json::from_value(pod.clone()).map_err(Error::SerdeError)?;
        match self.writer.call(|| api.create(&POST, &typed)).await {
            Err(error) if !is_already_exists(&error) => return Err(error),
            _ => {}
        }
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": reason::UNSCHEDULABLE,
            "message": "stands in for a pod that shares GPUs"});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        self.writer.call(|| api.patch_status(&key.name, &PATCH, &patch)).await.map(|_| ())
    }
}
