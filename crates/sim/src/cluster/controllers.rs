//! The controllers of Kubernetes that make pods from templates and replace them: Job, `ReplicaSet`, Deployment.
//!
//! Level-triggered, like the originals: each compares what it wants with what exists, and reconciles. Names
//! count up instead of being random, so that two runs can be compared. A pod never fails by itself here, so the
//! retry limit of a Job has nothing to count.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Cluster;
use super::kubelet::{is_leaving, is_over, node_of, phase};
use super::store::uid;
use crate::journal::Event;
use crate::json::object_at;
use crate::manifest::{Id, Kind, complete_pod};

/// Where a Job of numbered pods writes the number.
const INDEX_KEY: &str = "batch.kubernetes.io/job-completion-index";

impl Cluster {
    /// Brings the pods of one controller to what it wants.
    pub(super) fn reconcile(&mut self, id: &Id) {
        let Some(value) = self.store.get(id).cloned() else { return };
        match id.kind {
            Kind::Job => self.reconcile_job(id, &value),
            Kind::Deployment => self.reconcile_deployment(id, &value),
            Kind::ReplicaSet => {
                let wanted = count(&value, "/spec/replicas").unwrap_or(1);
                let active = self.active_pods(&value);
                self.scale_to(id, &value, &active, wanted);
                // What runs of one revision decides how much of the other may go.
                self.to_reconcile.extend(self.controller_of(id).filter(|owner| owner.kind == Kind::Deployment));
            }
            _ => self.reconcile_operated(id, &value),
        }
    }

    fn reconcile_job(&mut self, id: &Id, job: &Value) {
        if is_complete(job) {
            return;
        }
        let pods: Vec<Id> = self.pods_of(job).cloned().collect();
        let done =
            pods.iter().filter(|pod| self.store.get(pod).is_some_and(|pod| phase(pod) == "Succeeded")).count() as u32;
        let stopping = pods.iter().filter(|pod| self.store.get(pod).is_some_and(is_leaving)).count() as u32;
        let active = self.active_pods(job);
        let completions = count(job, "/spec/completions");
        let finished = match completions {
            Some(wanted) => done >= wanted,
            // Without a number of completions, the first success means that the work is used up.
            None => done > 0 && active.is_empty() && stopping == 0,
        };
        if finished {
            self.complete_job(id, done, &active);
            return;
        }
        let parallel = count(job, "/spec/parallelism").unwrap_or(1);
        let mut wanted = match completions {
            Some(completions) => parallel.min(completions - done),
            None if done > 0 => active.len().try_into().unwrap_or(u32::MAX).min(parallel),
            None => parallel,
        };
        if job.pointer("/spec/suspend") == Some(&json!(true)) {
            wanted = 0;
        }
        if job.pointer("/spec/podReplacementPolicy") == Some(&json!("Failed")) {
            wanted = wanted.saturating_sub(stopping);
        }
        self.scale_to(id, job, &active, wanted);
    }

    fn complete_job(&mut self, id: &Id, done: u32, active: &[Id]) {
        for pod in active {
            self.stop_pod(pod);
        }
        self.store.change(id, |job| {
            if let Some(status) = object_at(job, &["status"]) {
                status.insert("succeeded".to_owned(), json!(done));
                status.insert("conditions".to_owned(), json!([{"type": "Complete", "status": "True"}]));
            }
        });
        // The object that made the Job may go on, or be done as well.
        self.enqueue_owners(id);
        self.note(Event::Finish, id, None, format!("complete after {done} pod{}", if done == 1 { "" } else { "s" }));
    }

    /// A Deployment keeps one `ReplicaSet` per revision of its template, and brings all replicas into the newest: at once
    /// after the old ones have gone, or in waves that keep most of them available.
    fn reconcile_deployment(&mut self, id: &Id, deployment: &Value) {
        let template = deployment.pointer("/spec/template").cloned().unwrap_or_default();
        let sets: Vec<Id> = self.store.owned_by(uid(deployment)).cloned().collect();
        let is_new = |set: &Id| {
            self.store.get(set).is_some_and(|value| same_template(value.pointer("/spec/template"), &template))
        };
        let (new, old): (Vec<Id>, Vec<Id>) = sets.into_iter().partition(is_new);
        let rollout = Rollout::of(deployment);
        let size = if rollout.recreate {
            for set in &old {
                self.resize(set, 0);
            }
            let gone = old.iter().all(|set| self.store.get(set).is_none_or(|set| self.pods_of(set).next().is_none()));
            if gone { rollout.wanted } else { 0 }
        } else {
            let held: u32 = new.iter().map(|set| self.size_of(set)).sum();
            let others: u32 = old.iter().map(|set| self.size_of(set)).sum();
            held.max(rollout.most.saturating_sub(others)).min(rollout.wanted)
        };
        if let Some(set) = new.first() {
            self.resize(set, size);
        } else {
            self.add_revision(id, deployment, &template, size);
        }
        if !rollout.recreate {
            self.retire(&new, &old, rollout);
        }
    }

    fn add_revision(&mut self, id: &Id, deployment: &Value, template: &Value, replicas: u32) {
        let revision = self.next_number(uid(deployment)) + 1;
        let set = Id::namespaced(Kind::ReplicaSet, id.namespace.clone(), format!("{}-{revision}", id.name));
        let labels = deployment.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
        let value = json!({
            "metadata": {"labels": labels, "ownerReferences": [owner_reference(deployment)]},
            "spec": {"replicas": replicas, "template": template},
        });
        self.create(set, value);
    }

    /// Takes replicas of old revisions away as far as enough others are available; those that do not run go first.
    fn retire(&mut self, new: &[Id], old: &[Id], rollout: Rollout) {
        let up = |sets: &[Id]| -> u32 { sets.iter().map(|set| self.available(set)).sum() };
        let (new_up, old_up) = (up(new), up(old));
        let size = |sets: &[Id]| -> u32 { sets.iter().map(|set| self.size_of(set)).sum() };
        // A new replica that is not up yet may still need the room of an old one that is not, either.
        let mut spare = (new_up + size(old)).saturating_sub(rollout.least);
        let mut excess = (new_up + old_up).saturating_sub(rollout.least);
        for set in old {
            let (size, up) = (self.size_of(set), self.available(set));
            let broken = size.saturating_sub(up).min(spare);
            let running = up.min(excess).min(spare - broken);
            spare -= broken + running;
            excess -= running;
            self.resize(set, size - broken - running);
        }
    }

    /// Replicas that a set is to have.
    fn size_of(&self, set: &Id) -> u32 {
        self.store.get(set).map_or(0, |set| count(set, "/spec/replicas").unwrap_or(1))
    }

    /// Pods of a set that run.
    fn available(&self, set: &Id) -> u32 {
        let Some(set) = self.store.get(set) else { return 0 };
        let runs = |pod: &Value| phase(pod) == "Running" && !is_leaving(pod);
        self.pods_of(set).filter(|pod| self.store.get(pod).is_some_and(runs)).count() as u32
    }

    fn resize(&mut self, set: &Id, replicas: u32) {
        let same = self.store.get(set).is_some_and(|value| count(value, "/spec/replicas") == Some(replicas));
        if !same {
            self.store.change(set, |value| {
                if let Some(spec) = object_at(value, &["spec"]) {
                    spec.insert("replicas".to_owned(), json!(replicas));
                }
            });
            self.to_reconcile.insert(set.clone());
        }
    }

    pub(super) fn pods_of(&self, owner: &Value) -> impl Iterator<Item = &Id> {
        self.store.owned_by(uid(owner)).filter(|id| id.kind == Kind::Pod)
    }

    /// Pods that work or will: neither over nor being deleted.
    pub(super) fn active_pods(&self, owner: &Value) -> Vec<Id> {
        let active = |pod: &Value| !is_over(pod) && !is_leaving(pod);
        self.pods_of(owner).filter(|id| self.store.get(id).is_some_and(active)).cloned().collect()
    }

    /// Makes the pods that are missing, or stops those that are too many.
    fn scale_to(&mut self, id: &Id, owner: &Value, active: &[Id], wanted: u32) {
        self.delete_surplus(id, active, wanted);
        let indexed = owner.pointer("/spec/completionMode") == Some(&json!("Indexed"));
        for _ in active.len()..wanted as usize {
            let index = if indexed {
                let Some(index) = self.free_index(owner) else { return };
                Some(index)
            } else {
                None
            };
            self.make_pod(id, owner, index);
        }
    }

    /// Stops those of a controller's pods that are too many.
    pub(super) fn delete_surplus(&mut self, id: &Id, active: &[Id], wanted: u32) {
        let surplus = active.len().saturating_sub(wanted as usize);
        if surplus == 0 {
            return;
        }
        for pod in self.least_useful(active).into_iter().take(surplus) {
            let node = self.store.get(&pod).and_then(node_of).map(str::to_owned);
            let why = format!("{} {} wants fewer pods", id.kind.name(), id.name);
            self.note(Event::Delete, &pod, node.as_deref(), why);
            self.stop_pod(&pod);
        }
    }

    /// Waiting pods before running ones, younger before older.
    fn least_useful(&self, active: &[Id]) -> Vec<Id> {
        let mut pods: Vec<(bool, std::cmp::Reverse<u64>, &Id)> = active
            .iter()
            .filter_map(|id| {
                let pod = self.store.get(id)?;
                let number = uid(pod).parse().unwrap_or(0);
                Some((node_of(pod).is_some(), std::cmp::Reverse(number), id))
            })
            .collect();
        pods.sort();
        pods.into_iter().map(|(_, _, id)| id.clone()).collect()
    }

    /// The lowest number that no pod of a Job works on or has finished.
    fn free_index(&self, job: &Value) -> Option<u32> {
        let taken: BTreeSet<u32> = self
            .pods_of(job)
            .filter_map(|id| self.store.get(id))
            .filter(|pod| !is_leaving(pod) && phase(pod) != "Failed")
            .filter_map(|pod| pod.pointer("/metadata/annotations")?.get(INDEX_KEY)?.as_str()?.parse().ok())
            .collect();
        (0..count(job, "/spec/completions")?).find(|index| !taken.contains(index))
    }

    fn make_pod(&mut self, id: &Id, owner: &Value, index: Option<u32>) {
        let mut pod = owner.pointer("/spec/template").cloned().unwrap_or_default();
        if let Some(index) = index
            && let Some(annotations) = object_at(&mut pod, &["metadata", "annotations"])
        {
            annotations.insert(INDEX_KEY.to_owned(), json!(index.to_string()));
        }
        if let (Kind::Job, Some(labels)) = (id.kind, object_at(&mut pod, &["metadata", "labels"])) {
            label_job_pod(labels, id, index);
        }
        let (base, counter) = match index {
            None => (id.name.clone(), uid(owner).to_owned()),
            Some(index) => (format!("{}-{index}", id.name), format!("{}/{index}", uid(owner))),
        };
        let name = self.free_name(id, &base, &counter);
        self.add_pod(id, owner, &name, pod);
    }

    /// The next unused name for a pod of a controller.
    pub(super) fn free_name(&mut self, id: &Id, base: &str, counter: &str) -> Id {
        loop {
            let number = self.next_number(counter);
            let name = Id::namespaced(Kind::Pod, id.namespace.clone(), format!("{base}-{number}"));
            if self.store.get(&name).is_none() {
                return name;
            }
        }
    }

    /// Adds a pod that a controller has made from a template.
    pub(super) fn add_pod(&mut self, id: &Id, owner: &Value, name: &Id, mut pod: Value) {
        complete_pod(&mut pod);
        if let Some(metadata) = object_at(&mut pod, &["metadata"]) {
            for key in ["name", "uid", "creationTimestamp"] {
                metadata.remove(key);
            }
            metadata.insert("ownerReferences".to_owned(), json!([owner_reference(owner)]));
        }
        if let Some(pod) = pod.as_object_mut() {
            pod.insert("status".to_owned(), json!({"phase": "Pending"}));
        }
        let node = node_of(&pod).is_some();
        self.create(name.clone(), pod);
        if node {
            self.start_pod(name);
        }
        if let Some(replacements_due) =
            self.replacements_due.get_mut(uid(owner)).filter(|replacements_due| **replacements_due > 0)
        {
            *replacements_due -= 1;
            self.note(Event::Submit, name, None, format!("{} {} replaces a pod it lost", id.kind.name(), id.name));
        }
    }

    /// A pod was taken from its controller, which will replace it; `false` if it has none.
    pub(super) fn expect_replacement(&mut self, pod: &Id) -> bool {
        let owner = self.controller_of(pod).and_then(|owner| self.store.get(&owner)).map(|owner| uid(owner).to_owned());
        let Some(owner) = owner else { return false };
        *self.replacements_due.entry(owner).or_default() += 1;
        true
    }

    /// 0, 1, 2 … for each owner.
    fn next_number(&mut self, owner: &str) -> u32 {
        let next = self.next_ordinal.entry(owner.to_owned()).or_default();
        let number = *next;
        *next += 1;
        number
    }
}

/// How a Deployment changes from one revision to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rollout {
    wanted: u32,
    recreate: bool,
    /// Pods of all revisions together.
    most: u32,
    /// Pods that must run.
    least: u32,
}

impl Rollout {
    fn of(deployment: &Value) -> Self {
        let wanted = count(deployment, "/spec/replicas").unwrap_or(1);
        let strategy = deployment.pointer("/spec/strategy");
        let amount = |key: &str, round_up: bool| {
            let written = strategy.and_then(|strategy| strategy.pointer(&format!("/rollingUpdate/{key}")));
            written.map_or(Some(percent(wanted, 25, round_up)), |value| absolute(value, wanted, round_up))
        };
        let (surge, missing) = (amount("maxSurge", true).unwrap_or(1), amount("maxUnavailable", false).unwrap_or(0));
        // Without either, nothing could ever begin.
        let missing = if surge == 0 { missing.max(1) } else { missing };
        Self {
            wanted,
            recreate: strategy.and_then(|strategy| strategy.get("type")) == Some(&json!("Recreate")),
            most: wanted + surge,
            least: wanted.saturating_sub(missing),
        }
    }
}

/// A number of pods, or a percentage of them.
fn absolute(value: &Value, of: u32, round_up: bool) -> Option<u32> {
    match value {
        Value::Number(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
        Value::String(text) => text.strip_suffix('%')?.parse().ok().map(|share| percent(of, share, round_up)),
        _ => None,
    }
}

fn percent(of: u32, share: u32, round_up: bool) -> u32 {
    let hundredths = of.saturating_mul(share);
    if round_up { hundredths.div_ceil(100) } else { hundredths / 100 }
}

/// What the Job controller writes on its pods, for those who look for them.
fn label_job_pod(labels: &mut Map<String, Value>, job: &Id, index: Option<u32>) {
    for key in ["batch.kubernetes.io/job-name", "job-name"] {
        labels.insert(key.to_owned(), json!(job.name));
    }
    if let Some(index) = index {
        labels.insert(INDEX_KEY.to_owned(), json!(index.to_string()));
    }
}

pub(super) fn owner_reference(owner: &Value) -> Value {
    let text = |pointer: &str| owner.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    json!({
        "apiVersion": text("/apiVersion"),
        "kind": text("/kind"),
        "name": text("/metadata/name"),
        "uid": uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// A stored `ReplicaSet` marks its template with a hash that its Deployment does not have.
fn same_template(stored: Option<&Value>, wanted: &Value) -> bool {
    let plain = |template: &Value| {
        let mut template = template.clone();
        if let Some(metadata) = object_at(&mut template, &["metadata"]) {
            metadata.remove("creationTimestamp");
        }
        if let Some(labels) = object_at(&mut template, &["metadata", "labels"]) {
            labels.remove("pod-template-hash");
        }
        template
    };
    stored.map(plain) == Some(plain(wanted))
}

pub(super) fn count(value: &Value, pointer: &str) -> Option<u32> {
    value.pointer(pointer)?.as_u64().and_then(|count| u32::try_from(count).ok())
}

pub(super) fn is_complete(job: &Value) -> bool {
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .is_some_and(|conditions| conditions.iter().any(|condition| condition.get("type") == Some(&json!("Complete"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rollout(spec: &Value) -> (u32, u32) {
        let Rollout { most, least, .. } = Rollout::of(&json!({"spec": spec}));
        (most, least)
    }

    #[test]
    fn a_rollout_keeps_three_quarters_by_default() {
        assert_eq!(rollout(&json!({"replicas": 1})), (2, 1));
        assert_eq!(rollout(&json!({"replicas": 10})), (13, 8));
        let strategy = |surge: Value, missing: Value| json!({"replicas": 4, "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": missing}}});
        assert_eq!(rollout(&strategy(json!(0), json!("50%"))), (4, 2));
        assert_eq!(rollout(&strategy(json!("10%"), json!(0))), (5, 4));
        assert_eq!(rollout(&strategy(json!(0), json!(0))), (4, 3));
    }
}
