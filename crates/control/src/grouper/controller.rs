//! The grouper's controller: cache, work queue and work in flight. What is not watched, such as owners, it reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kai_engine::units::{Span, Timestamp};
use kai_workloads::{DeclaredKinds, GroupError, IgnoredValue, KindDefaults, ObjectRef, Settings};
use serde_json::Value;

use super::cache::{CacheView, CachedPod, GetOutcome, GrouperCache};
use super::{GroupEffect, PlannedWrite, ReconcileOutput, reconcile};
use crate::controller::{
    ApiCall, Backoff, CallError, Clock, Controller, FieldSelector, LeftOut, NewEvent, Output, Regarding, Skipped,
    WatchSpec, WorkItem, WorkKey, WorkQueue, WorkResult, WritePriority,
};
use crate::key::{Key, PodKey};
use crate::kinds::Kind;

/// Reason of events.
const WARNING: &str = "PodGrouperWarning";

/// How long writes that were announced to the scheduler, or that are not needed to schedule, make way for others.
const DEFER_MAX: Span = Span::seconds(20);
/// How long the result of a GET is used: pods of one workload come in bursts.
const GET_CACHE_TTL: Span = Span::seconds(3);
/// Between attempts for a pod that cannot be grouped.
const RETRY_BACKOFF: Backoff = Backoff::new(Span::seconds(1), Span::seconds(60));
/// Between reconciles of a pending pod: its owners may have changed.
const RECHECK: Backoff = Backoff::new(Span::seconds(15), Span::seconds(300));
/// Until a watch shows what others have written.
const WATCH_LAG: Span = Span(200_000);

/// The grouper as a [`Controller`].
#[derive(Debug)]
pub struct GrouperController {
    settings: Settings,
    /// The config map in which users declare kinds.
    declarations: Key,
    /// The config map with defaults per workload kind.
    kind_defaults: Option<Key>,
    cache: GrouperCache,
    queue: WorkQueue,
    /// Failed attempts, and the last problem.
    failures: BTreeMap<PodKey, (u32, String)>,
    /// How often pending pods were reconciled again.
    rechecks: BTreeMap<PodKey, u32>,
    /// Objects being read, and the pods that wait for them.
    reading: BTreeMap<ObjectRef, BTreeSet<PodKey>>,
    /// Pods whose link waits for the end of the work that writes their group.
    awaiting_link: BTreeSet<PodKey>,
    /// Whether the scheduler of this process takes planned writes, and need not wait until they are made.
    announce_planned: bool,
    /// What cancels the planned writes in flight, by the pod.
    planned_by_pod: BTreeMap<PodKey, Vec<PlannedWrite>>,
    /// What the next poll returns beside new work.
    outbox: Output,
}

impl GrouperController {
    pub fn new(settings: Settings, declarations: Key) -> Self {
        let kind_defaults = settings.kind_defaults_config_map.as_ref();
        Self {
            kind_defaults: kind_defaults.map(|map| Key::new(&map.namespace, &map.name)),
            settings,
            declarations,
            cache: GrouperCache::default(),
            queue: WorkQueue::default(),
            failures: BTreeMap::new(),
            rechecks: BTreeMap::new(),
            reading: BTreeMap::new(),
            awaiting_link: BTreeSet::new(),
            announce_planned: false,
            planned_by_pod: BTreeMap::new(),
            outbox: Output::default(),
        }
    }

    pub(super) fn apply(&mut self, kind: Kind, value: &Value, now: Timestamp) -> Vec<Skipped> {
        let key = kind.key_of(value);
        match kind {
            Kind::Pod => {
                let over = matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
                let pod = CachedPod::of(value);
                // Which group a pod belongs to does not depend on its status.
                if !over && self.cache.pods.get(&key) != Some(&pod) {
                    self.queue.schedule_at(key.clone(), now);
                }
                self.cache.pods.insert(key, pod);
            }
            Kind::PodGroup => self.cache.on_apply_group(key, value.clone()),
            Kind::PriorityClass => {
                self.cache.classes.insert(key.name);
            }
            Kind::ConfigMap => {
                let problems = self.apply_config_map(&key, value, now);
                let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
                for problem in &problems {
                    self.warn(kind, &key, uid, problem.to_string());
                }
                return problems.iter().map(|problem| Skipped::new(kind, key.clone(), problem.to_string())).collect();
            }
            Kind::Karta if self.cache.see_karta(key.name, value) => {
                self.reconcile_all(now);
            }
            _ => {}
        }
        Vec::new()
    }

    pub(super) fn delete(&mut self, kind: Kind, key: &Key, now: Timestamp) {
        match kind {
            Kind::Pod => {
                self.cache.pods.remove(key);
                self.queue.remove(key);
                self.failures.remove(key);
                self.rechecks.remove(key);
                self.awaiting_link.remove(key);
                if self.announce_planned {
                    self.outbox.planned.push(PlannedWrite::CancelLink(key.clone()));
                }
            }
            Kind::PodGroup => {
                self.cache.groups.remove(key);
                // Pods of the group need it again.
                for (pod, known) in &self.cache.pods {
                    if pod.namespace == key.namespace && known.group.as_deref() == Some(key.name.as_str()) {
                        self.queue.schedule_at(pod.clone(), now);
                    }
                }
            }
            Kind::PriorityClass => {
                self.cache.classes.remove(&key.name);
            }
            // As if it declared nothing.
            Kind::ConfigMap => self.set_by_config_map(key, DeclaredKinds::default(), KindDefaults::default(), now),
            Kind::Karta => {
                self.cache.forget_karta(&key.name);
                self.reconcile_all(now);
            }
            _ => {}
        }
    }

    /// A GET has ended.
    fn on_get(&mut self, object: ObjectRef, reply: Result<Option<Box<Value>>, CallError>, now: Timestamp) {
        let waiting = self.reading.remove(&object).unwrap_or_default();
        let outcome = match reply {
            Ok(Some(value)) => GetOutcome::Found(value),
            Ok(None) | Err(CallError::NotFound(_)) => GetOutcome::NotFound,
            // A kind that is not served, or may not be read, ends the walk to the top owner.
            Err(CallError::Forbidden(_)) => GetOutcome::Forbidden,
            Err(error) => {
                for pod in waiting {
                    self.requeue_with_backoff(&pod, format!("{object} cannot be read: {error}"), now);
                }
                return;
            }
        };
        self.cache.read.insert(object, (outcome, now));
        for pod in waiting {
            self.queue.schedule_at(pod, now);
        }
    }

    /// The writes for a pod have ended.
    fn on_written(&mut self, pod: PodKey, failed: Option<(&ApiCall, CallError)>, now: Timestamp) {
        self.queue.done(&pod);
        let planned = self.planned_by_pod.remove(&pod).unwrap_or_default();
        match failed {
            None if self.awaiting_link.remove(&pod) => self.queue.schedule_at(pod, now),
            None => self.on_grouped(pod, now),
            // The API server will accept it later, or others wrote a group of this name that is gone by now.
            Some((ApiCall::Group(GroupEffect::CreatePodGroup(_)), CallError::Conflict(_))) => {
                self.outbox.planned.extend(planned);
                self.forget_assumed(now);
                self.queue.schedule_at(pod, now.plus(WATCH_LAG));
            }
            // Others were faster. What was planned is still wanted, and the scheduler does not wait for it.
            Some((_, CallError::Conflict(_))) if !planned.is_empty() => {
                self.queue.schedule_at(pod, now.plus(RETRY_BACKOFF.first));
            }
            Some((_, CallError::Conflict(_))) => self.queue.schedule_at(pod, now.plus(WATCH_LAG)),
            Some((_, error)) => {
                self.outbox.planned.extend(planned);
                self.requeue_with_backoff(&pod, error.to_string(), now);
            }
        }
    }

    pub(super) fn work(&mut self, now: Timestamp) -> Output {
        // One from the future was made before the clock was set back.
        self.cache.read.retain(|_, (_, at)| (Span(0)..=GET_CACHE_TTL).contains(&now.since(*at)));
        while let Some(pod) = self.queue.pop_due(now) {
            self.reconcile_pod(pod, now);
        }
        std::mem::take(&mut self.outbox)
    }

    /// Returns what of the config map cannot be used.
    fn apply_config_map(&mut self, key: &Key, value: &Value, now: Timestamp) -> Vec<GroupError> {
        let mut problems = Vec::new();
        let (mut declared, mut defaults) = (DeclaredKinds::default(), KindDefaults::default());
        if *key == self.declarations {
            (declared, problems) = DeclaredKinds::from_config_map(value);
        }
        if self.kind_defaults.as_ref() == Some(key) {
            match KindDefaults::from_config_map(value) {
                Ok(read) => defaults = read,
                Err(problem) => problems.push(problem),
            }
        }
        self.set_by_config_map(key, declared, defaults, now);
        problems
    }

    /// With other declarations and defaults every pod may belong to another group.
    fn set_by_config_map(&mut self, key: &Key, declared: DeclaredKinds, defaults: KindDefaults, now: Timestamp) {
        let before = self.settings.clone();
        if *key == self.declarations {
            self.settings.declared = declared;
        }
        if self.kind_defaults.as_ref() == Some(key) {
            self.settings.kind_defaults = defaults;
        }
        if self.settings != before {
            self.reconcile_all(now);
        }
    }

    fn reconcile_all(&mut self, now: Timestamp) {
        for pod in self.cache.pods.keys() {
            self.queue.schedule_at(pod.clone(), now);
        }
    }

    fn reconcile_pod(&mut self, pod: PodKey, now: Timestamp) {
        let Some(value) = self.cache.pods.get(&pod).map(CachedPod::value) else { return };
        let view = CacheView::new(&self.cache);
        let result = reconcile(&value, |query| view.owner(query), &view, &self.settings);
        let mut misses = view.misses();
        if let Err(ungrouped) = &result {
            misses.extend(ungrouped.unfetched_owner().map(|query| query.object.clone()));
        }
        if !misses.is_empty() {
            for object in misses {
                let waiting = self.reading.entry(object.clone()).or_default();
                if waiting.is_empty() {
                    let get = ApiCall::Get(object.clone());
                    self.outbox.work.push(WorkItem::new(WorkKey::Object(object), vec![get]));
                }
                waiting.insert(pod.clone());
            }
            return;
        }
        match result {
            Ok(output) => {
                let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
                self.enqueue_writes(pod, uid, output, now);
            }
            Err(ungrouped) => self.requeue_with_backoff(&pod, ungrouped.to_string(), now),
        }
    }

    fn enqueue_writes(&mut self, pod: PodKey, uid: &str, output: ReconcileOutput, now: Timestamp) {
        let ReconcileOutput { mut effects, link_can_wait, ignored_values } = output;
        if effects.is_empty() {
            self.on_grouped(pod, now);
            return;
        }
        let creates = |effect: &GroupEffect| matches!(effect, GroupEffect::CreatePodGroup(_));
        let links = |effect: &GroupEffect| matches!(effect, GroupEffect::LinkPod { .. });
        let mut deferrable = link_can_wait && !effects.iter().any(creates);
        if link_can_wait {
            // Such a group is written once: once its pod is linked, it is not reconciled any more.
            effects.retain(if deferrable { links } else { creates });
        }
        if link_can_wait && !deferrable {
            self.awaiting_link.insert(pod.clone());
        }
        if !deferrable && let Some(planned) = self.plan(&pod, uid, &effects, now) {
            deferrable = true;
            self.planned_by_pod.insert(pod.clone(), planned.iter().map(PlannedWrite::cancellation).collect());
            self.outbox.planned.extend(planned);
        }
        for effect in &effects {
            if let GroupEffect::CreatePodGroup(group) = effect {
                // Other pods of it need not create it as well. The watch will show whether that works.
                self.cache.assume(group);
            }
        }
        for ignored in &ignored_values {
            let problem = ignored_value_problem(ignored);
            self.outbox.skipped.push(Skipped::of(LeftOut::Setting, Kind::Pod, pod.clone(), problem));
        }
        self.queue.start(pod.clone());
        let first_link = effects.iter().position(links);
        let calls = effects.into_iter().map(ApiCall::Group).collect();
        let mut item = WorkItem::new(WorkKey::Pod(pod), calls);
        if deferrable {
            // Reasons why pods wait are written to groups, so these come before links.
            item.priority = if first_link == Some(0) { WritePriority::Status } else { WritePriority::PendingReason };
            item.tail = first_link.filter(|at| *at > 0).map(|at| (at, WritePriority::Status));
            item.max_defer = Some(DEFER_MAX);
        }
        self.outbox.work.push(item);
    }

    /// All of these effects as planned writes, if the scheduler can use them.
    fn plan(&self, pod: &PodKey, uid: &str, effects: &[GroupEffect], now: Timestamp) -> Option<Vec<PlannedWrite>> {
        // Pods of node pools belong to other schedulers.
        let elsewhere = |known: &CachedPod| known.carries(&self.settings.node_pool_label_key);
        if !self.announce_planned || self.cache.pods.get(pod).is_none_or(elsewhere) {
            return None;
        }
        // Where writes failed, nothing is taken for granted.
        let failed = self.failures.range(Key::new(&pod.namespace, "")..).next();
        if failed.is_some_and(|(failed, _)| failed.namespace == pod.namespace) {
            return None;
        }
        effects.iter().map(|effect| PlannedWrite::of(effect, uid, now)).collect()
    }

    /// Its group is as it should be.
    fn on_grouped(&mut self, pod: PodKey, now: Timestamp) {
        self.failures.remove(&pod);
        if self.cache.pods.get(&pod).is_none_or(|known| known.placed) {
            self.rechecks.remove(&pod);
            return;
        }
        let rechecks = self.rechecks.entry(pod.clone()).or_default();
        let pause = RECHECK.after(*rechecks);
        *rechecks = rechecks.saturating_add(1);
        self.queue.schedule_if_absent(pod, now.plus(pause));
    }

    /// Groups that were assumed to be created may not be. Pending pods are reconciled again anyway.
    fn forget_assumed(&mut self, now: Timestamp) {
        let forgotten = self.cache.forget_assumed();
        if forgotten.is_empty() {
            return;
        }
        for (pod, known) in self.cache.pods.iter().filter(|(_, known)| known.placed) {
            let group = known.group.as_deref().map(|name| Key::new(&pod.namespace, name));
            if group.is_some_and(|group| forgotten.contains(&group)) {
                self.queue.schedule_if_absent(pod.clone(), now.plus(WATCH_LAG));
            }
        }
    }

    fn requeue_with_backoff(&mut self, pod: &PodKey, why: String, now: Timestamp) {
        self.forget_assumed(now);
        let Some(known) = self.cache.pods.get(pod) else { return };
        let uid = known.value()["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let (attempts, last) = self.failures.entry(pod.clone()).or_default();
        *attempts = attempts.saturating_add(1);
        self.queue.schedule_at(pod.clone(), now.plus(RETRY_BACKOFF.after(*attempts - 1)));
        if *last != why {
            last.clone_from(&why);
            self.outbox.skipped.push(Skipped::of(LeftOut::Grouping, Kind::Pod, pod.clone(), why.clone()));
            self.warn(Kind::Pod, pod, &uid, why);
        }
    }

    fn warn(&mut self, kind: Kind, key: &Key, uid: &str, message: String) {
        let regarding = Regarding { kind, key: key.clone(), uid: uid.to_owned() };
        self.outbox.events.push(NewEvent {
            regarding,
            warning: true,
            reason: WARNING,
            message,
            annotations: BTreeMap::new(),
        });
    }
}

fn ignored_value_problem(ignored: &IgnoredValue) -> String {
    match ignored {
        IgnoredValue::UnknownPriorityClass { object, class } => {
            format!("{object} names priority class {class}, which does not exist, ignored")
        }
        IgnoredValue::InvalidPreemptibility { object, value } => {
            format!("{object} has preemptibility `{value}`, which is invalid, ignored")
        }
        IgnoredValue::InvalidDuration { object, key, value } => {
            format!("{object} has {key} `{value}`, which is not a duration, ignored")
        }
    }
}

impl Controller for GrouperController {
    fn watches(&self) -> Vec<WatchSpec> {
        let mut watches = vec![
            WatchSpec::with(Kind::Pod, FieldSelector::scheduler(&self.settings.scheduler_name)),
            WatchSpec::all(Kind::PodGroup),
            WatchSpec::all(Kind::PriorityClass),
            WatchSpec::with(Kind::ConfigMap, FieldSelector::named(&self.declarations)),
        ];
        if self.settings.karta_fallback {
            watches.push(WatchSpec::all(Kind::Karta));
        }
        if let Some(config_map) = self.kind_defaults.as_ref().filter(|map| **map != self.declarations) {
            watches.push(WatchSpec::with(Kind::ConfigMap, FieldSelector::named(config_map)));
        }
        watches
    }

    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, now: Clock) -> Vec<Skipped> {
        self.apply(kind, object, now.wall)
    }

    fn on_delete(&mut self, kind: Kind, key: &Key, now: Clock) {
        self.delete(kind, key, now.wall);
    }

    fn on_relist(&mut self, kind: Kind, now: Clock) {
        if kind == Kind::PodGroup {
            // Those that exist are among them.
            self.forget_assumed(now.wall);
        }
    }

    fn poll(&mut self, now: Clock) -> Output {
        self.work(now.wall)
    }

    fn on_result(&mut self, result: WorkResult, now: Clock) {
        let WorkResult { item: WorkItem { key, calls, .. }, mut errors, found, .. } = result;
        let failed = errors.pop_first();
        match key {
            WorkKey::Object(object) => {
                let reply = failed.map_or(Ok(found), |(_, error)| Err(error));
                self.on_get(object, reply, now.wall);
            }
            WorkKey::Pod(pod) => self.on_written(pod, failed.map(|(at, error)| (&calls[at], error)), now.wall),
            _ => {}
        }
    }

    fn next_poll(&self, now: Clock) -> Option<Timestamp> {
        if self.outbox != Output::default() {
            return Some(now.steady);
        }
        self.queue.next_due().map(|at| now.steady_at(at))
    }

    fn announce_planned(&mut self, has_receiver: bool) {
        self.announce_planned = has_receiver;
    }

    fn size(&self) -> usize {
        self.cache.pods.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn pod(owners: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "lab", "uid": "u", "ownerReferences": owners},
            "spec": {"schedulerName": "kai-scheduler"}})
    }

    fn key() -> PodKey {
        Key::new("lab", "p")
    }

    fn following(pod: &Value) -> GrouperController {
        let mut controller = GrouperController::new(Settings::default(), Key::default());
        controller.apply(Kind::Pod, pod, NOW);
        controller
    }

    /// What it wants, in few words.
    fn drawn(controller: &mut GrouperController, now: Timestamp) -> Vec<String> {
        let call = |call: &ApiCall| match call {
            ApiCall::Get(object) => format!("read {}", object.name),
            ApiCall::Group(GroupEffect::CreatePodGroup(_)) => "create".to_owned(),
            ApiCall::Group(GroupEffect::ReplacePodGroup(_)) => "replace".to_owned(),
            ApiCall::Group(GroupEffect::LinkPod { .. }) => "link".to_owned(),
            other => panic!("{other}"),
        };
        let planned = |planned: PlannedWrite| match planned {
            PlannedWrite::Group(group) => format!("draft {}", group.key.name),
            PlannedWrite::Link(link) => format!("draft link to {}", link.group.unwrap_or_default()),
            other => format!("{other:?}"),
        };
        let item = |item: WorkItem| {
            let calls: Vec<String> = item.calls.iter().map(call).collect();
            let some_time = item.priority != WritePriority::Action;
            format!("{}{}", calls.join(" "), if some_time { " some time" } else { "" })
        };
        let output = controller.work(now);
        let planned = output.planned.into_iter().map(planned);
        planned
            .chain(output.work.into_iter().map(item))
            .chain(output.events.into_iter().map(|event| event.message))
            .collect()
    }

    /// The writes of the pod end.
    fn ended(controller: &mut GrouperController, failed: Option<CallError>, now: Timestamp) {
        let group =
            ApiCall::Group(GroupEffect::LinkPod { pod: key(), annotations: BTreeMap::new(), labels: BTreeMap::new() });
        controller.on_written(key(), failed.map(|error| (&group, error)), now);
    }

    fn rejected() -> CallError {
        CallError::Rejected("no".to_owned())
    }

    #[test]
    fn the_link_to_a_pods_own_group_can_wait() {
        let mut controller = following(&pod(&json!([])));
        assert_eq!(drawn(&mut controller, NOW), ["create"]);
        assert_eq!(drawn(&mut controller, NOW), [""; 0]);
        ended(&mut controller, None, NOW);
        assert_eq!(drawn(&mut controller, NOW), ["link some time"]);
        ended(&mut controller, None, NOW);
        assert_eq!(drawn(&mut controller, NOW), [""; 0]);
        assert_eq!(due(&controller, NOW), Some(NOW.plus(RECHECK.first)), "what it says may change while it waits");
    }

    #[test]
    fn a_group_of_one_pod_is_not_written_again_when_the_pod_is_bound() {
        let mut controller = following(&pod(&json!([])));
        let work = controller.work(NOW).work;
        let [ApiCall::Group(GroupEffect::CreatePodGroup(group))] = &work[0].calls[..] else { panic!("{work:?}") };
        controller.apply(Kind::PodGroup, &json!(group), NOW);
        let mut bound = pod(&json!([]));
        bound["metadata"]["annotations"] = json!({"received-resource-type": "Regular"});
        bound["spec"]["nodeName"] = json!("n");
        controller.apply(Kind::Pod, &bound, NOW);
        ended(&mut controller, None, NOW);
        assert_eq!(drawn(&mut controller, NOW), ["link some time"]);
    }

    #[test]
    fn owners_are_read_once_and_the_link_is_needed() {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "o"});
        let mut controller = following(&pod(&json!([owner])));
        assert_eq!(drawn(&mut controller, NOW), ["read j"]);
        let job =
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "lab", "uid": "o"}});
        let at = ObjectRef::new("batch/v1", "Job", "lab", "j");
        controller.on_get(at, Ok(Some(Box::new(job))), NOW);
        assert_eq!(drawn(&mut controller, NOW), ["create link"]);
    }

    /// A workload of a kind without a rule of its own.
    fn graph() -> Value {
        json!({"apiVersion": "x.io/v1", "kind": "Graph", "metadata": {"name": "g", "namespace": "lab", "uid": "o"},
            "spec": {"nodes": 4}})
    }

    /// Of such a workload, which has been read.
    fn pod_of_graph(mut controller: GrouperController) -> GrouperController {
        let owner = json!({"apiVersion": "x.io/v1", "kind": "Graph", "name": "g", "uid": "o"});
        controller.apply(Kind::Pod, &pod(&json!([owner])), NOW);
        assert_eq!(drawn(&mut controller, NOW), ["read g"]);
        controller.on_get(ObjectRef::new("x.io/v1", "Graph", "lab", "g"), Ok(Some(Box::new(graph()))), NOW);
        controller
    }

    /// The pod group that is created or replaced.
    fn written(controller: &mut GrouperController) -> kai_api::PodGroup {
        let work = controller.work(NOW).work;
        match &work[0].calls[0] {
            ApiCall::Group(GroupEffect::CreatePodGroup(group) | GroupEffect::ReplacePodGroup(group)) => {
                (**group).clone()
            }
            other => panic!("{other}"),
        }
    }

    fn karta() -> Value {
        json!({"apiVersion": "run.ai/v1alpha1", "kind": "Karta",
            "metadata": {"name": "graphs", "labels": {"run.ai/karta-group": "x.io", "run.ai/karta-version": "v1",
                "run.ai/karta-kind": "Graph"}},
            "spec": {
                "structureDefinition": {"rootComponent": {"name": "graph",
                    "kind": {"group": "x.io", "version": "v1", "kind": "Graph"},
                    "scaleDefinition": {"replicasPath": ".spec.nodes"}}},
                "optimizationInstructions": {"gangScheduling": {"podGroup": {"name": "all"}}}}})
    }

    #[test]
    fn a_pod_of_a_kind_that_a_karta_describes_is_grouped_by_it() {
        let mut controller = GrouperController::new(Settings::default(), Key::default());
        assert!(controller.watches().contains(&WatchSpec::all(Kind::Karta)));
        controller.apply(Kind::Karta, &karta(), NOW);
        let mut controller = pod_of_graph(controller);
        let group = written(&mut controller);
        assert_eq!((group.metadata.name.as_deref(), group.spec.min_member), (Some("pg-o-all"), Some(4)));
        ended(&mut controller, None, NOW);
        controller.apply(Kind::Karta, &karta(), NOW);
        assert_eq!(drawn(&mut controller, NOW), [""; 0], "nothing has changed");
        controller.delete(Kind::Karta, &Key::new("", "graphs"), NOW);
        assert_eq!(written(&mut controller).metadata.name.as_deref(), Some("pg-g-o"), "the base rule");
    }

    #[test]
    fn kartas_are_not_asked_if_the_administrator_does_not_want_it() {
        let settings = Settings { karta_fallback: false, ..Settings::default() };
        let controller = GrouperController::new(settings, Key::default());
        assert!(!controller.watches().contains(&WatchSpec::all(Kind::Karta)));
    }

    #[test]
    fn defaults_of_a_kind_come_from_their_config_map() {
        let name = Key::new("kai-scheduler", "defaults");
        let config_map = ObjectRef::new("v1", "ConfigMap", &name.namespace, &name.name);
        let settings = Settings { kind_defaults_config_map: Some(config_map), ..Settings::default() };
        let mut controller = GrouperController::new(settings, Key::default());
        assert!(controller.watches().contains(&WatchSpec::with(Kind::ConfigMap, FieldSelector::named(&name))));
        let map = |types: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"types": types},
                "metadata": {"namespace": "kai-scheduler", "name": "defaults"}})
        };
        controller.apply(Kind::PriorityClass, &json!({"metadata": {"name": "build"}}), NOW);
        let types = r#"[{"typeName": "Graph", "priorityName": "build", "preemptibility": "Preemptible"}]"#;
        assert_eq!(controller.apply(Kind::ConfigMap, &map(types), NOW), []);
        let mut controller = pod_of_graph(controller);
        let spec = written(&mut controller).spec;
        let preemptible = Some(kai_api::Preemptibility::Preemptible);
        assert_eq!((spec.priority_class_name.as_str(), spec.preemptibility), ("build", preemptible));
        ended(&mut controller, None, NOW);
        assert_eq!(controller.apply(Kind::ConfigMap, &map("[{"), NOW).len(), 1, "what is malformed is logged");
        assert_eq!(written(&mut controller).spec.priority_class_name, "train", "and counts as absent");
    }

    #[test]
    fn failures_are_reported_once_and_retried_with_backoff() {
        let mut controller = following(&pod(&json!([])));
        assert_eq!(drawn(&mut controller, NOW), ["create"]);
        ended(&mut controller, Some(rejected()), NOW);
        assert_eq!(drawn(&mut controller, NOW), ["no"]);
        let later = NOW.plus(RETRY_BACKOFF.first);
        assert_eq!((due(&controller, NOW), drawn(&mut controller, later)), (Some(later), vec!["create".to_owned()]));
        ended(&mut controller, Some(rejected()), later);
        assert_eq!(drawn(&mut controller, later), [""; 0]);
        assert_eq!(due(&controller, later), Some(later.plus(Span(2 * RETRY_BACKOFF.first.0))));
    }

    fn due(controller: &GrouperController, now: Timestamp) -> Option<Timestamp> {
        controller.next_poll(Clock { wall: now, steady: now })
    }

    /// With a scheduler that takes planned writes, and the owner of the pod read.
    fn drafting() -> GrouperController {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "o"});
        let mut controller = following(&pod(&json!([owner])));
        controller.announce_planned(true);
        assert_eq!(drawn(&mut controller, NOW), ["read j"]);
        read_job(&mut controller, NOW);
        controller
    }

    fn read_job(controller: &mut GrouperController, now: Timestamp) {
        let job =
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "lab", "uid": "o"}});
        controller.on_get(ObjectRef::new("batch/v1", "Job", "lab", "j"), Ok(Some(Box::new(job))), now);
    }

    #[test]
    fn what_is_drafted_can_be_written_later() {
        let mut controller = drafting();
        assert_eq!(drawn(&mut controller, NOW), ["draft pg-j-o", "draft link to pg-j-o", "create link some time"]);
        ended(&mut controller, None, NOW);
        assert_eq!(drawn(&mut controller, NOW), [""; 0]);
        controller.delete(Kind::Pod, &key(), NOW);
        assert_eq!(drawn(&mut controller, NOW), [r#"CancelLink(Key { namespace: "lab", name: "p" })"#]);
    }

    #[test]
    fn the_draft_of_an_own_group_links_its_pod() {
        let mut controller = following(&pod(&json!([])));
        controller.announce_planned(true);
        assert_eq!(drawn(&mut controller, NOW), ["draft pg-p-u", "create some time"]);
        ended(&mut controller, None, NOW);
        assert_eq!(drawn(&mut controller, NOW), ["link some time"]);
    }

    #[test]
    fn a_draft_is_what_will_be_read() {
        let mut controller = following(&pod(&json!([])));
        controller.announce_planned(true);
        let Output { planned, work, .. } = controller.work(NOW.plus(Span(700_000)));
        let [PlannedWrite::Group(draft)] = &planned[..] else { panic!("{planned:?}") };
        let [ApiCall::Group(GroupEffect::CreatePodGroup(group))] = &work[0].calls[..] else { panic!("{work:?}") };
        let mut stored = json!(group);
        stored["metadata"]["creationTimestamp"] = json!("1970-01-01T00:16:40Z");
        assert_eq!(crate::objects::PodGroup::parse(&stored).as_ref(), Ok(&**draft));
    }

    #[test]
    fn drafts_that_could_not_be_written_are_taken_back_and_not_made_again() {
        let mut controller = drafting();
        controller.work(NOW);
        ended(&mut controller, Some(rejected()), NOW);
        let taken_back = [
            r#"CancelGroup(Key { namespace: "lab", name: "pg-j-o" })"#,
            r#"CancelLink(Key { namespace: "lab", name: "p" })"#,
            "no",
        ];
        assert_eq!(drawn(&mut controller, NOW), taken_back);
        assert_eq!(
            drawn(&mut controller, NOW.plus(RETRY_BACKOFF.first)),
            ["create link"],
            "the scheduler waits for it now"
        );
        ended(&mut controller, None, NOW);
        assert_eq!(drawn(&mut controller, NOW), [""; 0]);
    }

    #[test]
    fn planned_writes_stay_after_a_conflict() {
        let mut controller = drafting();
        controller.work(NOW);
        ended(&mut controller, Some(CallError::Conflict(String::new())), NOW);
        assert_eq!((drawn(&mut controller, NOW), due(&controller, NOW)), (vec![], Some(NOW.plus(RETRY_BACKOFF.first))));
    }

    #[test]
    fn writes_for_pods_in_node_pools_are_not_announced() {
        let mut pooled = pod(&json!([]));
        pooled["metadata"]["labels"] = json!({"kai.scheduler/node-pool": "blue"});
        let mut controller = following(&pooled);
        controller.announce_planned(true);
        assert_eq!(drawn(&mut controller, NOW), ["create"]);
    }

    #[test]
    fn a_pod_that_runs_gets_a_group_that_others_failed_to_create() {
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "o"}]);
        let mut controller = drafting();
        controller.work(NOW);
        let mut placed = pod(&owner);
        placed["metadata"]["name"] = json!("q");
        placed["metadata"]["annotations"] = json!({"pod-group-name": "pg-j-o"});
        placed["spec"]["nodeName"] = json!("n");
        controller.apply(Kind::Pod, &placed, NOW);
        assert_eq!(drawn(&mut controller, NOW), [""; 0]);
        controller.delete(Kind::Pod, &key(), NOW);
        ended(&mut controller, Some(rejected()), NOW);
        controller.work(NOW);
        let soon = NOW.plus(WATCH_LAG);
        assert_eq!(drawn(&mut controller, soon), ["draft pg-j-o", "create some time"]);
    }
}
