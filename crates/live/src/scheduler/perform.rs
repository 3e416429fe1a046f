//! What a cycle wants written, as API calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kai_api::keys::reason;
use kai_api::{BindRequest, PodGroup};
use kai_control::bind_batch;
use kai_control::key::Key;
use kai_control::scheduler::{Event, InvolvedObject, Write};
use kube::api::{Api, DeleteParams, Patch, Preconditions};
use prometheus_client::metrics::histogram::Histogram;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::metrics::Stopwatch;
use super::{Input, SchedulerOptions};
use crate::api_error::{ignore_not_found, is_already_exists, status_code};
use crate::api_writer::{ApiWriter, DELETE, PATCH, POST};
use crate::events::{EventRecorder, NewEvent, reference};

/// When others write the same object at the same time.
const ATTEMPTS: u32 = 5;
/// So long whoever waits makes way for those who start, before being told why.
const EXPLANATION_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) struct Performer {
    pub(super) writer: ApiWriter,
    words: ApiWriter,
    /// For times on groups, of which every bind makes one, and for other words than before: whoever waits is told first.
    notes: ApiWriter,
    /// Words that wait to be written: newer ones about the same object take their place.
    board: Arc<Mutex<BTreeMap<Target, Vec<Write>>>>,
    events: EventRecorder,
    /// Milliseconds that creating a bind request takes.
    bind_request_latency: Histogram,
    evict_by_delete: bool,
}

/// What a write is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// Of bind requests.
    Batch(Key),
    Pod(Key),
    Group(Key),
    /// Times on a group, which are no matter of its conditions.
    Times(Key),
}

/// Requests go by the names of their pods, and belong to them.
pub(super) fn target(write: &Write) -> Target {
    match write {
        Write::CreateBindRequest(request) => Target::Pod(key_of(request)),
        Write::CreateBindBatch { batch, .. } => Target::Batch(key_of(batch)),
        Write::DeleteBindRequest(pod)
        | Write::LabelPod { pod, .. }
        | Write::Evict { pod, .. }
        | Write::Nominate { pod, .. }
        | Write::SetUnschedulable { pod, .. } => Target::Pod(pod.clone()),
        Write::PatchGroupTimestamps { group, .. } => Target::Times(group.clone()),
        Write::SetGroupConditions { group, .. } => Target::Group(group.clone()),
        Write::Emit(Event { about: InvolvedObject::Pod(key, _), .. }) => Target::Pod(key.clone()),
        Write::Emit(Event { about: InvolvedObject::PodGroup(key, _), .. }) => Target::Group(key.clone()),
    }
}

/// Whether it only says or notes something: nobody waits for it, and the next cycle would say it again.
pub(super) fn is_word(write: &Write) -> bool {
    matches!(
        write,
        Write::PatchGroupTimestamps { .. } | Write::SetGroupConditions { .. } | Write::SetUnschedulable { .. }
    )
}

/// Whether somebody waits for it who knows of no reason to wait.
fn explains(word: &Write) -> bool {
    matches!(
        word,
        Write::SetGroupConditions { is_update: false, .. } | Write::SetUnschedulable { is_update: false, .. }
    )
}

impl Performer {
    pub(super) fn new(
        writer: ApiWriter,
        events: EventRecorder,
        bind_request_latency: Histogram,
        options: &SchedulerOptions,
    ) -> Self {
        let (words, notes, board) = (writer.at_pending_reason_priority(), writer.at_status_priority(), Arc::default());
        Self { writer, words, notes, board, events, bind_request_latency, evict_by_delete: options.evict_by_delete }
    }

    /// Tells what else is to be known about an object, some time soon, instead of what waited to be told.
    pub(super) fn post(&self, about: Target, words: Vec<Write>, refuse: &mpsc::UnboundedSender<Input>) {
        let urgent = words.iter().any(explains);
        if self.board().insert(about.clone(), words).is_some() {
            return;
        }
        let (mut performer, refuse) = (self.clone(), refuse.clone());
        let writer = if urgent {
            performer.words = self.words.defer_up_to(EXPLANATION_PATIENCE);
            &self.words
        } else {
            performer.words = self.notes.clone();
            &self.notes
        };
        writer.spawn(move || async move {
            let words = performer.board().remove(&about).unwrap_or_default();
            performer.perform_all(words, &refuse).await;
        });
    }

    /// Performs writes one after the other, up to the first that fails.
    pub(super) async fn perform_all(&self, writes: Vec<Write>, refuse: &mpsc::UnboundedSender<Input>) {
        let mut writes = writes.into_iter();
        while let Some(write) = writes.next() {
            if let Err(why) = self.perform(&write).await {
                if is_word(&write) {
                    tracing::debug!(?write, why, "not said; the next cycle sees to it");
                } else {
                    tracing::warn!(?write, why, "not done");
                }
                // Nor is what was to follow. The loop may have ended.
                for asked in std::iter::once(write).chain(writes).flat_map(|undone| undone.assumptions()) {
                    let _ = refuse.send(Input::Refused(asked));
                }
                break;
            }
        }
    }

    /// What waited to be told about the same object does not hold any more: it is not said.
    pub(super) fn withdraw(&self, deed: &Write) -> Vec<Write> {
        let mut board = self.board();
        let mut clear = |about: &Target| board.get_mut(about).map(std::mem::take).unwrap_or_default();
        let mut withdrawn = clear(&target(deed));
        if let Write::CreateBindBatch { pods, .. } = deed {
            withdrawn.extend(pods.iter().flat_map(|pod| clear(&Target::Pod(pod.clone()))));
        }
        withdrawn
    }

    fn board(&self) -> MutexGuard<'_, BTreeMap<Target, Vec<Write>>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn emit(&self, event: Event) {
        let Event { about, warning, reason, message, annotations } = event;
        let about = match about {
            InvolvedObject::Pod(key, uid) => reference("v1", "Pod", &key, &uid),
            InvolvedObject::PodGroup(key, uid) => reference("scheduling.run.ai/v2alpha2", "PodGroup", &key, &uid),
        };
        self.events.publish(NewEvent { regarding: about, warning, reason, message, annotations });
    }

    /// Does it, or tells why it was not done.
    pub(super) async fn perform(&self, write: &Write) -> Result<(), String> {
        let done = match write {
            Write::CreateBindRequest(request) => return self.bind(request).await,
            Write::CreateBindBatch { batch, pods } => return self.bind_all(batch, pods).await,
            Write::DeleteBindRequest(request) if let Some((batch, annotation)) = bind_batch::batch_of(request) => {
                self.patch::<BindRequest>(&self.writer, &batch, &bind_batch::removal_patch(&annotation)).await
            }
            Write::DeleteBindRequest(request) => {
                tracing::info!(%request, "deleting a bind request that failed");
                let api: Api<BindRequest> = self.api(request);
                ignore_not_found(self.writer.call(|| api.delete(&request.name, &DELETE)).await)
            }
            Write::LabelPod { pod, key, value } => {
                let labels = BTreeMap::from([(key, value)]);
                self.patch::<Pod>(&self.writer, pod, &json!({"metadata": {"labels": labels}})).await
            }
            Write::Evict { pod, uid, message } => {
                tracing::info!(%pod, "evicting: {message}");
                self.evict(pod, uid).await
            }
            Write::Nominate { pod, node } => {
                self.patch_pod_status(&self.writer, pod, json!({"nominatedNodeName": node})).await
            }
            Write::PatchGroupTimestamps { group, annotations } => {
                self.patch::<PodGroup>(&self.notes, group, &json!({"metadata": {"annotations": annotations}})).await
            }
            Write::SetGroupConditions { group, conditions, .. } => {
                let api: Api<PodGroup> = self.api(group);
                let patch = Patch::Merge(json!({"status": {"schedulingConditions": conditions}}));
                let patched = self.words.call(|| api.patch_status(&group.name, &PATCH, &patch)).await;
                ignore_not_found(patched)
            }
            Write::SetUnschedulable { pod, reason, message, .. } => {
                let condition = json!({
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": jiff::Timestamp::now().strftime("%FT%TZ").to_string(),
                });
                self.patch_pod_status(&self.words, pod, json!({"conditions": [condition]})).await
            }
            Write::Emit(event) => {
                self.emit(event.clone());
                Ok(())
            }
        };
        done.map_err(|error| error.to_string())
    }

    async fn bind(&self, request: &BindRequest) -> Result<(), String> {
        let (key, node) = (key_of(request), &request.spec.selected_node);
        let api: Api<BindRequest> = self.api(&key);
        let watch = Stopwatch::start();
        match self.writer.call(|| api.create(&POST, request)).await {
            Ok(_) => self.bind_request_latency.observe(watch.milliseconds()),
            // Lost replies end here, too: then the stored one is what we asked for.
            Err(error) if status_code(&error) == Some(409) => {
                let stored = self.writer.call(|| api.get_opt(&key.name)).await.map_err(|error| error.to_string())?;
                let stored = stored.ok_or("a request of this name was there, and is gone now")?;
                if owner_of(&stored) != owner_of(request) {
                    let done = self.writer.call(|| api.delete(&key.name, &DELETE)).await;
                    ignore_not_found(done).map_err(|error| error.to_string())?;
                    return Err("a request for an earlier pod of this name was in the way".to_owned());
                }
                if stored.spec.selected_node != *node {
                    return Err(format!("is being bound to {} already", stored.spec.selected_node));
                }
            }
            Err(error) => {
                let about = reference("v1", "Pod", &key, owner_of(request).unwrap_or_default());
                let message = format!("Failed to bind pod {key} to node {node}. {error}");
                let (warning, reason, annotations) = (true, reason::FAILED_BINDING, BTreeMap::new());
                self.events.publish(NewEvent { regarding: about, warning, reason, message, annotations });
                return Err(error.to_string());
            }
        }
        tracing::info!(pod = %key, node, "bind requested");
        Ok(())
    }

    async fn bind_all(&self, batch: &BindRequest, pods: &[Key]) -> Result<(), String> {
        let key = key_of(batch);
        let api: Api<BindRequest> = self.api(&key);
        let watch = Stopwatch::start();
        match self.writer.call(|| api.create(&POST, batch)).await {
            Ok(_) => self.bind_request_latency.observe(watch.milliseconds()),
            // Nobody else makes one of this name.
            Err(error) if is_already_exists(&error) => {}
            Err(error) => return Err(error.to_string()),
        }
        tracing::info!(batch = %key, pods = pods.len(), "binds requested");
        Ok(())
    }

    /// Not a pod that is over: its work would count as lost with it.
    async fn evict(&self, pod: &Key, uid: &str) -> Result<(), kube::Error> {
        let api: Api<Pod> = self.api(pod);
        let mut attempts = 0;
        loop {
            let Some(stored) = self.writer.call(|| api.get_opt(&pod.name)).await? else { return Ok(()) };
            let phase = stored.status.and_then(|status| status.phase);
            let over = matches!(phase.as_deref(), Some("Succeeded" | "Failed"));
            // Nor another one that has taken its name meanwhile.
            if over || stored.metadata.uid.as_deref() != Some(uid) {
                return Ok(());
            }
            let resource_version = stored.metadata.resource_version;
            let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version });
            let delete = DeleteParams { preconditions, ..DeleteParams::default() };
            let done = if self.evict_by_delete {
                self.writer.call(|| api.delete(&pod.name, &delete)).await.map(|_| ())
            } else {
                self.writer.evict(&api, &pod.name, delete).await
            };
            attempts += 1;
            match done {
                Err(error) if status_code(&error) == Some(404) => return Ok(()),
                // Somebody wrote the pod at the same time.
                Err(error) if status_code(&error) == Some(409) && attempts < ATTEMPTS => {}
                done => return done,
            }
        }
    }

    /// Conditions are merged by type: those of others stay.
    async fn patch_pod_status(&self, writer: &ApiWriter, pod: &Key, status: Value) -> Result<(), kube::Error> {
        let api: Api<Pod> = self.api(pod);
        let patch = Patch::Strategic(json!({"status": status}));
        ignore_not_found(writer.call(|| api.patch_status(&pod.name, &PATCH, &patch)).await)
    }

    async fn patch<K>(&self, writer: &ApiWriter, key: &Key, patch: &Value) -> Result<(), kube::Error>
    where
        K: Namespaced,
    {
        let api: Api<K> = self.api(key);
        let patch = Patch::Merge(patch);
        ignore_not_found(writer.call(|| api.patch(&key.name, &PATCH, &patch)).await)
    }

    fn api<K: Namespaced>(&self, key: &Key) -> Api<K> {
        Api::namespaced(self.writer.client.clone(), &key.namespace)
    }
}

/// Kinds that live in namespaces.
trait Namespaced:
    kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + serde::de::DeserializeOwned
{
}

impl Namespaced for Pod {}
impl Namespaced for PodGroup {}
impl Namespaced for BindRequest {}

fn key_of(request: &BindRequest) -> Key {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Key::new(text(&request.metadata.namespace), text(&request.metadata.name))
}

fn owner_of(request: &BindRequest) -> Option<&str> {
    Some(request.metadata.owner_references.as_ref()?.first()?.uid.as_str())
}
