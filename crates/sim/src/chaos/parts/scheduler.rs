//! The scheduler: a cycle every second while there may be something to decide.

use std::collections::BTreeMap;
use std::rc::Rc;

use kai_control::Object;
use kai_control::grouper::PlannedWrite;
use kai_control::key::Key;
use kai_control::scheduler::cache::SchedulerCache;
use kai_control::scheduler::{CycleResult, Event, InvolvedObject, Scheduler, Settings, Usage, Write, WritePlanner};
use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::{Clock, End, Part, Task};
use crate::cluster::{Call, Store, reference};
use crate::manifest::{Id, Kind};
use crate::run::{PERIOD, next_deadline};

/// As the live scheduler has it.
const ECHO_PATIENCE: Span = Span::seconds(30);

const KINDS: [Kind; 7] =
    [Kind::Node, Kind::Pod, Kind::Queue, Kind::PodGroup, Kind::PriorityClass, Kind::Topology, Kind::BindRequest];

pub(in crate::chaos) struct SchedulerPart {
    scheduler: Scheduler,
    known: SchedulerCache,
    planner: WritePlanner,
    last: CycleResult,
    /// When it last looked, by its timers and by its clock.
    looked: Option<Clock>,
    news: bool,
}

impl SchedulerPart {
    pub(in crate::chaos) fn new(settings: Settings) -> Self {
        Self {
            scheduler: Scheduler::new(settings),
            known: SchedulerCache::default(),
            planner: WritePlanner::default(),
            last: CycleResult::default(),
            looked: None,
            news: true,
        }
    }

    /// Whether another look may show something else than the last one, other than through time.
    fn has_news(&self) -> bool {
        self.news || !self.last.effects.is_empty() || !self.known.is_empty()
    }
}

impl Part for SchedulerPart {
    fn kinds(&self) -> &'static [Kind] {
        &KINDS
    }

    fn applied(&mut self, id: &Id, value: &Rc<Value>, clock: Clock) {
        match read(value) {
            Some(object) => self.known.on_apply(object),
            None => self.deleted(id, clock),
        }
        self.news = true;
    }

    fn deleted(&mut self, id: &Id, _: Clock) {
        if let Some(which) = reference(id) {
            self.known.on_delete(&which);
        }
        self.news = true;
    }

    fn act(&mut self, _: Option<&Store>, clock: Clock) -> Vec<Task> {
        if self.next(clock).is_none_or(|at| at > clock.steady) {
            return Vec::new();
        }
        self.looked = Some(clock);
        self.news = false;
        let now = clock.wall;
        self.known.expire(now, ECHO_PATIENCE);
        let done = self.scheduler.cycle(self.known.world_mut(), &Usage::default(), now);
        let writes = self.planner.plan(self.known.world(), &done, self.scheduler.settings(), now);
        for effect in &done.effects {
            self.known.assume(effect, now);
        }
        let writes = self.known.defer_until_created(writes, now);
        self.last = done;
        let mut tasks: BTreeMap<(bool, Key), Vec<Call>> = BTreeMap::new();
        // Events are sent beside everything else, and nobody waits for them.
        for write in writes.into_iter().filter(|write| !matches!(write, Write::Emit(_))) {
            tasks.entry(target(&write)).or_default().push(Call::Schedule(write));
        }
        tasks.into_iter().map(|((_, about), calls)| Task { about, calls, stubborn: false, patient: false }).collect()
    }

    fn finished(&mut self, end: End, _: Clock) {
        if !end.refused.is_empty() {
            // As of those behind it in the row, nothing is known to have been done.
            for call in &end.task.calls[end.done..] {
                if let Call::Schedule(write) = call {
                    write.assumptions().iter().for_each(|asked| self.known.forget(asked));
                }
            }
            self.news = true;
        }
    }

    fn take(&mut self, drafts: Vec<PlannedWrite>) {
        for draft in drafts {
            self.known.assume_planned(draft);
        }
        self.news = true;
    }

    fn next(&self, clock: Clock) -> Option<Timestamp> {
        let Some(looked) = self.looked else { return Some(clock.steady) };
        let soon = looked.steady.plus(PERIOD);
        if self.has_news() {
            return Some(soon);
        }
        let at = next_deadline(self.known.world(), self.scheduler.settings(), looked.wall)?;
        // A clock that was set back comes to a deadline later than it thought.
        Some(soon.max(clock.steady.plus(at.since(clock.wall))))
    }
}

fn read(value: &Value) -> Option<Object> {
    Object::parse(value).ok().flatten()
}

/// Writes about one object are made one after the other; a request goes by the name of its pod. `true` for groups.
fn target(write: &Write) -> (bool, Key) {
    match write {
        Write::CreateBindRequest(request) => (false, request_key(request)),
        Write::CreateBindBatch { batch, .. } => (false, request_key(batch)),
        Write::DeleteBindRequest(pod)
        | Write::LabelPod { pod, .. }
        | Write::Evict { pod, .. }
        | Write::Nominate { pod, .. }
        | Write::SetUnschedulable { pod, .. }
        | Write::Emit(Event { about: InvolvedObject::Pod(pod, _), .. }) => (false, pod.clone()),
        Write::PatchGroupTimestamps { group, .. }
        | Write::SetGroupConditions { group, .. }
        | Write::Emit(Event { about: InvolvedObject::PodGroup(group, _), .. }) => (true, group.clone()),
    }
}

fn request_key(request: &kai_api::BindRequest) -> Key {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Key::new(text(&request.metadata.namespace), text(&request.metadata.name))
}
