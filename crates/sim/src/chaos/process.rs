//! A process: a controller while it runs, and how far each of its watches has come.

use std::collections::BTreeSet;
use std::sync::Arc;

use kai_control::Key;
use kai_control::controller::{Clock, Controller, Driver, QueuedWrites, WatchSpec, WatchView};
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
    /// Whether the API server has the kind.
    served: bool,
    view: WatchView,
    /// Changes shown.
    shown: usize,
    listed: bool,
    /// The next delivery is on its way.
    delivery_scheduled: bool,
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

    /// Starts the controller, which watches what it wants to and the API server has.
    pub(super) fn begin(&mut self, controller: Box<dyn Controller>, not_served: &BTreeSet<Kind>) {
        let mut driver = Driver::new(controller);
        let watch = |spec: &WatchSpec| Watch {
            kind: spec.kind.into(),
            served: !not_served.contains(&spec.kind.into()),
            view: WatchView::new(spec.selector.clone()),
            shown: 0,
            listed: false,
            delivery_scheduled: false,
        };
        self.watches = driver.watches().iter().map(watch).collect();
        for (position, _) in self.watches.iter().enumerate().filter(|(_, watch)| !watch.served) {
            driver.without(position);
        }
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

    /// Watches with updates that are not on their way yet, and up to which place in the log they go.
    pub(super) fn undelivered(&mut self, store: &Store) -> Vec<(usize, usize)> {
        let mut undelivered = Vec::new();
        for (position, watch) in self.watches.iter_mut().enumerate().filter(|(_, watch)| watch.served) {
            let log_position = store.log_end(watch.kind);
            if !watch.delivery_scheduled && (!watch.listed || watch.shown < log_position) {
                watch.delivery_scheduled = true;
                undelivered.push((position, log_position));
            }
        }
        undelivered
    }

    /// The connection of every watch is cut. Those that are `expired` have lost their place, too, and list again.
    pub(super) fn cut_watches(&mut self, expired: bool) {
        for watch in &mut self.watches {
            watch.listed &= !expired;
            watch.delivery_scheduled = false;
        }
    }

    /// Whether the watch has come so far that it need not list again.
    pub(super) fn can_resume(&self, watch: usize, store: &Store) -> bool {
        let Some(watch) = self.watches.get(watch) else { return false };
        watch.listed && store.changes(watch.kind, watch.shown, watch.shown).is_some()
    }

    /// Shows changes up to a place in the log, or all there is.
    pub(super) fn deliver(&mut self, watch: usize, log_position: usize, relist: bool, store: &Store, clock: Clock) {
        let (Some(driver), Some(state)) = (&mut self.driver, self.watches.get_mut(watch)) else { return };
        state.delivery_scheduled = false;
        if relist {
            let all: Vec<(Arc<Key>, Arc<Value>)> =
                store.of_kind(state.kind).map(|(id, value)| (key_of(id), Arc::new(value.clone()))).collect();
            let update = state.view.relist(all.iter().map(|(key, value)| (key, value)));
            driver.on_update(watch, &update, clock);
            state.listed = true;
            state.shown = store.log_end(state.kind);
            return;
        }
        for Change { id, value } in store.changes(state.kind, state.shown, log_position).unwrap_or_default() {
            let update = match value {
                Some(value) => state.view.apply(&key_of(id), value),
                None => state.view.delete(&key_of(id)),
            };
            if let Some(update) = update {
                driver.on_update(watch, &update, clock);
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

fn key_of(id: &Id) -> Arc<Key> {
    Arc::new(Key::new(&*id.namespace, &*id.name))
}
