//! How often running jobs are evicted for others. Placing follows changes at once; consolidation, reclaim and preemption
//! run once a period, when nothing is in flight that would change their answer, and consolidation has a budget of moves.
//!
//! Only the last minutes count, so nothing is lost when it starts empty after a restart.

use std::collections::VecDeque;

use kai_engine::policy::{Action, Policy};
use kai_engine::units::{Span, Timestamp};

use super::Effect;
use super::effect::CycleResult;
use super::settings::{EvictionSettings, MoveBudget, Settings};
use crate::controller::Clock;
use crate::objects::{BindPhase, Phase, Pod};
use crate::world::World;

/// What a cycle may take from running jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionsAllowed {
    /// Whether consolidation, reclaim and preemption run.
    pub any: bool,
    /// Pods that consolidation may move; `None` is any number.
    pub moves: Option<u32>,
}

impl EvictionsAllowed {
    /// Makes the policy obey.
    pub fn apply(self, policy: &mut Policy) {
        policy.disruption.allowed = self.any;
        policy.disruption.moves_left = self.moves;
    }
}

/// What was evicted within the last minutes, and when the next cycle may evict. Times are those of the steady clock.
#[derive(Clone, Debug, Default)]
pub struct EvictionPacing {
    /// When a cycle last could evict.
    last: Option<Timestamp>,
    /// Since when a cycle could evict, but the cluster has not settled.
    unsettled_since: Option<Timestamp>,
    /// The last cycle could not evict and left pods pending.
    postponed: bool,
    /// The last cycle left pods pending.
    pending: bool,
    /// When consolidation moved how many pods, within the window.
    moves: VecDeque<(Timestamp, u32)>,
}

/// Moves that are always allowed within the window.
const MOVES_MIN: u32 = 4;
/// One more for so many nodes.
const NODES_PER_MOVE: usize = 32;

impl EvictionPacing {
    /// What a cycle that begins now may take. `in_flight`: writes of earlier cycles have not been seen yet.
    pub fn allowed(&mut self, settings: &Settings, world: &World, in_flight: bool, clock: Clock) -> EvictionsAllowed {
        let (now, moves_of_a_job) = (clock.steady, settings.policy.consolidation_moves_max);
        let settings = &settings.evictions;
        let any = self.period_is_over(settings, now)
            && self.has_settled(settings, in_flight || !is_settled(world, clock.wall), now);
        if any {
            (self.last, self.unsettled_since) = (Some(now), None);
        }
        while self.moves.front().is_some_and(|(at, _)| now.since(*at) >= settings.moves_window) {
            self.moves.pop_front();
        }
        let moved = self.moves.iter().fold(0_u32, |sum, (_, pods)| sum.saturating_add(*pods));
        let budget = match settings.moves {
            MoveBudget::Unlimited => None,
            MoveBudget::At(pods) => Some(pods),
            MoveBudget::Auto => {
                Some(MOVES_MIN.max(u32::try_from(world.nodes.len() / NODES_PER_MOVE).unwrap_or(u32::MAX)))
            }
        };
        let moves = match budget {
            // A job that needs more than the budget has its turn when nothing was moved for a while.
            Some(1..) if moved == 0 => budget.zip(moves_of_a_job).map(|(pods, job)| pods.max(job)),
            budget => budget.map(|pods| pods.saturating_sub(moved)),
        };
        EvictionsAllowed { any, moves }
    }

    fn period_is_over(&self, settings: &EvictionSettings, now: Timestamp) -> bool {
        // A clock that was set back ends the period.
        self.last.is_none_or(|last| !(Span(0)..settings.period).contains(&now.since(last)))
    }

    fn has_settled(&mut self, settings: &EvictionSettings, unsettled: bool, now: Timestamp) -> bool {
        if !unsettled {
            return true;
        }
        let since = *self.unsettled_since.get_or_insert(now);
        !(Span(0)..settings.settle_timeout).contains(&now.since(since))
    }

    /// Notes what a cycle decided. One that could not evict does not know why jobs are pending: `last` does, as far as
    /// they were pending before, and the next one that can evict tells the rest.
    pub fn on_cycle(&mut self, allowed: EvictionsAllowed, cycle: &mut CycleResult, last: &CycleResult, now: Timestamp) {
        let is_move = |effect: &&Effect| matches!(effect, Effect::Evict { action: Action::Consolidate, .. });
        let moved = cycle.effects.iter().filter(is_move).count();
        if moved > 0 {
            self.moves.push_back((now, u32::try_from(moved).unwrap_or(u32::MAX)));
        }
        self.pending = !cycle.pending.is_empty();
        self.postponed = !allowed.any && self.pending;
        if !allowed.any {
            let known = |job: &_| last.pending.binary_search_by(|known| known.job.cmp(job)).ok();
            let pending = cycle.pending.iter().filter_map(|job| known(&job.job).map(|at| last.pending[at].clone()));
            cycle.pending = pending.collect();
        }
    }

    /// When a cycle could evict what the last one had to leave, or move what was over the budget; `None` if it left
    /// nothing.
    pub fn next(&self, settings: &EvictionSettings) -> Option<Timestamp> {
        let settled = self.unsettled_since.map(|since| since.plus(settings.settle_timeout));
        let due = settled.or(self.last.map(|last| last.plus(settings.period)));
        let refill = self.moves.front().map(|(at, _)| at.plus(settings.moves_window));
        due.filter(|_| self.postponed).into_iter().chain(refill.filter(|_| self.pending)).min()
    }
}

/// Whether no pod is being bound, about to leave its node or nominated for one that others leave: all of them change what
/// is free and who holds it. Pods that should be gone by now may stay for ever.
fn is_settled(world: &World, now: Timestamp) -> bool {
    let moves = |pod: &Pod| match (&pod.node, pod.phase) {
        (Some(_), Phase::Pending | Phase::Running) => pod.deletion.is_some_and(|at| at > now),
        (None, Phase::Pending) => pod.nominated_node.is_some(),
        _ => false,
    };
    let is_binding = |phase: BindPhase| phase == BindPhase::Pending;
    !world.bind_requests.values().any(|request| is_binding(request.phase)) && !world.pods.values().any(moves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::scheduler::reasons::EvictionReason;
    use crate::scheduler::test_cluster::world;

    fn at(milliseconds: i64) -> Clock {
        let time = Timestamp(1_000_000_000 + milliseconds * 1_000);
        Clock { wall: time, steady: time }
    }

    fn moved(pods: usize) -> CycleResult {
        let pod = |number: usize| Effect::Evict {
            pod: Key::new("n", format!("p{number}")),
            job: Key::new("n", "j"),
            node: None,
            action: Action::Consolidate,
            preemptor: None,
            gang_size: 1,
            why: EvictionReason::Other { preemptor: None },
        };
        CycleResult { effects: (0..pods).map(pod).collect(), ..CycleResult::default() }
    }

    /// When cycles every 100 ms may evict, in milliseconds.
    fn evicting(settings: &EvictionSettings, world: &World, until: i64) -> Vec<i64> {
        let settings = Settings { evictions: *settings, ..Settings::default() };
        let mut pacing = EvictionPacing::default();
        let times = (0..until).step_by(100);
        times.filter(|now| pacing.allowed(&settings, world, false, at(*now)).any).collect()
    }

    #[test]
    fn evictions_are_at_least_a_period_apart() {
        let settings = EvictionSettings::default();
        let quiet = world("node a gpu=1");
        assert_eq!(evicting(&settings, &quiet, 2_500), [0, 1_000, 2_000]);
        let each = EvictionSettings { period: Span(0), ..settings };
        assert_eq!(evicting(&each, &quiet, 300), [0, 100, 200]);
    }

    #[test]
    fn they_wait_for_terminating_pods_but_not_for_ever() {
        let ending_at = |seconds: i64| {
            let mut world = world(
                "node a gpu=1
                 queue team
                 job old queue=team gpu=1 on=a",
            );
            let pod = world.pods.values().next().cloned().expect("there is one");
            let deletion = Some(at(seconds * 1_000).wall);
            world.apply(crate::kinds::Object::Pod(Box::new(Pod { deletion, ..pod })));
            world
        };
        let settings = EvictionSettings::default();
        assert_eq!(evicting(&settings, &ending_at(60), 8_000), [3_000, 7_000]);
        let overdue = ending_at(0);
        assert_eq!(evicting(&settings, &overdue, 2_000), [0, 1_000], "its node may be lost");
    }

    #[test]
    fn they_wait_for_writes_in_flight() {
        let (settings, quiet) = (Settings::default(), world("node a gpu=1"));
        let mut pacing = EvictionPacing::default();
        assert!(!pacing.allowed(&settings, &quiet, true, at(0)).any);
        assert!(!pacing.allowed(&settings, &quiet, true, at(2_999)).any);
        assert!(pacing.allowed(&settings, &quiet, false, at(2_999)).any, "as soon as they are done");
        assert!(!pacing.allowed(&settings, &quiet, true, at(4_000)).any);
        assert!(pacing.allowed(&settings, &quiet, true, at(7_000)).any);
    }

    #[test]
    fn moves_count_for_the_window() {
        let quiet = world("node a gpu=1");
        let evictions = EvictionSettings { moves: MoveBudget::At(3), ..EvictionSettings::default() };
        let settings = Settings { evictions, ..Settings::default() };
        let mut pacing = EvictionPacing::default();
        let mut left = |now: i64, moves: usize| {
            let allowed = pacing.allowed(&settings, &quiet, false, at(now));
            pacing.on_cycle(allowed, &mut moved(moves), &CycleResult::default(), at(now).steady);
            allowed.moves
        };
        assert_eq!([left(0, 2), left(10_000, 1), left(20_000, 0)], [Some(16), Some(1), Some(0)]);
        assert_eq!([left(119_999, 0), left(120_000, 0), left(130_000, 0)], [Some(0), Some(2), Some(16)]);
    }

    #[test]
    fn the_budget_of_moves_grows_with_the_cluster() {
        let mut settings = Settings::default();
        settings.policy.consolidation_moves_max = Some(1);
        let nodes = |count: usize| {
            let lines: Vec<String> = (0..count).map(|number| format!("node n{number} gpu=1")).collect();
            EvictionPacing::default().allowed(&settings, &world(&lines.join("\n")), false, at(0)).moves
        };
        assert_eq!([nodes(1), nodes(128), nodes(400)], [Some(4), Some(4), Some(12)]);
    }
}
