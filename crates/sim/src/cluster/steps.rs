//! What the scenario does to the cluster: the user's hand, and the accidents.

use std::collections::BTreeSet;

use kai_control::objects::Pod;
use serde_json::{Value, json};

use super::Cluster;
use super::controllers::count;
use super::event_queue::Due;
use super::kubelet::{is_leaving, is_over, node_of, phase};
use super::store::uid;
use crate::input_error::InputError;
use crate::journal::Event;
use crate::json::object_at;
use crate::manifest::{Id, Item, Kind, ResolvedAction};
use crate::operators;

impl Cluster {
    /// Puts everything in place that exists at time zero.
    pub(crate) fn bootstrap(&mut self, initial: &[Item]) -> Result<(), InputError> {
        for item in initial {
            self.create(item.id.clone(), item.value.clone());
        }
        self.run_controllers();
        self.place_running()?;
        for item in initial {
            // What runs already was submitted long ago.
            if item.id.kind == Kind::Pod || self.has_waiting_pods(&item.id) {
                self.note_submitted(&item.id);
            }
        }
        Ok(())
    }

    /// Whether pods made for an object, directly or through others, have no node yet.
    fn has_waiting_pods(&self, id: &Id) -> bool {
        let Some(value) = self.store.get(id) else { return false };
        self.store.owned_by(uid(value)).any(|owned| match owned.kind {
            Kind::Pod => self.store.get(owned).is_some_and(|pod| node_of(pod).is_none()),
            _ => self.has_waiting_pods(owned),
        })
    }

    /// Pods that run from the start: those that name their node, and those that the scenario lists.
    fn place_running(&mut self) -> Result<(), InputError> {
        let pinned: Vec<(Id, Value)> = self
            .store
            .of_kind(Kind::Pod)
            .filter(|(_, pod)| node_of(pod).is_some() && !is_over(pod))
            .map(|(id, pod)| (id.clone(), pod.clone()))
            .collect();
        for (pod, value) in pinned {
            if is_leaving(&value) {
                let gone = Due::PodGone { pod, uid: uid(&value).to_owned() };
                self.events.add(self.after(self.scenario.pod_stop), gone);
            } else if phase(&value) == "Running" {
                // Copied from a cluster: it runs, which is no entry of the journal.
                self.schedule_end(&pod);
            } else if let Some(node) = node_of(&value) {
                self.runs_already(&pod, node, &[]);
            }
        }
        for running in self.scenario.running.clone() {
            let Some(pod) = self.store.get(&running.pod) else {
                let names: Vec<String> = self.store.of_kind(Kind::Pod).map(|(id, _)| id.path()).collect();
                let help = match kai_control::did_you_mean::closest_match(
                    &running.pod.path(),
                    names.iter().map(String::as_str),
                ) {
                    Some(near) => format!("did you mean `{near}`? Pods of a controller are numbered from 0"),
                    None => {
                        "name a pod of the manifests; pods of a controller are its name and a number from 0".to_owned()
                    }
                };
                return Err(InputError::new(running.location, format!("{} does not exist", running.pod), help));
            };
            if let Some(node) = node_of(pod) {
                let problem = format!("{} is on {node} already", running.pod);
                return Err(InputError::new(running.location, problem, "remove one of the two"));
            }
            self.runs_already(&running.pod, &running.node, &running.gpus);
        }
        Ok(())
    }

    /// Carries out one step.
    pub(crate) fn apply_step(&mut self, action: &ResolvedAction) {
        match action {
            ResolvedAction::Apply(items) => {
                for item in items {
                    self.apply(item);
                }
                self.run_controllers();
                let new: BTreeSet<&Id> = items.iter().map(|item| &item.id).collect();
                for id in new {
                    self.note_submitted(id);
                }
            }
            ResolvedAction::Delete(id) => self.delete(id),
            ResolvedAction::Scale(id, replicas) => self.scale(id, *replicas),
            ResolvedAction::NodeDown(node) => self.node_down(node),
            ResolvedAction::NodeUp(node) => self.node_up(node),
        }
    }

    /// Creates an object, or gives the existing one its new wishes. Status and identity stay.
    fn apply(&mut self, item: &Item) {
        if self.store.get(&item.id).is_none() {
            self.create(item.id.clone(), item.value.clone());
            return;
        }
        let incoming = item.value.clone();
        self.store.change(&item.id, |value| {
            let Some(object) = value.as_object_mut() else { return };
            for (key, new) in incoming.as_object().into_iter().flatten() {
                match key.as_str() {
                    "metadata" => merge_metadata(object.entry("metadata").or_insert_with(|| json!({})), new),
                    "status" if item.id.kind != Kind::Node => {}
                    _ => {
                        object.insert(key.clone(), new.clone());
                    }
                }
            }
        });
        self.enqueue_owners(&item.id);
    }

    fn delete(&mut self, id: &Id) {
        let Some(value) = self.store.get(id) else {
            self.note(Event::Warn, id, None, "nothing to delete: it does not exist");
            return;
        };
        match id.kind {
            Kind::Node => {
                self.note(Event::NodeDown, id, Some(&id.name), "taken away");
                self.lose_pods_of(&id.name, "its node was taken away");
                self.down.remove(&id.name);
                self.remove(id);
            }
            Kind::Pod => {
                let node = node_of(value).map(str::to_owned);
                self.note(Event::Delete, id, node.as_deref(), "deleted by its user");
                self.expect_replacement(id);
                self.stop_pod(id);
            }
            _ => {
                if id.kind == Kind::Queue
                    && let Err(why) = self.admit_deletion(&id.name)
                {
                    self.note(Event::Warn, id, None, format!("refused: {why}"));
                    return;
                }
                self.note(Event::Delete, id, None, "deleted by its user");
                self.remove(id);
            }
        }
    }

    fn scale(&mut self, id: &Id, replicas: u32) {
        let key = if id.kind == Kind::Job { "parallelism" } else { "replicas" };
        let Some(value) = self.store.get(id) else { return };
        let before = count(value, &format!("/spec/{key}")).unwrap_or(1);
        self.store.change(id, |value| {
            if let Some(spec) = object_at(value, &["spec"]) {
                spec.insert(key.to_owned(), json!(replicas));
            }
        });
        self.note(Event::Scale, id, None, format!("{key} from {before} to {replicas}"));
        self.enqueue_owners(id);
    }

    fn node_down(&mut self, node: &str) {
        self.down.insert(node.to_owned(), self.now);
        self.set_ready(node, false);
        self.note(Event::NodeDown, &Id::cluster(Kind::Node, node), Some(node), "no longer ready");
        let due = Due::NodeLost { node: node.to_owned(), down_since: self.now };
        self.events.add(self.after(self.scenario.node_loss), due);
    }

    fn node_up(&mut self, node: &str) {
        self.down.remove(node);
        self.set_ready(node, true);
        self.note(Event::NodeUp, &Id::cluster(Kind::Node, node), Some(node), "ready");
    }

    /// The pods of a node that is still down are lost; the control plane gives up on them.
    pub(super) fn node_lost(&mut self, node: &str, down_since: kai_engine::units::Timestamp) {
        if self.down.get(node) == Some(&down_since) {
            self.lose_pods_of(node, "its node failed");
        }
    }

    fn set_ready(&mut self, node: &str, ready: bool) {
        let status = if ready { "True" } else { "Unknown" };
        self.store.change(&Id::cluster(Kind::Node, node), |value| {
            let Some(all) = object_at(value, &["status"]) else { return };
            let conditions = all.entry("conditions").or_insert_with(|| json!([]));
            let Some(conditions) = conditions.as_array_mut() else { return };
            conditions.retain(|condition| condition.get("type") != Some(&json!("Ready")));
            conditions.push(json!({"type": "Ready", "status": status}));
        });
    }

    /// Handles what is due, other than steps and cycles.
    pub(crate) fn due(&mut self, due: &Due) {
        match due {
            Due::PodUp { pod, uid } => self.pod_due(pod, uid, Self::pod_up),
            Due::PodDone { pod, uid } => self.pod_due(pod, uid, Self::pod_done),
            Due::PodGone { pod, uid } => self.pod_due(pod, uid, Self::remove),
            Due::ScalingPodDone { pod, uid } => self.pod_due(pod, uid, Self::scaling_pod_done),
            Due::NodeLost { node, down_since } => self.node_lost(node, *down_since),
            Due::Step(_) | Due::Cycle => {}
        }
    }

    /// Records what a user has submitted; objects that only describe the cluster are not recorded.
    fn note_submitted(&mut self, id: &Id) {
        let Some(value) = self.store.get(id).cloned() else { return };
        let value = &value;
        let why = match id.kind {
            Kind::Job => {
                let pods =
                    count(value, "/spec/completions").unwrap_or(0).max(count(value, "/spec/parallelism").unwrap_or(1));
                describe_workload(self, id, value, pods)
            }
            Kind::Deployment | Kind::ReplicaSet => {
                describe_workload(self, id, value, count(value, "/spec/replicas").unwrap_or(1))
            }
            kind if kind.makes_pods() => {
                self.note(Event::Submit, id, None, describe_roles(self, id, value));
                let not_simulated: Vec<String> = operators::not_simulated(value).map(str::to_owned).collect();
                for key in not_simulated {
                    self.note(Event::Warn, id, None, format!("annotation {key} is not simulated"));
                }
                return;
            }
            // A pod on a node has its own entry.
            Kind::Pod if node_of(value).is_none() => describe_workload(self, id, value, 1),
            Kind::Node if self.now > self.journal.start() => {
                let name = id.name.clone();
                self.note(Event::NodeUp, id, Some(&name), "added");
                return;
            }
            _ => return,
        };
        self.note(Event::Submit, id, None, why);
    }
}

/// `Job: 2 pods of 4 GPUs, queue team-a`.
fn describe_workload(cluster: &Cluster, id: &Id, value: &Value, pods: u32) -> String {
    let template = if id.kind == Kind::Pod { Some(value) } else { value.pointer("/spec/template") };
    let each = request_of(template.cloned().unwrap_or_default());
    let queue = describe_queue(cluster, id);
    if id.kind == Kind::Pod {
        return format!("Pod: {each}{queue}");
    }
    format!("{}: {} of {each}{queue}", id.kind.name(), pods_words(pods))
}

/// `PyTorchJob: 1 pod of 1 GPU as master, 2 pods of 1 GPU as worker, queue team-a`.
fn describe_roles(cluster: &Cluster, id: &Id, value: &Value) -> String {
    let roles = cluster.known_roles(id, value);
    let words: Vec<String> = roles
        .into_iter()
        .filter(|role| role.pods > 0)
        .map(|role| format!("{} of {} as {}", pods_words(role.pods), request_of(role.template), role.name))
        .collect();
    let words = if words.is_empty() { "no pods".to_owned() } else { words.join(", ") };
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    format!("{kind}: {words}{}", describe_queue(cluster, id))
}

fn pods_words(pods: u32) -> String {
    if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") }
}

fn describe_queue(cluster: &Cluster, id: &Id) -> String {
    cluster.queue_of(id).map(|queue| format!(", queue {queue}")).unwrap_or_default()
}

/// What one pod asks for, in words.
fn request_of(mut pod: Value) -> String {
    if let Some(metadata) = object_at(&mut pod, &["metadata"]) {
        metadata.entry("name").or_insert_with(|| json!("pod"));
    }
    crate::manifest::complete_pod(&mut pod);
    Pod::parse(&pod).map(|pod| crate::amounts::describe_request(&pod.request)).unwrap_or_default()
}

/// New labels and annotations replace old ones of the same key; nothing else of the identity changes.
fn merge_metadata(metadata: &mut Value, incoming: &Value) {
    for map in ["labels", "annotations"] {
        let Some(new) = incoming.get(map).and_then(Value::as_object) else { continue };
        if let Some(old) = object_at(metadata, &[map]) {
            old.extend(new.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
    }
}
