//! What every loop around a controller has to do in the same order: list before polling, results before work, and status
//! writes of which the last one counts.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::units::Timestamp;

use super::{
    CallError, Clock, Controller, NewEvent, Output, Skipped, WatchSpec, WatchUpdate, WorkItem, WorkKey, WorkResult,
    WritePriority,
};
use crate::grouper::PlannedWrite;
use crate::kinds::Kind;

/// Carries out what a controller asks for: with an API server, or with a simulated one.
pub trait OutputHandler {
    /// Whether another controller of the process takes planned writes.
    fn has_receiver(&self) -> bool;

    /// Hands this to the other controller of the process.
    fn plan(&mut self, planned: PlannedWrite);

    /// Logs what was left out.
    fn skip(&mut self, skipped: &Skipped);

    fn publish(&mut self, event: NewEvent);

    /// Queues the work, as [`QueuedWrites::admit`] has it. Returns how those items ended that do not hold any more.
    fn admit(&mut self, item: WorkItem) -> Vec<WorkResult>;
}

/// A controller, and which of its watches have been listed.
pub struct Driver<C> {
    pub controller: C,
    watches: Vec<WatchSpec>,
    unsynced: BTreeSet<usize>,
}

impl<C: Controller> Driver<C> {
    pub fn new(controller: C) -> Self {
        let watches = controller.watches();
        let unsynced = (0..watches.len()).collect();
        Self { controller, watches, unsynced }
    }

    /// What to watch; updates name a watch by its position.
    pub fn watches(&self) -> &[WatchSpec] {
        &self.watches
    }

    /// The kind of this watch is not served: there is nothing to wait for.
    pub fn without(&mut self, watch: usize) {
        self.unsynced.remove(&watch);
    }

    /// Whether all watches have been listed.
    pub fn has_synced(&self) -> bool {
        self.unsynced.is_empty()
    }

    /// Kinds of which a watch has not been listed yet.
    pub fn unsynced(&self) -> impl Iterator<Item = Kind> {
        self.unsynced.iter().map(|watch| self.watches[*watch].kind)
    }

    pub fn on_update(&mut self, watch: usize, update: &WatchUpdate, now: Clock) -> Vec<Skipped> {
        let kind = self.watches[watch].kind;
        match update {
            WatchUpdate::Applied(object) => self.controller.on_apply(kind, object, now),
            WatchUpdate::Deleted(key) => {
                self.controller.on_delete(kind, key, now);
                Vec::new()
            }
            WatchUpdate::Relisted { objects, removed } => {
                self.controller.on_relist(kind, now);
                for key in removed {
                    self.controller.on_delete(kind, key, now);
                }
                let skipped = objects.iter().flat_map(|object| self.controller.on_apply(kind, object, now)).collect();
                self.unsynced.remove(&watch);
                skipped
            }
        }
    }

    /// When to poll even if nothing happens. Never before all watches have been listed.
    pub fn next_poll(&self, now: Clock) -> Option<Timestamp> {
        self.controller.next_poll(now).filter(|_| self.has_synced())
    }

    /// Polls the controller, once all watches have been listed, and has done what it asks for.
    pub fn poll(&mut self, now: Clock, handler: &mut impl OutputHandler) {
        if !self.has_synced() {
            return;
        }
        self.controller.announce_planned(handler.has_receiver());
        let Output { planned, events, skipped, mut work } = self.controller.poll(now);
        // Before it is written: what a watch shows of it comes later.
        for planned in planned {
            handler.plan(planned);
        }
        for skipped in &skipped {
            handler.skip(skipped);
        }
        for event in events {
            handler.publish(event);
        }
        // Actions come first: they decide which status writes still hold.
        work.sort_by_key(|item| item.priority != WritePriority::Action);
        for item in work {
            for superseded in handler.admit(item) {
                self.controller.on_result(superseded, now);
            }
        }
    }
}

/// Status writes that have not begun. For each key the last one counts.
#[derive(Debug, Default)]
pub struct QueuedWrites {
    /// Nothing where an action took its place.
    queued: BTreeMap<WorkKey, Option<WorkItem>>,
}

/// What to do about a work item.
#[derive(Debug, PartialEq)]
pub enum Admitted {
    /// Make its calls.
    Start(WorkItem),
    /// When there is room for a write like this one, [`QueuedWrites::begin`] tells which one to make.
    Queued(WorkItem),
    /// One of the same key waits already; this one is made in its place.
    Replaced,
}

impl QueuedWrites {
    /// Takes an item over. Also returns how those ended that do not hold any more.
    pub fn admit(&mut self, item: WorkItem) -> (Admitted, Vec<WorkResult>) {
        let mut superseded: Vec<WorkResult> = item.supersedes.iter().filter_map(|key| self.cancel(key)).collect();
        if item.priority == WritePriority::Action {
            superseded.extend(self.cancel(&item.key));
            return (Admitted::Start(item), superseded);
        }
        let waits = self.queued.insert(item.key.clone(), Some(item.clone())).is_some();
        (if waits { Admitted::Replaced } else { Admitted::Queued(item) }, superseded)
    }

    /// There is room for the write of this key. Nothing if it does not hold any more.
    pub fn begin(&mut self, key: &WorkKey) -> Option<WorkItem> {
        self.queued.remove(key)?
    }

    fn cancel(&mut self, key: &WorkKey) -> Option<WorkResult> {
        let item = self.queued.get_mut(key)?.take()?;
        let mut result = WorkResult::new(item);
        result.errors.insert(0, CallError::Superseded);
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    fn item(priority: WritePriority) -> WorkItem {
        WorkItem { priority, ..WorkItem::new(WorkKey::Pod(Key::new("n", "p")), Vec::new()) }
    }

    #[test]
    fn of_status_writes_the_last_one_counts() {
        let mut queue = QueuedWrites::default();
        let (first, last) = (item(WritePriority::PendingReason), item(WritePriority::Status));
        assert!(matches!(queue.admit(first), (Admitted::Queued(_), superseded) if superseded.is_empty()));
        assert_eq!(queue.admit(last.clone()), (Admitted::Replaced, Vec::new()));
        assert_eq!((queue.begin(&last.key), queue.begin(&last.key)), (Some(last.clone()), None));
    }

    #[test]
    fn an_action_cancels_queued_status_writes_of_the_same_object() {
        let mut queue = QueuedWrites::default();
        let (status, action) = (item(WritePriority::Status), item(WritePriority::Action));
        queue.admit(status.clone());
        let (admitted, superseded) = queue.admit(action.clone());
        assert_eq!(admitted, Admitted::Start(action));
        assert_eq!((superseded.len(), superseded[0].item == status, superseded[0].completed), (1, true, 0));
        assert_eq!(queue.begin(&status.key), None);
        assert!(matches!(queue.admit(status).0, Admitted::Queued(_)), "its place in the queue is gone");
    }
}
