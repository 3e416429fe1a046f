//! The scheduler's controller: a cycle soon after changes, and every period while something is pending.

use std::collections::BTreeMap;
use std::sync::Arc;

use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::eviction_backoff::EvictionBackoff;
use super::malformed::MalformedObjects;
use super::record::{ActionRecord, CycleHistory, CycleRecord};
use super::{
    CycleProgress, CycleResult, Event, EvictionPacing, EvictionStats, InvolvedObject, Scheduler, Settings, Usage,
    Write, WritePlanner,
};
use crate::calls::PlannedWrite;
use crate::controller::{
    ApiCall, CallError, Clock, Controller, FieldSelector, LeftOut, NewEvent, Output, Regarding, Skipped, WatchSpec,
    WorkItem, WorkKey, WorkResult, WritePriority,
};
use crate::key::Key;
use crate::kinds::{Kind, Object, ObjectId};
use crate::scheduler::cache::SchedulerCache;
use crate::world::World;

/// Changes come in bursts, and a gang that is there as a whole is decided about once.
pub const CYCLE_DEBOUNCE: Span = Span(100_000);
/// While so many urgent writes are in flight, those of another cycle would wait behind them: a later one sees more.
const HIGH_LOAD: usize = 64;
const DEBOUNCE_UNDER_LOAD: Span = Span::seconds(1);
/// Cycles use at most one in so many parts of the time of a core.
const CPU_SHARE_DIVISOR: i64 = 20;
/// How long other writes come before the first reason why an object is pending.
const PENDING_REASON_DEFER_MAX: Span = Span::seconds(1);

/// The scheduler with its cache, its clock and its writes.
pub struct SchedulerController {
    scheduler: Scheduler,
    cache: SchedulerCache,
    planner: WritePlanner,
    usage: Usage,
    period: Span,
    last: CycleResult,
    /// Cycles so far.
    cycles: u64,
    /// Records of the last cycles.
    history: CycleHistory,
    /// When the last cycle began or was found unnecessary, by the steady clock.
    started: Option<Timestamp>,
    /// CPU time of the last cycle.
    cpu_time: Span,
    /// Something changed since the last cycle.
    dirty: bool,
    eviction_backoff: EvictionBackoff,
    eviction_pacing: EvictionPacing,
    eviction_stats: EvictionStats,
    malformed: MalformedObjects,
    /// Evictions of the last cycle were withheld: a later one may make them.
    withheld: bool,
}

impl SchedulerController {
    /// With this time between the beginnings of two cycles, at most.
    pub fn new(settings: Settings, period: Span) -> Self {
        Self {
            scheduler: Scheduler::new(settings),
            cache: SchedulerCache::default(),
            planner: WritePlanner::default(),
            usage: Usage::default(),
            period,
            last: CycleResult::default(),
            cycles: 0,
            history: CycleHistory::default(),
            started: None,
            cpu_time: Span(0),
            dirty: true,
            eviction_backoff: EvictionBackoff::default(),
            eviction_pacing: EvictionPacing::default(),
            eviction_stats: EvictionStats::default(),
            malformed: MalformedObjects::default(),
            withheld: false,
        }
    }

    pub fn settings(&self) -> &Settings {
        self.scheduler.settings()
    }

    pub fn world(&self) -> &World {
        self.cache.world()
    }

    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Records of the last cycles.
    pub fn history(&self) -> &CycleHistory {
        &self.history
    }

    pub fn eviction_stats(&self) -> &EvictionStats {
        &self.eviction_stats
    }

    /// Whether there was a cycle already.
    pub fn has_run(&self) -> bool {
        self.started.is_some()
    }

    /// What queues have used counts from the next cycle on. Shares follow it, and people watch both even while nothing is
    /// pending.
    pub fn set_usage(&mut self, usage: Usage) {
        if usage != self.usage {
            self.usage = usage;
            self.dirty = true;
        }
    }

    /// CPU time of the last cycle: other programs on the machine are no reason for fewer cycles.
    pub fn set_cpu_time(&mut self, cpu_time: Span) {
        self.cpu_time = cpu_time;
    }

    /// When the next cycle should begin, by the steady clock, while so many urgent writes are in flight: soon after a change;
    /// without one, when the period ends or as soon as time alone may change a decision. `None` if it would decide the same
    /// as the last one.
    pub fn next_cycle(&self, now: Clock, urgent_in_flight: usize) -> Option<Timestamp> {
        let Some(started) = self.started else { return Some(now.steady) };
        let debounce = if urgent_in_flight < HIGH_LOAD { CYCLE_DEBOUNCE } else { DEBOUNCE_UNDER_LOAD };
        let pause = Span(self.cpu_time.0.saturating_mul(CPU_SHARE_DIVISOR)).max(debounce).min(self.period);
        let earliest = started.plus(pause);
        if self.dirty {
            return Some(earliest);
        }
        let change = self.last.next_change_at.map(|at| now.steady.plus(at.since(now.wall)).max(earliest));
        let period = self.needs_cycle().then(|| started.plus(self.period));
        let evictions = self.eviction_pacing.next(&self.settings().evictions).map(|at| at.max(earliest));
        period.into_iter().chain(change).chain(evictions).min()
    }

    fn remove(&mut self, kind: Kind, key: &Key) {
        if kind == Kind::Pod {
            self.eviction_backoff.reset(key);
        }
        self.cache.on_delete(&ObjectId::new(kind, key.clone()));
    }

    /// Whether another cycle may decide something else than the last one, if only because time has passed.
    fn needs_cycle(&self) -> bool {
        self.dirty
            || self.withheld
            || !self.last.effects.is_empty()
            || !self.last.pending.is_empty()
            || self.last.next_change_at.is_some()
            || !self.cache.is_empty()
    }

    /// Runs a cycle, reports progress to `passed`, and records it. After a panic the next cycle decides anew.
    pub fn decide(&mut self, now: Clock, mut passed: impl FnMut(CycleProgress)) -> CycleResult {
        self.started = Some(now.steady);
        // Until the cycle has ended well.
        self.dirty = true;
        self.cache.expire(now.wall);
        let (settings, in_flight) = (self.scheduler.settings(), self.cache.has_moves_in_flight());
        let allowed = self.eviction_pacing.allowed(settings, self.cache.world(), in_flight, now);
        self.scheduler.set_evictions(allowed);
        let mut statistics = Vec::new();
        let mut cycle = self.scheduler.cycle_with_progress(self.cache.world_mut(), &self.usage, now.wall, |progress| {
            if let CycleProgress::ActionDone(action, stats) = progress {
                statistics.push(ActionRecord::new(action, stats));
            }
            passed(progress);
        });
        self.cycles += 1;
        let seen = (self.cache.world(), self.scheduler.settings(), &self.usage);
        let record = CycleRecord::new(self.cycles, now.wall, seen, &cycle, statistics);
        self.history.add(record.with_changes(self.scheduler.changes().cloned()));
        self.eviction_pacing.on_cycle(allowed, &mut cycle, &self.last, now.steady);
        cycle
    }

    /// What is to be written of a cycle, which counts as written from now on.
    pub fn finish(&mut self, mut cycle: CycleResult, now: Clock) -> Output {
        self.dirty = false;
        self.withheld = self.eviction_backoff.withhold(&mut cycle.effects, now.steady);
        self.eviction_stats.on_cycle(self.cache.world(), &cycle.effects, now.wall);
        let settings = self.scheduler.settings();
        let writes = self.planner.plan(self.cache.world(), &cycle, settings, now.wall);
        for effect in &cycle.effects {
            self.cache.assume(effect, now.wall);
        }
        let writes = self.cache.defer_until_created(writes, now.wall);
        self.last = cycle;
        let mut output = to_output(writes);
        output.events.extend(self.malformed.take_events());
        output
    }
}

impl Controller for SchedulerController {
    /// Pods of other schedulers, too: they hold resources. Failed ones hold none.
    fn watches(&self) -> Vec<WatchSpec> {
        let spec = |kind: &Kind| match kind {
            Kind::Pod => WatchSpec::with(Kind::Pod, FieldSelector::not_failed()),
            kind => WatchSpec::all(*kind),
        };
        Kind::CYCLE_INPUTS.iter().map(spec).collect()
    }

    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, _: Clock) -> Vec<Skipped> {
        self.dirty = true;
        let scheduler = &self.scheduler.settings().scheduler_name;
        let malformed = match Object::parse(object) {
            Ok(Some(parsed)) => {
                if let Object::Pod(pod) = &parsed
                    && pod.scheduler == *scheduler
                {
                    self.eviction_stats.on_pod(self.cache.world().pods.get(&pod.key), pod);
                }
                let problems = self.malformed.report(kind, object, LeftOut::Fields, parsed.problems(), scheduler);
                self.cache.on_apply(parsed);
                return problems;
            }
            Ok(None) => None,
            Err(malformed) => Some(malformed),
        };
        // A malformed object counts as it was before, or as absent: it must not keep the others from being seen.
        let key = kind.key_of(object);
        let keeps = malformed.is_some() && self.cache.keeps_last(&ObjectId::new(kind, key.clone()), object);
        if !keeps {
            self.remove(kind, &key);
        }
        let left_out = if keeps { LeftOut::Change } else { LeftOut::Object };
        let scheduler = &self.scheduler.settings().scheduler_name;
        malformed
            .map_or_else(Vec::new, |malformed| self.malformed.report(kind, object, left_out, &[malformed], scheduler))
    }

    fn on_delete(&mut self, kind: Kind, key: &Key, _: Clock) {
        self.dirty = true;
        self.malformed.forget(kind, key);
        self.remove(kind, key);
    }

    fn poll(&mut self, now: Clock) -> Output {
        if self.next_cycle(now, 0).is_none_or(|at| at > now.steady) {
            return Output::default();
        }
        let cycle = self.decide(now, |_| ());
        self.finish(cycle, now)
    }

    fn on_result(&mut self, result: WorkResult, now: Clock) {
        for call in result.performed() {
            if let ApiCall::Schedule(Write::Evict { pod, .. }) = call {
                self.eviction_backoff.reset(pod);
            }
        }
        for (at, error) in &result.errors {
            if let ApiCall::Schedule(Write::Evict { pod, uid, .. }) = &result.item.calls[*at]
                && *error != CallError::Superseded
            {
                self.eviction_backoff.on_failed(pod, uid, now.steady);
            }
        }
        let Some(error) = result.errors.values().next() else { return };
        // Calls behind the failed one were not made.
        for call in &result.item.calls[result.completed..] {
            if let ApiCall::Schedule(write) = call {
                write.assumptions().iter().for_each(|assumption| self.cache.forget(assumption));
            }
        }
        self.dirty |= *error != CallError::Superseded;
    }

    fn next_poll(&self, now: Clock) -> Option<Timestamp> {
        self.next_cycle(now, 0)
    }

    fn on_planned(&mut self, planned: PlannedWrite) {
        self.cache.assume_planned(planned);
        self.dirty = true;
    }

    fn size(&self) -> usize {
        self.cache.world().nodes.len()
    }
}

/// Writes about one object are made one after the other, those about different ones side by side.
fn to_output(writes: Vec<Write>) -> Output {
    let mut output = Output::default();
    let mut items: BTreeMap<(bool, WorkKey), WorkItem> = BTreeMap::new();
    for write in writes {
        if let Write::Emit(event) = write {
            output.events.push(new_event(event));
            continue;
        }
        let (key, priority) = (key_of(&write), priority_of(&write));
        let item = items
            .entry((priority != WritePriority::Action, key.clone()))
            .or_insert_with(|| WorkItem { priority, ..WorkItem::new(key, Vec::new()) });
        item.priority = item.priority.min(priority);
        item.max_defer = (item.priority == WritePriority::PendingReason).then_some(PENDING_REASON_DEFER_MAX);
        if let Write::CreateBindBatch { pods, .. } = &write {
            item.supersedes.extend(pods.iter().cloned().map(WorkKey::Pod));
        }
        item.calls.push(ApiCall::Schedule(write));
    }
    output.work = items.into_values().collect();
    output
}

/// Requests go by the names of their pods, and belong to them.
fn key_of(write: &Write) -> WorkKey {
    match write {
        Write::CreateBindRequest(request) => WorkKey::Pod(request_key(request)),
        Write::CreateBindBatch { batch, .. } => WorkKey::BindRequest(request_key(batch)),
        Write::DeleteBindRequest(pod)
        | Write::LabelPod { pod, .. }
        | Write::Evict { pod, .. }
        | Write::Nominate { pod, .. }
        | Write::SetUnschedulable { pod, .. }
        | Write::Emit(Event { about: InvolvedObject::Pod(pod, _), .. }) => WorkKey::Pod(pod.clone()),
        Write::PatchGroupTimestamps { group, .. } => WorkKey::PodGroupTimestamps(group.clone()),
        Write::SetGroupConditions { group, .. }
        | Write::Emit(Event { about: InvolvedObject::PodGroup(group, _), .. }) => WorkKey::PodGroup(group.clone()),
    }
}

/// Status is not needed to start pods, and the next cycle would write it again.
fn priority_of(write: &Write) -> WritePriority {
    match write {
        Write::SetGroupConditions { is_update: false, .. } | Write::SetUnschedulable { is_update: false, .. } => {
            WritePriority::PendingReason
        }
        Write::PatchGroupTimestamps { .. } | Write::SetGroupConditions { .. } | Write::SetUnschedulable { .. } => {
            WritePriority::Status
        }
        _ => WritePriority::Action,
    }
}

fn new_event(event: Event) -> NewEvent {
    let Event { about, warning, reason, message, annotations } = event;
    let regarding = match about {
        InvolvedObject::Pod(key, uid) => Regarding { kind: Kind::Pod, key, uid },
        InvolvedObject::PodGroup(key, uid) => Regarding { kind: Kind::PodGroup, key, uid },
    };
    NewEvent { regarding, warning, reason, message, annotations }
}

fn request_key(request: &kai_api::BindRequest) -> Key {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Key::new(text(&request.metadata.namespace), text(&request.metadata.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::PodGroup;
    use crate::scheduler::test_cluster::{NOW, objects};

    fn at(milliseconds: i64) -> Clock {
        let time = Timestamp(milliseconds * 1_000);
        Clock { wall: time, steady: time }
    }

    #[test]
    fn cycles_follow_changes_soon_unless_they_are_long_or_many_writes_are_in_flight() {
        let waits = |cpu: i64, dirty: bool, in_flight: usize| {
            let mut controller = SchedulerController::new(Settings::default(), Span::seconds(2));
            controller.poll(at(0));
            controller.set_cpu_time(Span(cpu * 1_000));
            controller.dirty = dirty;
            controller.next_cycle(at(0), in_flight).map(|at| at.0 / 1_000)
        };
        assert_eq!([waits(5, true, 0), waits(30, true, 0), waits(400, true, 0)], [Some(100), Some(600), Some(2000)]);
        assert_eq!([waits(5, true, HIGH_LOAD), waits(80, true, HIGH_LOAD)], [Some(1000), Some(1600)]);
        assert_eq!(waits(5, false, 0), None, "nothing is pending");
    }

    /// A controller after its first cycle, at steady time 0, with a period of ten minutes.
    fn after_first_cycle(text: &str, mut settings: Settings, change: impl Fn(&mut PodGroup)) -> SchedulerController {
        let minute = Span::seconds(60);
        settings.policy.staleness_grace = Some(minute);
        settings.policy.min_runtime.as_mut().expect("on by default").preempt_default = minute;
        let mut controller = SchedulerController::new(settings, Span::seconds(600));
        for mut object in objects(text) {
            if let Object::PodGroup(group) = &mut object {
                change(group);
            }
            controller.cache.on_apply(object);
        }
        controller.poll(after(0));
        controller
    }

    /// So many microseconds after the first cycle.
    fn after(micros: i64) -> Clock {
        Clock { wall: NOW.plus(Span(micros)), steady: Timestamp(micros) }
    }

    /// The only cycle of the first ten minutes is at this time, and evicts so many pods.
    fn expect_cycle(mut controller: SchedulerController, micros: i64, evicted: usize) {
        let cycles = |controller: &SchedulerController| controller.history().list().last().map(|cycle| cycle.cycle);
        for at in [1, micros / 2, micros - 1] {
            assert_eq!(controller.next_poll(after(at)), Some(Timestamp(micros)));
            controller.poll(after(at));
            assert_eq!(cycles(&controller), Some(1), "at {at}");
        }
        controller.poll(after(micros));
        assert_eq!(cycles(&controller), Some(2));
        assert_eq!(controller.history().list().last().map(|cycle| cycle.evicted), Some(evicted));
    }

    #[test]
    fn a_cycle_starts_when_a_minimum_runtime_ends() {
        let text = "node a gpu=1
            queue team
            class low value=1
            class high value=2
            job old queue=team priority=low gpu=1 on=a
            job new queue=team priority=high gpu=1";
        let started = |group: &mut PodGroup| {
            group.last_start = (group.key.name == "old").then_some(Timestamp(NOW.0 - 10_000_000));
        };
        expect_cycle(after_first_cycle(text, Settings::default(), started), 50_000_000, 1);
    }

    #[test]
    fn a_cycle_starts_when_the_grace_of_a_stale_gang_ends() {
        let text = "node a gpu=1
            queue team
            job gang queue=team min=2 gpu=1 on=a";
        let stale = |group: &mut PodGroup| {
            group.last_start = Some(Timestamp(NOW.0 - 60_000_000));
            group.stale_since = Some(Timestamp(NOW.0 - 10_000_000));
        };
        expect_cycle(after_first_cycle(text, Settings::default(), stale), 50_000_000, 1);
    }

    #[test]
    fn a_cycle_starts_when_a_terminating_pod_counts_as_stuck() {
        let text = "node a gpu=1
            queue team
            job old queue=team gpu=1 on=a ending";
        let started = |group: &mut PodGroup| group.last_start = Some(NOW);
        let controller = after_first_cycle(text, Settings::default(), started);
        expect_cycle(controller, 120_000_001, 0);
    }

    #[test]
    fn without_a_time_to_wait_for_there_is_no_cycle() {
        let text = "node a gpu=1
            queue team
            job old queue=team gpu=1 on=a";
        let started = |group: &mut PodGroup| group.last_start = Some(NOW);
        let controller = after_first_cycle(text, Settings::default(), started);
        assert_eq!(controller.next_poll(after(1)), None);
    }

    #[test]
    fn a_short_period_is_kept() {
        let mut controller = SchedulerController::new(Settings::default(), Span(20_000));
        controller.poll(at(0));
        controller.dirty = true;
        assert_eq!(controller.next_cycle(at(0), HIGH_LOAD), Some(Timestamp(20_000)));
    }

    /// Polls every 10 ms until `end`. The API server rejects all evictions before `rejects_until`. Returns when evictions
    /// were called and how many binds were made, times in milliseconds.
    fn evictions(controller: &mut SchedulerController, rejects_until: i64, end: i64) -> (Vec<i64>, usize) {
        let (mut evictions, mut binds) = (Vec::new(), 0);
        for now in (0..end).step_by(10) {
            for item in controller.poll(at(now)).work {
                let mut result = WorkResult::new(item);
                while let Some(call) = result.next_call() {
                    let evicts = matches!(call, ApiCall::Schedule(Write::Evict { .. }));
                    binds += usize::from(matches!(call, ApiCall::Schedule(Write::CreateBindRequest(_))));
                    let rejected = CallError::Rejected("it would violate the pod's disruption budget".to_owned());
                    result.record(if evicts && now < rejects_until { Err(rejected) } else { Ok(None) });
                    evictions.extend(evicts.then_some(now));
                }
                controller.on_result(result, at(now));
            }
        }
        (evictions, binds)
    }

    fn with_a_victim() -> SchedulerController {
        let mut settings = Settings::default();
        settings.evictions.settle_timeout = Span(0);
        let mut controller = SchedulerController::new(settings, Span::seconds(1));
        let cluster = "node a gpu=2
            node b gpu=1
            queue team
            class build value=100
            job low queue=team gpu=2 on=a
            job high queue=team gpu=2 priority=build
            job other queue=team gpu=1";
        for object in objects(cluster) {
            controller.cache.on_apply(object);
        }
        controller
    }

    #[test]
    fn placing_follows_changes_and_evicting_the_period() {
        let cluster = "node a gpu=2
            queue team
            class build value=100
            job low queue=team gpu=2 on=a";
        let mut controller = SchedulerController::new(Settings::default(), Span::seconds(1));
        for object in objects(cluster) {
            controller.cache.on_apply(object);
        }
        controller.poll(at(0));
        for object in objects("job high queue=team gpu=1 priority=build") {
            controller.cache.on_apply(object);
        }
        controller.dirty = true;
        controller.poll(at(100));
        let last = |controller: &SchedulerController| {
            controller.history().list().last().map(|cycle| (cycle.cycle, cycle.evicted))
        };
        assert_eq!(last(&controller), Some((2, 0)));
        assert_eq!(controller.next_poll(at(100)), Some(Timestamp(1_000_000)));
        controller.poll(at(1_000));
        assert_eq!(last(&controller), Some((3, 1)));
    }

    #[test]
    fn a_cycle_that_may_not_evict_changes_no_reason() {
        let cluster = "node a gpu=1
            queue team
            job low queue=team gpu=1 on=a
            job big queue=team gpu=1";
        let mut controller = SchedulerController::new(Settings::default(), Span::seconds(1));
        for object in objects(cluster) {
            controller.cache.on_apply(object);
        }
        controller.poll(at(0));
        let reported = controller.last.pending.clone();
        assert_eq!(reported.len(), 1);
        for object in objects("job more queue=team gpu=1") {
            controller.cache.on_apply(object);
        }
        controller.dirty = true;
        controller.poll(at(100));
        assert_eq!(controller.last.pending, reported, "the next cycle that may evict reports the new one");
        controller.poll(at(1_000));
        assert_eq!(controller.last.pending.len(), 2);
    }

    #[test]
    fn an_eviction_that_is_rejected_backs_off() {
        let (evictions, binds) = evictions(&mut with_a_victim(), i64::MAX, 10_000);
        assert_eq!((evictions.len(), binds), (4, 1), "at {evictions:?}");
        let pauses: Vec<i64> = evictions.windows(2).map(|pair| (pair[1] - pair[0]) / 1000).collect();
        assert_eq!(pauses, [1, 2, 4]);
    }

    #[test]
    fn an_eviction_that_succeeds_ends_the_backoff() {
        let mut controller = with_a_victim();
        assert_eq!(evictions(&mut controller, 2_500, 10_000).0.len(), 3, "one is called again until it succeeds");
    }
}
