//! The controllers of pod groups and of queues: whatever a tally finds untrue in a status is written anew.

use std::rc::Rc;

use kai_control::status::{PodGroupStatus, QueueStatus, StatusController};
use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::{Clock, End, Part, Task, key_of};
use crate::cluster::{Call, Store};
use crate::manifest::{Id, Kind};

/// Between two looks, as the live controllers have it.
const PERIOD: Span = Span::seconds(1);

pub(in crate::chaos) struct StatusPart<T> {
    tally: T,
    /// Whose status is kept.
    target: Kind,
    kinds: &'static [Kind],
    /// When to look, if something has changed.
    due: Option<Timestamp>,
}

impl StatusPart<PodGroupStatus> {
    pub(in crate::chaos) fn of_groups() -> Self {
        let kinds = &[Kind::Pod, Kind::PodGroup, Kind::Node, Kind::PriorityClass, Kind::ResourceClaim];
        Self { tally: PodGroupStatus::default(), target: Kind::PodGroup, kinds, due: None }
    }
}

impl StatusPart<QueueStatus> {
    pub(in crate::chaos) fn of_queues() -> Self {
        Self { tally: QueueStatus::default(), target: Kind::Queue, kinds: &[Kind::Queue, Kind::PodGroup], due: None }
    }
}

impl<T: StatusController> Part for StatusPart<T> {
    fn kinds(&self) -> &'static [Kind] {
        self.kinds
    }

    fn applied(&mut self, _: &Id, value: &Rc<Value>, clock: Clock) {
        // One that cannot be counted yet is counted when it can be.
        let _ = self.tally.apply(value);
        self.due.get_or_insert(clock.steady.plus(PERIOD));
    }

    fn deleted(&mut self, id: &Id, clock: Clock) {
        self.tally.delete(id.kind.name(), &key_of(id));
        self.due.get_or_insert(clock.steady.plus(PERIOD));
    }

    fn act(&mut self, _: Option<&Store>, clock: Clock) -> Vec<Task> {
        if self.due.is_none_or(|due| due > clock.steady) {
            return Vec::new();
        }
        self.due = None;
        let status_patches = self.tally.status_patches().into_iter();
        let task = |(about, patch): (kai_control::Key, Value)| {
            let object = Id::namespaced(self.target, &*about.namespace, &*about.name);
            Task { about, calls: vec![Call::PatchStatus { object, patch }], stubborn: false, patient: false }
        };
        status_patches.map(task).collect()
    }

    fn finished(&mut self, end: End, clock: Clock) {
        if !end.refused.is_empty() {
            self.tally.requeue(&end.task.about);
            self.due.get_or_insert(clock.steady.plus(PERIOD));
        }
    }

    fn next(&self, _: Clock) -> Option<Timestamp> {
        self.due
    }
}
