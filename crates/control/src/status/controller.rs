//! The loop of a status controller: debounce, deferral under churn, one patch of an object at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::StatusAggregator;
use crate::controller::{
    ApiCall, Clock, Controller, LeftOut, Output, Skipped, WatchSpec, WorkItem, WorkKey, WorkResult, WritePriority,
};
use crate::key::Key;
use crate::kinds::Kind;

/// Changes that come within this time are written as one.
const DEBOUNCE: Span = Span(250_000);

/// While so many pods change within that time, most of what could be written now would be wrong a moment later.
const CHURN_THRESHOLD: usize = 25;
/// How many times in a row status is deferred for churn, at most.
const MAX_DEFERRED_TICKS: u32 = 40;

/// Keeps the status of one kind of objects up to date.
#[derive(Debug, Default)]
pub struct StatusController<T> {
    pub aggregator: T,
    /// When to compare statuses, if something has changed, by the steady clock.
    due: Option<Timestamp>,
    /// Patches in flight. While there are some, others wait, so that each has the latest.
    in_flight: BTreeSet<Key>,
    /// Pods that changed since the last tick.
    changed_pods: usize,
    deferred_ticks: u32,
}

impl<T: StatusAggregator> StatusController<T> {
    pub fn new(aggregator: T) -> Self {
        Self { aggregator, due: None, in_flight: BTreeSet::new(), changed_pods: 0, deferred_ticks: 0 }
    }

    fn schedule(&mut self, now: Clock) {
        self.due.get_or_insert(now.steady.plus(DEBOUNCE));
    }

    /// Whether so much changes that status had better wait, and has not waited for long.
    fn defer_for_churn(&mut self) -> bool {
        let churn = std::mem::take(&mut self.changed_pods) >= CHURN_THRESHOLD;
        self.deferred_ticks =
            if churn && self.deferred_ticks < MAX_DEFERRED_TICKS { self.deferred_ticks + 1 } else { 0 };
        self.deferred_ticks > 0
    }
}

impl<T: StatusAggregator> Controller for StatusController<T> {
    fn watches(&self) -> Vec<WatchSpec> {
        self.aggregator.watches()
    }

    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, now: Clock) -> Vec<Skipped> {
        self.changed_pods += usize::from(kind == Kind::Pod);
        self.schedule(now);
        let done = self.aggregator.apply(kind, object);
        let skipped = |problem| Skipped::of(LeftOut::Totals, kind, kind.key_of(object), problem);
        done.err().map(skipped).into_iter().collect()
    }

    fn on_delete(&mut self, kind: Kind, key: &Key, now: Clock) {
        self.aggregator.delete(kind, key);
        self.schedule(now);
    }

    fn poll(&mut self, now: Clock) -> Output {
        if self.due.is_none_or(|due| due > now.steady) {
            return Output::default();
        }
        self.due = None;
        if self.defer_for_churn() || !self.in_flight.is_empty() {
            self.schedule(now);
            return Output::default();
        }
        let item = |(key, patch): (Key, Value)| {
            let about = match T::KIND {
                Kind::Queue => WorkKey::Queue(key.name.clone()),
                _ => WorkKey::PodGroup(key.clone()),
            };
            let call = ApiCall::PatchStatus { kind: T::KIND, key, patch };
            WorkItem { priority: WritePriority::Status, ..WorkItem::new(about, vec![call]) }
        };
        let patches = self.aggregator.status_patches();
        self.in_flight.extend(patches.iter().map(|(key, _)| key.clone()));
        Output { work: patches.into_iter().map(item).collect(), ..Output::default() }
    }

    fn on_result(&mut self, result: WorkResult, now: Clock) {
        for call in &result.item.calls {
            let ApiCall::PatchStatus { key, .. } = call else { continue };
            self.in_flight.remove(key);
            if !result.errors.is_empty() {
                self.aggregator.requeue(key);
                self.schedule(now);
            }
        }
    }

    fn next_poll(&self, _: Clock) -> Option<Timestamp> {
        self.due
    }

    fn size(&self) -> usize {
        self.aggregator.size()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controller::CallError;
    use crate::status::PodGroupAggregator;

    fn at(milliseconds: i64) -> Clock {
        let time = Timestamp(milliseconds * 1_000);
        Clock { wall: time, steady: time }
    }

    fn pod(name: &str) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"name": name, "namespace": "lab", "annotations": {"pod-group-name": "gang"}},
            "spec": {"containers": [{"resources": {"requests": {"cpu": 1}}}]},
            "status": {"phase": "Pending"},
        }))
    }

    fn controller() -> StatusController<PodGroupAggregator> {
        let mut controller = StatusController::new(PodGroupAggregator::new("kai-scheduler"));
        let group = json!({"metadata": {"name": "gang", "namespace": "lab"}, "spec": {"queue": "q"}});
        controller.on_apply(Kind::PodGroup, &Arc::new(group), at(0));
        controller
    }

    #[test]
    fn changes_are_written_together_and_again_if_that_fails() {
        let mut controller = controller();
        controller.on_apply(Kind::Pod, &pod("a"), at(0));
        controller.on_apply(Kind::Pod, &pod("b"), at(200));
        assert_eq!((controller.next_poll(at(200)), controller.poll(at(200)).work.len()), (Some(Timestamp(250_000)), 0));
        let item = controller.poll(at(250)).work.remove(0);
        controller.on_apply(Kind::Pod, &pod("c"), at(300));
        assert_eq!(controller.poll(at(600)).work, [], "another patch of it is in flight");
        let mut result = WorkResult::new(item);
        result.record(Err(CallError::Rejected("no".to_owned())));
        controller.on_result(result, at(700));
        assert_eq!(controller.poll(at(850)).work.len(), 1);
    }

    #[test]
    fn status_is_deferred_while_many_pods_change_but_not_for_long() {
        let mut controller = controller();
        let mut ticks = 0;
        loop {
            ticks += 1;
            for number in 0..CHURN_THRESHOLD {
                controller.on_apply(Kind::Pod, &pod(&number.to_string()), at(ticks * 250));
            }
            if !controller.poll(at((ticks + 1) * 250)).work.is_empty() {
                break;
            }
        }
        assert_eq!(ticks, i64::from(MAX_DEFERRED_TICKS) + 1);
    }
}
