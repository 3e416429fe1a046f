//! Conditions of pending pods and pod groups.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff;
use kai_api::keys::{name, reason};
use kai_api::{SchedulingCondition, UnschedulableExplanation};

use super::{CycleWrites, Write};
use crate::key::{GroupKey, PodKey};
use crate::objects::{Phase, PodGroup};
use crate::scheduler::effect::{CycleResult, Effect, PendingJob};
use crate::scheduler::explain::queue_details;
use crate::world::World;

impl CycleWrites<'_> {
    /// Conditions and events of a pending group and its pods; true if a condition changes.
    pub(super) fn pending(&mut self, job: &PendingJob, pods: &GroupPodStates<'_>) -> bool {
        let Some(group) = self.world.pod_groups.get(&job.job) else { return false };
        let before = self.writes.len();
        let pipelined = job.explanations().iter().any(|explanation| explanation.reason == reason::PIPELINED);
        let reasons: Vec<_> =
            job.explanations().iter().filter(|explanation| explanation.reason != reason::PIPELINED).collect();
        let sentences: Vec<&str> = reasons.iter().map(|explanation| explanation.message.as_str()).collect();
        let mut message = sentences.join(" ");
        if group.backs_off {
            message = format!("Node-Pool '{}': {message}", self.pool(group));
        }
        if reasons.iter().any(|explanation| explanation.reason == reason::NOT_READY) {
            self.group_event(&job.job, reason::NOT_READY, message, BTreeMap::new());
            return false;
        }
        if reasons.is_empty() {
            return false;
        }
        let marked = condition_reason(reasons.iter().map(|explanation| explanation.reason));
        for pod in &pods.waiting {
            self.set_unschedulable(pod, marked, &message, group.mark_unschedulable);
        }
        self.group_event(&job.job, reason::UNSCHEDULABLE, message.clone(), BTreeMap::new());
        if pipelined || pods.running {
            return self.writes.len() > before;
        }
        let details = job.blocked.as_ref().and_then(|blocked| queue_details::of(self.queues, blocked));
        let mut explanations: Vec<UnschedulableExplanation> = Vec::new();
        for explanation in reasons {
            match explanations.last_mut() {
                // A remark on the reason before it, and no reason that KAI knows.
                Some(last) if explanation.reason == reason::UNSCHEDULABLE => {
                    last.message = format!("{} {}", last.message, explanation.message);
                }
                _ => explanations.push(UnschedulableExplanation {
                    reason: explanation.reason.to_owned(),
                    message: explanation.message.clone(),
                    details: details.clone().filter(|_| reason::QUOTA.contains(&explanation.reason)),
                }),
            }
        }
        self.condition(group, message, explanations);
        self.writes.len() > before
    }

    /// Puts the condition last, one for each node pool, unless it is there already.
    fn condition(&mut self, group: &PodGroup, message: String, reasons: Vec<UnschedulableExplanation>) {
        let pool = self.pool(group);
        let number = |condition: &SchedulingCondition| condition.transition_id.parse::<i64>().unwrap_or(-1);
        let latest = group.conditions.iter().max_by_key(|condition| number(condition));
        let present = latest.is_some_and(|known| {
            known.node_pool == pool && (self.debounced || known.message == message) && known.status == "True"
        }) && group.conditions.last().is_some_and(|last| last.node_pool == pool);
        if present {
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
        let (group, is_update) = (group.key.clone(), latest.is_some());
        self.writes.push(Write::SetGroupConditions { group, conditions, is_update });
    }

    fn pool(&self, group: &PodGroup) -> String {
        let pool = group.labels.get(&self.settings.node_pool_label_key).filter(|pool| !pool.is_empty());
        pool.map_or(name::DEFAULT_SHARD, String::as_str).to_owned()
    }

    /// `PodScheduled=False`, if wanted, and the event.
    pub(super) fn set_unschedulable(&mut self, pod: &PodKey, reason: &'static str, message: &str, condition: bool) {
        let known = self.world.pods.get(pod).and_then(|row| row.unschedulable_message.as_deref());
        if condition && !known.is_some_and(|known| self.debounced || known == message) {
            let (pod, message, is_update) = (pod.clone(), message.to_owned(), known.is_some());
            self.writes.push(Write::SetUnschedulable { pod, reason, message, is_update });
        }
        self.pod_event(pod, true, reason::UNSCHEDULABLE, message.to_owned());
    }
}

/// States of the pods of a group after the cycle.
#[derive(Default)]
pub(super) struct GroupPodStates<'w> {
    /// The group is pending.
    pub(super) pending: bool,
    running: bool,
    /// A pod is being bound: conditions stay until it is on its node.
    pub(super) binding: bool,
    waiting: Vec<&'w PodKey>,
}

impl<'w> GroupPodStates<'w> {
    /// Groups that are pending or have conditions, by namespace and name.
    pub(super) fn read(world: &'w World, cycle: &'w CycleResult) -> BTreeMap<(&'w str, &'w str), Self> {
        let mut groups: BTreeMap<(&str, &str), Self> = BTreeMap::new();
        for group in world.pod_groups.values().filter(|group| !group.conditions.is_empty()) {
            groups.entry(name_of(&group.key)).or_default();
        }
        for job in &cycle.pending {
            groups.entry(name_of(&job.job)).or_default().pending = true;
        }
        let mut placed = BTreeSet::new();
        for effect in &cycle.effects {
            if let Effect::Bind { pod, job, .. } | Effect::Pipeline { pod, job, .. } = effect {
                placed.insert(pod);
                if let Some(group) = groups.get_mut(&name_of(job)) {
                    group.binding = true;
                }
            }
        }
        if groups.is_empty() {
            return groups;
        }
        let requested: BTreeSet<&PodKey> = world.bind_requests.values().map(|request| &request.pod).collect();
        for pod in world.pods.values() {
            let is_alive = matches!(pod.phase, Phase::Pending | Phase::Running) && pod.deletion.is_none();
            let Some(name) = pod.group_name().filter(|_| is_alive) else { continue };
            let Some(group) = groups.get_mut(&(pod.key.namespace.as_str(), name)) else { continue };
            if pod.node.is_some() {
                group.running = true;
            } else if requested.contains(&pod.key) {
                group.binding = true;
            } else if !pod.gated && !placed.contains(&pod.key) {
                group.waiting.push(&pod.key);
            }
        }
        groups
    }
}

pub(super) fn name_of(key: &GroupKey) -> (&str, &str) {
    (&key.namespace, &key.name)
}

/// The reason of `PodScheduled=False`. For a pod that waits for quota it is not `Unschedulable`, so that autoscalers add
/// no nodes for it.
fn condition_reason(mut reasons: impl Iterator<Item = &'static str>) -> &'static str {
    reasons.find(|reason| reason::QUOTA.contains(reason)).unwrap_or(reason::UNSCHEDULABLE)
}
