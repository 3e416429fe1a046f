//! When the grouper rechecks at which pod, and what it has under way: the same on a cluster and in the simulator.
//!
//! A shell shows it what watches show, performs the steps it names, and tells how they ended. What nobody watches, such
//! as owners, it asks the shell to read.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::units::{Span, Timestamp};
use kai_workloads::{DeclaredKinds, GroupError, IgnoredValue, ObjectRef, Settings};
use serde_json::Value;

use super::cache::{CacheView, CachedPod, GrouperCache};
use super::{GroupEffect, PlannedWrite, ReconcileOutput, reconcile};
use crate::controller::WorkQueue;
use crate::key::{Key, PodKey};

/// Kinds that the grouper follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Followed {
    /// Of our scheduler.
    Pods,
    Groups,
    PriorityClasses,
    /// The config map in which users declare kinds.
    Declarations,
}

/// What a shell is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Read(ObjectRef),
    /// Tell whoever takes drafts.
    PlannedWrite(PlannedWrite),
    Write(Job),
    /// Tell the owner of a pod why it has no group for now.
    Complain {
        pod: PodKey,
        uid: String,
        why: String,
    },
}

/// Effects to be performed one after the other, up to the first that fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub pod: PodKey,
    pub effects: Vec<GroupEffect>,
    /// Nobody waits for it.
    pub patient: bool,
    pub notes: Vec<IgnoredValue>,
}

/// What the API server says about an object that nobody watches.
#[derive(Clone, Debug)]
pub enum Reading {
    Found(Box<Value>),
    Forbidden,
    Missing,
    /// It did not say.
    Failed(String),
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    Done,
    /// Somebody else was faster: look again.
    Outrun,
    /// Nobody was: the group does not exist.
    NotCreated,
    Failed(String),
}

/// For how long a reading is good enough: pods of one workload come in bursts.
const GET_CACHE_TTL: Span = Span::seconds(3);
/// Between attempts for a pod that cannot be grouped: the first pause, and the longest.
const RETRY_BACKOFF: Span = Span::seconds(1);
const RETRY_BACKOFF_MAX: Span = Span::seconds(60);
/// Between rechecks at a pod that waits: its owners may have changed. The first pause, and the longest.
const RECHECK: Span = Span::seconds(15);
const RECHECK_MAX: Span = Span::seconds(300);
/// Until a watch shows what others have written.
const WATCH_LAG: Span = Span(200_000);

/// The grouper, and what it is about to do.
#[derive(Debug)]
pub struct GrouperController {
    settings: Settings,
    cache: GrouperCache,
    queue: WorkQueue,
    /// Attempts in vain, and the last complaint.
    failures: BTreeMap<PodKey, (u32, String)>,
    /// How often pods that wait were looked at.
    rechecks: BTreeMap<PodKey, u32>,
    /// Objects being read, and the pods that wait for them.
    reading: BTreeMap<ObjectRef, BTreeSet<PodKey>>,
    /// Pods whose link waits for the end of a job that writes their group.
    awaiting_link: BTreeSet<PodKey>,
    /// Whether somebody takes drafts, and need not wait until they are written.
    drafts: bool,
    /// What takes back the drafts of jobs under way, by the pod.
    planned_by_pod: BTreeMap<PodKey, Vec<PlannedWrite>>,
    /// What is to be said: complaints, and drafts taken back.
    said: Vec<Step>,
}

impl GrouperController {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            cache: GrouperCache::default(),
            queue: WorkQueue::default(),
            failures: BTreeMap::new(),
            rechecks: BTreeMap::new(),
            reading: BTreeMap::new(),
            awaiting_link: BTreeSet::new(),
            drafts: false,
            planned_by_pod: BTreeMap::new(),
            said: Vec::new(),
        }
    }

    /// Whether somebody takes drafts from now on. What is drafted can be written later.
    pub fn drafts(&mut self, taken: bool) {
        self.drafts = taken;
    }

    /// Pods that are known.
    pub fn pods(&self) -> usize {
        self.cache.pods.len()
    }

    /// A watch starts over and is about to show everything there is.
    pub fn relisted(&mut self, kind: Followed, now: Timestamp) {
        if kind == Followed::Groups {
            // Those that exist are among them.
            self.forget_assumed(now);
        }
    }

    /// A watch shows an object. Complaints are about declarations, which are left out.
    pub fn see(&mut self, kind: Followed, value: &Value, now: Timestamp) -> Vec<GroupError> {
        let key = Key::of(value);
        match kind {
            Followed::Pods => {
                let over = matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
                let pod = CachedPod::of(value);
                // Who a pod belongs to does not depend on how it does.
                if !over && self.cache.pods.get(&key) != Some(&pod) {
                    self.queue.schedule_at(key.clone(), now);
                }
                self.cache.pods.insert(key, pod);
            }
            Followed::Groups => self.cache.see_group(key, value.clone()),
            Followed::PriorityClasses => {
                self.cache.classes.insert(key.name);
            }
            Followed::Declarations => {
                let (declared, complaints) = DeclaredKinds::from_config_map(value);
                self.set_declared_kinds(declared, now);
                return complaints;
            }
        }
        Vec::new()
    }

    /// A watch shows that an object is gone.
    pub fn lose(&mut self, kind: Followed, key: &Key, now: Timestamp) {
        match kind {
            Followed::Pods => {
                self.cache.pods.remove(key);
                self.queue.remove(key);
                self.failures.remove(key);
                self.rechecks.remove(key);
                self.awaiting_link.remove(key);
                if self.drafts {
                    self.said.push(Step::PlannedWrite(PlannedWrite::CancelLink(key.clone())));
                }
            }
            Followed::Groups => {
                self.cache.groups.remove(key);
                // Those left without it need it again.
                for (pod, known) in &self.cache.pods {
                    if pod.namespace == key.namespace && known.group.as_deref() == Some(key.name.as_str()) {
                        self.queue.schedule_at(pod.clone(), now);
                    }
                }
            }
            Followed::PriorityClasses => {
                self.cache.classes.remove(&key.name);
            }
            Followed::Declarations => self.set_declared_kinds(DeclaredKinds::default(), now),
        }
    }

    /// An object was read, or not.
    pub fn was_read(&mut self, object: ObjectRef, reading: Reading, now: Timestamp) {
        let waiting = self.reading.remove(&object).unwrap_or_default();
        if let Reading::Failed(why) = reading {
            for pod in waiting {
                self.requeue_with_backoff(pod, format!("{object} cannot be read: {why}"), now);
            }
            return;
        }
        self.cache.read.insert(object, (reading, now));
        for pod in waiting {
            self.queue.schedule_at(pod, now);
        }
    }

    /// A job has come to its end.
    pub fn ended(&mut self, pod: PodKey, written: Written, now: Timestamp) {
        self.queue.done(&pod);
        let drafted = self.planned_by_pod.remove(&pod).unwrap_or_default();
        if matches!(written, Written::NotCreated | Written::Failed(_)) {
            self.said.extend(drafted.iter().cloned().map(Step::PlannedWrite));
        }
        match written {
            Written::Done if self.awaiting_link.remove(&pod) => self.queue.schedule_at(pod, now),
            Written::Done => self.on_grouped(pod, now),
            // What was drafted is still wanted, and nobody waits for it.
            Written::Outrun if !drafted.is_empty() => self.queue.schedule_at(pod, now.plus(RETRY_BACKOFF)),
            Written::Outrun => self.queue.schedule_at(pod, now.plus(WATCH_LAG)),
            Written::NotCreated => {
                self.forget_assumed(now);
                self.queue.schedule_at(pod, now.plus(WATCH_LAG));
            }
            Written::Failed(why) => self.requeue_with_backoff(pod, why, now),
        }
    }

    /// When there will be something to do even if nothing is seen.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        if self.said.is_empty() { self.queue.next_due() } else { Some(now) }
    }

    /// What to do now. Everything it follows must have been listed: a group that was not listed yet is not a missing one.
    pub fn steps(&mut self, now: Timestamp) -> Vec<Step> {
        // One from the future was made before the clock was set back.
        self.cache.read.retain(|_, (_, at)| (Span(0)..=GET_CACHE_TTL).contains(&now.since(*at)));
        let mut steps = std::mem::take(&mut self.said);
        while let Some(pod) = self.queue.pop_due(now) {
            self.reconcile_pod(pod, now, &mut steps);
        }
        steps.append(&mut self.said);
        steps
    }

    /// Other kinds are declared than before: every pod may belong elsewhere.
    fn set_declared_kinds(&mut self, declared: DeclaredKinds, now: Timestamp) {
        if self.settings.declared != declared {
            self.settings.declared = declared;
            for pod in self.cache.pods.keys() {
                self.queue.schedule_at(pod.clone(), now);
            }
        }
    }

    fn reconcile_pod(&mut self, pod: PodKey, now: Timestamp, steps: &mut Vec<Step>) {
        let Some(value) = self.cache.pods.get(&pod).map(CachedPod::value) else { return };
        let view = CacheView::new(&self.cache);
        let answer = reconcile(&value, |query| view.owner(query), &view, &self.settings);
        let mut misses = view.misses();
        if let Err(ungrouped) = &answer {
            misses.extend(ungrouped.unfetched_owner().map(|query| query.object.clone()));
        }
        if !misses.is_empty() {
            for object in misses {
                let waiting = self.reading.entry(object.clone()).or_default();
                if waiting.is_empty() {
                    steps.push(Step::Read(object));
                }
                waiting.insert(pod.clone());
            }
            return;
        }
        match answer {
            Ok(answer) => {
                let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
                self.enqueue_writes(pod, uid, answer, now, steps);
            }
            Err(ungrouped) => self.requeue_with_backoff(pod, ungrouped.to_string(), now),
        }
    }

    fn enqueue_writes(
        &mut self,
        pod: PodKey,
        uid: &str,
        answer: ReconcileOutput,
        now: Timestamp,
        steps: &mut Vec<Step>,
    ) {
        let ReconcileOutput { mut effects, link_can_wait, notes } = answer;
        if effects.is_empty() {
            self.on_grouped(pod, now);
            return;
        }
        let creates = |effect: &GroupEffect| matches!(effect, GroupEffect::CreatePodGroup(_));
        let links = |effect: &GroupEffect| matches!(effect, GroupEffect::LinkPod { .. });
        let mut patient = link_can_wait && !effects.iter().any(creates);
        if link_can_wait {
            // Such a group is written once: as soon as its pod is linked, nobody asks any more.
            effects.retain(if patient { links } else { creates });
        }
        if link_can_wait && !patient {
            self.awaiting_link.insert(pod.clone());
        }
        if !patient && let Some(drafts) = self.draft(&pod, uid, &effects, now) {
            patient = true;
            self.planned_by_pod.insert(pod.clone(), drafts.iter().map(PlannedWrite::cancellation).collect());
            steps.extend(drafts.into_iter().map(Step::PlannedWrite));
        }
        for effect in &effects {
            if let GroupEffect::CreatePodGroup(group) = effect {
                // Other pods of it need not create it as well. Whether that works, the watch will show.
                self.cache.assume(group);
            }
        }
        self.queue.start(pod.clone());
        steps.push(Step::Write(Job { pod, effects, patient, notes }));
    }

    /// All that is to be written, as drafts, if they are any good.
    fn draft(&self, pod: &PodKey, uid: &str, effects: &[GroupEffect], now: Timestamp) -> Option<Vec<PlannedWrite>> {
        // Others see to pods of node pools.
        let elsewhere = |known: &CachedPod| known.carries(&self.settings.node_pool_label_key);
        if !self.drafts || self.cache.pods.get(pod).is_none_or(elsewhere) {
            return None;
        }
        // Where something could not be written, nothing is taken for granted.
        let failed = self.failures.range(Key::new(&pod.namespace, "")..).next();
        if failed.is_some_and(|(failed, _)| failed.namespace == pod.namespace) {
            return None;
        }
        effects.iter().map(|effect| PlannedWrite::of(effect, uid, now)).collect()
    }

    /// Its group is as it should be, for now.
    fn on_grouped(&mut self, pod: PodKey, now: Timestamp) {
        self.failures.remove(&pod);
        if self.cache.pods.get(&pod).is_none_or(|known| known.placed) {
            self.rechecks.remove(&pod);
            return;
        }
        let rechecks = self.rechecks.entry(pod.clone()).or_default();
        let pause = pause_after(*rechecks, RECHECK, RECHECK_MAX);
        *rechecks = rechecks.saturating_add(1);
        self.queue.schedule_if_absent(pod, now.plus(pause));
    }

    /// Groups on their way may not arrive. Pods that wait are looked at again anyway.
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

    fn requeue_with_backoff(&mut self, pod: PodKey, why: String, now: Timestamp) {
        self.forget_assumed(now);
        let Some(known) = self.cache.pods.get(&pod) else { return };
        let (attempts, told) = self.failures.entry(pod.clone()).or_default();
        *attempts = attempts.saturating_add(1);
        let pause = pause_after(*attempts - 1, RETRY_BACKOFF, RETRY_BACKOFF_MAX);
        if *told != why {
            told.clone_from(&why);
            let uid = known.value()["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            self.said.push(Step::Complain { pod: pod.clone(), uid, why });
        }
        self.queue.schedule_at(pod, now.plus(pause));
    }
}

/// Twice as long every time.
fn pause_after(times: u32, first: Span, most: Span) -> Span {
    Span(first.0.saturating_mul(1 << times.min(10))).min(most)
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
        let mut agenda = GrouperController::new(Settings::default());
        agenda.see(Followed::Pods, pod, NOW);
        agenda
    }

    /// Steps in few words.
    fn drawn(agenda: &mut GrouperController, now: Timestamp) -> Vec<String> {
        let effect = |effect: &GroupEffect| match effect {
            GroupEffect::CreatePodGroup(_) => "create",
            GroupEffect::ReplacePodGroup(_) => "replace",
            GroupEffect::LinkPod { .. } => "link",
        };
        let step = |step: Step| match step {
            Step::Read(object) => format!("read {}", object.name),
            Step::PlannedWrite(PlannedWrite::Group(group)) => format!("draft {}", group.key.name),
            Step::PlannedWrite(PlannedWrite::Link(link)) => format!("draft link to {}", link.group.unwrap_or_default()),
            Step::PlannedWrite(other) => format!("{other:?}"),
            Step::Write(job) => {
                let effects: Vec<&str> = job.effects.iter().map(effect).collect();
                format!("{}{}", effects.join(" "), if job.patient { " some time" } else { "" })
            }
            Step::Complain { why, .. } => why,
        };
        agenda.steps(now).into_iter().map(step).collect()
    }

    #[test]
    fn nobody_waits_for_the_link_to_the_own_group() {
        let mut agenda = following(&pod(&json!([])));
        assert_eq!(drawn(&mut agenda, NOW), ["create"]);
        assert_eq!(drawn(&mut agenda, NOW), [""; 0]);
        agenda.ended(key(), Written::Done, NOW);
        assert_eq!(drawn(&mut agenda, NOW), ["link some time"]);
        agenda.ended(key(), Written::Done, NOW);
        assert_eq!(drawn(&mut agenda, NOW), [""; 0]);
        assert_eq!(agenda.next(NOW), Some(NOW.plus(RECHECK)), "what it says may change while it waits");
    }

    #[test]
    fn a_group_of_one_pod_is_not_written_again_when_the_pod_is_bound() {
        let mut agenda = following(&pod(&json!([])));
        let steps = agenda.steps(NOW);
        let [Step::Write(Job { effects, .. })] = &steps[..] else { panic!("{steps:?}") };
        let [GroupEffect::CreatePodGroup(group)] = &effects[..] else { panic!("{effects:?}") };
        agenda.see(Followed::Groups, &json!(group), NOW);
        let mut bound = pod(&json!([]));
        bound["metadata"]["annotations"] = json!({"received-resource-type": "Regular"});
        bound["spec"]["nodeName"] = json!("n");
        agenda.see(Followed::Pods, &bound, NOW);
        agenda.ended(key(), Written::Done, NOW);
        assert_eq!(drawn(&mut agenda, NOW), ["link some time"]);
    }

    #[test]
    fn owners_are_read_once_and_the_link_is_needed() {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "o"});
        let mut agenda = following(&pod(&json!([owner])));
        assert_eq!(drawn(&mut agenda, NOW), ["read j"]);
        let job =
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "lab", "uid": "o"}});
        let at = ObjectRef::new("batch/v1", "Job", "lab", "j");
        agenda.was_read(at, Reading::Found(Box::new(job)), NOW);
        assert_eq!(drawn(&mut agenda, NOW), ["create link"]);
    }

    #[test]
    fn failures_are_told_once_and_tried_again_more_and_more_seldom() {
        let mut agenda = following(&pod(&json!([])));
        assert_eq!(drawn(&mut agenda, NOW), ["create"]);
        agenda.ended(key(), Written::Failed("no".to_owned()), NOW);
        assert_eq!(drawn(&mut agenda, NOW), ["no"]);
        let later = NOW.plus(RETRY_BACKOFF);
        assert_eq!((agenda.next(NOW), drawn(&mut agenda, later)), (Some(later), vec!["create".to_owned()]));
        agenda.ended(key(), Written::Failed("no".to_owned()), later);
        assert_eq!(drawn(&mut agenda, later), [""; 0]);
        assert_eq!(agenda.next(later), Some(later.plus(Span(2 * RETRY_BACKOFF.0))));
    }

    /// With somebody who takes drafts, and the owner of the pod read.
    fn drafting() -> GrouperController {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "o"});
        let mut agenda = following(&pod(&json!([owner])));
        agenda.drafts(true);
        assert_eq!(drawn(&mut agenda, NOW), ["read j"]);
        read_job(&mut agenda, NOW);
        agenda
    }

    fn read_job(agenda: &mut GrouperController, now: Timestamp) {
        let job =
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "lab", "uid": "o"}});
        agenda.was_read(ObjectRef::new("batch/v1", "Job", "lab", "j"), Reading::Found(Box::new(job)), now);
    }

    #[test]
    fn what_is_drafted_can_be_written_later() {
        let mut agenda = drafting();
        assert_eq!(drawn(&mut agenda, NOW), ["draft pg-j-o", "draft link to pg-j-o", "create link some time"]);
        agenda.ended(key(), Written::Done, NOW);
        assert_eq!(drawn(&mut agenda, NOW), [""; 0]);
        agenda.lose(Followed::Pods, &key(), NOW);
        assert_eq!(drawn(&mut agenda, NOW), [r#"CancelLink(Key { namespace: "lab", name: "p" })"#]);
    }

    #[test]
    fn the_draft_of_an_own_group_links_its_pod() {
        let mut agenda = following(&pod(&json!([])));
        agenda.drafts(true);
        assert_eq!(drawn(&mut agenda, NOW), ["draft pg-p-u", "create some time"]);
        agenda.ended(key(), Written::Done, NOW);
        assert_eq!(drawn(&mut agenda, NOW), ["link some time"]);
    }

    #[test]
    fn a_draft_is_what_will_be_read() {
        let mut agenda = following(&pod(&json!([])));
        agenda.drafts(true);
        let steps = agenda.steps(NOW.plus(Span(700_000)));
        let [Step::PlannedWrite(PlannedWrite::Group(draft)), Step::Write(Job { effects, .. })] = &steps[..] else {
            panic!("{steps:?}")
        };
        let [GroupEffect::CreatePodGroup(group)] = &effects[..] else { panic!("{effects:?}") };
        let mut stored = json!(group);
        stored["metadata"]["creationTimestamp"] = json!("1970-01-01T00:16:40Z");
        assert_eq!(crate::objects::PodGroup::parse(&stored).as_ref(), Ok(&**draft));
    }

    #[test]
    fn drafts_that_could_not_be_written_are_taken_back_and_not_made_again() {
        let mut agenda = drafting();
        agenda.steps(NOW);
        agenda.ended(key(), Written::Failed("no".to_owned()), NOW);
        let taken_back = [
            r#"NoGroup(Key { namespace: "lab", name: "pg-j-o" })"#,
            r#"CancelLink(Key { namespace: "lab", name: "p" })"#,
            "no",
        ];
        assert_eq!(drawn(&mut agenda, NOW), taken_back);
        assert_eq!(drawn(&mut agenda, NOW.plus(RETRY_BACKOFF)), ["create link"], "somebody waits for it now");
        agenda.ended(key(), Written::Done, NOW);
        assert_eq!(drawn(&mut agenda, NOW), [""; 0]);
    }

    #[test]
    fn drafts_of_what_others_were_faster_to_write_stay_until_the_next_look() {
        let mut agenda = drafting();
        agenda.steps(NOW);
        agenda.ended(key(), Written::Outrun, NOW);
        assert_eq!((drawn(&mut agenda, NOW), agenda.next(NOW)), (vec![], Some(NOW.plus(RETRY_BACKOFF))));
    }

    #[test]
    fn nobody_takes_drafts_of_pods_in_node_pools() {
        let mut pooled = pod(&json!([]));
        pooled["metadata"]["labels"] = json!({"kai.scheduler/node-pool": "blue"});
        let mut agenda = following(&pooled);
        agenda.drafts(true);
        assert_eq!(drawn(&mut agenda, NOW), ["create"]);
    }

    #[test]
    fn a_pod_that_runs_gets_a_group_that_others_failed_to_create() {
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "o"}]);
        let mut agenda = drafting();
        agenda.steps(NOW);
        let mut placed = pod(&owner);
        placed["metadata"]["name"] = json!("q");
        placed["metadata"]["annotations"] = json!({"pod-group-name": "pg-j-o"});
        placed["spec"]["nodeName"] = json!("n");
        agenda.see(Followed::Pods, &placed, NOW);
        assert_eq!(drawn(&mut agenda, NOW), [""; 0]);
        agenda.lose(Followed::Pods, &key(), NOW);
        agenda.ended(key(), Written::Failed("no".to_owned()), NOW);
        agenda.steps(NOW);
        let soon = NOW.plus(WATCH_LAG);
        assert_eq!(drawn(&mut agenda, soon), ["draft pg-j-o", "create some time"]);
    }
}
