//! What the API server is told after a cycle: bind requests, evictions, times, conditions and events.
//!
//! Level-triggered: what the cluster already says is not said again, and what no longer holds is taken back.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::jiff;
use kai_api::keys::{annotation, eviction_event, label, name, reason, received};
use kai_api::{
    BindRequest, BindRequestSpec, ContainerMapping, ExtendedResourceClaimAllocation, NumaZone, ReceivedGpu,
    ResourceClaimAllocation, SchedulingCondition, UnschedulableExplanation,
};
use kai_engine::policy::Action;
use kai_engine::units::{Span, Timestamp};

use super::bursts::{self, request_key};
use super::effect::{
    ClaimedDevices, Cycle, Effect, ExtendedDevices, Given, PendingJob, QueueView, Received, ResourceType,
};
use super::queue_details;
use super::settings::Settings;
use crate::in_flight::Asked;
use crate::key::{GroupKey, Key, PodKey};
use crate::objects::reader::write_time;
use crate::objects::{Phase, PodGroup};
use crate::world::World;

/// One thing to write. All can be written again without harm.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    CreateBindRequest(Box<BindRequest>),
    /// One object with the requests of all these pods.
    CreateBindBatch {
        batch: Box<BindRequest>,
        pods: Vec<PodKey>,
    },
    /// By itself or out of its batch.
    DeleteBindRequest(Key),
    /// Put the pod into the shard that bound it.
    LabelPod {
        pod: PodKey,
        key: String,
        value: String,
    },
    Evict {
        pod: PodKey,
        uid: String,
        message: String,
    },
    /// `status.nominatedNodeName`; `None` removes it.
    Nominate {
        pod: PodKey,
        node: Option<String>,
    },
    /// Annotations of a group; `None` removes one.
    NoteGroup {
        group: GroupKey,
        annotations: BTreeMap<String, Option<String>>,
    },
    /// The group's scheduling conditions, all of them.
    SetGroupConditions {
        group: GroupKey,
        conditions: Vec<SchedulingCondition>,
        /// It says something already: nobody waits for this.
        again: bool,
    },
    /// `PodScheduled=False`. Autoscalers add nodes for reason `Unschedulable`, and for no other.
    SetUnschedulable {
        pod: PodKey,
        reason: &'static str,
        message: String,
        /// It says something already: nobody waits for this.
        again: bool,
    },
    Emit(Event),
}

impl Write {
    /// What is no longer to be assumed if it was not written.
    pub fn asked(&self) -> Vec<Asked> {
        match self {
            Self::CreateBindRequest(request) => request_key(request).map(Asked::Bind).into_iter().collect(),
            Self::CreateBindBatch { pods, .. } => pods.iter().cloned().map(Asked::Bind).collect(),
            Self::Evict { pod, .. } => vec![Asked::Eviction(pod.clone())],
            Self::Nominate { pod, .. } => vec![Asked::Nomination(pod.clone())],
            Self::NoteGroup { group, .. } => vec![Asked::Note(group.clone())],
            Self::SetUnschedulable { pod, .. } => vec![Asked::Mark(pod.clone())],
            Self::SetGroupConditions { group, .. } => vec![Asked::Conditions(group.clone())],
            Self::DeleteBindRequest(_) | Self::LabelPod { .. } | Self::Emit(_) => Vec::new(),
        }
    }
}

/// Something worth telling whoever looks at an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub about: About,
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
    pub annotations: BTreeMap<String, String>,
}

/// The object an event is about, with its uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    Pod(PodKey, String),
    PodGroup(GroupKey, String),
}

/// Turns cycles into writes, and remembers which events it sent last.
#[derive(Clone, Debug, Default)]
pub struct Reporter {
    said: BTreeMap<(About, &'static str), String>,
    told: BTreeMap<GroupKey, Told>,
}

/// What a group that waits was told.
#[derive(Clone, Debug)]
struct Told {
    reasons: Vec<&'static str>,
    at: Timestamp,
    /// How often it was told the same reasons in other words.
    again: u32,
}

/// So long the same reasons are not put into other words, and twice as long each time they were: every pod that starts
/// anywhere changes the numbers in what all others are told, and thousands may wait.
const CALM: Span = Span::seconds(10);
const CALM_MAX: Span = Span::seconds(300);

impl Told {
    fn calm(&self) -> Span {
        Span(CALM.0 << self.again.min(10)).min(CALM_MAX)
    }
}

impl Reporter {
    /// What is to be written after this cycle, most urgent first.
    pub fn report(&mut self, world: &World, cycle: &Cycle, settings: &Settings, now: Timestamp) -> Vec<Write> {
        let standing = Standing::read(world, cycle);
        let queues = &cycle.queues;
        let mut report = Report { world, queues, settings, now, writes: Vec::new(), events: Vec::new(), calm: false };
        for effect in &cycle.effects {
            report.effect(effect);
        }
        let before = std::mem::take(&mut self.told);
        for job in &cycle.pending {
            let codes = job.reasons.iter().map(|words| words.code);
            // Remarks come and go with what was tried.
            let reasons: Vec<&'static str> = codes.filter(|code| *code != reason::UNSCHEDULABLE).collect();
            let last = before.get(&job.job).filter(|told| told.reasons == reasons);
            let calm = last.is_some_and(|told| (Span(0)..told.calm()).contains(&now.since(told.at)));
            report.calm = calm;
            let changes = report.pending(job, &standing[&name_of(&job.job)]);
            let (at, again) = match last {
                Some(told) if calm || !changes => (told.at, told.again),
                Some(told) => (now, told.again.saturating_add(1)),
                None => (now, 0),
            };
            self.told.insert(job.job.clone(), Told { reasons, at, again });
        }
        for group in world.pod_groups.values() {
            let settled = standing.get(&name_of(&group.key)).is_none_or(|pods| !pods.pending && !pods.arriving);
            if !group.conditions.is_empty() && settled {
                let (group, conditions) = (group.key.clone(), Vec::new());
                report.writes.push(Write::SetGroupConditions { group, conditions, again: true });
            }
        }
        let Report { mut writes, events, .. } = report;
        writes = bursts::batched(writes, world, settings, now);
        writes.extend(self.news(events).into_iter().map(Write::Emit));
        writes
    }

    /// Events that were not sent in the same words after the cycle before.
    fn news(&mut self, events: Vec<(Event, bool)>) -> Vec<Event> {
        let before = std::mem::take(&mut self.said);
        let mut news = Vec::new();
        for (event, calm) in events {
            let key = (event.about.clone(), event.reason);
            if let Some(said) = before.get(&key).filter(|_| calm) {
                self.said.insert(key, said.clone());
                continue;
            }
            let known = before.get(&key) == Some(&event.message) || self.said.get(&key) == Some(&event.message);
            self.said.insert(key, event.message.clone());
            if !known {
                news.push(event);
            }
        }
        news
    }
}

struct Report<'a> {
    world: &'a World,
    queues: &'a [QueueView],
    settings: &'a Settings,
    now: Timestamp,
    writes: Vec<Write>,
    /// And whether they may be left out if there was one of the same reason.
    events: Vec<(Event, bool)>,
    /// Only those are told why they wait who know of no reason.
    calm: bool,
}

impl Report<'_> {
    fn effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Bind { pod, node, received, gpu_groups, given, .. } => {
                let groups = gpu_groups.iter().map(|group| group.name.clone()).collect();
                self.bind(pod, node, *received, groups, given);
            }
            Effect::Promise { pod, node, .. } => {
                let message = format!("Pod {pod} was pipelined to node {node}");
                self.tell_pod(pod, false, reason::PIPELINED, message);
            }
            Effect::Evict { pod, job, action, beneficiary, batch, why, .. } => {
                let message = eviction(pod, *action, beneficiary.as_ref(), why);
                let uid = self.world.pods.get(pod).map_or_else(String::new, |pod| pod.uid.clone());
                self.writes.push(Write::Evict { pod: pod.clone(), uid, message: message.clone() });
                let mut annotations = BTreeMap::from([
                    (eviction_event::NUM_EVICTED_PODS.to_owned(), batch.to_string()),
                    (eviction_event::EVICTOR_ACTION_TYPE.to_owned(), action_name(*action).to_owned()),
                ]);
                if let Some(winner) = beneficiary {
                    annotations.insert(eviction_event::EVICTOR_POD_GROUP_NAME.to_owned(), winner.name.clone());
                    annotations
                        .insert(eviction_event::EVICTOR_POD_GROUP_NAMESPACE.to_owned(), winner.namespace.clone());
                }
                self.tell_group(job, reason::EVICT, message, annotations);
            }
            Effect::NoteJob { job, last_start, stale_since, last_eviction } => {
                let times = [
                    (annotation::LAST_START_TIMESTAMP, *last_start),
                    (annotation::STALE_POD_GROUP_TIMESTAMP, *stale_since),
                    (annotation::LAST_EVICTION_TIMESTAMP, *last_eviction),
                ];
                let annotations = times.into_iter().map(|(key, time)| (key.to_owned(), time.map(write_time))).collect();
                self.writes.push(Write::NoteGroup { group: job.clone(), annotations });
            }
            Effect::Nominate { pod, node } => {
                self.writes.push(Write::Nominate { pod: pod.clone(), node: node.clone() });
            }
            Effect::DeleteBindRequest { request, .. } => self.writes.push(Write::DeleteBindRequest(request.clone())),
            Effect::MarkPod { pod, words } => self.mark(pod, reason::UNSCHEDULABLE, &words.message, true),
        }
    }

    fn bind(&mut self, pod: &PodKey, node: &str, got: Received, groups: Vec<String>, given: &Given) {
        let Some(row) = self.world.pods.get(pod) else { return };
        let pool = Some(&self.settings.node_pool_label_key).filter(|key| !key.is_empty());
        let pool = pool.zip(self.settings.node_pool_value.as_ref());
        let mut labels = BTreeMap::from([(label::SELECTED_NODE.to_owned(), node.to_owned())]);
        if let Some((key, value)) = pool {
            labels.insert(key.clone(), value.clone());
        }
        let mut request = BindRequest::new(
            &pod.name,
            BindRequestSpec {
                pod_name: pod.name.clone(),
                selected_node: node.to_owned(),
                received_resource_type: match got.kind {
                    ResourceType::Regular => received::REGULAR,
                    ResourceType::Fraction => received::FRACTION,
                    ResourceType::MigInstance => received::MIG_INSTANCE,
                }
                .to_owned(),
                received_gpu: Some(ReceivedGpu { count: i64::from(got.devices), portion: hundredths(got.portion) }),
                selected_gpu_groups: groups,
                resource_claim_allocations: given.claims.iter().map(claimed).collect(),
                extended_resource_claim_allocation: given.extended.as_ref().map(extended),
                predicted_numa_zones: given.numa_zones.iter().map(zone).collect(),
                ..BindRequestSpec::default()
            },
        );
        request.metadata.namespace = Some(pod.namespace.clone());
        request.metadata.labels = Some(labels);
        request.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: pod.name.clone(),
            uid: row.uid.clone(),
            ..OwnerReference::default()
        }]);
        self.writes.push(Write::CreateBindRequest(Box::new(request)));
        if let Some((key, value)) = pool
            && row.labels.get(key) != Some(value)
        {
            self.writes.push(Write::LabelPod { pod: pod.clone(), key: key.clone(), value: value.clone() });
        }
        let shown = pool.map_or(name::DEFAULT_SHARD, |(_, value)| value);
        let message = format!("Successfully assigned pod {pod} to node {node} at node-pool {shown}");
        self.tell_pod(pod, false, reason::SCHEDULED, message);
    }

    /// Tells a group and its pods why they wait; whether that changes what they know.
    fn pending(&mut self, job: &PendingJob, pods: &Standing<'_>) -> bool {
        let Some(group) = self.world.pod_groups.get(&job.job) else { return false };
        let before = self.writes.len();
        let promised = job.reasons.iter().any(|words| words.code == reason::PIPELINED);
        let reasons: Vec<_> = job.reasons.iter().filter(|words| words.code != reason::PIPELINED).collect();
        let sentences: Vec<&str> = reasons.iter().map(|words| words.message.as_str()).collect();
        let mut message = sentences.join(" ");
        if group.backs_off {
            message = format!("Node-Pool '{}': {message}", self.pool(group));
        }
        if reasons.iter().any(|words| words.code == reason::NOT_READY) {
            self.tell_group(&job.job, reason::NOT_READY, message, BTreeMap::new());
            return false;
        }
        if reasons.is_empty() {
            return false;
        }
        let code = marked_reason(reasons.iter().map(|words| words.code));
        for pod in &pods.waiting {
            self.mark(pod, code, &message, group.mark_unschedulable);
        }
        self.tell_group(&job.job, reason::UNSCHEDULABLE, message.clone(), BTreeMap::new());
        if promised || pods.running {
            return self.writes.len() > before;
        }
        let details = job.blocked.as_ref().and_then(|blocked| queue_details::of(self.queues, blocked));
        let mut explanations: Vec<UnschedulableExplanation> = Vec::new();
        for words in reasons {
            match explanations.last_mut() {
                // A remark on the reason before it, and no reason that KAI knows.
                Some(last) if words.code == reason::UNSCHEDULABLE => {
                    last.message = format!("{} {}", last.message, words.message);
                }
                _ => explanations.push(UnschedulableExplanation {
                    reason: words.code.to_owned(),
                    message: words.message.clone(),
                    details: details.clone().filter(|_| reason::QUOTA.contains(&words.code)),
                }),
            }
        }
        self.condition(group, message, explanations);
        self.writes.len() > before
    }

    /// Puts the condition last, one for each node pool, unless it stands there already.
    fn condition(&mut self, group: &PodGroup, message: String, reasons: Vec<UnschedulableExplanation>) {
        let pool = self.pool(group);
        let number = |condition: &SchedulingCondition| condition.transition_id.parse::<i64>().unwrap_or(-1);
        let latest = group.conditions.iter().max_by_key(|condition| number(condition));
        let stands = latest.is_some_and(|known| {
            known.node_pool == pool && (self.calm || known.message == message) && known.status == "True"
        }) && group.conditions.last().is_some_and(|last| last.node_pool == pool);
        if stands {
            return;
        }
        let next = latest.map_or(0, |known| number(known).max(0)) + 1;
        let mut conditions: Vec<SchedulingCondition> =
            group.conditions.iter().filter(|known| known.node_pool != pool).cloned().collect();
        conditions.push(SchedulingCondition {
            type_: reason::UNSCHEDULABLE_ON_NODE_POOL.to_owned(),
            node_pool: pool,
            reason: reason::UNSCHEDULABLE.to_owned(),
            message,
            reasons,
            transition_id: next.to_string(),
            // In whole seconds, as stored.
            last_transition_time: jiff::Timestamp::from_second(self.now.0.div_euclid(1_000_000)).ok().map(Time),
            status: "True".to_owned(),
        });
        let (group, again) = (group.key.clone(), latest.is_some());
        self.writes.push(Write::SetGroupConditions { group, conditions, again });
    }

    fn pool(&self, group: &PodGroup) -> String {
        let pool = group.labels.get(&self.settings.node_pool_label_key).filter(|pool| !pool.is_empty());
        pool.map_or(name::DEFAULT_SHARD, String::as_str).to_owned()
    }

    fn mark(&mut self, pod: &PodKey, reason: &'static str, message: &str, condition: bool) {
        let known = self.world.pods.get(pod).and_then(|row| row.unschedulable.as_deref());
        if condition && !known.is_some_and(|known| self.calm || known == message) {
            let (pod, message, again) = (pod.clone(), message.to_owned(), known.is_some());
            self.writes.push(Write::SetUnschedulable { pod, reason, message, again });
        }
        self.tell_pod(pod, true, reason::UNSCHEDULABLE, message.to_owned());
    }

    fn tell_pod(&mut self, pod: &PodKey, warning: bool, reason: &'static str, message: String) {
        let uid = self.world.pods.get(pod).map_or_else(String::new, |row| row.uid.clone());
        let about = About::Pod(pod.clone(), uid);
        self.events.push((Event { about, warning, reason, message, annotations: BTreeMap::new() }, self.calm));
    }

    fn tell_group(
        &mut self,
        group: &GroupKey,
        reason: &'static str,
        message: String,
        annotations: BTreeMap<String, String>,
    ) {
        let uid = self.world.pod_groups.get(group).map_or_else(String::new, |row| row.uid.clone());
        let about = About::PodGroup(group.clone(), uid);
        self.events.push((Event { about, warning: false, reason, message, annotations }, self.calm));
    }
}

/// How the pods of a group stand after the cycle.
#[derive(Default)]
struct Standing<'w> {
    /// The cycle says that it waits.
    pending: bool,
    running: bool,
    /// A pod is on its way to a node: what was said of the group stays until it has arrived.
    arriving: bool,
    waiting: Vec<&'w PodKey>,
}

impl<'w> Standing<'w> {
    /// Groups that wait or of which something was said, by namespace and name.
    fn read(world: &'w World, cycle: &'w Cycle) -> BTreeMap<(&'w str, &'w str), Self> {
        let mut groups: BTreeMap<(&str, &str), Self> = BTreeMap::new();
        for group in world.pod_groups.values().filter(|group| !group.conditions.is_empty()) {
            groups.entry(name_of(&group.key)).or_default();
        }
        for job in &cycle.pending {
            groups.entry(name_of(&job.job)).or_default().pending = true;
        }
        let mut placed = BTreeSet::new();
        for effect in &cycle.effects {
            if let Effect::Bind { pod, job, .. } | Effect::Promise { pod, job, .. } = effect {
                placed.insert(pod);
                if let Some(group) = groups.get_mut(&name_of(job)) {
                    group.arriving = true;
                }
            }
        }
        if groups.is_empty() {
            return groups;
        }
        let asked: BTreeSet<&PodKey> = world.bind_requests.values().map(|request| &request.pod).collect();
        for pod in world.pods.values() {
            let lives = matches!(pod.phase, Phase::Pending | Phase::Running) && pod.deletion.is_none();
            let Some(name) = pod.group_name().filter(|_| lives) else { continue };
            let Some(group) = groups.get_mut(&(pod.key.namespace.as_str(), name)) else { continue };
            if pod.node.is_some() {
                group.running = true;
            } else if asked.contains(&pod.key) {
                group.arriving = true;
            } else if !pod.gated && !placed.contains(&pod.key) {
                group.waiting.push(&pod.key);
            }
        }
        groups
    }
}

fn name_of(key: &GroupKey) -> (&str, &str) {
    (&key.namespace, &key.name)
}

/// Why a pod has to go, beginning as KAI says it.
fn eviction(pod: &PodKey, action: Action, winner: Option<&GroupKey>, why: &str) -> String {
    let winner = winner.map_or_else(String::new, ToString::to_string);
    let known = match action {
        Action::Reclaim => format!("Pod {pod} was preempted by workload {winner}."),
        Action::Preempt => format!("Pod {pod} was preempted by higher priority workload {winner}"),
        Action::Consolidate => {
            format!("Pod {pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure")
        }
        Action::EvictStale | Action::Allocate => {
            format!("Workload doesn't meet the minimum required number of pods, evicting remaining pod: {pod}")
        }
    };
    format!("{}: {why}", known.trim_end_matches('.'))
}

/// An action in the words of configuration files.
pub fn action_name(action: Action) -> &'static str {
    match action {
        Action::Allocate => "allocate",
        Action::Consolidate => "consolidation",
        Action::Reclaim => "reclaim",
        Action::Preempt => "preempt",
        Action::EvictStale => "stalegangeviction",
    }
}

/// Millionths with two decimals.
fn hundredths(millionths: i64) -> String {
    let rounded = (millionths + 5_000) / 10_000;
    format!("{}.{:02}", rounded / 100, rounded % 100)
}

fn claimed(devices: &ClaimedDevices) -> ResourceClaimAllocation {
    ResourceClaimAllocation { name: devices.name.clone(), allocation: from_json(&devices.allocation) }
}

fn extended(devices: &ExtendedDevices) -> ExtendedResourceClaimAllocation {
    let mapping = |(container, resource, request): &(String, String, String)| ContainerMapping {
        container_name: container.clone(),
        resource_name: resource.clone(),
        request_name: request.clone(),
    };
    ExtendedResourceClaimAllocation {
        allocation: from_json(&devices.allocation),
        device_requests: devices.requests.iter().filter_map(from_json).collect(),
        container_mappings: devices.mappings.iter().map(mapping).collect(),
    }
}

fn zone(zone: &super::NumaZone) -> NumaZone {
    let amount = zone.amount.iter().map(|(name, amount)| (name.clone(), Quantity(amount.clone()))).collect();
    NumaZone { zone: zone.zone.clone(), amount }
}

/// What was written or read as the API has it can be read back.
fn from_json<T: serde::de::DeserializeOwned>(value: &serde_json::Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

/// A pod that waits for its quota is marked with that, so that nobody adds nodes for it.
fn marked_reason(codes: impl Iterator<Item = &'static str>) -> &'static str {
    let mut codes = codes;
    codes.find(|code| reason::QUOTA.contains(code)).unwrap_or(reason::UNSCHEDULABLE)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::sync::Arc;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::scheduler::effect::Words;
    use crate::scheduler::picture::{NOW, world};
    use crate::scheduler::{Usage, cycle};

    fn report(reporter: &mut Reporter, world: &World) -> Vec<Write> {
        let settings = Settings::default();
        let cycle = cycle(world, &settings, &Usage::default(), NOW);
        reporter.report(world, &cycle, &settings, NOW)
    }

    fn draw(writes: &[Write]) -> String {
        let mut text = String::new();
        for write in writes {
            match write {
                Write::CreateBindRequest(request) => {
                    writeln!(text, "create {}", serde_json::to_string_pretty(request).unwrap()).unwrap();
                }
                Write::SetGroupConditions { group, conditions, .. } => {
                    writeln!(text, "conditions of {group}:").unwrap();
                    for known in conditions {
                        let codes: Vec<&str> = known.reasons.iter().map(|why| why.reason.as_str()).collect();
                        let (pool, id) = (&known.node_pool, &known.transition_id);
                        writeln!(text, "  {pool} {id} {codes:?} {}", known.message).unwrap();
                        for details in known.reasons.iter().filter_map(|why| why.details.as_ref()) {
                            writeln!(text, "  {}", serde_json::to_string(details).unwrap()).unwrap();
                        }
                    }
                }
                Write::Emit(event) => {
                    let about = match &event.about {
                        About::Pod(key, _) => format!("pod {key}"),
                        About::PodGroup(key, _) => format!("group {key}"),
                    };
                    writeln!(text, "event {} on {about}: {} {:?}", event.reason, event.message, event.annotations)
                        .unwrap();
                }
                other => writeln!(text, "{other:?}").unwrap(),
            }
        }
        text
    }

    fn check(text: &str, want: &Expect) {
        want.assert_eq(&draw(&report(&mut Reporter::default(), &world(text))));
    }

    /// The world after the writes, as far as they concern conditions.
    fn after(mut world: World, writes: &[Write]) -> World {
        for write in writes {
            match write {
                Write::SetGroupConditions { group, conditions, .. } => {
                    world.pod_groups.get_mut(group).unwrap().conditions.clone_from(conditions);
                }
                Write::SetUnschedulable { pod, message, .. } => {
                    world.pods.get_mut(pod).unwrap().unschedulable = Some(message.clone());
                }
                _ => {}
            }
        }
        world
    }

    const FULL: &str = "node a gpu=2
        queue team quota=2
        job old queue=team gpu=2 on=a
        job new queue=team gpu=1";

    #[test]
    fn the_same_reasons_are_not_put_into_other_words_at_once() {
        let text = |gpus: u32| FULL.replace("gpu=1", &format!("gpu={gpus}"));
        let told_after = |seconds: i64, then: &str| {
            let mut reporter = Reporter::default();
            let first = report(&mut reporter, &world(&text(1)));
            assert_ne!(first, []);
            let known = after(world(then), &first);
            let (settings, now) = (Settings::default(), NOW.plus(Span::seconds(seconds)));
            reporter.report(&known, &cycle(&known, &settings, &Usage::default(), now), &settings, now)
        };
        // The same reasons, other numbers.
        assert_eq!(told_after(9, &text(2)), []);
        let later = told_after(10, &text(2));
        let marks = |write: &&Write| matches!(write, Write::SetUnschedulable { .. });
        assert_eq!(later.iter().filter(marks).count(), 1, "{later:?}");
        // Next time it takes longer.
        let (mut reporter, mut written, mut told) = (Reporter::default(), Vec::new(), Vec::new());
        for second in 0..40_u32 {
            let (settings, now) = (Settings::default(), NOW.plus(Span::seconds(second.into())));
            let known = after(world(&text(1 + second % 2)), &written);
            let writes = reporter.report(&known, &cycle(&known, &settings, &Usage::default(), now), &settings, now);
            if !writes.is_empty() {
                told.push(second);
            }
            written.extend(writes);
        }
        assert_eq!(told, [0, 11, 32]);
        // A remark is no other reason.
        let mut reporter = Reporter::default();
        let known = after(world(&text(1)), &report(&mut reporter, &world(&text(1))));
        let (settings, now) = (Settings::default(), NOW.plus(Span::seconds(1)));
        let mut remarked = cycle(&known, &settings, &Usage::default(), now);
        let remark = Words { code: reason::UNSCHEDULABLE, message: "Nothing was tried.".to_owned() };
        Arc::make_mut(&mut remarked.pending[0]).reasons.push(remark);
        assert_eq!(reporter.report(&known, &remarked, &settings, now), []);
        // Another reason is told at once.
        let limited = text(1).replace("quota=2", "quota=2 limit=2");
        assert_ne!(told_after(0, &limited), []);
    }

    #[test]
    fn who_waits_for_a_queue_gets_its_numbers() {
        check(
            "node a gpu=4
             queue team quota=1 limit=2
             job old queue=team gpu=2 on=a
             job new queue=team gpu=1",
            &expect![[r#"
                SetUnschedulable { pod: Key { namespace: "lab", name: "new-0" }, reason: "OverLimit", message: "Queue team may use at most 2 GPUs, it holds 2 and the job asks for 1 more. Wait for jobs of the queue to end, or raise its limit. No room is made for it: 1 way of moving pods was tried, the best for 0 of 1 pods: 1 would still leave too little room; queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job asks for 1 more; no job of lower priority in its queue may be evicted.", again: false }
                conditions of lab/new:
                  default 1 ["OverLimit"] Queue team may use at most 2 GPUs, it holds 2 and the job asks for 1 more. Wait for jobs of the queue to end, or raise its limit. No room is made for it: 1 way of moving pods was tried, the best for 0 of 1 pods: 1 would still leave too little room; queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job asks for 1 more; no job of lower priority in its queue may be evicted.
                  {"queueDetails":{"name":"team","queueRequestedResources":{"cpu":"2","memory":"2G","nvidia.com/gpu":"3"},"queueDeservedResources":{"nvidia.com/gpu":"1"},"queueAllocatedResources":{"cpu":"1","memory":"1G","nvidia.com/gpu":"2"},"queueAllocatedNonPreemptibleResources":{"cpu":"0","memory":"0","nvidia.com/gpu":"0"},"queueResourceLimits":{"nvidia.com/gpu":"2"},"podGroupRequestedResources":{"cpu":"1","memory":"1G","nvidia.com/gpu":"1"},"podGroupRequestedNonPreemptibleResources":{"cpu":"0","memory":"0","nvidia.com/gpu":"0"}}}
                event Unschedulable on pod lab/new-0: Queue team may use at most 2 GPUs, it holds 2 and the job asks for 1 more. Wait for jobs of the queue to end, or raise its limit. No room is made for it: 1 way of moving pods was tried, the best for 0 of 1 pods: 1 would still leave too little room; queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job asks for 1 more; no job of lower priority in its queue may be evicted. {}
                event Unschedulable on group lab/new: Queue team may use at most 2 GPUs, it holds 2 and the job asks for 1 more. Wait for jobs of the queue to end, or raise its limit. No room is made for it: 1 way of moving pods was tried, the best for 0 of 1 pods: 1 would still leave too little room; queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job asks for 1 more; no job of lower priority in its queue may be evicted. {}
            "#]],
        );
    }

    #[test]
    fn a_bind_is_a_request_owned_by_its_pod() {
        check(
            "node a gpu=2 gpu-memory=16000
             queue team quota=2
             job half queue=team fraction=0.5",
            &expect![[r#"
                create {
                  "apiVersion": "scheduling.run.ai/v1alpha2",
                  "kind": "BindRequest",
                  "metadata": {
                    "labels": {
                      "selected-node": "a"
                    },
                    "name": "half-0",
                    "namespace": "lab",
                    "ownerReferences": [
                      {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "name": "half-0",
                        "uid": "lab/half-0"
                      }
                    ]
                  },
                  "spec": {
                    "podName": "half-0",
                    "selectedNode": "a",
                    "receivedResourceType": "Fraction",
                    "receivedGPU": {
                      "count": 1,
                      "portion": "0.50"
                    },
                    "selectedGPUGroups": [
                      "a-28592f47de"
                    ]
                  }
                }
                NoteGroup { group: Key { namespace: "lab", name: "half" }, annotations: {"kai.scheduler/last-eviction-timestamp": None, "kai.scheduler/last-start-timestamp": Some("1970-01-01T00:16:40Z"), "kai.scheduler/stale-podgroup-timestamp": None} }
                event Scheduled on pod lab/half-0: Successfully assigned pod lab/half-0 to node a at node-pool default {}
            "#]],
        );
    }

    #[test]
    fn whoever_waits_is_told_once() {
        let (world, mut reporter) = (world(FULL), Reporter::default());
        let first = report(&mut reporter, &world);
        expect![[r#"
            SetUnschedulable { pod: Key { namespace: "lab", name: "new-0" }, reason: "Unschedulable", message: "No node takes pod lab/new-0: 1 node lacks GPUs (short of 1 GPU). No room is made for it: moving pods cannot help, the job asks for 1 GPU and all that is free together is 0; queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job asks for 1 more; no job of lower priority in its queue may be evicted.", again: false }
            conditions of lab/new:
              default 1 ["PodSchedulingErrors"] No node takes pod lab/new-0: 1 node lacks GPUs (short of 1 GPU). No room is made for it: moving pods cannot help, the job asks for 1 GPU and all that is free together is 0; queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job asks for 1 more; no job of lower priority in its queue may be evicted.
            event Unschedulable on pod lab/new-0: No node takes pod lab/new-0: 1 node lacks GPUs (short of 1 GPU). No room is made for it: moving pods cannot help, the job asks for 1 GPU and all that is free together is 0; queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job asks for 1 more; no job of lower priority in its queue may be evicted. {}
            event Unschedulable on group lab/new: No node takes pod lab/new-0: 1 node lacks GPUs (short of 1 GPU). No room is made for it: moving pods cannot help, the job asks for 1 GPU and all that is free together is 0; queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job asks for 1 more; no job of lower priority in its queue may be evicted. {}
        "#]].assert_eq(&draw(&first));
        let world = after(world, &first);
        assert_eq!(report(&mut reporter, &world), []);
    }

    #[test]
    fn what_no_longer_holds_is_taken_back() {
        let (mut world, mut reporter) = (world(FULL), Reporter::default());
        let writes = report(&mut reporter, &world);
        world = after(world, &writes);
        world.pods.remove(&PodKey::new("lab", "old-0"));
        // Bound in this cycle: the condition stays until the pod has arrived.
        let writes = report(&mut reporter, &world);
        assert!(!writes.iter().any(|write| matches!(write, Write::SetGroupConditions { .. })));
        world.pods.get_mut(&PodKey::new("lab", "new-0")).unwrap().node = Some("a".to_owned());
        let writes = report(&mut reporter, &world);
        let (group, conditions) = (GroupKey::new("lab", "new"), Vec::new());
        let cleared = Write::SetGroupConditions { group, conditions, again: true };
        assert!(writes.contains(&cleared), "{writes:?}");
    }

    #[test]
    fn an_eviction_names_who_it_is_for() {
        check(
            "node a gpu=1
             class build value=100
             queue team quota=1 limit=1
             job old queue=team gpu=1 on=a
             job new queue=team gpu=1 priority=build",
            &expect![[r#"
                Evict { pod: Key { namespace: "lab", name: "old-0" }, uid: "lab/old-0", message: "Pod lab/old-0 was preempted by higher priority workload lab/new: makes room for job lab/new of higher priority, 100 over 50" }
                NoteGroup { group: Key { namespace: "lab", name: "old" }, annotations: {"kai.scheduler/last-eviction-timestamp": Some("1970-01-01T00:16:40Z"), "kai.scheduler/last-start-timestamp": None, "kai.scheduler/stale-podgroup-timestamp": None} }
                Nominate { pod: Key { namespace: "lab", name: "new-0" }, node: Some("a") }
                event Evict on group lab/old: Pod lab/old-0 was preempted by higher priority workload lab/new: makes room for job lab/new of higher priority, 100 over 50 {"evictor-action-type": "preempt", "evictor-pod-group-name": "new", "evictor-pod-group-namespace": "lab", "num-evicted-pods": "1"}
                event Pipelined on pod lab/new-0: Pod lab/new-0 was pipelined to node a {}
            "#]],
        );
    }

    #[test]
    fn a_condition_of_another_pool_stays_and_numbers_go_on() {
        let mut world = world(FULL);
        let group = world.pod_groups.get_mut(&GroupKey::new("lab", "new")).unwrap();
        group.conditions.push(SchedulingCondition {
            node_pool: "other".to_owned(),
            transition_id: "7".to_owned(),
            ..SchedulingCondition::default()
        });
        let writes = report(&mut Reporter::default(), &world);
        let conditions = writes.iter().find_map(|write| match write {
            Write::SetGroupConditions { conditions, .. } => Some(conditions),
            _ => None,
        });
        let shown: Vec<(&str, &str)> =
            conditions.unwrap().iter().map(|known| (known.node_pool.as_str(), known.transition_id.as_str())).collect();
        assert_eq!(shown, [("other", "7"), ("default", "8")]);
    }

    #[test]
    fn portions_have_two_decimals() {
        assert_eq!((hundredths(500_000), hundredths(1_000_000)), ("0.50".to_owned(), "1.00".to_owned()));
        assert_eq!((hundredths(333_300), hundredths(0)), ("0.33".to_owned(), "0.00".to_owned()));
    }
}
