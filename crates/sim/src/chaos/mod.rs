//! The shipped controllers against a store that they see late, reach badly and outlive.
//!
//! ```text
//!   store ──log──▶ watches, each with its own delay ──▶ scheduler(s) · binder(s) · grouper · statuses
//!     ▲                                                             │ tasks: calls in a row
//!     └── calls: late, refused, lost, or done and the answer lost ◀─┘
//! ```
//!
//! Faults are drawn from a seed and stop after a while; then everything must come to rest, and be right.
//! What must hold at every moment and what must hold in the end stands in `safety.rs` and `convergence.rs`.

mod convergence;
mod fault_plan;
mod parts;
mod process;
mod safety;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use kai_control::grouper::PlannedWrite;
use kai_control::scheduler::Settings;
use kai_engine::units::{Span, Timestamp};

use crate::checkers::Violation;
use crate::cluster::{Cluster, Due};
use crate::manifest::Plan;
use crate::run::{SimulationError, start_time, with_built_ins};
use crate::settings;
use fault_plan::FaultPlan;
use parts::{BinderPart, Clock, End, GrouperPart, Part, SchedulerPart, StatusPart, Task};
use process::{ControllerKind, SimProcess};
use safety::SafetyMonitor;

/// What happened in a run that ended well, counted.
#[derive(Clone, Debug, Default)]
pub struct ChaosStats {
    /// How often, by what.
    pub seen: BTreeMap<&'static str, u64>,
}

/// Nothing has changed for so long: longer than any grace period, timeout or pause of the controllers.
const QUIET_PERIOD: Span = Span::seconds(100);

/// A cluster that has not come to rest so long after the last fault never will.
const CONVERGENCE_DEADLINE: Span = Span::seconds(1_800);

/// How often Kubernetes clears up.
const GARBAGE_COLLECTION_PERIOD: Span = Span::seconds(10);

/// Told everything that happens, line by line.
pub type Trace<'t> = &'t mut dyn FnMut(&str);

/// Runs a plan under faults drawn from the seed.
pub fn run_with_faults(plan: &Plan, seed: u64, trace: Option<Trace<'_>>) -> Result<ChaosStats, SimulationError> {
    let mut run = ChaosRun::new(plan, FaultPlan::new(seed, start_time(plan)), seed, trace)?;
    run.run(plan)?;
    convergence::check_converged(&run.cluster, &run.settings, run.since_start())?;
    for row in run.cluster.journal.entries() {
        *run.stats.seen.entry(row.event.as_str()).or_default() += 1;
    }
    Ok(run.stats)
}

/// What is due.
#[derive(Clone, Debug)]
enum Event {
    /// News reach a watch: everything up to this place in the log.
    Deliver {
        process: usize,
        incarnation: u32,
        kind: crate::manifest::Kind,
        log_position: usize,
    },
    /// A process has something to do by its timers.
    Wake {
        process: usize,
        incarnation: u32,
    },
    /// A call reaches the API server.
    Call(u64),
    /// Its answer reaches the process.
    Answer(u64, Result<(), crate::cluster::ApiError>),
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
        clock_skew: Span,
    },
    GarbageCollection,
    /// From now on everything works.
    FaultsEnd,
}

/// A task on its way.
struct InFlightWork {
    process: usize,
    incarnation: u32,
    task: Task,
    /// The call that is being made.
    at: usize,
    attempt: u32,
    refused: BTreeMap<usize, crate::cluster::ApiError>,
}

struct ChaosRun<'t> {
    cluster: Cluster,
    settings: Settings,
    grouper: kai_workloads::Settings,
    start: Timestamp,
    faults: FaultPlan,
    processes: Vec<SimProcess>,
    queue: BTreeMap<(Timestamp, u64), Event>,
    entries: u64,
    tasks: BTreeMap<u64, InFlightWork>,
    safety: SafetyMonitor,
    /// When the cluster last changed, and its version then.
    changed: (Timestamp, u64),
    stats: ChaosStats,
    trace: Option<Trace<'t>>,
}

impl<'t> ChaosRun<'t> {
    fn new(plan: &Plan, faults: FaultPlan, seed: u64, trace: Option<Trace<'t>>) -> Result<Self, SimulationError> {
        let mut settings = settings::read(plan)?;
        // Stories are small: half of them ask for binds in batches all the same.
        settings.scheduler.batch_binds = if seed.is_multiple_of(2) { 2 } else { 0 };
        let start = start_time(plan);
        let mut cluster = Cluster::new(plan, settings.grouper.clone(), seed, start);
        cluster.external_grouper = true;
        cluster.store.keep_log();
        cluster.bootstrap(&with_built_ins(plan))?;
        let mut run = Self {
            cluster,
            settings: settings.scheduler,
            grouper: settings.grouper,
            start,
            faults,
            processes: Vec::new(),
            queue: BTreeMap::new(),
            entries: 0,
            tasks: BTreeMap::new(),
            safety: SafetyMonitor::default(),
            changed: (start, 0),
            stats: ChaosStats::default(),
            trace,
        };
        run.prepare();
        Ok(run)
    }

    /// Starts all processes and plans all faults.
    fn prepare(&mut self) {
        for role in [
            ControllerKind::Scheduler,
            ControllerKind::Binder,
            ControllerKind::Grouper,
            ControllerKind::GroupStatuses,
            ControllerKind::QueueStatuses,
        ] {
            self.processes.push(SimProcess::new(role));
            self.add(self.start, Event::Start { process: self.processes.len() - 1 });
        }
        if self.faults.paired {
            self.pair(0, 2);
        }
        let calm = self.start.plus(self.faults.fault_window());
        for (at, fault) in self.faults.plan(self.processes.len(), 0) {
            let at = self.start.plus(at);
            match fault {
                fault_plan::Fault::Crash { process, down } => self.add(at, Event::Crash { process, down }),
                fault_plan::Fault::SetClock { process, clock_skew } => {
                    self.add(at, Event::SetClock { process, clock_skew })
                }
                fault_plan::Fault::SecondLeader { process, fault_window } => {
                    self.processes.push(SimProcess::new(self.processes[process].role));
                    let second = self.processes.len() - 1;
                    if let Some(colocated_with) = self.processes[process].colocated_with {
                        self.processes.push(SimProcess::new(self.processes[colocated_with].role));
                        self.pair(second, second + 1);
                    }
                    self.add(at, Event::Start { process: second });
                    // It does not come back.
                    self.add(at.plus(fault_window).min(calm), Event::Crash { process: second, down: Span(i64::MAX) });
                }
            }
        }
        self.add(calm, Event::FaultsEnd);
        self.add(self.start.plus(GARBAGE_COLLECTION_PERIOD), Event::GarbageCollection);
    }

    /// Two controllers in one process.
    fn pair(&mut self, one: usize, other: usize) {
        self.processes[one].colocated_with = Some(other);
        self.processes[other].colocated_with = Some(one);
    }

    fn run(&mut self, plan: &Plan) -> Result<(), Violation> {
        for (index, step) in plan.steps.iter().enumerate() {
            self.cluster.events.add(self.start.plus(step.at), Due::Step(index));
        }
        let last_step = plan.steps.iter().map(|step| step.at).max().unwrap_or(Span(0));
        let settled = self.start.plus(self.faults.fault_window().max(last_step));
        loop {
            let own = self.queue.keys().next().map(|(at, _)| *at);
            let cluster = self.cluster.events.next_time();
            let Some(at) = own.into_iter().chain(cluster).min() else { return Ok(()) };
            let quiet = self.changed.0.max(settled);
            if at > quiet.plus(QUIET_PERIOD) {
                self.cluster.now = quiet.plus(QUIET_PERIOD);
                return Ok(());
            }
            if at > settled.plus(CONVERGENCE_DEADLINE) {
                let what =
                    format!("something still changes {} s after the last fault", CONVERGENCE_DEADLINE.0 / 1_000_000);
                return Err(Violation { invariant: "clusters come to rest", what, at: self.since_start() });
            }
            self.cluster.now = at;
            self.cluster.webhooks.available = !self.faults.webhooks_are_down(at);
            if cluster.is_some_and(|cluster| own.is_none_or(|own| cluster <= own)) {
                self.due(plan);
            } else if let Some((_, event)) = self.queue.pop_first() {
                self.handle(event);
            }
            self.cluster.run_controllers();
            if self.changed.1 != self.cluster.store.version() {
                self.changed = (at, self.cluster.store.version());
                self.safety.check(&self.cluster, &self.settings, self.since_start())?;
                self.schedule_deliveries();
            }
        }
    }

    /// Something that happens in the cluster without our controllers.
    fn due(&mut self, plan: &Plan) {
        let Some((_, due)) = self.cluster.events.take() else { return };
        self.note(|| format!("{due:?}"));
        match &due {
            Due::Step(index) => self.cluster.apply_step(&plan.steps[*index].action),
            other => {
                self.cluster.due(other);
                if matches!(other, Due::PodUp { .. }) && !self.faults.device_stays_unknown(self.cluster.now) {
                    self.cluster.report_reserved_gpu(other);
                }
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.cluster.now;
        match event {
            Event::Deliver { process, incarnation, kind, log_position } if self.lives(process, incarnation) => {
                let relist = !self.processes[process].listed(kind) || self.faults.watch_restarts(now);
                let clock = self.clock(process);
                self.note(|| {
                    format!("{process} sees {} {log_position}{}", kind.name(), if relist { " (all)" } else { "" })
                });
                self.processes[process].show(kind, log_position, relist, &self.cluster.store, clock);
                self.act(process);
                self.schedule_deliveries();
            }
            Event::Wake { process, incarnation } if self.lives(process, incarnation) => {
                self.processes[process].woken(now);
                self.act(process);
            }
            Event::Call(id) => self.call(id),
            Event::Answer(id, answer) => self.answer(id, answer),
            Event::Crash { process, down } => {
                self.note(|| format!("{process} crashes"));
                self.count("crash");
                self.processes[process].crash();
                if let Some(colocated_with) = self.processes[process].colocated_with {
                    self.processes[colocated_with].crash();
                }
                if down.0 != i64::MAX {
                    self.add(now.plus(down), Event::Start { process });
                }
            }
            Event::Start { process } => {
                self.start_process(process);
                if let Some(colocated_with) = self.processes[process].colocated_with {
                    self.start_process(colocated_with);
                }
            }
            Event::SetClock { process, clock_skew } => {
                self.note(|| format!("{process} is {} µs clock_skew", clock_skew.0));
                self.count("clock");
                for one in self.processes[process].colocated_with.into_iter().chain([process]) {
                    self.processes[one].clock_skew = clock_skew;
                    self.act(one);
                }
            }
            Event::GarbageCollection => {
                self.cluster.collect_garbage();
                self.add(now.plus(GARBAGE_COLLECTION_PERIOD), Event::GarbageCollection);
            }
            Event::FaultsEnd => {
                self.note(|| "calm".to_owned());
                for process in 0..self.processes.len() {
                    self.processes[process].clock_skew = Span(0);
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
            ControllerKind::Scheduler => Box::new(SchedulerPart::new(self.settings.clone())),
            ControllerKind::Binder => Box::new(BinderPart::new()),
            ControllerKind::Grouper => {
                Box::new(GrouperPart::new(self.grouper.clone(), self.processes[process].colocated_with.is_some()))
            }
            ControllerKind::GroupStatuses => Box::new(StatusPart::of_groups()),
            ControllerKind::QueueStatuses => Box::new(StatusPart::of_queues()),
        };
        self.processes[process].begin(part);
        self.schedule_deliveries();
    }

    /// Lets a process do what it wants to, and sets its timer.
    fn act(&mut self, process: usize) {
        let (now, clock) = (self.cluster.now, self.clock(process));
        let reachable = !self.faults.read_fails(now);
        let api = reachable.then_some(&self.cluster.store);
        let ready = self.processes[process].ready();
        let SimProcess { part: Some(part), incarnation, .. } = &mut self.processes[process] else { return };
        if !ready {
            return;
        }
        let incarnation = *incarnation;
        let tasks = part.act(api, clock);
        let next = part.next(clock);
        let drafts = part.drafts();
        for task in tasks {
            self.note(|| format!("{process} wants {task}"));
            let (id, patient) = (self.entries, task.patient);
            self.tasks
                .insert(id, InFlightWork { process, incarnation, task, at: 0, attempt: 0, refused: BTreeMap::new() });
            let patience = if patient { self.faults.defer_for() } else { Span(0) };
            let delay = self.faults.call_delay(now);
            self.add(now.plus(patience).plus(delay), Event::Call(id));
        }
        self.deliver_planned(process, drafts);
        if let Some(at) = next
            && self.processes[process].may_sleep_until(at.max(now.plus(Span(1))))
        {
            self.add(at.max(now.plus(Span(1))), Event::Wake { process, incarnation });
        }
    }

    /// Shows drafts to the other controller of the process.
    fn deliver_planned(&mut self, process: usize, drafts: Vec<PlannedWrite>) {
        let Some(colocated_with) = self.processes[process].colocated_with.filter(|_| !drafts.is_empty()) else {
            return;
        };
        self.note(|| format!("{process} drafts {drafts:?}").chars().take(400).collect());
        self.count("draft");
        if let Some(part) = &mut self.processes[colocated_with].part {
            part.take(drafts);
        }
        self.act(colocated_with);
    }

    /// The next call of a task reaches the API server, if it does.
    fn call(&mut self, id: u64) {
        let now = self.cluster.now;
        let Some(in_flight) = self.tasks.get(&id) else { return };
        let (process, alive) = (in_flight.process, self.lives(in_flight.process, in_flight.incarnation));
        let call = in_flight.task.calls[in_flight.at].clone();
        if !alive {
            // Whoever sent it is gone. It may have been under way already.
            self.tasks.remove(&id);
            if self.faults.late_delivery() {
                let _ = self.cluster.call(&call);
            }
            return;
        }
        let call_outcome = self.faults.call_outcome(now);
        let mut answer = Err(crate::cluster::ApiError::NoResponse);
        if call_outcome.delivered {
            let done = self.cluster.call(&call);
            self.note(|| format!("{process} calls {call}: {done:?}"));
            if call_outcome.acknowledged {
                answer = done;
            }
        }
        if !call_outcome.delivered || !call_outcome.acknowledged {
            self.count("unanswered");
        }
        let passing = !(call_outcome.delivered && call_outcome.acknowledged);
        if let Some(pause) = FaultPlan::pause(self.tasks[&id].attempt).filter(|_| passing) {
            if let Some(in_flight) = self.tasks.get_mut(&id) {
                in_flight.attempt += 1;
            }
            self.add(now.plus(pause), Event::Call(id));
        } else {
            let delay = self.faults.call_delay(now);
            self.add(now.plus(delay), Event::Answer(id, answer));
        }
    }

    fn answer(&mut self, id: u64, answer: Result<(), crate::cluster::ApiError>) {
        let Some(mut in_flight) = self.tasks.remove(&id) else { return };
        let process = in_flight.process;
        if !self.lives(process, in_flight.incarnation) {
            return;
        }
        in_flight.attempt = 0;
        let refused = answer.is_err();
        if let Err(refusal) = answer {
            self.note(|| format!("{process} is refused {}: {refusal:?}", in_flight.task.calls[in_flight.at]));
            in_flight.refused.insert(in_flight.at, refusal);
        }
        if !refused || in_flight.task.stubborn {
            in_flight.at += 1;
            if in_flight.at < in_flight.task.calls.len() {
                self.tasks.insert(id, in_flight);
                let delay = self.faults.call_delay(self.cluster.now);
                self.add(self.cluster.now.plus(delay), Event::Call(id));
                return;
            }
        }
        let clock = self.clock(process);
        let InFlightWork { task, at, refused, .. } = in_flight;
        if let Some(part) = &mut self.processes[process].part {
            part.finished(End { task, done: at, refused }, clock);
        }
        self.act(process);
    }

    /// Plans the delivery of what watches have not shown yet.
    fn schedule_deliveries(&mut self) {
        let now = self.cluster.now;
        for process in 0..self.processes.len() {
            let incarnation = self.processes[process].incarnation;
            for (kind, log_position) in self.processes[process].unseen(&self.cluster.store) {
                let delay = self.faults.watch_delay(now);
                self.add(now.plus(delay), Event::Deliver { process, incarnation, kind, log_position });
            }
        }
    }

    fn lives(&self, process: usize, incarnation: u32) -> bool {
        self.processes[process].part.is_some() && self.processes[process].incarnation == incarnation
    }

    fn clock(&self, process: usize) -> Clock {
        Clock { wall: self.cluster.now.plus(self.processes[process].clock_skew), steady: self.cluster.now }
    }

    fn since_start(&self) -> Span {
        self.cluster.now.since(self.start)
    }

    fn add(&mut self, at: Timestamp, event: Event) {
        self.queue.insert((at, self.entries), event);
        self.entries += 1;
    }

    fn count(&mut self, what: &'static str) {
        *self.stats.seen.entry(what).or_default() += 1;
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        let at = self.since_start();
        if let Some(trace) = &mut self.trace {
            trace(&format!("{:>4}.{:06} {}", at.0 / 1_000_000, at.0 % 1_000_000, what()));
        }
    }
}
