//! Does what the scheduler asks for, as binder and API server would, and notes why.

use std::collections::{BTreeMap, BTreeSet};

use kai_api::keys::annotation;
use kai_control::ObjectId;
use kai_control::key::{Key, PodKey};
use kai_control::objects::BoundShare;
use kai_control::scheduler::reasons::PendingReason;
use kai_control::scheduler::{BindExtras, CycleResult, Effect, Explanation, GpuGroup, JobNames, ResourceType};
use kai_engine::units::Timestamp;
use serde_json::{Value, json};

use super::Cluster;
use super::kubelet::{is_leaving, is_over, node_of, write_gpu_groups};
use super::store::write_time;
use crate::journal::Event;
use crate::json::object_at;
use crate::manifest::{Id, Kind};

/// What a cycle changed, for those who check it.
#[derive(Debug, Default)]
pub(crate) struct Performed {
    pub(crate) bound: BTreeSet<PodKey>,
    pub(crate) pipelined: BTreeSet<PodKey>,
    pub(crate) evicted: BTreeSet<PodKey>,
    /// What could not be done as asked: the scheduler was wrong about the cluster.
    pub(crate) rejected: Vec<String>,
}

impl Cluster {
    /// Performs the effects of a cycle in order.
    pub(crate) fn perform(&mut self, cycle: &CycleResult) -> Performed {
        let mut performed = Performed::default();
        let destinations: BTreeMap<&PodKey, &str> = cycle.effects.iter().filter_map(destination).collect();
        for effect in &cycle.effects {
            if let Err(problem) = self.perform_one(effect, &destinations, &mut performed) {
                performed.rejected.push(problem);
            }
        }
        for problem in &cycle.problems {
            let Explanation { reason, message } = problem.reason.explain();
            self.journal.add_if_changed(self.now, Event::Warn, &object_id(&problem.object), None, reason, message);
        }
        self.note_waiting(cycle, &performed);
        performed
    }

    fn perform_one(
        &mut self,
        effect: &Effect,
        destinations: &BTreeMap<&PodKey, &str>,
        performed: &mut Performed,
    ) -> Result<(), String> {
        match effect {
            Effect::Bind { pod, node, received, gpu_groups, extras, why, .. } => {
                self.bind(pod, node, received.kind, gpu_groups, extras)?;
                self.give_devices(pod, extras);
                self.note(Event::Bind, &pod_id(pod), Some(node), why.to_string());
                performed.bound.insert(pod.clone());
            }
            Effect::Pipeline { pod, node, why, .. } => {
                let id = pod_id(pod);
                if self.store.get(&id).is_none() {
                    return Err(format!("{id} was pipelined to {node}, but does not exist"));
                }
                // A pod that is evicted and pipelined to another place in one go is moved; that is one entry.
                if !performed.evicted.contains(pod) {
                    let why = why.to_string();
                    self.journal.add_if_changed(self.now, Event::Pipelined, &id, Some(node), node, why);
                }
                performed.pipelined.insert(pod.clone());
            }
            Effect::Evict { pod, why, .. } => {
                let id = pod_id(pod);
                let value = self.store.get(&id).ok_or_else(|| format!("{id} was evicted, but does not exist"))?;
                if is_over(value) || is_leaving(value) {
                    return Err(format!("{id} was evicted, but is over already"));
                }
                let node = node_of(value).map(str::to_owned);
                let why = why.explain(JobNames::by(&|job| self.workload_name(job)));
                let why = match (self.expect_replacement(&id), destinations.get(pod)) {
                    (true, Some(destination)) => format!("{why}; its new place is on {destination}"),
                    (true, None) => why,
                    (false, _) => format!("{why}; no controller recreates it"),
                };
                let event = if destinations.contains_key(pod) { Event::Move } else { Event::Evict };
                self.note(event, &id, node.as_deref(), why);
                self.stop_pod(&id);
                performed.evicted.insert(pod.clone());
            }
            Effect::SetGroupTimestamps { job, last_start, stale_since, last_eviction } => {
                let times = [
                    (annotation::LAST_START_TIMESTAMP, last_start),
                    (annotation::STALE_POD_GROUP_TIMESTAMP, stale_since),
                    (annotation::LAST_EVICTION_TIMESTAMP, last_eviction),
                ];
                self.store.change(&group_id(job), |group| write_times(group, &times));
            }
            Effect::MarkPod { pod, reason } => {
                let Explanation { reason, message } = reason.explain();
                self.journal.add_if_changed(self.now, Event::Warn, &pod_id(pod), None, reason, message);
            }
            Effect::Nominate { pod, node } => {
                let id = pod_id(pod);
                if self.store.get(&id).is_none() {
                    return Err(format!("{id} was nominated, but does not exist"));
                }
                self.store.change(&id, |value| nominate(value, node.as_deref()));
            }
            Effect::DeleteBindRequest { request, .. } => {
                return Err(format!("bind request {request} was deleted, but binds are immediate here"));
            }
        }
        Ok(())
    }

    fn bind(
        &mut self,
        pod: &PodKey,
        node: &str,
        kind: ResourceType,
        gpu_groups: &[GpuGroup],
        extras: &BindExtras,
    ) -> Result<(), String> {
        let id = pod_id(pod);
        let value = self.store.get(&id).ok_or_else(|| format!("{id} was bound, but does not exist"))?;
        if let Some(other) = node_of(value) {
            return Err(format!("{id} was bound to {node}, but is on {other} already"));
        }
        if is_over(value) || is_leaving(value) {
            return Err(format!("{id} was bound, but is over already"));
        }
        if self.store.get(&Id::cluster(Kind::Node, node)).is_none() {
            return Err(format!("{id} was bound to {node}, which does not exist"));
        }
        self.bind_claims_of(pod, node)?;
        let groups: Vec<String> = gpu_groups.iter().map(|group| group.name.clone()).collect();
        let received = match kind {
            ResourceType::Regular => "Regular",
            ResourceType::Fraction => "Fraction",
            ResourceType::MigInstance => "MigInstance",
        };
        let share = self.store.world().pods.get(pod).and_then(|pod| pod.request.sharing);
        self.store.change(&id, |value| {
            if let Some(spec) = object_at(value, &["spec"]) {
                spec.insert("nodeName".to_owned(), json!(node));
            }
            if let Some(annotations) = object_at(value, &["metadata", "annotations"]) {
                annotations.insert(annotation::RECEIVED_RESOURCE_TYPE.to_owned(), json!(received));
                if let Some(share) = share {
                    let share = BoundShare::new(share, &groups).to_text();
                    annotations.insert(annotation::BOUND_GPU_SHARE.to_owned(), json!(share));
                }
                if !extras.numa_zones.is_empty() {
                    let zones = extras.numa_zones.iter().map(|zone| json!({"zone": zone.zone, "amount": zone.amount}));
                    let zones = Value::Array(zones.collect()).to_string();
                    annotations.insert(annotation::NUMA_PLACEMENT_PREDICTED.to_owned(), json!(zones));
                }
            }
            write_gpu_groups(value, &groups);
        });
        self.start_pod(&id);
        Ok(())
    }

    /// Says of each waiting job why it waits, once, and again when the reasons change in kind.
    fn note_waiting(&mut self, cycle: &CycleResult, performed: &Performed) {
        let pipelined_jobs: BTreeSet<Key> = performed
            .pipelined
            .iter()
            .filter_map(|pod| self.world().pods.get(pod).and_then(kai_control::objects::Pod::group))
            .collect();
        let mut named = BTreeSet::new();
        for pending in &cycle.pending {
            if pipelined_jobs.contains(&pending.job) {
                continue;
            }
            let id = self.workload_of(&pending.job);
            if named.contains(&id) {
                // Replicas of a Deployment are jobs of their own, but one is enough to tell.
                continue;
            }
            let dedup_key: Vec<&str> = pending.reasons.iter().map(PendingReason::reason).collect();
            let dedup_key = dedup_key.join(" ");
            if self.journal.has_changed(Event::Wait, &id, &dedup_key) {
                // The first obstacle is the one that was met first; the report at the end has all of them.
                let first = pending.reasons.first();
                let names = |job: &Key| self.workload_name(job);
                let why = first.map(|reason| reason.explain(JobNames::by(&names)).message).unwrap_or_default();
                self.journal.add_if_changed(self.now, Event::Wait, &id, None, &dedup_key, why);
            }
            named.insert(id);
        }
        self.journal.retain(Event::Wait, &named);
    }

    /// What sentences call a job.
    pub(crate) fn workload_name(&self, job: &Key) -> String {
        self.workload_of(job).path()
    }

    /// What people call a job: the topmost object that the pod group was made for, if it is known.
    pub(crate) fn workload_of(&self, job: &Key) -> Id {
        let mut id = group_id(job);
        while let Some(owner) = self.controller_of(&id) {
            id = owner;
        }
        id
    }
}

/// The node of a pipelined pod.
fn destination(effect: &Effect) -> Option<(&PodKey, &str)> {
    match effect {
        Effect::Pipeline { pod, node, .. } => Some((pod, node)),
        _ => None,
    }
}

fn object_id(object: &ObjectId) -> Id {
    let (kind, Key { namespace, name }) = (Kind::from(object.kind()), object.key());
    if namespace.is_empty() { Id::cluster(kind, name) } else { Id::namespaced(kind, namespace, name) }
}

pub(crate) fn pod_id(key: &PodKey) -> Id {
    Id::namespaced(Kind::Pod, key.namespace.clone(), key.name.clone())
}

pub(crate) fn group_id(key: &Key) -> Id {
    Id::namespaced(Kind::PodGroup, key.namespace.clone(), key.name.clone())
}

fn nominate(pod: &mut Value, node: Option<&str>) {
    const KEY: &str = "nominatedNodeName";
    let Some(status) = object_at(pod, &["status"]) else { return };
    match node {
        Some(node) => status.insert(KEY.to_owned(), json!(node)),
        None => status.remove(KEY),
    };
}

fn write_times(group: &mut Value, times: &[(&str, &Option<Timestamp>)]) {
    let Some(annotations) = object_at(group, &["metadata", "annotations"]) else { return };
    for (key, time) in times {
        match time {
            Some(time) => annotations.insert((*key).to_owned(), json!(write_time(*time))),
            None => annotations.remove(*key),
        };
    }
}
