//! Pods on nodes: they start a moment after they are bound, run for as long as their work takes, and hold their
//! resources until they have really stopped.

use kai_api::keys::label;
use kai_engine::units::Span;
use rand_pcg::rand_core::Rng;
use serde_json::{Value, json};

use super::store::{uid, write_time};
use super::{Cluster, Due};
use crate::journal::Event;
use crate::json::{annotation, object_at};
use crate::manifest::{DURATION_ANNOTATION, Id, Kind};
use crate::time::parse_span;

/// The phase of a pod; a pod that was never touched waits.
pub(super) fn phase(pod: &Value) -> &str {
    pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or("Pending")
}

/// The node of a pod, if it has one.
pub(super) fn node_of(pod: &Value) -> Option<&str> {
    pod.pointer("/spec/nodeName").and_then(Value::as_str).filter(|node| !node.is_empty())
}

/// Whether a pod is over, well or badly.
pub(super) fn is_over(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the pod was deleted and terminates.
pub(super) fn is_leaving(pod: &Value) -> bool {
    pod.pointer("/metadata/deletionTimestamp").is_some()
}

/// Names the shared GPUs of a pod as the binder does: one label, or one for each of several.
pub(super) fn write_gpu_groups(pod: &mut Value, groups: &[String]) {
    if groups.is_empty() {
        return;
    }
    let Some(labels) = object_at(pod, &["metadata", "labels"]) else { return };
    if let [only] = groups {
        labels.insert(label::GPU_GROUP.to_owned(), json!(only));
        return;
    }
    for group in groups {
        labels.insert(format!("{}{group}", label::GPU_GROUP_PREFIX), json!(group));
    }
}

impl Cluster {
    /// Starts the containers of a pod that has just been given a node.
    pub(super) fn start_pod(&mut self, pod: &Id) {
        let Some(uid) = self.store.get(pod).map(|pod| uid(pod).to_owned()) else { return };
        let jitter = self.scenario.pod_start_jitter.0;
        // Whole milliseconds: finer ones say nothing and are hard to read.
        let extra = if jitter == 0 { 0 } else { ((i64::from(self.rng.next_u32()) * jitter) >> 32) / 1_000 * 1_000 };
        let up = self.after(Span(self.scenario.pod_start.0 + extra));
        self.events.add(up, Due::PodUp { pod: pod.clone(), uid });
    }

    /// The containers are up; the work begins.
    pub(super) fn pod_up(&mut self, pod: &Id) {
        self.set_phase(pod, "Running");
        self.schedule_end(pod);
    }

    /// Plans the end of a running pod's work, if it has one.
    pub(super) fn schedule_end(&mut self, pod: &Id) {
        let Some(value) = self.store.get(pod) else { return };
        if let Some(duration) = self.duration_of(pod, value) {
            let uid = uid(value).to_owned();
            self.events.add(self.after(duration), Due::PodDone { pod: pod.clone(), uid });
        }
    }

    /// How long the work of a pod takes: its own word, then the scenario's about it or its owners, then the
    /// scenario's for all. Some owners mean their pods to run for ever, whatever those above them do.
    fn duration_of(&self, pod: &Id, value: &Value) -> Option<Span> {
        if let Some(span) = annotation(value, DURATION_ANNOTATION).and_then(parse_span) {
            return Some(span);
        }
        let named = |id: &Id| self.scenario.durations.iter().find(|rule| rule.target == *id).map(|rule| rule.duration);
        let mut here = Some(pod.clone());
        while let Some(id) = here {
            if let Some(span) = named(&id) {
                return Some(span);
            }
            if id.kind.runs_for_ever() {
                return None;
            }
            here = self.controller_of(&id);
        }
        self.scenario.duration
    }

    /// The work of a pod is done: it frees its resources and stays as a record.
    pub(super) fn pod_done(&mut self, pod: &Id) {
        let Some(value) = self.store.get(pod).filter(|value| !is_leaving(value)) else { return };
        let node = node_of(value).map(str::to_owned);
        let value = value.clone();
        self.set_phase(pod, "Succeeded");
        self.leave_claims(pod, &value);
        self.note(Event::Finish, pod, node.as_deref(), "its work is done");
    }

    fn set_phase(&mut self, pod: &Id, phase: &str) {
        self.store.change(pod, |value| {
            if let Some(status) = object_at(value, &["status"]) {
                status.insert("phase".to_owned(), json!(phase));
            }
        });
        self.enqueue_owners(pod);
    }

    /// Begins to delete a pod. One that runs keeps its place until it has stopped.
    pub(super) fn stop_pod(&mut self, pod: &Id) {
        let Some(value) = self.store.get(pod).filter(|value| !is_leaving(value)) else { return };
        if node_of(value).is_none() || is_over(value) || self.scenario.pod_stop == Span(0) {
            self.remove(pod);
            return;
        }
        let uid = uid(value).to_owned();
        let gone = self.after(self.scenario.pod_stop);
        self.store.change(pod, |value| {
            if let Some(metadata) = object_at(value, &["metadata"]) {
                metadata.insert("deletionTimestamp".to_owned(), json!(write_time(gone)));
            }
        });
        self.enqueue_owners(pod);
        self.events.add(gone, Due::PodGone { pod: pod.clone(), uid });
    }

    /// Handles what is due on a pod, unless that pod is gone and another has its name.
    pub(super) fn pod_due(&mut self, pod: &Id, wanted: &str, act: fn(&mut Self, &Id)) {
        if self.store.get(pod).is_some_and(|value| uid(value) == wanted && !is_over(value)) {
            act(self, pod);
        }
    }

    /// The pods of a node vanish with it.
    pub(super) fn lose_pods_of(&mut self, node: &str, why: &str) {
        let on_node = |value: &Value| node_of(value) == Some(node) && !is_over(value);
        let lost: Vec<Id> =
            self.store.of_kind(Kind::Pod).filter(|(_, value)| on_node(value)).map(|(id, _)| id.clone()).collect();
        for pod in lost {
            let replaced = self.expect_replacement(&pod);
            let why = if replaced { why.to_owned() } else { format!("{why}; no controller recreates it") };
            self.note(Event::Lost, &pod, Some(node), why);
            self.remove(&pod);
        }
    }

    /// A pod that runs when the simulation begins.
    pub(super) fn runs_already(&mut self, pod: &Id, node: &str, gpus: &[String]) {
        self.store.change(pod, |value| {
            if let Some(spec) = object_at(value, &["spec"]) {
                spec.insert("nodeName".to_owned(), json!(node));
            }
            write_gpu_groups(value, gpus);
        });
        self.set_phase(pod, "Running");
        self.note(Event::Run, pod, Some(node), "runs already when the simulation begins");
        self.schedule_end(pod);
    }
}
