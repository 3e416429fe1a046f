//! The scheduler's controller: a cycle soon after changes, and every period while something is pending.

use std::collections::BTreeMap;
use std::sync::Arc;

use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::{CycleProgress, CycleResult, Event, InvolvedObject, Scheduler, Settings, Usage, Write, WritePlanner};
use crate::controller::{
    ApiCall, CallError, Clock, Controller, FieldSelector, NewEvent, Output, Regarding, Skipped, WatchSpec, WorkItem,
    WorkKey, WorkResult, WritePriority,
};
use crate::grouper::PlannedWrite;
use crate::key::Key;
use crate::kinds::{Kind, Object, ObjectId};
use crate::scheduler::cache::SchedulerCache;
use crate::world::World;

/// How long a write counts before a watch shows it. A bind that was done all the same is then rejected the second time.
const ASSUME_TTL: Span = Span::seconds(30);
/// Changes come in bursts, and a gang that is there as a whole is decided about once.
const DEBOUNCE: Span = Span(100_000);
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
    /// When the last cycle began or was found unnecessary, by the steady clock.
    started: Option<Timestamp>,
    /// CPU time of the last cycle.
    cpu_time: Span,
    /// Something changed since the last cycle.
    dirty: bool,
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
            started: None,
            cpu_time: Span(0),
            dirty: true,
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

    /// When the next cycle should begin, by the steady clock, while so many urgent writes are in flight. Nothing if it
    /// would decide the same as the last one.
    pub fn next_cycle(&self, now: Clock, urgent_in_flight: usize) -> Option<Timestamp> {
        let Some(started) = self.started else { return Some(now.steady) };
        let debounce = if urgent_in_flight < HIGH_LOAD { DEBOUNCE } else { DEBOUNCE_UNDER_LOAD };
        let pause = Span(self.cpu_time.0.saturating_mul(CPU_SHARE_DIVISOR)).max(debounce).min(self.period);
        let wait = if self.dirty { pause } else { self.period };
        self.needs_cycle().then(|| started.plus(wait))
    }

    /// Whether another cycle may decide something else than the last one, if only because time has passed.
    fn needs_cycle(&self) -> bool {
        self.dirty
            || !self.last.effects.is_empty()
            || !self.last.pending.is_empty()
            || !self.cache.is_empty()
            || self.cache.world().pod_groups.values().any(|group| group.stale_since.is_some())
    }

    /// Decides, and says how far it is. A panic leaves everything as before: the next cycle starts from what is known
    /// then.
    pub fn decide(&mut self, now: Clock, passed: impl FnMut(CycleProgress)) -> CycleResult {
        self.started = Some(now.steady);
        // Until the cycle has ended well.
        self.dirty = true;
        self.cache.expire(now.wall, ASSUME_TTL);
        self.scheduler.cycle_with_progress(self.cache.world_mut(), &self.usage, now.wall, passed)
    }

    /// What is to be written of a cycle, which counts as written from now on.
    pub fn finish(&mut self, cycle: CycleResult, now: Clock) -> Output {
        self.dirty = false;
        let settings = self.scheduler.settings();
        let writes = self.planner.plan(self.cache.world(), &cycle, settings, now.wall);
        for effect in &cycle.effects {
            self.cache.assume(effect, now.wall);
        }
        let writes = self.cache.defer_until_created(writes, now.wall);
        self.last = cycle;
        to_output(writes)
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

    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, now: Clock) -> Vec<Skipped> {
        self.dirty = true;
        let problem = match Object::parse(object) {
            Ok(Some(object)) => {
                self.cache.on_apply(object);
                return Vec::new();
            }
            Ok(None) => None,
            Err(malformed) => Some(malformed),
        };
        // A malformed object counts as absent: it must not keep the others from being seen.
        let key = Key::of(object);
        self.on_delete(kind, &key, now);
        problem
            .map(|malformed| Skipped { hint: malformed.hint.clone(), ..Skipped::new(kind, key, malformed.to_string()) })
            .into_iter()
            .collect()
    }

    fn on_delete(&mut self, kind: Kind, key: &Key, _: Clock) {
        self.dirty = true;
        self.cache.on_delete(&ObjectId::new(kind, key.clone()));
    }

    fn poll(&mut self, now: Clock) -> Output {
        if self.next_cycle(now, 0).is_none_or(|at| at > now.steady) {
            return Output::default();
        }
        let cycle = self.decide(now, |_| ());
        self.finish(cycle, now)
    }

    fn on_result(&mut self, result: WorkResult, _: Clock) {
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

    #[test]
    fn a_short_period_is_kept() {
        let mut controller = SchedulerController::new(Settings::default(), Span(20_000));
        controller.poll(at(0));
        controller.dirty = true;
        assert_eq!(controller.next_cycle(at(0), HIGH_LOAD), Some(Timestamp(20_000)));
    }
}
