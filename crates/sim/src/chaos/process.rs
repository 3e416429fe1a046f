//! A process: a controller while it lives, and how far each of its watches has come.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::parts::{Clock, Part};
use crate::cluster::{Change, Store};
use crate::manifest::{Id, Kind};

/// Which controller a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ControllerKind {
    Scheduler,
    Binder,
    Grouper,
    GroupStatuses,
    QueueStatuses,
}

pub(super) struct SimProcess {
    pub(super) role: ControllerKind,
    /// The other controller that lives and dies with this one, with watches of its own. It is handed drafts.
    pub(super) colocated_with: Option<usize>,
    /// Nothing while it is down.
    pub(super) part: Option<Box<dyn Part>>,
    /// Counts starts: what an earlier incarnation asked for is not for the next one.
    pub(super) incarnation: u32,
    /// How far its clock is ahead of the cluster's.
    pub(super) clock_skew: Span,
    watches: BTreeMap<Kind, Watch>,
    /// Its timer.
    wakes: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Watch {
    /// Changes shown.
    shown: usize,
    listed: bool,
    /// News are on their way.
    delivery_scheduled: bool,
    known: BTreeSet<Id>,
}

impl SimProcess {
    pub(super) fn new(role: ControllerKind) -> Self {
        Self {
            role,
            colocated_with: None,
            part: None,
            incarnation: 0,
            clock_skew: Span(0),
            watches: BTreeMap::new(),
            wakes: None,
        }
    }

    pub(super) fn begin(&mut self, part: Box<dyn Part>) {
        self.watches = part.kinds().iter().map(|kind| (*kind, Watch::default())).collect();
        self.part = Some(part);
        self.incarnation += 1;
        self.wakes = None;
    }

    pub(super) fn crash(&mut self) {
        self.part = None;
        self.watches.clear();
    }

    pub(super) fn listed(&self, kind: Kind) -> bool {
        self.watches.get(&kind).is_some_and(|watch| watch.listed)
    }

    /// Whether it has seen everything once.
    pub(super) fn ready(&self) -> bool {
        self.watches.values().all(|watch| watch.listed)
    }

    /// Kinds with news that are not on their way yet, and how far they go.
    pub(super) fn unseen(&mut self, store: &Store) -> Vec<(Kind, usize)> {
        let mut unseen = Vec::new();
        for (kind, watch) in &mut self.watches {
            let log_position = store.log(*kind).len();
            if !watch.delivery_scheduled && (!watch.listed || watch.shown < log_position) {
                watch.delivery_scheduled = true;
                unseen.push((*kind, log_position));
            }
        }
        unseen
    }

    /// Shows changes up to a place in the log, or all there is.
    pub(super) fn show(&mut self, kind: Kind, log_position: usize, relist: bool, store: &Store, clock: Clock) {
        let (Some(part), Some(watch)) = (&mut self.part, self.watches.get_mut(&kind)) else { return };
        watch.delivery_scheduled = false;
        let log = store.log(kind);
        if relist {
            let all: Vec<(Id, Rc<Value>)> =
                store.of_kind(kind).map(|(id, value)| (id.clone(), Rc::new(value.clone()))).collect();
            let present: BTreeSet<Id> = all.iter().map(|(id, _)| id.clone()).collect();
            let gone: Vec<Id> = watch.known.difference(&present).cloned().collect();
            part.relisted(&all, &gone, clock);
            watch.known = present;
            watch.listed = true;
            watch.shown = log.len();
            return;
        }
        for Change { id, value } in log.get(watch.shown..log_position).unwrap_or_default() {
            if let Some(value) = value {
                watch.known.insert(id.clone());
                part.applied(id, value, clock);
            } else {
                watch.known.remove(id);
                part.deleted(id, clock);
            }
        }
        watch.shown = watch.shown.max(log_position);
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
