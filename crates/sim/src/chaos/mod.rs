//! The shipped controllers under faults: late watches, lost calls and replies, crashes, wrong clocks, two leaders.
//!
//! ```text
//!   store ──log──▶ watches, each with its own delay ──▶ scheduler(s) · binder(s) · grouper · statuses
//!     ▲                                                             │ work: calls in a row
//!     └── calls: late, rejected, lost, or made and the reply lost ◀─┘
//! ```
//!
//! Each controller runs in the same [`Driver`](kai_control::controller::Driver) as on a cluster. Faults are drawn from a
//! seed and stop after a while; then the cluster must converge. What must hold after every change is in `safety.rs`, what
//! must hold in the end in `convergence.rs`.

mod controllers;
mod convergence;
mod fault_plan;
mod process;
mod safety;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use kai_control::controller::{
    Admitted, CallError, Clock, Controller as _, NewEvent, OutputHandler, Skipped, WorkItem, WorkKey, WorkResult,
    retry_delay,
};
use kai_control::grouper::PlannedWrite;
use kai_control::kinds::Presence;
use kai_control::scheduler::Settings;
use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use crate::checkers::Violation;
use crate::cluster::{Cluster, Due};
use crate::manifest::{Kind, Plan};
use crate::run::{SimulationError, start_time, with_built_ins};
use crate::settings;
use fault_plan::FaultPlan;
use process::SimProcess;
use safety::SafetyMonitor;

/// What happened in a run that ended well, counted.
#[derive(Clone, Debug, Default)]
pub struct ChaosStats {
    /// How often, by what.
    pub seen: BTreeMap<&'static str, u64>,
}

/// Nothing has changed for so long: longer than any grace period, timeout or pause of the controllers.
const QUIET_PERIOD: Span = Span::seconds(100);

/// A cluster that has not converged so long after the last fault never will.
const CONVERGENCE_DEADLINE: Span = Span::seconds(1_800);

/// How often Kubernetes collects garbage.
const GARBAGE_COLLECTION_PERIOD: Span = Span::seconds(10);

/// Called with everything that happens, line by line.
pub type Trace<'t> = &'t mut dyn FnMut(&str);

/// Runs a plan under faults drawn from the seed.
pub fn run_with_faults(plan: &Plan, seed: u64, trace: Option<Trace<'_>>) -> Result<ChaosStats, SimulationError> {
    let mut run = ChaosRun::new(plan, FaultPlan::new(seed, start_time(plan)), seed, trace)?;
    run.run(plan)?;
    convergence::check_converged(&run.cluster, &run.settings, run.since_start())?;
    for row in run.cluster.journal.entries() {
        *run.stats.seen.entry(row.event.as_str()).or_default() += 1;
    }
    if run.cluster.scaling_pod_changes > 0 {
        run.stats.seen.insert("scaling pod", run.cluster.scaling_pod_changes);
    }
    Ok(run.stats)
}

/// What is due.
#[derive(Clone, Debug)]
enum Event {
    /// Updates reach a watch, up to this position in the log.
    Deliver {
        process: usize,
        incarnation: u32,
        watch: usize,
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
    Answer(u64, Result<Option<Value>, CallError>),
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

/// A work item whose calls are being made.
struct InFlightWork {
    process: usize,
    incarnation: u32,
    /// A status write is taken from the queue of its process when it begins.
    work: Work,
    attempt: u32,
}

enum Work {
    Queued(WorkKey),
    Begun(WorkResult),
}

struct ChaosRun<'t> {
    cluster: Cluster,
    settings: Settings,
    grouper: kai_workloads::Settings,
    start: Timestamp,
    faults: FaultPlan,
    /// Kinds that the API server does not have.
    not_served: BTreeSet<Kind>,
    processes: Vec<SimProcess>,
    queue: BTreeMap<(Timestamp, u64), Event>,
    entries: u64,
    in_flight: BTreeMap<u64, InFlightWork>,
    safety: SafetyMonitor,
    /// Version of the cluster that watches are to show.
    seen_version: u64,
    /// When the cluster last changed, and its version then; scaling pods do not count.
    changed: (Timestamp, u64),
    stats: ChaosStats,
    trace: Option<Trace<'t>>,
}

/// Kinds that a cluster may lack and of which this one has no objects, now or later.
fn unused_kinds(cluster: &Cluster) -> Vec<Kind> {
    let has = |kind: Kind| cluster.store.of_kind(kind).next().is_some();
    let optional = kai_control::Kind::ALL.iter().filter(|kind| kind.row().presence == Presence::Optional);
    // Claims are made from templates.
    let is_used = |kind: &Kind| has(*kind) || *kind == Kind::ResourceClaim && has(Kind::ResourceClaimTemplate);
    optional.map(|kind| Kind::from(*kind)).filter(|kind| !is_used(kind)).collect()
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
            not_served: BTreeSet::new(),
            processes: Vec::new(),
            queue: BTreeMap::new(),
            entries: 0,
            in_flight: BTreeMap::new(),
            safety: SafetyMonitor::default(),
            seen_version: 0,
            changed: (start, 0),
            stats: ChaosStats::default(),
            trace,
        };
        run.not_served = run.faults.kinds_not_served(unused_kinds(&run.cluster).into_iter());
        for _ in run.not_served.clone() {
            run.count("kind not served");
        }
        run.prepare();
        Ok(run)
    }

    /// Starts all processes and plans all faults.
    fn prepare(&mut self) {
        for kind in controllers::all(self.faults.scales) {
            self.processes.push(SimProcess::new(kind));
            self.add(self.start, Event::Start { process: self.processes.len() - 1 });
        }
        if self.faults.paired {
            let (scheduler, grouper) = controllers::colocated(self.faults.scales);
            self.pair(scheduler, grouper);
        }
        let faults_end = self.start.plus(self.faults.fault_window());
        for (at, fault) in self.faults.plan(self.processes.len(), 0) {
            let at = self.start.plus(at);
            match fault {
                fault_plan::Fault::Crash { process, down } => self.add(at, Event::Crash { process, down }),
                fault_plan::Fault::SetClock { process, clock_skew } => {
                    self.add(at, Event::SetClock { process, clock_skew });
                }
                fault_plan::Fault::SecondLeader { process, lifetime } => {
                    self.processes.push(SimProcess::new(self.processes[process].kind));
                    let second = self.processes.len() - 1;
                    if let Some(colocated_with) = self.processes[process].colocated_with {
                        self.processes.push(SimProcess::new(self.processes[colocated_with].kind));
                        self.pair(second, second + 1);
                    }
                    self.add(at, Event::Start { process: second });
                    // It does not come back.
                    self.add(at.plus(lifetime).min(faults_end), Event::Crash { process: second, down: Span(i64::MAX) });
                }
            }
        }
        self.add(faults_end, Event::FaultsEnd);
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
                return Err(Violation { invariant: "the cluster converges", what, at: self.since_start() });
            }
            self.cluster.now = at;
            self.cluster.webhooks.available = !self.faults.webhooks_are_down(at);
            if cluster.is_some_and(|cluster| own.is_none_or(|own| cluster <= own)) {
                self.due(plan);
            } else if let Some((_, event)) = self.queue.pop_first() {
                self.handle(event);
            }
            self.cluster.run_controllers();
            let version = self.cluster.store.version();
            if self.seen_version != version {
                self.seen_version = version;
                self.safety.check(&self.cluster, &self.settings, self.since_start())?;
                self.schedule_deliveries();
            }
            let settling = version - self.cluster.scaling_pod_changes;
            if self.changed.1 != settling {
                self.changed = (at, settling);
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
            Event::Deliver { process, incarnation, watch, log_position } if self.runs(process, incarnation) => {
                let relist = !self.processes[process].listed(watch) || self.faults.watch_restarts(now);
                let (clock, kind) = (self.clock(process), self.processes[process].kind_of(watch).name());
                self.note(|| format!("{process} sees {kind} {log_position}{}", if relist { " (all)" } else { "" }));
                self.processes[process].deliver(watch, log_position, relist, &self.cluster.store, clock);
                self.poll(process);
                self.schedule_deliveries();
            }
            Event::Wake { process, incarnation } if self.runs(process, incarnation) => {
                self.processes[process].woken(now);
                self.poll(process);
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
                self.note(|| format!("{process} has a clock {} µs ahead", clock_skew.0));
                self.count("clock");
                for one in self.processes[process].colocated_with.into_iter().chain([process]) {
                    self.processes[one].clock_skew = clock_skew;
                    self.poll(one);
                }
            }
            Event::GarbageCollection => {
                self.cluster.collect_garbage();
                self.add(now.plus(GARBAGE_COLLECTION_PERIOD), Event::GarbageCollection);
            }
            Event::FaultsEnd => {
                self.note(|| "faults end".to_owned());
                for process in 0..self.processes.len() {
                    self.processes[process].clock_skew = Span(0);
                    self.poll(process);
                }
            }
            Event::Deliver { .. } | Event::Wake { .. } => {}
        }
    }

    fn start_process(&mut self, process: usize) {
        if self.processes[process].driver.is_some() {
            return;
        }
        let kind = self.processes[process].kind;
        self.note(|| format!("{process} starts as {kind:?}"));
        let controller = controllers::start(kind, &self.settings, &self.grouper);
        self.processes[process].begin(controller, &self.not_served);
        self.schedule_deliveries();
    }

    /// Lets a controller decide, starts its work, and sets its timer.
    fn poll(&mut self, process: usize) {
        let (now, clock) = (self.cluster.now, self.clock(process));
        let SimProcess { driver, incarnation, .. } = &mut self.processes[process];
        let (Some(mut driver), incarnation) = (driver.take(), *incarnation) else { return };
        let mut handler = SimOutputs { run: self, process, planned: Vec::new() };
        driver.poll(clock, &mut handler);
        let planned = handler.planned;
        self.processes[process].driver = Some(driver);
        self.deliver_planned(process, planned);
        let next = self.processes[process].driver.as_ref().and_then(|driver| driver.next_poll(clock));
        if let Some(at) = next
            && self.processes[process].may_sleep_until(at.max(now.plus(Span(1))))
        {
            self.add(at.max(now.plus(Span(1))), Event::Wake { process, incarnation });
        }
    }

    /// Queues a work item; returns how those ended that do not hold any more.
    fn admit(&mut self, process: usize, item: WorkItem) -> Vec<WorkResult> {
        self.note(|| format!("{process} wants {item}"));
        let now = self.cluster.now;
        let (admitted, superseded) = self.processes[process].queued.admit(item);
        let (work, deferral) = match admitted {
            Admitted::Start(item) => (Work::Begun(WorkResult::new(item)), Span(0)),
            Admitted::Queued(item) => (Work::Queued(item.key), self.faults.deferral()),
            Admitted::Replaced => {
                self.count("replaced");
                return superseded;
            }
        };
        let (id, incarnation) = (self.entries, self.processes[process].incarnation);
        self.in_flight.insert(id, InFlightWork { process, incarnation, work, attempt: 0 });
        let delay = self.faults.call_delay(now);
        self.add(now.plus(deferral).plus(delay), Event::Call(id));
        superseded
    }

    /// Hands planned writes to the other controller of the process.
    fn deliver_planned(&mut self, process: usize, planned: Vec<PlannedWrite>) {
        let Some(colocated_with) = self.processes[process].colocated_with.filter(|_| !planned.is_empty()) else {
            return;
        };
        self.note(|| format!("{process} plans {planned:?}").chars().take(400).collect());
        self.count("planned write");
        if let Some(driver) = &mut self.processes[colocated_with].driver {
            for planned in planned {
                driver.controller.on_planned(planned);
            }
        }
        self.poll(colocated_with);
    }

    /// The next call of a work item reaches the API server, if it does.
    fn call(&mut self, id: u64) {
        let now = self.cluster.now;
        let Some(in_flight) = self.in_flight.get_mut(&id) else { return };
        let (process, incarnation) = (in_flight.process, in_flight.incarnation);
        if let Work::Queued(key) = &in_flight.work {
            let own = self.processes[process].incarnation == incarnation;
            let item = if own { self.processes[process].queued.begin(key) } else { None };
            let Some(item) = item else {
                self.in_flight.remove(&id);
                return;
            };
            in_flight.work = Work::Begun(WorkResult::new(item));
        }
        let (Work::Begun(result), attempt) = (&in_flight.work, in_flight.attempt) else { return };
        let Some(call) = result.next_call().cloned() else { return };
        if !self.runs(process, incarnation) {
            // Its sender has crashed. It may have been on its way already.
            self.in_flight.remove(&id);
            if self.faults.late_delivery() {
                let _ = self.cluster.call(&call);
            }
            return;
        }
        let outcome = self.faults.call_outcome(now);
        let mut reply = Err(CallError::Unknown("no reply".to_owned()));
        if outcome.delivered {
            let done = self.cluster.call(&call);
            self.note(|| format!("{process} calls {call}: {:?}", done.as_ref().map(Option::is_some)));
            if outcome.acknowledged {
                reply = done;
            }
        }
        let lost = !outcome.delivered || !outcome.acknowledged;
        if lost {
            self.count("unanswered");
        }
        if let Some(delay) = retry_delay(attempt).filter(|_| lost) {
            if let Some(in_flight) = self.in_flight.get_mut(&id) {
                in_flight.attempt += 1;
            }
            self.add(now.plus(delay), Event::Call(id));
        } else {
            let delay = self.faults.call_delay(now);
            self.add(now.plus(delay), Event::Answer(id, reply));
        }
    }

    fn answer(&mut self, id: u64, reply: Result<Option<Value>, CallError>) {
        let Some(InFlightWork { process, incarnation, work: Work::Begun(mut result), .. }) = self.in_flight.remove(&id)
        else {
            return;
        };
        if !self.runs(process, incarnation) {
            return;
        }
        if let (Err(error), Some(call)) = (&reply, result.next_call()) {
            let line = format!("{process} fails to call {call}: {error:?}");
            self.note(|| line);
        }
        let before = result.next_priority();
        result.record(reply);
        let now = self.cluster.now;
        if result.next_call().is_some() {
            let deferral = if result.next_priority() == before { Span(0) } else { self.faults.deferral() };
            self.in_flight.insert(id, InFlightWork { process, incarnation, work: Work::Begun(result), attempt: 0 });
            let delay = self.faults.call_delay(now);
            self.add(now.plus(deferral).plus(delay), Event::Call(id));
            return;
        }
        let clock = self.clock(process);
        if let Some(driver) = &mut self.processes[process].driver {
            driver.controller.on_result(result, clock);
        }
        self.poll(process);
    }

    /// Plans the delivery of what watches have not shown yet.
    fn schedule_deliveries(&mut self) {
        let now = self.cluster.now;
        for process in 0..self.processes.len() {
            let incarnation = self.processes[process].incarnation;
            for (watch, log_position) in self.processes[process].undelivered(&self.cluster.store) {
                let delay = self.faults.watch_delay(now);
                self.add(now.plus(delay), Event::Deliver { process, incarnation, watch, log_position });
            }
        }
    }

    /// Whether this incarnation of the process still runs.
    fn runs(&self, process: usize, incarnation: u32) -> bool {
        self.processes[process].driver.is_some() && self.processes[process].incarnation == incarnation
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

/// What the controller of a process asks for.
struct SimOutputs<'r, 't> {
    run: &'r mut ChaosRun<'t>,
    process: usize,
    planned: Vec<PlannedWrite>,
}

impl OutputHandler for SimOutputs<'_, '_> {
    fn has_receiver(&self) -> bool {
        self.run.processes[self.process].colocated_with.is_some()
    }

    fn plan(&mut self, planned: PlannedWrite) {
        self.planned.push(planned);
    }

    fn skip(&mut self, _: &Skipped) {}

    /// Events are sent beside everything else, and nothing waits for them.
    fn publish(&mut self, _: NewEvent) {}

    fn admit(&mut self, item: WorkItem) -> Vec<WorkResult> {
        self.run.admit(self.process, item)
    }
}
