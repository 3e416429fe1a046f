//! The node-scale adjuster's controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::{Adjustment, Settings, adjust};
use crate::controller::{
    ApiCall, Clock, Controller, FieldSelector, Output, Skipped, WatchSpec, WorkItem, WorkKey, WorkResult,
};
use crate::key::{Key, PodKey};
use crate::kinds::Kind;

/// Changes come in bursts; one reconcile for each is enough.
const DEBOUNCE: Span = Span(500_000);
/// The longest time between two reconciles.
const IDLE: Span = Span::seconds(60);

/// Creates and deletes scaling pods.
#[derive(Debug)]
pub struct NodeScaleController {
    settings: Settings,
    scheduler_name: String,
    pods: BTreeMap<PodKey, Arc<Value>>,
    scaling_pods: BTreeMap<PodKey, Arc<Value>>,
    /// Scaling pods that are being created or deleted. Until that has ended, nothing else is decided.
    in_flight: BTreeSet<PodKey>,
    /// By the steady clock: a clock that is set must not keep scaling pods from being created.
    last_scale_down: Option<Timestamp>,
    /// When to reconcile, by the steady clock.
    due: Option<Timestamp>,
}

impl NodeScaleController {
    /// For pods of this scheduler.
    pub fn new(settings: Settings, scheduler_name: String) -> Self {
        Self {
            settings,
            scheduler_name,
            pods: BTreeMap::new(),
            scaling_pods: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            last_scale_down: None,
            due: None,
        }
    }

    fn schedule(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

impl Controller for NodeScaleController {
    fn watches(&self) -> Vec<WatchSpec> {
        vec![
            WatchSpec::with(Kind::Pod, FieldSelector::scheduler(&self.scheduler_name)),
            WatchSpec::with(Kind::Pod, FieldSelector::namespace(&self.settings.namespace)),
        ]
    }

    fn on_apply(&mut self, _: Kind, object: &Arc<Value>, now: Clock) -> Vec<Skipped> {
        let key = Key::of(object);
        if key.namespace == self.settings.namespace {
            self.scaling_pods.insert(key.clone(), Arc::clone(object));
        }
        if object["spec"]["schedulerName"] == self.scheduler_name.as_str() {
            self.pods.insert(key, Arc::clone(object));
        }
        self.schedule(now.steady.plus(DEBOUNCE));
        Vec::new()
    }

    fn on_delete(&mut self, _: Kind, key: &Key, now: Clock) {
        self.pods.remove(key);
        self.scaling_pods.remove(key);
        self.schedule(now.steady.plus(DEBOUNCE));
    }

    fn poll(&mut self, now: Clock) -> Output {
        if !self.in_flight.is_empty() || self.due.is_some_and(|due| due > now.steady) {
            return Output::default();
        }
        let Adjustment { delete, create, requeue_at } =
            adjust(&self.pods, &self.scaling_pods, &self.settings, self.last_scale_down, now.steady);
        let wait = requeue_at.map_or(IDLE, |at| at.since(now.steady).min(IDLE).max(DEBOUNCE));
        self.due = Some(now.steady.plus(wait));
        let deletions = delete.into_iter().map(|key| (key.clone(), ApiCall::DeleteScalingPod(key)));
        let creations = create.into_iter().map(|pod| (Key::of(&pod), ApiCall::CreateScalingPod(Box::new(pod))));
        let calls: Vec<(PodKey, ApiCall)> = deletions.chain(creations).collect();
        self.in_flight.extend(calls.iter().map(|(key, _)| key.clone()));
        let work = calls.into_iter().map(|(key, call)| WorkItem::new(WorkKey::Pod(key), vec![call])).collect();
        Output { work, ..Output::default() }
    }

    fn on_result(&mut self, result: WorkResult, now: Clock) {
        let failed = !result.errors.is_empty();
        for call in result.item.calls {
            match call {
                ApiCall::DeleteScalingPod(key) => {
                    self.in_flight.remove(&key);
                    if !failed {
                        self.scaling_pods.remove(&key);
                        self.last_scale_down = Some(now.steady);
                    }
                }
                ApiCall::CreateScalingPod(pod) => {
                    let key = Key::of(&pod);
                    self.in_flight.remove(&key);
                    if !failed {
                        // Counts until the watch shows it.
                        self.scaling_pods.entry(key).or_insert_with(|| Arc::from(pod));
                    }
                }
                _ => {}
            }
        }
        if self.in_flight.is_empty() {
            self.schedule(now.steady.plus(DEBOUNCE));
        }
    }

    fn next_poll(&self, now: Clock) -> Option<Timestamp> {
        self.in_flight.is_empty().then(|| self.due.unwrap_or(now.steady))
    }

    fn size(&self) -> usize {
        self.pods.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Clock {
        let time = Timestamp(1_000_000_000 + seconds * 1_000_000);
        Clock { wall: time, steady: time }
    }

    #[test]
    fn a_scaling_pod_is_made_once_and_deleted_when_it_is_not_needed() {
        let settings = Settings {
            namespace: "scale".to_owned(),
            app: "scaling-pod".to_owned(),
            service_account: "scaling-pod".to_owned(),
            image: "scaling-pod".to_owned(),
            memory_hundredths: 10,
        };
        let mut controller = NodeScaleController::new(settings, "kai-scheduler".to_owned());
        let mut pod = json!({
            "metadata": {"name": "a", "namespace": "lab", "annotations": {"gpu-fraction": "0.5"}},
            "spec": {"schedulerName": "kai-scheduler"},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        });
        controller.on_apply(Kind::Pod, &Arc::new(pod.clone()), at(0));
        assert_eq!(
            (controller.next_poll(at(0)), controller.poll(at(0)).work),
            (Some(at(0).steady.plus(DEBOUNCE)), vec![])
        );
        let creation = controller.poll(at(1)).work.remove(0);
        assert!(matches!(&creation.calls[..], [ApiCall::CreateScalingPod(_)]), "{creation}");
        assert_eq!((controller.next_poll(at(2)), controller.poll(at(2)).work), (None, vec![]), "it is being created");
        let done = |item: WorkItem| WorkResult { completed: item.calls.len(), ..WorkResult::new(item) };
        controller.on_result(done(creation), at(2));
        assert_eq!(controller.poll(at(3)).work, [], "no watch has shown it yet, and still it counts");
        pod["spec"]["nodeName"] = json!("n1");
        pod["status"] = json!({"conditions": [{"type": "PodScheduled", "status": "True"}]});
        controller.on_apply(Kind::Pod, &Arc::new(pod), at(10));
        let deletion = controller.poll(at(11)).work.remove(0);
        assert!(matches!(&deletion.calls[..], [ApiCall::DeleteScalingPod(_)]), "{deletion}");
    }
}
