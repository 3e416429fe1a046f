//! The API calls that follow from a cycle: bind requests, evictions, timestamps, conditions and events.
//!
//! Level-triggered: what the cluster already shows is not written again, and what no longer holds is removed.

mod batching;
mod bind_requests;
mod conditions;
mod events;

#[cfg(test)]
mod tests;

pub use crate::calls::{Event, InvolvedObject, Write};

use std::collections::BTreeMap;

use kai_api::keys::{annotation, eviction_event, reason};
use kai_engine::units::{Span, Timestamp};

use self::batching::request_key;
use self::conditions::{GroupPodStates, name_of};
use super::config::action_name;
use super::effect::{CycleResult, Effect, QueueView};
use super::explain::actions;
use super::settings::Settings;
use crate::controller::Backoff;
use crate::key::{GroupKey, PodKey};
use crate::objects::field_reader::write_time;
use crate::world::World;

/// What the scheduler assumes from a write on, until a watch confirms it or it is forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assumption {
    Bind(PodKey),
    Eviction(PodKey),
    Nomination(PodKey),
    GroupTimestamps(GroupKey),
    /// `PodScheduled=False`.
    PodCondition(PodKey),
    /// The scheduling conditions of a group.
    GroupConditions(GroupKey),
}

impl Write {
    /// What is to be forgotten if the write was rejected.
    pub fn assumptions(&self) -> Vec<Assumption> {
        match self {
            Self::CreateBindRequest(request) => request_key(request).map(Assumption::Bind).into_iter().collect(),
            Self::CreateBindBatch { pods, .. } => pods.iter().cloned().map(Assumption::Bind).collect(),
            Self::Evict { pod, .. } => vec![Assumption::Eviction(pod.clone())],
            Self::Nominate { pod, .. } => vec![Assumption::Nomination(pod.clone())],
            Self::PatchGroupTimestamps { group, .. } => vec![Assumption::GroupTimestamps(group.clone())],
            Self::SetUnschedulable { pod, .. } => vec![Assumption::PodCondition(pod.clone())],
            Self::SetGroupConditions { group, .. } => vec![Assumption::GroupConditions(group.clone())],
            Self::DeleteBindRequest(_) | Self::LabelPod { .. } | Self::Emit(_) => Vec::new(),
        }
    }
}

/// Plans the writes that follow from a cycle, and remembers what it reported last.
#[derive(Clone, Debug, Default)]
pub struct WritePlanner {
    sent_events: BTreeMap<(InvolvedObject, &'static str), String>,
    last_reports: BTreeMap<GroupKey, LastReport>,
}

/// What was reported last of a pending group.
#[derive(Clone, Debug)]
struct LastReport {
    reasons: Vec<&'static str>,
    at: Timestamp,
    /// How often the message was rewritten for the same reasons.
    rewrites: u32,
}

/// Debounce: while the reasons of a group are the same, its message is rewritten at most once per interval, and the
/// interval doubles with each rewrite. The numbers in it change whenever any pod starts.
const REWRITE_DEBOUNCE: Backoff = Backoff::new(Span::seconds(10), Span::seconds(300));

impl LastReport {
    fn debounce(&self) -> Span {
        REWRITE_DEBOUNCE.after(self.rewrites)
    }
}

impl WritePlanner {
    /// The writes after this cycle, most urgent first.
    pub fn plan(&mut self, world: &World, cycle: &CycleResult, settings: &Settings, now: Timestamp) -> Vec<Write> {
        let pod_states = GroupPodStates::read(world, cycle);
        let queues = &cycle.queues;
        let mut planned =
            CycleWrites { world, queues, settings, now, writes: Vec::new(), events: Vec::new(), debounced: false };
        for effect in &cycle.effects {
            planned.effect(effect);
        }
        let before = std::mem::take(&mut self.last_reports);
        for job in &cycle.pending {
            let reasons = job.explanations().iter().map(|explanation| explanation.reason);
            // Remarks come and go with what was tried.
            let reasons: Vec<&'static str> = reasons.filter(|reason| *reason != reason::UNSCHEDULABLE).collect();
            let last = before.get(&job.job).filter(|last| last.reasons == reasons);
            let debounced = last.is_some_and(|last| (Span(0)..last.debounce()).contains(&now.since(last.at)));
            planned.debounced = debounced;
            let changes = planned.pending(job, &pod_states[&name_of(&job.job)]);
            let (at, rewrites) = match last {
                Some(last) if debounced || !changes => (last.at, last.rewrites),
                Some(last) => (now, last.rewrites.saturating_add(1)),
                None => (now, 0),
            };
            self.last_reports.insert(job.job.clone(), LastReport { reasons, at, rewrites });
        }
        for group in world.pod_groups.values() {
            let settled = pod_states.get(&name_of(&group.key)).is_none_or(|pods| !pods.pending && !pods.binding);
            if !group.conditions.is_empty() && settled {
                let (group, conditions) = (group.key.clone(), Vec::new());
                planned.writes.push(Write::SetGroupConditions { group, conditions, is_update: true });
            }
        }
        let CycleWrites { mut writes, events, .. } = planned;
        writes = batching::batched(writes, world, settings, now);
        writes.extend(self.dedupe_events(events).into_iter().map(Write::Emit));
        writes
    }
}

/// The writes of one cycle, as they are collected.
struct CycleWrites<'a> {
    world: &'a World,
    queues: &'a [QueueView],
    settings: &'a Settings,
    now: Timestamp,
    writes: Vec<Write>,
    /// `(event, debounced)`.
    events: Vec<(Event, bool)>,
    /// Debounced: write conditions and events only for objects that have none.
    debounced: bool,
}

impl CycleWrites<'_> {
    fn effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Bind { pod, node, received, gpu_groups, extras, .. } => {
                let groups = gpu_groups.iter().map(|group| group.name.clone()).collect();
                self.bind(pod, node, *received, groups, extras);
            }
            Effect::Pipeline { pod, node, .. } => {
                self.pod_event(pod, false, reason::PIPELINED, actions::pipelined(pod, node));
            }
            Effect::Evict { pod, job, action, preemptor, gang_size, why, .. } => {
                let message = actions::evicted(pod, *action, preemptor.as_ref(), why);
                let uid = self.world.pods.get(pod).map_or_else(String::new, |pod| pod.uid.clone());
                self.writes.push(Write::Evict { pod: pod.clone(), uid, message: message.clone() });
                let mut annotations = BTreeMap::from([
                    (eviction_event::NUM_EVICTED_PODS.to_owned(), gang_size.to_string()),
                    (eviction_event::EVICTOR_ACTION_TYPE.to_owned(), action_name(*action).to_owned()),
                ]);
                if let Some(preemptor) = preemptor {
                    annotations.insert(eviction_event::EVICTOR_POD_GROUP_NAME.to_owned(), preemptor.name.clone());
                    annotations
                        .insert(eviction_event::EVICTOR_POD_GROUP_NAMESPACE.to_owned(), preemptor.namespace.clone());
                }
                self.group_event(job, reason::EVICT, message, annotations);
            }
            Effect::SetGroupTimestamps { job, last_start, stale_since, last_eviction } => {
                let times = [
                    (annotation::LAST_START_TIMESTAMP, *last_start),
                    (annotation::STALE_POD_GROUP_TIMESTAMP, *stale_since),
                    (annotation::LAST_EVICTION_TIMESTAMP, *last_eviction),
                ];
                let annotations = times.into_iter().map(|(key, time)| (key.to_owned(), time.map(write_time))).collect();
                self.writes.push(Write::PatchGroupTimestamps { group: job.clone(), annotations });
            }
            Effect::Nominate { pod, node } => {
                self.writes.push(Write::Nominate { pod: pod.clone(), node: node.clone() });
            }
            Effect::DeleteBindRequest { request, .. } => self.writes.push(Write::DeleteBindRequest(request.clone())),
            Effect::MarkPod { pod, reason } => {
                self.set_unschedulable(pod, reason::UNSCHEDULABLE, &reason.explain().message, true);
            }
        }
    }
}
