//! The shipped controllers against a store that they see late, reach badly and outlive.
//!
//! ```text
//!   store ──log──▶ watches, each with its own delay ──▶ scheduler(s) · binder(s) · grouper · statuses
//!     ▲                                                             │ tasks: calls in a row
//!     └── calls: late, refused, lost, or done and the answer lost ◀─┘
//! ```
//!
//! Faults are drawn from a seed and stop after a while; then everything must come to rest, and be right.
//! What must hold at every moment and what must hold in the end stands in `truths.rs`.

mod parts;
mod process;
#[cfg(test)]
mod tests;
mod trouble;
mod truths;

use std::collections::BTreeMap;

use kai_control::grouper::Draft;
use kai_control::scheduler::Settings;
use kai_engine::units::{Span, Timestamp};

use crate::checkers::Violation;
use crate::cluster::{Cluster, Due};
use crate::manifest::Plan;
use crate::run::{Stop, start_time, with_built_ins};
use crate::settings;
use parts::{BinderPart, Clock, End, GrouperPart, Part, SchedulerPart, StatusPart, Task};
use process::{Process, Role};
use trouble::Trouble;
use truths::Moment;

/// What happened in a run that ended well, counted.
#[derive(Clone, Debug, Default)]
pub struct Endured {
    /// How often, by what.
    pub seen: BTreeMap<&'static str, u64>,
}

/// Nothing has changed for so long: longer than any grace period, timeout or pause of the controllers.
const REST: Span = Span::seconds(100);

/// A cluster that has not come to rest so long after the last fault never will.
const REST_MAX: Span = Span::seconds(1_800);

/// How often Kubernetes clears up.
const SWEEP_PERIOD: Span = Span::seconds(10);

/// Told everything that happens, line by line.
pub type Trace<'t> = &'t mut dyn FnMut(&str);

/// Runs a plan under faults drawn from the seed.
pub fn endure(plan: &Plan, seed: u64, trace: Option<Trace<'_>>) -> Result<Endured, Stop> {
    let mut storm = Storm::new(plan, Trouble::new(seed, start_time(plan)), seed, trace)?;
    storm.run(plan)?;
    truths::check_rest(&storm.cluster, &storm.settings, storm.since_start())?;
    for row in storm.cluster.journal.entries() {
        *storm.endured.seen.entry(row.event.word()).or_default() += 1;
    }
    Ok(storm.endured)
}

/// What is due.
#[derive(Clone, Debug)]
enum Event {
    /// News reach a watch: everything up to this place in the log.
    Deliver {
        process: usize,
        life: u32,
        kind: crate::manifest::Kind,
        upto: usize,
    },
    /// A process has something to do by its timers.
    Wake {
        process: usize,
        life: u32,
    },
    /// A call reaches the API server.
    Call(u64),
    /// Its answer reaches the process.
    Answer(u64, Result<(), crate::cluster::Refusal>),
    /// The process is killed, and starts again so much later.
    Crash {
        process: usize,
        down: Span,
    },
    Start {
        process: usize,
    },
    /// The clock of a process is set.
    SetClock {
        process: usize,
        ahead: Span,
    },
    Sweep,
    /// From now on everything works.
    Calm,
}

/// A task on its way.
struct UnderWay {
    process: usize,
    life: u32,
    task: Task,
    /// The call that is being made.
    at: usize,
    attempt: u32,
    refused: BTreeMap<usize, crate::cluster::Refusal>,
}

struct Storm<'t> {
    cluster: Cluster,
    settings: Settings,
    grouper: kai_workloads::Settings,
    start: Timestamp,
    trouble: Trouble,
    processes: Vec<Process>,
    queue: BTreeMap<(Timestamp, u64), Event>,
    entries: u64,
    tasks: BTreeMap<u64, UnderWay>,
    moment: Moment,
    /// When the cluster last changed, and its version then.
    changed: (Timestamp, u64),
    endured: Endured,
    trace: Option<Trace<'t>>,
}

impl<'t> Storm<'t> {
    fn new(plan: &Plan, trouble: Trouble, seed: u64, trace: Option<Trace<'t>>) -> Result<Self, Stop> {
        let mut settings = settings::read(plan)?;
        // Stories are small: half of them ask for binds in batches all the same.
        settings.scheduler.batch_binds = if seed.is_multiple_of(2) { 2 } else { 0 };
        let start = start_time(plan);
        let mut cluster = Cluster::new(plan, settings.grouper.clone(), seed, start);
        cluster.grouped_elsewhere = true;
        cluster.store.keep_log();
        cluster.found(&with_built_ins(plan))?;
        let mut storm = Self {
            cluster,
            settings: settings.scheduler,
            grouper: settings.grouper,
            start,
            trouble,
            processes: Vec::new(),
            queue: BTreeMap::new(),
            entries: 0,
            tasks: BTreeMap::new(),
            moment: Moment::default(),
            changed: (start, 0),
            endured: Endured::default(),
            trace,
        };
        storm.prepare();
        Ok(storm)
    }

    /// Starts all processes and plans all faults.
    fn prepare(&mut self) {
        for role in [Role::Scheduler, Role::Binder, Role::Grouper, Role::GroupStatuses, Role::QueueStatuses] {
            self.processes.push(Process::new(role));
            self.add(self.start, Event::Start { process: self.processes.len() - 1 });
        }
        if self.trouble.paired {
            self.pair(0, 2);
        }
        let calm = self.start.plus(self.trouble.lasts());
        for (at, fault) in self.trouble.plan(self.processes.len(), 0) {
            let at = self.start.plus(at);
            match fault {
                trouble::Fault::Crash { process, down } => self.add(at, Event::Crash { process, down }),
                trouble::Fault::SetClock { process, ahead } => self.add(at, Event::SetClock { process, ahead }),
                trouble::Fault::Second { process, lasts } => {
                    self.processes.push(Process::new(self.processes[process].role));
                    let second = self.processes.len() - 1;
                    if let Some(partner) = self.processes[process].partner {
                        self.processes.push(Process::new(self.processes[partner].role));
                        self.pair(second, second + 1);
                    }
                    self.add(at, Event::Start { process: second });
                    // It does not come back.
                    self.add(at.plus(lasts).min(calm), Event::Crash { process: second, down: Span(i64::MAX) });
                }
            }
        }
        self.add(calm, Event::Calm);
        self.add(self.start.plus(SWEEP_PERIOD), Event::Sweep);
    }

    /// Two controllers in one process.
    fn pair(&mut self, one: usize, other: usize) {
        self.processes[one].partner = Some(other);
        self.processes[other].partner = Some(one);
    }

    fn run(&mut self, plan: &Plan) -> Result<(), Violation> {
        for (index, step) in plan.steps.iter().enumerate() {
            self.cluster.agenda.add(self.start.plus(step.at), Due::Step(index));
        }
        let last_step = plan.steps.iter().map(|step| step.at).max().unwrap_or(Span(0));
        let settled = self.start.plus(self.trouble.lasts().max(last_step));
        loop {
            let own = self.queue.keys().next().map(|(at, _)| *at);
            let cluster = self.cluster.agenda.next_time();
            let Some(at) = own.into_iter().chain(cluster).min() else { return Ok(()) };
            let quiet = self.changed.0.max(settled);
            if at > quiet.plus(REST) {
                self.cluster.now = quiet.plus(REST);
                return Ok(());
            }
            if at > settled.plus(REST_MAX) {
                let what = format!("something still changes {} s after the last fault", REST_MAX.0 / 1_000_000);
                return Err(Violation { truth: "clusters come to rest", what, at: self.since_start() });
            }
            self.cluster.now = at;
            self.cluster.webhooks.up = !self.trouble.webhooks_are_silent(at);
            if cluster.is_some_and(|cluster| own.is_none_or(|own| cluster <= own)) {
                self.due(plan);
            } else if let Some((_, event)) = self.queue.pop_first() {
                self.handle(event);
            }
            self.cluster.settle();
            if self.changed.1 != self.cluster.store.version() {
                self.changed = (at, self.cluster.store.version());
                self.moment.check(&self.cluster, &self.settings, self.since_start())?;
                self.spread_news();
            }
        }
    }

    /// Something that happens in the cluster without our controllers.
    fn due(&mut self, plan: &Plan) {
        let Some((_, due)) = self.cluster.agenda.take() else { return };
        self.note(|| format!("{due:?}"));
        match &due {
            Due::Step(index) => self.cluster.happen(&plan.steps[*index].happening),
            other => {
                self.cluster.due(other);
                if matches!(other, Due::PodUp { .. }) && !self.trouble.device_stays_unknown(self.cluster.now) {
                    self.cluster.name_device(other);
                }
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.cluster.now;
        match event {
            Event::Deliver { process, life, kind, upto } if self.lives(process, life) => {
                let relist = !self.processes[process].listed(kind) || self.trouble.watch_restarts(now);
                let clock = self.clock(process);
                self.note(|| format!("{process} sees {} {upto}{}", kind.name(), if relist { " (all)" } else { "" }));
                self.processes[process].show(kind, upto, relist, &self.cluster.store, clock);
                self.act(process);
                self.spread_news();
            }
            Event::Wake { process, life } if self.lives(process, life) => {
                self.processes[process].woken(now);
                self.act(process);
            }
            Event::Call(id) => self.call(id),
            Event::Answer(id, answer) => self.answer(id, answer),
            Event::Crash { process, down } => {
                self.note(|| format!("{process} crashes"));
                self.count("crash");
                self.processes[process].crash();
                if let Some(partner) = self.processes[process].partner {
                    self.processes[partner].crash();
                }
                if down.0 != i64::MAX {
                    self.add(now.plus(down), Event::Start { process });
                }
            }
            Event::Start { process } => {
                self.start_process(process);
                if let Some(partner) = self.processes[process].partner {
                    self.start_process(partner);
                }
            }
            Event::SetClock { process, ahead } => {
                self.note(|| format!("{process} is {} µs ahead", ahead.0));
                self.count("clock");
                for one in self.processes[process].partner.into_iter().chain([process]) {
                    self.processes[one].ahead = ahead;
                    self.act(one);
                }
            }
            Event::Sweep => {
                self.cluster.sweep();
                self.add(now.plus(SWEEP_PERIOD), Event::Sweep);
            }
            Event::Calm => {
                self.note(|| "calm".to_owned());
                for process in 0..self.processes.len() {
                    self.processes[process].ahead = Span(0);
                    self.act(process);
                }
            }
            Event::Deliver { .. } | Event::Wake { .. } => {}
        }
    }

    fn start_process(&mut self, process: usize) {
        if self.processes[process].part.is_some() {
            return;
        }
        let role = self.processes[process].role;
        self.note(|| format!("{process} starts as {role:?}"));
        let part: Box<dyn Part> = match role {
            Role::Scheduler => Box::new(SchedulerPart::new(self.settings.clone())),
            Role::Binder => Box::new(BinderPart::new()),
            Role::Grouper => {
                Box::new(GrouperPart::new(self.grouper.clone(), self.processes[process].partner.is_some()))
            }
            Role::GroupStatuses => Box::new(StatusPart::of_groups()),
            Role::QueueStatuses => Box::new(StatusPart::of_queues()),
        };
        self.processes[process].begin(part);
        self.spread_news();
    }

    /// Lets a process do what it wants to, and sets its timer.
    fn act(&mut self, process: usize) {
        let (now, clock) = (self.cluster.now, self.clock(process));
        let reachable = !self.trouble.read_fails(now);
        let api = reachable.then_some(&self.cluster.store);
        let ready = self.processes[process].ready();
        let Process { part: Some(part), life, .. } = &mut self.processes[process] else { return };
        if !ready {
            return;
        }
        let life = *life;
        let tasks = part.act(api, clock);
        let next = part.next(clock);
        let drafts = part.drafts();
        for task in tasks {
            self.note(|| format!("{process} wants {task}"));
            let (id, patient) = (self.entries, task.patient);
            self.tasks.insert(id, UnderWay { process, life, task, at: 0, attempt: 0, refused: BTreeMap::new() });
            let patience = if patient { self.trouble.patience() } else { Span(0) };
            let delay = self.trouble.call_delay(now);
            self.add(now.plus(patience).plus(delay), Event::Call(id));
        }
        self.hand_over(process, drafts);
        if let Some(at) = next
            && self.processes[process].may_sleep_until(at.max(now.plus(Span(1))))
        {
            self.add(at.max(now.plus(Span(1))), Event::Wake { process, life });
        }
    }

    /// Shows drafts to the other controller of the process.
    fn hand_over(&mut self, process: usize, drafts: Vec<Draft>) {
        let Some(partner) = self.processes[process].partner.filter(|_| !drafts.is_empty()) else { return };
        self.note(|| format!("{process} drafts {drafts:?}").chars().take(400).collect());
        self.count("draft");
        if let Some(part) = &mut self.processes[partner].part {
            part.take(drafts);
        }
        self.act(partner);
    }

    /// The next call of a task reaches the API server, if it does.
    fn call(&mut self, id: u64) {
        let now = self.cluster.now;
        let Some(under_way) = self.tasks.get(&id) else { return };
        let (process, alive) = (under_way.process, self.lives(under_way.process, under_way.life));
        let call = under_way.task.calls[under_way.at].clone();
        if !alive {
            // Whoever sent it is gone. It may have been under way already.
            self.tasks.remove(&id);
            if self.trouble.arrives_after_all() {
                let _ = self.cluster.call(&call);
            }
            return;
        }
        let fate = self.trouble.fate(now);
        let mut answer = Err(crate::cluster::Refusal::Unanswered);
        if fate.arrives {
            let done = self.cluster.call(&call);
            self.note(|| format!("{process} calls {call}: {done:?}"));
            if fate.answered {
                answer = done;
            }
        }
        if !fate.arrives || !fate.answered {
            self.count("unanswered");
        }
        let passing = !(fate.arrives && fate.answered);
        if let Some(pause) = Trouble::pause(self.tasks[&id].attempt).filter(|_| passing) {
            if let Some(under_way) = self.tasks.get_mut(&id) {
                under_way.attempt += 1;
            }
            self.add(now.plus(pause), Event::Call(id));
        } else {
            let delay = self.trouble.call_delay(now);
            self.add(now.plus(delay), Event::Answer(id, answer));
        }
    }

    fn answer(&mut self, id: u64, answer: Result<(), crate::cluster::Refusal>) {
        let Some(mut under_way) = self.tasks.remove(&id) else { return };
        let process = under_way.process;
        if !self.lives(process, under_way.life) {
            return;
        }
        under_way.attempt = 0;
        let refused = answer.is_err();
        if let Err(refusal) = answer {
            self.note(|| format!("{process} is refused {}: {refusal:?}", under_way.task.calls[under_way.at]));
            under_way.refused.insert(under_way.at, refusal);
        }
        if !refused || under_way.task.stubborn {
            under_way.at += 1;
            if under_way.at < under_way.task.calls.len() {
                self.tasks.insert(id, under_way);
                let delay = self.trouble.call_delay(self.cluster.now);
                self.add(self.cluster.now.plus(delay), Event::Call(id));
                return;
            }
        }
        let clock = self.clock(process);
        let UnderWay { task, at, refused, .. } = under_way;
        if let Some(part) = &mut self.processes[process].part {
            part.finished(End { task, done: at, refused }, clock);
        }
        self.act(process);
    }

    /// Plans the delivery of what watches have not shown yet.
    fn spread_news(&mut self) {
        let now = self.cluster.now;
        for process in 0..self.processes.len() {
            let life = self.processes[process].life;
            for (kind, upto) in self.processes[process].unseen(&self.cluster.store) {
                let delay = self.trouble.watch_delay(now);
                self.add(now.plus(delay), Event::Deliver { process, life, kind, upto });
            }
        }
    }

    fn lives(&self, process: usize, life: u32) -> bool {
        self.processes[process].part.is_some() && self.processes[process].life == life
    }

    fn clock(&self, process: usize) -> Clock {
        Clock { wall: self.cluster.now.plus(self.processes[process].ahead), steady: self.cluster.now }
    }

    fn since_start(&self) -> Span {
        self.cluster.now.since(self.start)
    }

    fn add(&mut self, at: Timestamp, event: Event) {
        self.queue.insert((at, self.entries), event);
        self.entries += 1;
    }

    fn count(&mut self, what: &'static str) {
        *self.endured.seen.entry(what).or_default() += 1;
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        let at = self.since_start();
        if let Some(trace) = &mut self.trace {
            trace(&format!("{:>4}.{:06} {}", at.0 / 1_000_000, at.0 % 1_000_000, what()));
        }
    }
}
