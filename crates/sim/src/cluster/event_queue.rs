//! The event queue of the simulation: what is due when. Virtual time jumps from one entry to the next.

use std::collections::BTreeMap;

use kai_engine::units::{Span, Timestamp};

use crate::manifest::Id;

/// Something that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// A step of the scenario, by position.
    Step(usize),
    /// The containers of a bound pod are up. The uid tells a pod from a later one of the same name.
    PodUp { pod: Id, uid: String },
    /// A running pod has done its work.
    PodDone { pod: Id, uid: String },
    /// A deleted pod is gone.
    PodGone { pod: Id, uid: String },
    /// The scheduler of Kubernetes has found a node for a scaling pod, whose program ends at once.
    ScalingPodDone { pod: Id, uid: String },
    /// Pods of a node that failed count as lost, if it is still down since then.
    NodeLost { node: String, down_since: Timestamp },
    /// A scheduling cycle.
    Cycle,
}

/// What is due, by time; at one moment in the order of entry, the scheduler last.
#[derive(Debug)]
pub(crate) struct EventQueue {
    due: BTreeMap<(Timestamp, SameTimeOrder, u64), Due>,
    entries: u64,
    /// The scheduler's entry; it has at most one.
    cycle: Option<(Timestamp, SameTimeOrder, u64)>,
}

/// The scheduler comes last, so that it sees everything of the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SameTimeOrder {
    Cluster,
    Scheduler,
}

impl EventQueue {
    pub(crate) fn new() -> Self {
        Self { due: BTreeMap::new(), entries: 0, cycle: None }
    }

    pub(crate) fn add(&mut self, at: Timestamp, due: Due) {
        let order = if due == Due::Cycle { SameTimeOrder::Scheduler } else { SameTimeOrder::Cluster };
        self.due.insert((at, order, self.entries), due);
        self.entries += 1;
    }

    /// Calls for a scheduler cycle at this time, unless one is due before.
    pub(crate) fn add_cycle(&mut self, at: Timestamp) {
        if self.cycle.is_some_and(|(planned, _, _)| planned <= at) {
            return;
        }
        if let Some(later) = self.cycle.take() {
            self.due.remove(&later);
        }
        self.cycle = Some((at, SameTimeOrder::Scheduler, self.entries));
        self.add(at, Due::Cycle);
    }

    /// When the next thing is due.
    pub(crate) fn next_time(&self) -> Option<Timestamp> {
        self.due.keys().next().map(|(at, _, _)| *at)
    }

    /// Takes the next thing out.
    pub(crate) fn take(&mut self) -> Option<(Timestamp, Due)> {
        let ((at, _, _), due) = self.due.pop_first()?;
        if due == Due::Cycle {
            self.cycle = None;
        }
        Some((at, due))
    }
}

/// The first multiple of `period` after the start that is not before `at`.
pub(crate) fn next_tick(start: Timestamp, period: Span, at: Timestamp) -> Timestamp {
    let since = at.since(start).0;
    let ticks = since.div_euclid(period.0) + i64::from(since.rem_euclid(period.0) != 0);
    start.plus(Span(ticks * period.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_comes_last_at_its_moment() {
        let mut queue = EventQueue::new();
        queue.add_cycle(Timestamp(5));
        queue.add(Timestamp(5), Due::Step(0));
        queue.add(Timestamp(7), Due::Step(1));
        queue.add_cycle(Timestamp(6));
        let order: Vec<_> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(order, [(Timestamp(5), Due::Step(0)), (Timestamp(5), Due::Cycle), (Timestamp(7), Due::Step(1))]);
    }

    #[test]
    fn ticks_are_counted_from_the_start() {
        let at = |micros| next_tick(Timestamp(100), Span(10), Timestamp(micros)).0;
        assert_eq!((at(100), at(101), at(110), at(111)), (100, 110, 110, 120));
    }
}
