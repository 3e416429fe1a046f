//! Status controllers: keep `status.resourcesStatus` of pod groups and the status of queues up to date. Dirty objects are
//! recomputed and compared with the stored status; the difference is a merge patch.

mod component;
mod controller;
pub mod pod_group;
pub mod queue;

use std::collections::{BTreeMap, BTreeSet};

use kai_api::PodGroupResources;
use serde_json::{Map, Value, json};

pub use component::{POD_GROUPS, QUEUES};
pub use controller::StatusController;

use self::pod_group::{ClaimedGpus, PodUsage, PodUsageInputs};
use crate::controller::{FieldSelector, WatchSpec};
use crate::key::{GroupKey, Key, PodKey};
use crate::kinds::Kind;
use crate::objects::{PodGroup, PriorityClass, Queue};

/// What the status of one kind of objects should be.
pub trait StatusAggregator {
    /// The kind whose status it is.
    const KIND: Kind;

    fn watches(&self) -> Vec<WatchSpec>;

    /// A watch shows an object; an error says why it is left out.
    fn apply(&mut self, kind: Kind, object: &Value) -> Result<(), String>;

    /// A watch shows that an object is gone.
    fn delete(&mut self, kind: Kind, key: &Key);

    /// Merge patches that bring every dirty status up to date.
    fn status_patches(&mut self) -> Vec<(Key, Value)>;

    /// A patch was not written: the object is dirty again.
    fn requeue(&mut self, key: &Key);

    /// Objects whose status is kept.
    fn size(&self) -> usize;
}

/// What the pods of each group ask for and hold.
#[derive(Debug, Default)]
pub struct PodGroupAggregator {
    scheduler_name: String,
    groups: BTreeMap<GroupKey, Observed<PodGroup>>,
    pods: BTreeMap<PodKey, PodUsage>,
    members: BTreeMap<GroupKey, BTreeSet<PodKey>>,
    /// Pods that are not counted until a watch shows their node and their claims.
    unresolved: BTreeMap<PodKey, Value>,
    classes: BTreeMap<String, PriorityClass>,
    inputs: PodUsageInputs,
    dirty: BTreeSet<GroupKey>,
}

/// What the workloads below each queue ask for and hold.
#[derive(Debug, Default)]
pub struct QueueAggregator {
    queues: BTreeMap<String, Queue>,
    observed: BTreeMap<String, Value>,
    /// By group: its queue, and what its status says.
    groups: BTreeMap<GroupKey, (String, PodGroupResources)>,
    dirty: bool,
}

/// An object, and the status it has now.
#[derive(Debug)]
struct Observed<T> {
    object: T,
    status: Value,
}

impl PodGroupAggregator {
    /// Of the pods of this scheduler.
    pub fn new(scheduler_name: &str) -> Self {
        Self { scheduler_name: scheduler_name.to_owned(), ..Self::default() }
    }

    fn apply_pod(&mut self, key: PodKey, pod: &Value) -> Result<(), String> {
        let earlier = self.forget_pod(&key);
        match PodUsage::read_after(earlier.as_ref(), pod, &self.inputs) {
            Ok(Some(used)) => {
                self.add_pod(key, used);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(why) => {
                // What it held counts on until it is known what it holds.
                let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
                if let Some(earlier) = earlier.filter(|earlier| earlier.uid == uid) {
                    self.add_pod(key.clone(), earlier);
                }
                self.unresolved.insert(key, pod.clone());
                Err(why)
            }
        }
    }

    fn add_pod(&mut self, key: PodKey, used: PodUsage) {
        self.members.entry(used.group.clone()).or_default().insert(key.clone());
        self.dirty.insert(used.group.clone());
        self.pods.insert(key, used);
    }

    fn forget_pod(&mut self, key: &PodKey) -> Option<PodUsage> {
        self.unresolved.remove(key);
        let used = self.pods.remove(key)?;
        if let Some(members) = self.members.get_mut(&used.group) {
            members.remove(key);
            if members.is_empty() {
                self.members.remove(&used.group);
            }
        }
        self.dirty.insert(used.group.clone());
        Some(used)
    }

    fn retry_unresolved(&mut self) {
        for (pod, value) in std::mem::take(&mut self.unresolved) {
            // Its problem was reported when a watch showed it.
            let _ = self.apply_pod(pod, &value);
        }
    }

    fn mark_all_dirty(&mut self) {
        self.dirty.extend(self.groups.keys().cloned());
    }
}

impl StatusAggregator for PodGroupAggregator {
    const KIND: Kind = Kind::PodGroup;

    fn watches(&self) -> Vec<WatchSpec> {
        vec![
            WatchSpec::with(Kind::Pod, FieldSelector::scheduler(&self.scheduler_name)),
            WatchSpec::all(Kind::PodGroup),
            WatchSpec::all(Kind::Node),
            WatchSpec::all(Kind::PriorityClass),
            WatchSpec::all(Kind::ResourceClaim),
        ]
    }

    fn size(&self) -> usize {
        self.groups.len()
    }

    fn apply(&mut self, kind: Kind, object: &Value) -> Result<(), String> {
        let key = kind.key_of(object);
        match kind {
            Kind::Pod => return self.apply_pod(key, object),
            Kind::PodGroup => {
                let group = PodGroup::parse(object).map_err(|malformed| malformed.to_string())?;
                let status = object["status"]["resourcesStatus"].clone();
                self.groups.insert(key.clone(), Observed { object: group, status });
                self.dirty.insert(key);
            }
            Kind::Node => {
                let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
                let texts = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
                self.inputs.labels.insert(key.name, texts.collect());
                self.retry_unresolved();
            }
            Kind::ResourceClaim => {
                let gpus = ClaimedGpus::read(object).map_err(|malformed| malformed.to_string())?;
                self.inputs.claims.insert(key, gpus);
                self.retry_unresolved();
            }
            Kind::PriorityClass => {
                let class = PriorityClass::parse(object).map_err(|malformed| malformed.to_string())?;
                if self.classes.insert(key.name, class.clone()) != Some(class) {
                    self.mark_all_dirty();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn delete(&mut self, kind: Kind, key: &Key) {
        match kind {
            Kind::Pod => drop(self.forget_pod(key)),
            Kind::PodGroup => {
                self.groups.remove(key);
            }
            Kind::Node => {
                self.inputs.labels.remove(&key.name);
            }
            Kind::ResourceClaim => {
                self.inputs.claims.remove(key);
            }
            Kind::PriorityClass => {
                self.classes.remove(&key.name);
                self.mark_all_dirty();
            }
            _ => {}
        }
    }

    fn status_patches(&mut self) -> Vec<(Key, Value)> {
        let mut status_patches = Vec::new();
        for key in std::mem::take(&mut self.dirty) {
            let Some(group) = self.groups.get(&key) else { continue };
            let members = self.members.get(&key).into_iter().flatten();
            let pods = members.filter_map(|pod| self.pods.get(pod));
            let wanted = json!(pod_group::resources(&group.object, pods, &self.classes));
            if let Some(patch) = merge_patch(&group.status, &wanted) {
                status_patches.push((key, json!({"status": {"resourcesStatus": patch}})));
            }
        }
        status_patches
    }

    fn requeue(&mut self, key: &Key) {
        self.dirty.insert(key.clone());
    }
}

impl QueueAggregator {
    pub fn queues(&self) -> &BTreeMap<String, Queue> {
        &self.queues
    }

    /// The status of every queue, as it is shown now.
    pub fn observed(&self) -> &BTreeMap<String, Value> {
        &self.observed
    }
}

impl StatusAggregator for QueueAggregator {
    const KIND: Kind = Kind::Queue;

    fn watches(&self) -> Vec<WatchSpec> {
        vec![WatchSpec::all(Kind::Queue), WatchSpec::all(Kind::PodGroup)]
    }

    fn size(&self) -> usize {
        self.queues.len()
    }

    fn apply(&mut self, kind: Kind, object: &Value) -> Result<(), String> {
        let key = kind.key_of(object);
        match kind {
            Kind::Queue => {
                let queue = Queue::parse(object).map_err(|malformed| malformed.to_string())?;
                self.observed.insert(key.name.clone(), object["status"].clone());
                self.queues.insert(key.name, queue);
            }
            Kind::PodGroup => {
                let queue = object["spec"]["queue"].as_str().unwrap_or_default().to_owned();
                let resources = &object["status"]["resourcesStatus"];
                let resources = serde_json::from_value(resources.clone()).unwrap_or_default();
                let known = (queue, resources);
                if self.groups.get(&key) == Some(&known) {
                    return Ok(());
                }
                self.groups.insert(key, known);
            }
            _ => return Ok(()),
        }
        self.dirty = true;
        Ok(())
    }

    fn delete(&mut self, kind: Kind, key: &Key) {
        match kind {
            Kind::Queue => {
                self.queues.remove(&key.name);
                self.observed.remove(&key.name);
            }
            Kind::PodGroup => {
                self.groups.remove(key);
            }
            _ => return,
        }
        self.dirty = true;
    }

    fn status_patches(&mut self) -> Vec<(Key, Value)> {
        if !std::mem::take(&mut self.dirty) {
            return Vec::new();
        }
        let groups = self.groups.values().map(|(queue, resources)| (queue.as_str(), resources));
        let mut status_patches = Vec::new();
        for (name, status) in queue::statuses(&self.queues, groups) {
            // Conditions have other writers.
            let mut shown = self.observed.get(&name).cloned().unwrap_or_default();
            if let Some(fields) = shown.as_object_mut() {
                fields.remove("conditions");
            }
            if let Some(patch) = merge_patch(&shown, &json!(status)) {
                status_patches.push((Key::new("", &name), json!({"status": patch})));
            }
        }
        status_patches
    }

    fn requeue(&mut self, _key: &Key) {
        self.dirty = true;
    }
}

/// What makes `shown` into `wanted` as a JSON merge patch; nothing if they are equal.
fn merge_patch(shown: &Value, wanted: &Value) -> Option<Value> {
    let (Some(old), Some(new)) = (shown.as_object(), wanted.as_object()) else {
        // An absent object and an empty one are the same to the API server.
        let nothing = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
        return (shown != wanted && !(nothing(shown) && nothing(wanted))).then(|| wanted.clone());
    };
    let mut patch = Map::new();
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in new {
        let before = old.get(name).unwrap_or(&Value::Null);
        if let Some(change) = merge_patch(before, value) {
            patch.insert(name.clone(), change);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn pod(name: &str, phase: &str, gpus: u32) -> Value {
        json!({
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "lab", "annotations": {"pod-group-name": "gang"}},
            "spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": gpus}}}]},
            "status": {"phase": phase},
        })
    }

    fn group(status: &Value) -> Value {
        json!({
            "kind": "PodGroup",
            "metadata": {"name": "gang", "namespace": "lab"},
            "spec": {"queue": "team", "priorityClassName": "train"},
            "status": {"resourcesStatus": status},
        })
    }

    fn queue(name: &str, parent: &str, status: &Value) -> Value {
        json!({"kind": "Queue", "metadata": {"name": name}, "spec": {"parentQueue": parent}, "status": status})
    }

    fn apply(status: &mut impl StatusAggregator, object: &Value) -> Result<(), String> {
        status.apply(Kind::of("", object["kind"].as_str().unwrap_or_default()).unwrap(), object)
    }

    fn check(status: &mut impl StatusAggregator, want: &Expect) {
        let lines = status.status_patches().into_iter().map(|(key, patch)| format!("{key} {patch}\n"));
        want.assert_eq(&lines.collect::<String>());
    }

    #[test]
    fn pods_count_once_their_claims_are_known() {
        let mut status = PodGroupAggregator::default();
        apply(&mut status, &group(&Value::Null)).unwrap();
        let mut user = pod("a", "Running", 0);
        user["spec"] = json!({"resourceClaims": [{"name": "gpus", "resourceClaimName": "two"}]});
        assert_eq!(apply(&mut status, &user), Err("resource claim lab/two is not known".to_owned()));
        check(&mut status, &expect![[""]]);
        let requests = json!([{"exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}]);
        let metadata = json!({"name": "two", "namespace": "lab"});
        let claim = json!({"kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": {"requests": requests}}});
        apply(&mut status, &claim).unwrap();
        check(
            &mut status,
            &expect![[r#"
                lab/gang {"status":{"resourcesStatus":{"allocated":{"gpu.nvidia.com":"2"},"requested":{"gpu.nvidia.com":"2"}}}}
            "#]],
        );
    }

    #[test]
    fn a_group_follows_its_pods() {
        let mut status = PodGroupAggregator::default();
        apply(&mut status, &group(&Value::Null)).unwrap();
        check(&mut status, &expect![[""]]);
        apply(&mut status, &pod("a", "Pending", 2)).unwrap();
        apply(&mut status, &pod("b", "Running", 1)).unwrap();
        check(
            &mut status,
            &expect![[r#"
                lab/gang {"status":{"resourcesStatus":{"allocated":{"nvidia.com/gpu":"1"},"requested":{"nvidia.com/gpu":"3"}}}}
            "#]],
        );
        check(&mut status, &expect![[""]]);
        apply(
            &mut status,
            &group(&json!({"requested": {"nvidia.com/gpu": "3"}, "allocated": {"nvidia.com/gpu": "1"}})),
        )
        .unwrap();
        check(&mut status, &expect![[""]]);
        status.delete(Kind::Pod, &Key::new("lab", "b"));
        check(
            &mut status,
            &expect![[r#"
                lab/gang {"status":{"resourcesStatus":{"allocated":null,"requested":{"nvidia.com/gpu":"2"}}}}
            "#]],
        );
    }

    #[test]
    fn a_pod_of_an_unknown_node_is_counted_once_the_node_is_known() {
        let mut status = PodGroupAggregator::default();
        apply(&mut status, &group(&Value::Null)).unwrap();
        let mut shared = pod("a", "Running", 0);
        shared["metadata"]["annotations"]["gpu-memory"] = json!("4000");
        shared["metadata"]["annotations"]["received-resource-type"] = json!("Fraction");
        shared["spec"] = json!({"nodeName": "n1"});
        assert_eq!(apply(&mut status, &shared), Err("node n1 is not known".to_owned()));
        check(&mut status, &expect![[""]]);
        let labels = json!({"nvidia.com/gpu.memory": "16000"});
        apply(&mut status, &json!({"kind": "Node", "metadata": {"name": "n1", "labels": labels}})).unwrap();
        check(
            &mut status,
            &expect![[r#"
                lab/gang {"status":{"resourcesStatus":{"allocated":{"nvidia.com/gpu":"250m"},"requested":{"run.ai/gpu.memory":"4k"}}}}
            "#]],
        );
    }

    #[test]
    fn a_group_that_may_be_preempted_holds_nothing_fixed() {
        let mut status = PodGroupAggregator::default();
        let class = |value: i32| json!({"kind": "PriorityClass", "metadata": {"name": "train"}, "value": value});
        apply(&mut status, &class(100)).unwrap();
        apply(&mut status, &group(&Value::Null)).unwrap();
        apply(&mut status, &pod("b", "Running", 1)).unwrap();
        check(
            &mut status,
            &expect![[r#"
                lab/gang {"status":{"resourcesStatus":{"allocated":{"nvidia.com/gpu":"1"},"allocatedNonPreemptible":{"nvidia.com/gpu":"1"},"requested":{"nvidia.com/gpu":"1"}}}}
            "#]],
        );
        let held = json!({"nvidia.com/gpu": "1"});
        apply(&mut status, &group(&json!({"requested": held, "allocated": held, "allocatedNonPreemptible": held})))
            .unwrap();
        apply(&mut status, &class(50)).unwrap();
        check(
            &mut status,
            &expect![[r#"
                lab/gang {"status":{"resourcesStatus":{"allocatedNonPreemptible":null}}}
            "#]],
        );
    }

    #[test]
    fn queues_follow_their_groups_at_every_level_and_keep_their_conditions() {
        let mut status = QueueAggregator::default();
        apply(&mut status, &queue("top", "", &json!({"conditions": [{"type": "x"}]}))).unwrap();
        apply(&mut status, &queue("team", "top", &Value::Null)).unwrap();
        apply(&mut status, &group(&json!({"requested": {"nvidia.com/gpu": "3"}}))).unwrap();
        check(
            &mut status,
            &expect![[r#"
                /team {"status":{"requested":{"nvidia.com/gpu":"3"}}}
                /top {"status":{"childQueues":["team"],"requested":{"nvidia.com/gpu":"3"}}}
            "#]],
        );
        apply(&mut status, &queue("team", "top", &json!({"requested": {"nvidia.com/gpu": "3"}}))).unwrap();
        status.delete(Kind::PodGroup, &Key::new("lab", "gang"));
        check(
            &mut status,
            &expect![[r#"
                /team {"status":{"requested":null}}
                /top {"status":{"childQueues":["team"]}}
            "#]],
        );
    }

    #[test]
    fn what_was_not_written_is_due_again() {
        let mut status = PodGroupAggregator::default();
        apply(&mut status, &group(&Value::Null)).unwrap();
        apply(&mut status, &pod("b", "Pending", 1)).unwrap();
        let first = status.status_patches();
        assert!(status.status_patches().is_empty());
        status.requeue(&first[0].0);
        assert_eq!(status.status_patches(), first);
    }
}
