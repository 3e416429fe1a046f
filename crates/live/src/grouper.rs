//! The pod grouper on a cluster: every pod of our scheduler gets its group, and a link to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kai_api::PodGroup;
use kai_control::Key;
use kai_control::grouper::{Followed, GroupEffect, GrouperController, Job, Reading, Step, Written};
use kai_workloads::{ObjectRef, Settings};
use kube::api::{Api, ApiResource, Patch};
use kube::core::GroupVersionKind;
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::{RwLock, mpsc};
use tokio_util::sync::CancellationToken;

use crate::api_error::{is_already_exists, status_code};
use crate::api_writer::{ApiWriter, PATCH, POST};
use crate::draft_channel::DraftSender;
use crate::events::{EventRecorder, NewEvent, reference};
use crate::health::ReadinessHandle;
use crate::stripped_object::{ConfigMapData, StrippedObject};
use crate::watch::{FieldSelector, SharedWatches, WatchSpec, WatchUpdate, forward_updates};
use crate::{ApiLimits, FatalError, Health, LeaderElectionOptions, clock, leader_election};

#[derive(Clone, Debug)]
pub struct GrouperOptions {
    pub settings: Settings,
    /// The config map in which users declare kinds.
    pub declarations: Key,
    /// Objects read or written at the same time.
    pub workers: usize,
    pub election: Option<LeaderElectionOptions>,
}

const KINDS: [Followed; 4] = [Followed::Pods, Followed::Groups, Followed::PriorityClasses, Followed::Declarations];

enum Input {
    Update(Followed, WatchUpdate),
    Read(ObjectRef, Reading),
    /// What a pod needs was written, or not.
    Written(Key, Written),
}

/// So long what nobody waits for makes way for what lets pods start.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reason of events.
const WARNING: &str = "PodGrouperWarning";

/// Groups pods until stopped.
pub(crate) async fn run(
    client: Client,
    watches: SharedWatches,
    options: GrouperOptions,
    drafts: Option<DraftSender>,
    limits: Arc<ApiLimits>,
    health: Health,
    stop: CancellationToken,
) -> Result<(), FatalError> {
    let readiness = health.add_component("podgrouper");
    let GrouperOptions { settings, declarations, workers, election } = options;
    let writer = ApiWriter::new(client.clone(), limits, workers);
    let shell = Shell {
        events: EventRecorder::new(&writer, "pod-grouper"),
        groups: writer.at_pending_reason_priority(),
        words: writer.at_status_priority(),
        writer,
        scheduler_name: settings.scheduler_name.clone(),
        agenda: GrouperController::new(settings),
        declarations,
        unseen: KINDS.into(),
        kinds: Arc::default(),
        drafts,
        readiness,
    };
    leader_election::run_as_leader(client, (&health, "podgrouper"), election, stop.clone(), shell.run(watches, stop))
        .await?;
    tracing::info!("pod grouper has ended");
    Ok(())
}

struct Shell {
    writer: ApiWriter,
    /// For groups that nobody waits for, which most words are about.
    groups: ApiWriter,
    words: ApiWriter,
    events: EventRecorder,
    agenda: GrouperController,
    scheduler_name: String,
    declarations: Key,
    unseen: BTreeSet<Followed>,
    kinds: Arc<Kinds>,
    /// To the scheduler of this process, if it has one. Dropped when we no longer lead.
    drafts: Option<DraftSender>,
    readiness: ReadinessHandle,
}

impl Shell {
    async fn run(mut self, watches: SharedWatches, stop: CancellationToken) {
        // Few: pods are large until they have been looked at.
        let (out, mut news) = mpsc::channel(64);
        let mut followed = tokio::task::JoinSet::new();
        for kind in KINDS {
            followed.spawn(forward_updates(watches.clone(), self.watched(kind), out.clone(), move |seen| {
                Input::Update(kind, seen)
            }));
        }
        // Never full: there are no more ends than steps.
        let (finish, mut finished) = mpsc::unbounded_channel();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(done) = finished.recv() => self.take(done),
                Some(seen) = news.recv() => self.take(seen),
                () = tokio::time::sleep(self.until_next()) => {}
            }
            // All that is there already, so that nothing is written that is there.
            while let Ok(done) = finished.try_recv() {
                self.take(done);
            }
            while let Ok(seen) = news.try_recv() {
                self.take(seen);
            }
            if self.readiness.is_ready() {
                let _busy = self.readiness.busy();
                self.agenda.drafts(self.drafts.as_ref().is_some_and(DraftSender::has_receiver));
                for step in self.agenda.steps(clock::now()) {
                    self.perform(step, finish.clone());
                }
            }
        }
        drop(followed);
        self.writer.drain().await;
    }

    fn watched(&self, kind: Followed) -> WatchSpec {
        match kind {
            Followed::Pods => WatchSpec::with::<Pod>(FieldSelector::scheduler(&self.scheduler_name)),
            Followed::Groups => WatchSpec::all::<PodGroup>(),
            Followed::PriorityClasses => WatchSpec::all::<PriorityClass>(),
            Followed::Declarations => WatchSpec::with::<ConfigMap>(FieldSelector::named(&self.declarations)),
        }
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
                self.agenda.relisted(kind, clock::now());
                for key in &removed {
                    self.agenda.lose(kind, key, clock::now());
                }
                for value in &objects {
                    self.see(kind, value);
                }
                self.unseen.remove(&kind);
                if self.unseen.is_empty() && !self.readiness.is_ready() {
                    tracing::info!(pods = self.agenda.pods(), "caches synced");
                    self.readiness.ready();
                }
            }
            Input::Read(object, reading) => self.agenda.was_read(object, reading, clock::now()),
            Input::Written(pod, written) => self.agenda.ended(pod, written, clock::now()),
        }
    }

    fn see(&mut self, kind: Followed, value: &Value) {
        let (key, uid) = (Key::of(value), value["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
        for complaint in self.agenda.see(kind, value, clock::now()) {
            tracing::warn!("{complaint}");
            self.warn("ConfigMap", &key, &uid, complaint.to_string());
        }
    }

    fn perform(&self, step: Step, finish: mpsc::UnboundedSender<Input>) {
        match step {
            Step::Read(object) => {
                let (writer, kinds) = (self.writer.clone(), Arc::clone(&self.kinds));
                self.writer.spawn_read(move || async move {
                    let reading = kinds.read(&writer, &object).await;
                    // The loop may have ended.
                    let _ = finish.send(Input::Read(object, reading));
                });
            }
            // Before it is written: whatever a watch shows of it comes later.
            Step::PlannedWrite(draft) => {
                if let Some(drafts) = &self.drafts {
                    drafts.send(draft);
                }
            }
            Step::Write(Job { pod, mut effects, patient, notes }) => {
                for note in &notes {
                    tracing::info!(%pod, reason = ?note, "ignored a setting of the workload");
                }
                let end = move |written| {
                    // The loop may have ended.
                    let _ = finish.send(Input::Written(pod, written));
                };
                if !patient {
                    write(&self.writer, effects, end);
                    return;
                }
                // Explanations are about groups, so these come before links.
                let is_link = |effect: &GroupEffect| matches!(effect, GroupEffect::LinkPod { .. });
                let links = effects.iter().position(is_link).map_or_else(Vec::new, |first| effects.split_off(first));
                let (groups, words) = (self.groups.defer_up_to(PATIENCE), self.words.defer_up_to(PATIENCE));
                write(&groups, effects, move |written| match written {
                    Written::Done => write(&words, links, end),
                    failed => end(failed),
                });
            }
            Step::Complain { pod, uid, why } => {
                tracing::warn!(%pod, error = why, "cannot determine pod group, will retry");
                self.warn("Pod", &pod, &uid, why);
            }
        }
    }

    fn warn(&self, kind: &str, key: &Key, uid: &str, message: String) {
        let (about, annotations) = (reference("v1", kind, key, uid), BTreeMap::new());
        self.events.publish(NewEvent { regarding: about, warning: true, reason: WARNING, message, annotations });
    }
}

/// Performs effects one after the other, up to the first that fails, some time soon; at once if there are none.
fn write(writer: &ApiWriter, effects: Vec<GroupEffect>, then: impl FnOnce(Written) + Send + 'static) {
    if effects.is_empty() {
        return then(Written::Done);
    }
    let calls = writer.clone();
    writer.spawn(move || async move {
        let mut written = Written::Done;
        for effect in effects {
            written = perform(&calls, effect).await;
            if written != Written::Done {
                break;
            }
        }
        then(written);
    });
}

async fn perform(writer: &ApiWriter, effect: GroupEffect) -> Written {
    let groups = |group: &PodGroup| -> (Api<PodGroup>, String) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let api = Api::namespaced(writer.client.clone(), &text(&group.metadata.namespace));
        (api, text(&group.metadata.name))
    };
    let done = match effect {
        GroupEffect::CreatePodGroup(group) => {
            let (api, name) = groups(&group);
            match writer.call(|| api.create(&POST, &group)).await {
                Ok(_) => {
                    tracing::info!(group = name, queue = group.spec.queue, "pod group created");
                    Ok(Written::Done)
                }
                // By another pod of it, or by an attempt whose reply was lost.
                Err(error) if is_already_exists(&error) => Ok(Written::Done),
                Err(error) if status_code(&error) == Some(409) => Ok(Written::NotCreated),
                Err(error) => Err(error),
            }
        }
        GroupEffect::ReplacePodGroup(group) => {
            if group.metadata.resource_version.is_none() {
                // Known only as one that is on its way.
                return Written::Outrun;
            }
            let (api, name) = groups(&group);
            match writer.call(|| api.replace(&name, &POST, &group)).await {
                Err(error) if matches!(status_code(&error), Some(404 | 409)) => Ok(Written::Outrun),
                done => done.map(|_| Written::Done),
            }
        }
        GroupEffect::LinkPod { pod, annotations, labels } => {
            let api: Api<Pod> = Api::namespaced(writer.client.clone(), &pod.namespace);
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations, "labels": labels}}));
            match writer.call(|| api.patch(&pod.name, &PATCH, &patch)).await {
                Err(error) if status_code(&error) == Some(404) => Ok(Written::Done),
                done => done.map(|_| Written::Done),
            }
        }
    };
    done.unwrap_or_else(|error| match error {
        Error::Api(status) => Written::Failed(status.message),
        error => Written::Failed(error.to_string()),
    })
}

/// Where the API server serves which kind, asked once for each.
#[derive(Debug, Default)]
struct Kinds(RwLock<BTreeMap<(String, String), (ApiResource, bool)>>);

impl Kinds {
    async fn read(&self, writer: &ApiWriter, object: &ObjectRef) -> Reading {
        match self.fetch(writer, object).await {
            Ok(Some(value)) => Reading::Found(Box::new(value)),
            Ok(None) => Reading::Missing,
            // A kind that is not served, or not for us to see, ends the walk, as it should.
            Err(error) if matches!(status_code(&error), Some(403 | 404)) => Reading::Forbidden,
            Err(Error::Discovery(_)) => Reading::Forbidden,
            Err(error) => Reading::Failed(error.to_string()),
        }
    }

    async fn fetch(&self, writer: &ApiWriter, object: &ObjectRef) -> Result<Option<Value>, Error> {
        let (resource, namespaced) = self.locate(writer, object).await?;
        let client = writer.client.clone();
        let api: Api<StrippedObject> = if namespaced {
            Api::namespaced_with(client, &object.namespace, &resource)
        } else {
            Api::all_with(client, &resource)
        };
        let found = writer.call(|| api.get_opt(&object.name)).await?;
        Ok(found.map(|object| object.into_value(&resource, ConfigMapData::Keep)))
    }

    async fn locate(&self, writer: &ApiWriter, object: &ObjectRef) -> Result<(ApiResource, bool), Error> {
        let key = (object.api_version.clone(), object.kind.clone());
        if let Some(known) = self.0.read().await.get(&key) {
            return Ok(known.clone());
        }
        let (group, version) = object.api_version.rsplit_once('/').unwrap_or(("", &object.api_version));
        let kind = GroupVersionKind::gvk(group, version, &object.kind);
        let (resource, capabilities) = kube::discovery::pinned_kind(&writer.client, &kind).await?;
        let namespaced = capabilities.scope == kube::discovery::Scope::Namespaced;
        self.0.write().await.insert(key, (resource.clone(), namespaced));
        Ok((resource, namespaced))
    }
}
