//! Priority of API writes: actions (bind, evict) first, then the pending reasons of pods and pod groups, then status.
//!
//! All components of a process use the same API server, so they share one gate: lower priorities wait while higher ones
//! are in flight, for a limited time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use kai_control::controller::WritePriority;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Whether a write may be held back for those of higher priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferral {
    /// Only the rate limit counts.
    Immediate,
    /// For [`MAX_DEFER`] at most.
    Deferrable,
    /// Until then at most.
    DeferrableUntil(Instant),
}

impl Deferral {
    pub(crate) fn defer_for(at_most: Duration) -> Self {
        Self::DeferrableUntil(Instant::now() + at_most)
    }
}

/// Counts the writes in flight of all components of a process, and holds back those of lower priority.
#[derive(Debug)]
pub(crate) struct PriorityGate {
    /// Actions and pending reasons.
    in_flight: Mutex<[InFlight; 2]>,
    /// Status writes that were deferred for the longest time go one at a time while the overload lasts.
    overdue_lane: Semaphore,
}

#[derive(Debug, Default)]
struct InFlight {
    count: usize,
    /// When the last one was done.
    last_done: Option<Instant>,
}

/// A write counts as in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct InFlightGuard(Arc<PriorityGate>, usize);

/// After so long without writes of higher priority none are expected for a while.
const QUIET_PERIOD: Duration = Duration::from_millis(250);
/// The longest time to wait for a quiet period.
const MAX_DEFER: Duration = Duration::from_secs(3);
/// With so many writes in flight or queued, status writes would only delay them further.
const OVERLOAD_THRESHOLD: usize = 16;
/// The longest time to wait for the end of an overload.
const MAX_DEFER_OVERLOADED: Duration = Duration::from_mins(1);

impl Default for PriorityGate {
    fn default() -> Self {
        Self { in_flight: Mutex::default(), overdue_lane: Semaphore::new(1) }
    }
}

impl PriorityGate {
    /// Counts a write as in flight until the guard is dropped. Nothing waits for status writes.
    pub(crate) fn track(self: &Arc<Self>, priority: WritePriority) -> Option<InFlightGuard> {
        let place = match priority {
            WritePriority::Action => 0,
            WritePriority::PendingReason => 1,
            WritePriority::Status => return None,
        };
        self.in_flight()[place].count += 1;
        Some(InFlightGuard(Arc::clone(self), place))
    }

    /// Writes other than status in flight or queued, of the whole process.
    pub(crate) fn urgent_in_flight(&self) -> usize {
        self.in_flight().iter().map(|priority| priority.count).sum()
    }

    /// Waits for the turn of a write, which lasts until the value is dropped.
    pub(crate) async fn admit(&self, priority: WritePriority, deferral: Deferral) -> Option<SemaphorePermit<'_>> {
        match deferral {
            Deferral::Immediate => None,
            Deferral::Deferrable => self.wait_for_quiet(priority, Instant::now() + MAX_DEFER).await,
            Deferral::DeferrableUntil(until) => self.wait_for_quiet(priority, until).await,
        }
    }

    /// Waits until nothing of higher priority is in flight. After the deadline pending reasons go on; status writes do so
    /// one at a time.
    async fn wait_for_quiet(&self, priority: WritePriority, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        let overload_deadline = Instant::now() + MAX_DEFER_OVERLOADED;
        while let Some((wait, urgent)) = self.quiet_in(priority, Instant::now()) {
            let overloaded = priority == WritePriority::Status && urgent >= OVERLOAD_THRESHOLD;
            let deadline = if overloaded { deadline.max(overload_deadline) } else { deadline };
            let rest = deadline.saturating_duration_since(Instant::now());
            if !rest.is_zero() {
                tokio::time::sleep(wait.min(rest)).await;
            } else if priority == WritePriority::Status {
                let lane = self.overdue_lane.acquire().await.ok();
                return lane.filter(|_| self.quiet_in(priority, Instant::now()).is_some());
            } else {
                return None;
            }
        }
        None
    }

    /// The least time until it is quiet, and the writes of higher priority in flight; nothing if it is quiet.
    fn quiet_in(&self, priority: WritePriority, now: Instant) -> Option<(Duration, usize)> {
        let in_flight = self.in_flight();
        let higher = match priority {
            WritePriority::Action => 0,
            WritePriority::PendingReason => 1,
            WritePriority::Status => in_flight.len(),
        };
        let quiet_at = |higher: &InFlight| match higher.count {
            0 => Some(higher.last_done? + QUIET_PERIOD),
            _ => Some(now + QUIET_PERIOD),
        };
        let wait = in_flight[..higher].iter().filter_map(quiet_at).max()?.saturating_duration_since(now);
        let urgent = in_flight[..higher].iter().map(|priority| priority.count).sum();
        (!wait.is_zero()).then_some((wait, urgent))
    }

    fn in_flight(&self) -> MutexGuard<'_, [InFlight; 2]> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let in_flight = &mut self.0.in_flight()[self.1];
        in_flight.count -= 1;
        in_flight.last_done = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WritePriority::{Action, PendingReason, Status};

    #[test]
    fn status_waits_for_the_end_of_all_actions() {
        let gate = Arc::new(PriorityGate::default());
        let now = Instant::now();
        assert_eq!(gate.quiet_in(Status, now), None);
        let action = gate.track(Action);
        assert_eq!(gate.quiet_in(Status, now), Some((QUIET_PERIOD, 1)));
        drop(action);
        let after = gate.quiet_in(Status, Instant::now());
        assert!(after.is_some_and(|(wait, urgent)| wait <= QUIET_PERIOD && urgent == 0));
        assert_eq!(gate.quiet_in(Status, Instant::now() + QUIET_PERIOD), None);
    }

    #[tokio::test]
    async fn overdue_status_writes_go_one_at_a_time() {
        let gate = Arc::new(PriorityGate::default());
        let overdue = Deferral::DeferrableUntil(Instant::now());
        let action = gate.track(Action);
        let first = gate.admit(Status, overdue).await;
        assert!(first.is_some());
        let moment = Duration::from_millis(20);
        assert!(tokio::time::timeout(moment, gate.admit(Status, overdue)).await.is_err());
        assert!(gate.admit(PendingReason, overdue).await.is_none(), "pending reasons need not wait for each other");
        drop(first);
        assert!(gate.admit(Status, overdue).await.is_some());
        drop(action);
        tokio::time::sleep(QUIET_PERIOD).await;
        let both = (gate.admit(Status, overdue).await, gate.admit(Status, overdue).await);
        assert!(both.0.is_none() && both.1.is_none(), "it is quiet");
    }

    #[tokio::test]
    async fn an_overload_of_actions_goes_before_overdue_status_writes() {
        let gate = Arc::new(PriorityGate::default());
        let overdue = Deferral::DeferrableUntil(Instant::now());
        let mut actions: Vec<_> = (0..OVERLOAD_THRESHOLD).map(|_| gate.track(Action)).collect();
        let moment = Duration::from_millis(20);
        assert!(tokio::time::timeout(moment, gate.admit(Status, overdue)).await.is_err());
        assert!(gate.admit(PendingReason, overdue).await.is_none());
        actions.pop();
        assert!(gate.admit(Status, overdue).await.is_some());
    }

    #[test]
    fn pending_reasons_come_after_actions_and_before_status() {
        let gate = Arc::new(PriorityGate::default());
        let waits =
            |now: Instant| [Action, PendingReason, Status].map(|priority| gate.quiet_in(priority, now).is_some());
        let (action, pending_reason) = (gate.track(Action), gate.track(PendingReason));
        assert_eq!(waits(Instant::now()), [false, true, true]);
        drop(action);
        assert_eq!(waits(Instant::now() + QUIET_PERIOD), [false, false, true]);
        drop(pending_reason);
        assert_eq!(waits(Instant::now() + QUIET_PERIOD), [false, false, false]);
        assert!(gate.track(Status).is_none(), "nothing waits for status writes");
    }
}
