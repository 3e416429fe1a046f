//! A process: a controller while it runs, and how far each of its watches has come.

use std::collections::BTreeSet;
use std::sync::Arc;

use kai_control::Key;
use kai_control::controller::{Clock, Controller, Driver, FieldSelector, QueuedWrites, WatchUpdate};
use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::controllers::ControllerKind;
use crate::cluster::{Change, Store};
use crate::manifest::{Id, Kind};

pub(super) struct SimProcess {
    pub(super) kind: ControllerKind,
    /// The other controller that starts and crashes with this one, with watches of its own. It gets planned writes.
    pub(super) colocated_with: Option<usize>,
    /// Nothing while it is down.
    pub(super) driver: Option<Driver<Box<dyn Controller>>>,
    /// Status writes that it has not begun.
    pub(super) queued: QueuedWrites,
    /// Counts starts: what an earlier incarnation asked for is not for the next one.
    pub(super) incarnation: u32,
    /// How far its clock is ahead of the cluster's.
    pub(super) clock_skew: Span,
    watches: Vec<Watch>,
    /// Its timer.
    wakes: Option<Timestamp>,
}

#[derive(Debug)]
struct Watch {
    kind: Kind,
    selector: FieldSelector,
    /// Changes shown.
    shown: usize,
    listed: bool,
    /// The next delivery is on its way.
    delivery_scheduled: bool,
    known: BTreeSet<Id>,
}

impl SimProcess {
    pub(super) fn new(kind: ControllerKind) -> Self {
        Self {
            kind,
            colocated_with: None,
            driver: None,
            queued: QueuedWrites::default(),
            incarnation: 0,
            clock_skew: Span(0),
            watches: Vec::new(),
            wakes: None,
        }
    }

    pub(super) fn begin(&mut self, controller: Box<dyn Controller>) {
        let driver = Driver::new(controller);
        let watch = |spec: &kai_control::controller::WatchSpec| Watch {
            kind: spec.kind.into(),
            selector: spec.selector.clone(),
            shown: 0,
            listed: false,
            delivery_scheduled: false,
            known: BTreeSet::new(),
        };
        self.watches = driver.watches().iter().map(watch).collect();
        self.driver = Some(driver);
        self.queued = QueuedWrites::default();
        self.incarnation += 1;
        self.wakes = None;
    }

    pub(super) fn crash(&mut self) {
        self.driver = None;
        self.watches.clear();
    }

    pub(super) fn kind_of(&self, watch: usize) -> Kind {
        self.watches[watch].kind
    }

    pub(super) fn listed(&self, watch: usize) -> bool {
        self.watches.get(watch).is_some_and(|watch| watch.listed)
    }

    /// Watches with updates that are not on their way yet, and up to which place in the log they go.
    pub(super) fn undelivered(&mut self, store: &Store) -> Vec<(usize, usize)> {
        let mut undelivered = Vec::new();
        for (position, watch) in self.watches.iter_mut().enumerate() {
            let log_position = store.log(watch.kind).len();
            if !watch.delivery_scheduled && (!watch.listed || watch.shown < log_position) {
                watch.delivery_scheduled = true;
                undelivered.push((position, log_position));
            }
        }
        undelivered
    }

    /// Shows changes up to a place in the log, or all there is.
    pub(super) fn deliver(&mut self, watch: usize, log_position: usize, relist: bool, store: &Store, clock: Clock) {
        let (Some(driver), Some(state)) = (&mut self.driver, self.watches.get_mut(watch)) else { return };
        state.delivery_scheduled = false;
        let log = store.log(state.kind);
        if relist {
            let all: Vec<(Id, Arc<Value>)> = store
                .of_kind(state.kind)
                .filter(|(_, value)| state.selector.matches(value))
                .map(|(id, value)| (id.clone(), Arc::new(value.clone())))
                .collect();
            let present: BTreeSet<Id> = all.iter().map(|(id, _)| id.clone()).collect();
            let removed = state.known.difference(&present).map(key_of).collect();
            let objects = all.into_iter().map(|(_, value)| value).collect();
            driver.on_update(watch, &WatchUpdate::Relisted { objects, removed }, clock);
            state.known = present;
            state.listed = true;
            state.shown = log.len();
            return;
        }
        for Change { id, value } in log.get(state.shown..log_position).unwrap_or_default() {
            // An object that the watch does not select any more counts as deleted.
            match value.as_ref().filter(|value| state.selector.matches(value)) {
                Some(value) => {
                    state.known.insert(id.clone());
                    driver.on_update(watch, &WatchUpdate::Applied(Arc::clone(value)), clock);
                }
                None if state.known.remove(id) => {
                    driver.on_update(watch, &WatchUpdate::Deleted(key_of(id)), clock);
                }
                None => {}
            }
        }
        state.shown = state.shown.max(log_position);
    }

    pub(super) fn woken(&mut self, now: Timestamp) {
        if self.wakes.is_some_and(|at| at <= now) {
            self.wakes = None;
        }
    }

    /// Whether its timer has to be set for this; an earlier one will do.
    pub(super) fn may_sleep_until(&mut self, at: Timestamp) -> bool {
        if self.wakes.is_some_and(|known| known <= at) {
            return false;
        }
        self.wakes = Some(at);
        true
    }
}

fn key_of(id: &Id) -> Key {
    Key::new(&*id.namespace, &*id.name)
}
