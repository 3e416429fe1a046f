//! What all controllers have in common: watch updates and results of calls go in, API calls come out.
//!
//! ```text
//!   watches ──updates──▶ Driver ──▶ Controller ──poll──▶ work ──▶ QueuedWrites ──▶ executor
//!      ▲                                ▲                                             │ calls
//!      └────────── API server ◀─────────┴───────────────── results ◀──────────────────┘
//! ```
//!
//! Sans-I/O: a controller does no I/O and reads no clock. The loop of the live crate and the chaos simulator run the same
//! [`Driver`]; what differs is how updates arrive and how calls are made.

mod assumed;
mod backoff;
mod driver;
mod field_selector;
mod retry;
mod watch_view;
mod work;
mod work_queue;
mod wrapper;

use std::sync::Arc;

use kai_engine::units::Timestamp;
use serde_json::Value;

pub use assumed::Assumed;
pub use backoff::Backoff;
pub use driver::{Admitted, Driver, OutputHandler, QueuedWrites};
pub use field_selector::FieldSelector;
pub use retry::{RETRIES, RETRY_DELAY_MIN, RETRY_FACTOR, retry_delay};
pub use watch_view::WatchView;
pub use work::{
    ApiCall, CallError, NewEvent, OnError, Output, Regarding, WorkItem, WorkKey, WorkResult, WritePriority,
};
pub(crate) use work_queue::WorkQueue;
pub use wrapper::{Wrapped, Wrapper};

use crate::calls::PlannedWrite;
use crate::key::Key;
use crate::kinds::Kind;
use crate::objects::Malformed;

/// A controller without I/O.
pub trait Controller {
    /// What to watch. A kind may be there twice, with different selectors.
    fn watches(&self) -> Vec<WatchSpec>;

    /// A watch shows an object. Returns what had to be left out.
    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, now: Clock) -> Vec<Skipped>;

    /// A watch shows that an object is gone.
    fn on_delete(&mut self, kind: Kind, key: &Key, now: Clock);

    /// A watch starts over: what it shows next is all there is of the kind.
    fn on_relist(&mut self, _kind: Kind, _now: Clock) {}

    /// What to do now. Called once all watches have been listed: an object that has not been listed yet is not missing.
    fn poll(&mut self, now: Clock) -> Output;

    /// A work item has ended. Called once for each, except for those that a newer one of the same key replaced before
    /// they began.
    fn on_result(&mut self, result: WorkResult, now: Clock);

    /// When to poll even if nothing happens, by the steady clock.
    fn next_poll(&self, now: Clock) -> Option<Timestamp>;

    /// Whether another controller of the process takes planned writes from now on.
    fn announce_planned(&mut self, _has_receiver: bool) {}

    /// Another controller of the process is about to write this.
    fn on_planned(&mut self, _planned: PlannedWrite) {}

    /// How many objects it works on, for the log.
    fn size(&self) -> usize;
}

impl<C: Controller + ?Sized> Controller for Box<C> {
    fn watches(&self) -> Vec<WatchSpec> {
        (**self).watches()
    }

    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, now: Clock) -> Vec<Skipped> {
        (**self).on_apply(kind, object, now)
    }

    fn on_delete(&mut self, kind: Kind, key: &Key, now: Clock) {
        (**self).on_delete(kind, key, now);
    }

    fn on_relist(&mut self, kind: Kind, now: Clock) {
        (**self).on_relist(kind, now);
    }

    fn poll(&mut self, now: Clock) -> Output {
        (**self).poll(now)
    }

    fn on_result(&mut self, result: WorkResult, now: Clock) {
        (**self).on_result(result, now);
    }

    fn next_poll(&self, now: Clock) -> Option<Timestamp> {
        (**self).next_poll(now)
    }

    fn announce_planned(&mut self, has_receiver: bool) {
        (**self).announce_planned(has_receiver);
    }

    fn on_planned(&mut self, planned: PlannedWrite) {
        (**self).on_planned(planned);
    }

    fn size(&self) -> usize {
        (**self).size()
    }
}

/// The time of a process: the wall clock may be set, the steady clock only moves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    pub wall: Timestamp,
    pub steady: Timestamp,
}

impl Clock {
    /// When, by the steady clock, the wall clock will show this time.
    pub fn steady_at(self, wall: Timestamp) -> Timestamp {
        self.steady.plus(wall.since(self.wall))
    }
}

/// A kind to watch, and which objects of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSpec {
    pub kind: Kind,
    pub selector: FieldSelector,
}

impl WatchSpec {
    pub fn all(kind: Kind) -> Self {
        Self { kind, selector: FieldSelector::default() }
    }

    pub fn with(kind: Kind, selector: FieldSelector) -> Self {
        Self { kind, selector }
    }
}

/// What a watch shows.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchUpdate {
    Applied(Arc<Value>),
    Deleted(Key),
    /// Everything there is, at the start, after every gap and when others subscribe to the watch, and what is there no
    /// longer.
    Relisted {
        objects: Vec<Arc<Value>>,
        removed: Vec<Key>,
    },
}

/// An object, or a part of one, that a controller leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub left_out: LeftOut,
    pub kind: Kind,
    pub key: Key,
    pub problem: String,
    pub hint: String,
}

/// What of an object has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// All of it: it counts as absent.
    Object,
    /// A change of it: it counts as it was before.
    Change,
    /// Some of its fields.
    Fields,
    /// It does not count in the totals of a status.
    Totals,
    /// A setting of a workload.
    Setting,
    /// A pod has no pod group until another attempt succeeds.
    Grouping,
}

impl Skipped {
    pub(crate) fn new(kind: Kind, key: Key, problem: impl Into<String>) -> Self {
        Self { left_out: LeftOut::Object, kind, key, problem: problem.into(), hint: String::new() }
    }

    pub(crate) fn malformed(left_out: LeftOut, kind: Kind, key: Key, malformed: &Malformed) -> Self {
        Self { hint: malformed.hint.clone(), ..Self::of(left_out, kind, key, malformed.to_string()) }
    }

    pub(crate) fn of(left_out: LeftOut, kind: Kind, key: Key, problem: impl Into<String>) -> Self {
        Self { left_out, ..Self::new(kind, key, problem) }
    }
}
