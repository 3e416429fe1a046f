//! The shipped controllers as processes: each sees the cluster through its own watches and acts through calls.
//!
//! What decides is `kai_control`; here is only what the live shell does around it: when to look, what is under way,
//! what to do with an answer.

mod binder;
mod grouper;
mod scheduler;
mod statuses;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use kai_control::grouper::PlannedWrite;
use kai_control::key::Key;
use kai_engine::units::Timestamp;
use serde_json::Value;

pub(super) use binder::BinderPart;
pub(super) use grouper::GrouperPart;
pub(super) use scheduler::SchedulerPart;
pub(super) use statuses::StatusPart;

use crate::cluster::{ApiError, Call, Store};
use crate::manifest::{Id, Kind};

/// Calls about one object, made one after the other.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) about: Key,
    pub(super) calls: Vec<Call>,
    /// Whether to go on after a call that failed.
    pub(super) stubborn: bool,
    /// Whether it may wait for others.
    pub(super) patient: bool,
}

impl fmt::Display for Task {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<String> = self.calls.iter().map(ToString::to_string).collect();
        out.write_str(&calls.join(" · "))
    }
}

/// What became of a task.
#[derive(Debug)]
pub(super) struct End {
    pub(super) task: Task,
    /// Calls that were done, or tried by a stubborn one.
    pub(super) done: usize,
    /// What those that failed were acknowledged.
    pub(super) refused: BTreeMap<usize, ApiError>,
}

/// The time of a process: its own clock may be wrong, its timers are not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) wall: Timestamp,
    pub(super) steady: Timestamp,
}

/// A process with one controller in it. It starts with nothing and is lost with all it knows.
pub(super) trait Part {
    /// Kinds that it watches.
    fn kinds(&self) -> &'static [Kind];

    /// A watch shows an object.
    fn applied(&mut self, id: &Id, value: &Rc<Value>, clock: Clock);

    /// A watch shows that an object is gone.
    fn deleted(&mut self, id: &Id, clock: Clock);

    /// A watch has started over: all there is of the kind, and what is gone.
    fn relisted(&mut self, all: &[(Id, Rc<Value>)], gone: &[Id], clock: Clock) {
        for id in gone {
            self.deleted(id, clock);
        }
        for (id, value) in all {
            self.applied(id, value, clock);
        }
    }

    /// What to do now. Everything it watches has been listed. `api` is what a read finds, if it is acknowledged at all.
    fn act(&mut self, api: Option<&Store>, clock: Clock) -> Vec<Task>;

    /// A task has come to its end.
    fn finished(&mut self, end: End, clock: Clock);

    /// When to act even if nothing is seen, by its timers.
    fn next(&self, clock: Clock) -> Option<Timestamp>;

    /// What it has for the other controller of its process since this was last asked.
    fn drafts(&mut self) -> Vec<PlannedWrite> {
        Vec::new()
    }

    /// The other controller of its process has drafts.
    fn take(&mut self, _: Vec<PlannedWrite>) {}
}

fn key_of(id: &Id) -> Key {
    Key::new(&*id.namespace, &*id.name)
}
