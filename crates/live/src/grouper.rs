//! The pod grouper on a cluster: every pod of our scheduler gets its group, and a link to it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kai_api::PodGroup;
use kai_api::keys::annotation;
use kai_control::Key;
use kai_control::grouper::{Answer, GroupEffect, reconcile};
use kai_engine::units::{Span, Timestamp};
use kai_workloads::owners::{Lookup, OwnerQuery};
use kai_workloads::{DeclaredKinds, ObjectRef, Related, RelatedPod, Settings, StoredGroup};
use kube::api::{Api, ApiResource, DynamicObject, Patch};
use kube::core::GroupVersionKind;
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::{RwLock, mpsc};
use tokio_util::sync::CancellationToken;

use crate::events::{Events, Note, reference};
use crate::health::Part;
use crate::watch::{Seen, Watched, follow};
use crate::writer::{PATCH, POST, Writer, code, exists_already};
use crate::{Fault, Health, LeaseOptions, Pace, clock, lease};

#[derive(Clone, Debug)]
pub struct GrouperOptions {
    pub settings: Settings,
    /// The config map in which users declare kinds.
    pub declarations: Key,
    /// Objects read or written at the same time.
    pub workers: usize,
    pub lease: Option<LeaseOptions>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Pods,
    Groups,
    PriorityClasses,
    Declarations,
}

const KINDS: [Kind; 4] = [Kind::Pods, Kind::Groups, Kind::PriorityClasses, Kind::Declarations];

enum News {
    Seen(Kind, Seen),
    Read(ObjectRef, Reading),
    /// What a pod's answer asked for was written, or not.
    Written(Key, Result<Written, String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Done,
    /// Somebody else was faster: look again.
    Outrun,
    /// Nobody was: the group does not exist.
    NotCreated,
}

/// What the API server says about an object that nobody watches.
#[derive(Clone, Debug)]
enum Reading {
    Found(Box<Value>),
    Forbidden,
    Missing,
    /// It did not say.
    Failed(String),
}

/// Reason of events.
const WARNING: &str = "PodGrouperWarning";
/// For how long a reading is good enough: pods of one workload come in bursts.
const READING_LIFE: Span = Span::seconds(3);
/// Between attempts for a pod that cannot be grouped: the first pause, and the longest.
const PAUSE: Span = Span::seconds(1);
const PAUSE_MAX: Span = Span::seconds(60);
/// Between looks at a pod that waits: its owners may have changed. The first pause, and the longest.
const LOOK: Span = Span::seconds(15);
const LOOK_MAX: Span = Span::seconds(300);
/// Until a watch shows what others have written.
const MOMENT: Span = Span(200_000);
const IDLE: Duration = Duration::from_secs(10);

/// Groups pods until stopped.
pub(crate) async fn run(
    client: Client,
    options: GrouperOptions,
    pace: Arc<Pace>,
    health: Health,
    stop: CancellationToken,
) -> Result<(), Fault> {
    let part = health.part();
    let GrouperOptions { settings, declarations, workers, lease } = options;
    let writer = Writer::new(client.clone(), pace, workers);
    let shell = Shell {
        events: Events::new(&writer, "pod-grouper"),
        writer,
        settings,
        declarations,
        known: Known::default(),
        unseen: KINDS.into(),
        due: BTreeMap::new(),
        failures: BTreeMap::new(),
        looks: BTreeMap::new(),
        busy: BTreeSet::new(),
        reading: BTreeMap::new(),
        kinds: Arc::default(),
        part,
    };
    lease::lead(client, lease, stop.clone(), shell.run(stop)).await?;
    tracing::info!("pod grouper has ended");
    Ok(())
}

struct Shell {
    writer: Writer,
    events: Events,
    settings: Settings,
    declarations: Key,
    known: Known,
    unseen: BTreeSet<Kind>,
    /// Pods to look at, and when.
    due: BTreeMap<Key, Timestamp>,
    /// Attempts in vain, and the last complaint.
    failures: BTreeMap<Key, (u32, String)>,
    /// How often pods that wait were looked at.
    looks: BTreeMap<Key, u32>,
    /// Pods whose answers are being written.
    busy: BTreeSet<Key>,
    /// Objects being read, and the pods that wait for them.
    reading: BTreeMap<ObjectRef, BTreeSet<Key>>,
    kinds: Arc<Kinds>,
    part: Part,
}

impl Shell {
    async fn run(mut self, stop: CancellationToken) {
        // Few: pods are large until they have been looked at.
        let (out, mut news) = mpsc::channel(64);
        let ours = format!("spec.schedulerName={}", self.settings.scheduler_name);
        let mut watches = tokio::task::JoinSet::new();
        for kind in KINDS {
            let watched = match kind {
                Kind::Pods => Watched::with::<Pod>(ours.clone()),
                Kind::Groups => Watched::all::<PodGroup>(),
                Kind::PriorityClasses => Watched::all::<PriorityClass>(),
                Kind::Declarations => {
                    let Key { namespace, name } = &self.declarations;
                    Watched::with::<ConfigMap>(format!("metadata.namespace={namespace},metadata.name={name}"))
                }
            };
            let client = self.writer.client.clone();
            watches.spawn(follow(client, watched, out.clone(), move |seen| News::Seen(kind, seen)));
        }
        let (finish, mut finished) = mpsc::unbounded_channel();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(done) = finished.recv() => self.take(done),
                Some(seen) = news.recv() => self.take(seen),
                () = tokio::time::sleep(self.until_next()) => {}
            }
            if self.part.is_ready() {
                self.carry_on(&finish);
            }
        }
        drop(watches);
        self.writer.drain().await;
    }

    /// How long nothing is due.
    fn until_next(&self) -> Duration {
        if !self.part.is_ready() {
            return IDLE;
        }
        let idle = self.due.iter().filter(|(pod, _)| !self.busy.contains(*pod));
        let next = idle.map(|(_, at)| at.since(clock::now()).0.max(0)).min();
        next.map_or(IDLE, |micros| Duration::from_micros(micros.unsigned_abs() + 1000))
    }

    fn take(&mut self, news: News) {
        let now = clock::now();
        match news {
            News::Seen(kind, Seen::Applied(value)) => self.see(kind, value, now),
            News::Seen(kind, Seen::Deleted(key)) => self.lose(kind, &key, now),
            News::Seen(kind, Seen::Listed { all, gone }) => {
                if kind == Kind::Groups {
                    // Those that exist are among them.
                    self.known.forget_assumed();
                }
                for key in &gone {
                    self.lose(kind, key, now);
                }
                for value in all {
                    self.see(kind, value, now);
                }
                self.unseen.remove(&kind);
                if self.unseen.is_empty() && !self.part.is_ready() {
                    tracing::info!(pods = self.known.pods.len(), "the cluster is known");
                    self.part.ready();
                }
            }
            News::Read(object, reading) => {
                for pod in self.reading.remove(&object).unwrap_or_default() {
                    match &reading {
                        Reading::Failed(why) => self.fail(&pod, format!("{object} cannot be read: {why}"), now),
                        _ => {
                            self.due.insert(pod, now);
                        }
                    }
                }
                if !matches!(reading, Reading::Failed(_)) {
                    self.known.read.insert(object, (reading, now));
                }
            }
            News::Written(pod, written) => {
                self.busy.remove(&pod);
                match written {
                    Ok(Written::Done) => self.done(pod, now),
                    Ok(Written::Outrun) => {
                        self.due.insert(pod, now.plus(MOMENT));
                    }
                    Ok(Written::NotCreated) => {
                        self.known.forget_assumed();
                        self.due.insert(pod, now.plus(MOMENT));
                    }
                    Err(why) => self.fail(&pod, why, now),
                }
            }
        }
    }

    fn see(&mut self, kind: Kind, value: Value, now: Timestamp) {
        let key = Key::of(&value);
        match kind {
            Kind::Pods => {
                let over = matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
                let pod = KnownPod::of(value);
                // Who a pod belongs to does not depend on how it does.
                if !over && self.known.pods.get(&key) != Some(&pod) {
                    self.due.insert(key.clone(), now);
                }
                self.known.pods.insert(key, pod);
            }
            Kind::Groups => {
                self.known.assumed.remove(&key);
                self.known.groups.insert(key, value);
            }
            Kind::PriorityClasses => {
                self.known.classes.insert(key.name);
            }
            Kind::Declarations => {
                let (declared, complaints) = DeclaredKinds::from_config_map(&value);
                for complaint in complaints {
                    tracing::warn!("{complaint}");
                    let about =
                        reference("v1", "ConfigMap", &key, value["metadata"]["uid"].as_str().unwrap_or_default());
                    let (message, annotations) = (complaint.to_string(), BTreeMap::new());
                    self.events.tell(Note { about, warning: true, reason: WARNING, message, annotations });
                }
                self.declare(declared, now);
            }
        }
    }

    fn lose(&mut self, kind: Kind, key: &Key, now: Timestamp) {
        match kind {
            Kind::Pods => {
                self.known.pods.remove(key);
                self.due.remove(key);
                self.failures.remove(key);
                self.looks.remove(key);
            }
            Kind::Groups => {
                self.known.groups.remove(key);
                // Those left without it need it again.
                let pods = self.known.pods.iter();
                let linked = pods.filter(|(pod, known)| {
                    pod.namespace == key.namespace && known.group.as_deref() == Some(key.name.as_str())
                });
                self.due.extend(linked.map(|(pod, _)| (pod.clone(), now)));
            }
            Kind::PriorityClasses => {
                self.known.classes.remove(&key.name);
            }
            Kind::Declarations => self.declare(DeclaredKinds::default(), now),
        }
    }

    /// Other kinds are declared than before: every pod may belong elsewhere.
    fn declare(&mut self, declared: DeclaredKinds, now: Timestamp) {
        if self.settings.declared != declared {
            self.settings.declared = declared;
            self.due.extend(self.known.pods.keys().map(|pod| (pod.clone(), now)));
        }
    }

    fn carry_on(&mut self, finish: &mpsc::UnboundedSender<News>) {
        let now = clock::now();
        self.known.read.retain(|_, (_, at)| now.since(*at) <= READING_LIFE);
        let ready = |(pod, at): (&Key, &Timestamp)| (*at <= now && !self.busy.contains(pod)).then(|| pod.clone());
        let due: Vec<Key> = self.due.iter().filter_map(ready).collect();
        for pod in due {
            self.due.remove(&pod);
            self.group(pod, finish, now);
        }
    }

    fn group(&mut self, pod: Key, finish: &mpsc::UnboundedSender<News>, now: Timestamp) {
        let Some(value) = self.known.pods.get(&pod).map(KnownPod::value) else { return };
        let view = View { known: &self.known, missed: RefCell::default() };
        let answer = reconcile(&value, |query| view.owner(query), &view, &self.settings);
        let mut missed = view.missed.into_inner();
        if let Err(ungrouped) = &answer {
            missed.extend(ungrouped.unread().map(|query| query.object.clone()));
        }
        if !missed.is_empty() {
            for object in missed {
                self.read(object, &pod, finish);
            }
            return;
        }
        match answer {
            Ok(answer) => self.write(pod, answer, finish, now),
            Err(ungrouped) => self.fail(&pod, ungrouped.to_string(), now),
        }
    }

    fn read(&mut self, object: ObjectRef, pod: &Key, finish: &mpsc::UnboundedSender<News>) {
        let waiting = self.reading.entry(object.clone()).or_default();
        let first = waiting.is_empty();
        waiting.insert(pod.clone());
        if first {
            let (writer, kinds, finish) = (self.writer.clone(), Arc::clone(&self.kinds), finish.clone());
            self.writer.spawn(async move {
                let reading = kinds.read(&writer, &object).await;
                // The loop may have ended.
                let _ = finish.send(News::Read(object, reading));
            });
        }
    }

    fn write(&mut self, pod: Key, answer: Answer, finish: &mpsc::UnboundedSender<News>, now: Timestamp) {
        for note in &answer.notes {
            tracing::info!(%pod, ?note, "passed over");
        }
        if answer.effects.is_empty() {
            self.done(pod, now);
            return;
        }
        for effect in &answer.effects {
            if let GroupEffect::CreatePodGroup(group) = effect {
                // Other pods of it need not create it as well. Whether that works, the watch will show.
                self.known.assume(group);
            }
        }
        self.busy.insert(pod.clone());
        let (writer, finish) = (self.writer.clone(), finish.clone());
        self.writer.spawn(async move {
            let mut written = Ok(Written::Done);
            for effect in answer.effects {
                written = perform(&writer, effect).await;
                if written != Ok(Written::Done) {
                    break;
                }
            }
            let _ = finish.send(News::Written(pod, written));
        });
    }

    /// Its group is as it should be, for now.
    fn done(&mut self, pod: Key, now: Timestamp) {
        self.failures.remove(&pod);
        if self.known.pods.get(&pod).is_none_or(|known| known.placed) {
            self.looks.remove(&pod);
            return;
        }
        let looks = self.looks.entry(pod.clone()).or_default();
        let pause = pause_after(*looks, LOOK, LOOK_MAX);
        *looks = looks.saturating_add(1);
        self.due.entry(pod).or_insert(now.plus(pause));
    }

    fn fail(&mut self, pod: &Key, why: String, now: Timestamp) {
        let Some(known) = self.known.pods.get(pod) else { return };
        let (attempts, told) = self.failures.entry(pod.clone()).or_default();
        *attempts = attempts.saturating_add(1);
        let pause = pause_after(*attempts - 1, PAUSE, PAUSE_MAX);
        if *told != why {
            tracing::warn!(%pod, "has no group for now: {why}");
            let about = reference("v1", "Pod", pod, known.value()["metadata"]["uid"].as_str().unwrap_or_default());
            let (warning, reason, annotations) = (true, WARNING, BTreeMap::new());
            self.events.tell(Note { about, warning, reason, message: why.clone(), annotations });
            *told = why;
        }
        self.known.forget_assumed();
        self.due.insert(pod.clone(), now.plus(pause));
    }
}

/// Twice as long every time.
fn pause_after(times: u32, first: Span, most: Span) -> Span {
    Span(first.0.saturating_mul(1 << times.min(10))).min(most)
}

async fn perform(writer: &Writer, effect: GroupEffect) -> Result<Written, String> {
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
                Err(error) if exists_already(&error) => Ok(Written::Done),
                Err(error) if code(&error) == Some(409) => Ok(Written::NotCreated),
                Err(error) => Err(error),
            }
        }
        GroupEffect::ReplacePodGroup(group) => {
            if group.metadata.resource_version.is_none() {
                // Known only as one that is on its way.
                return Ok(Written::Outrun);
            }
            let (api, name) = groups(&group);
            match writer.call(|| api.replace(&name, &POST, &group)).await {
                Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(Written::Outrun),
                done => done.map(|_| Written::Done),
            }
        }
        GroupEffect::LinkPod { pod, annotations, labels } => {
            let api: Api<Pod> = Api::namespaced(writer.client.clone(), &pod.namespace);
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations, "labels": labels}}));
            match writer.call(|| api.patch(&pod.name, &PATCH, &patch)).await {
                Err(error) if code(&error) == Some(404) => Ok(Written::Done),
                done => done.map(|_| Written::Done),
            }
        }
    };
    done.map_err(|error| match error {
        Error::Api(status) => status.message,
        error => error.to_string(),
    })
}

/// What watches have shown and reads have found.
#[derive(Debug, Default)]
struct Known {
    /// Of our scheduler.
    pods: BTreeMap<Key, KnownPod>,
    groups: BTreeMap<Key, Value>,
    /// Groups on their way.
    assumed: BTreeMap<Key, Value>,
    classes: BTreeSet<String>,
    read: BTreeMap<ObjectRef, (Reading, Timestamp)>,
}

/// A pod without its status and without what runs in it, of which no rule asks anything. As text, which takes
/// much less memory: most pods are looked at once.
#[derive(Debug, PartialEq, Eq)]
struct KnownPod {
    text: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    /// The group it is linked to.
    group: Option<Box<str>>,
    placed: bool,
    terminating: bool,
}

impl KnownPod {
    fn of(mut pod: Value) -> Self {
        if let Some(fields) = pod.as_object_mut() {
            fields.remove("status");
        }
        if let Some(spec) = pod["spec"].as_object_mut() {
            for field in ["containers", "initContainers", "ephemeralContainers", "volumes"] {
                spec.remove(field);
            }
        }
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            // Changes with everything else.
            metadata.remove("resourceVersion");
        }
        let metadata = &pod["metadata"];
        let labels = metadata["labels"].as_object().into_iter().flatten();
        Self {
            text: pod.to_string().into(),
            labels: labels
                .map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or_default().into()))
                .collect(),
            group: metadata["annotations"][annotation::POD_GROUP_NAME].as_str().map(Into::into),
            placed: !pod["spec"]["nodeName"].is_null(),
            terminating: !metadata["deletionTimestamp"].is_null(),
        }
    }

    fn value(&self) -> Value {
        serde_json::from_str(&self.text).expect("it was written here")
    }

    fn has(&self, key: &str, value: &str) -> bool {
        self.labels.iter().any(|(own, set)| **own == *key && **set == *value)
    }
}

impl Known {
    fn assume(&mut self, group: &PodGroup) {
        let value = serde_json::to_value(group).unwrap_or_default();
        self.assumed.insert(Key::of(&value), value);
    }

    /// One of them may be what failed; those that exist will be found to.
    fn forget_assumed(&mut self) {
        self.assumed.clear();
    }

    fn group(&self, key: &Key) -> Option<&Value> {
        self.groups.get(key).or_else(|| self.assumed.get(key))
    }
}

/// What a rule sees, and what it would have liked to see.
struct View<'a> {
    known: &'a Known,
    missed: RefCell<BTreeSet<ObjectRef>>,
}

impl<'a> View<'a> {
    fn owner(&self, query: &OwnerQuery) -> Lookup<'a> {
        match self.known.read.get(&query.object) {
            Some((Reading::Found(value), _)) => Lookup::Found(value),
            Some((Reading::Forbidden, _)) => Lookup::Forbidden,
            Some((Reading::Missing, _)) => Lookup::Missing,
            Some((Reading::Failed(_), _)) | None => Lookup::Unread,
        }
    }
}

const POD_GROUP_API: &str = "scheduling.run.ai/v2alpha2";

impl Related for View<'_> {
    fn object(&self, at: &ObjectRef) -> Option<&Value> {
        if at.api_version == POD_GROUP_API && at.kind == "PodGroup" {
            return self.known.group(&Key::new(&at.namespace, &at.name));
        }
        match self.known.read.get(at) {
            Some((Reading::Found(value), _)) => Some(value),
            Some(_) => None,
            None => {
                self.missed.borrow_mut().insert(at.clone());
                None
            }
        }
    }

    fn has_priority_class(&self, name: &str) -> bool {
        self.known.classes.contains(name)
    }

    fn pods(&self, namespace: &str, labels: &[(&str, &str)]) -> Vec<RelatedPod> {
        let wanted = |pod: &KnownPod| labels.iter().all(|(key, value)| pod.has(key, value));
        let pods = self.known.pods.iter().filter(|(key, pod)| key.namespace == namespace && wanted(pod));
        pods.map(|(_, pod)| RelatedPod {
            pod_group: pod.group.as_deref().map(str::to_owned),
            terminating: pod.terminating,
        })
        .collect()
    }

    fn pod_group(&self, namespace: &str, name: &str) -> Option<StoredGroup> {
        self.known.group(&Key::new(namespace, name)).map(stored)
    }

    fn pod_groups(&self, namespace: &str, name_prefix: &str) -> Vec<StoredGroup> {
        let named = |key: &Key| key.namespace == namespace && key.name.starts_with(name_prefix);
        let all: BTreeMap<&Key, &Value> = self.known.assumed.iter().chain(&self.known.groups).collect();
        all.into_iter().filter(|(key, _)| named(key)).map(|(_, group)| stored(group)).collect()
    }
}

fn stored(group: &Value) -> StoredGroup {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let sub_groups = group["spec"]["subGroups"].as_array().into_iter().flatten();
    StoredGroup {
        name: text(&group["metadata"]["name"]).unwrap_or_default(),
        owner_kind: text(&group["metadata"]["ownerReferences"][0]["kind"]),
        sub_groups: sub_groups.filter_map(|group| text(&group["name"])).collect(),
    }
}

/// Where the API server serves which kind, asked once for each.
#[derive(Debug, Default)]
struct Kinds(RwLock<BTreeMap<(String, String), (ApiResource, bool)>>);

impl Kinds {
    async fn read(&self, writer: &Writer, object: &ObjectRef) -> Reading {
        match self.fetch(writer, object).await {
            Ok(Some(value)) => Reading::Found(Box::new(value)),
            Ok(None) => Reading::Missing,
            // A kind that is not served, or not for us to see, ends the walk, as it should.
            Err(error) if matches!(code(&error), Some(403 | 404)) => Reading::Forbidden,
            Err(Error::Discovery(_)) => Reading::Forbidden,
            Err(error) => Reading::Failed(error.to_string()),
        }
    }

    async fn fetch(&self, writer: &Writer, object: &ObjectRef) -> Result<Option<Value>, Error> {
        let (resource, namespaced) = self.locate(writer, object).await?;
        let client = writer.client.clone();
        let api: Api<DynamicObject> = if namespaced {
            Api::namespaced_with(client, &object.namespace, &resource)
        } else {
            Api::all_with(client, &resource)
        };
        let found = writer.call(|| api.get_opt(&object.name)).await?;
        Ok(found.map(|mut object| {
            object.metadata.managed_fields = None;
            serde_json::to_value(object).unwrap_or_default()
        }))
    }

    async fn locate(&self, writer: &Writer, object: &ObjectRef) -> Result<(ApiResource, bool), Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_the_same_whatever_becomes_of_it() {
        let mut pod = json!({
            "metadata": {"name": "a", "labels": {"app": "web"}, "resourceVersion": "1"},
            "spec": {"schedulerName": "kai-scheduler"},
            "status": {"phase": "Pending"},
        });
        let before = KnownPod::of(pod.clone());
        assert!(before.has("app", "web") && !before.has("app", "db") && !before.placed);
        pod["metadata"]["resourceVersion"] = json!("2");
        pod["status"]["phase"] = json!("Running");
        assert_eq!(KnownPod::of(pod.clone()), before);
        pod["metadata"]["annotations"] = json!({"pod-group-name": "pg-a"});
        let linked = KnownPod::of(pod);
        assert_ne!(linked, before);
        assert_eq!(linked.group.as_deref(), Some("pg-a"));
        assert_eq!(linked.value()["spec"]["schedulerName"], "kai-scheduler");
    }
}
