//! The shipped controllers under faults: late watches, lost calls and replies, crashes, wrong clocks, two leaders.
//!
//! ```text
//!   store ──log──▶ watches, each with its own delay ──▶ scheduler(s) · binder(s) · grouper · statuses
//!     ▲                                                             │ work: calls in a row
//!     └── calls: late, rejected, lost, or made and the reply lost ◀─┘
//! ```
//!
//! In some runs there is a hostile tenant as well (`hostile.rs`), the API server has faults of its own (`api_faults.rs`), or
//! two schedulers compete for a lease (`lease.rs`); the others are as they would be without these.
//!
//! Each controller runs in the same [`Driver`](kai_control::controller::Driver) as on a cluster. Faults are drawn from a
//! seed and stop after a while; then the cluster must converge. What must hold after every change is in `safety.rs` and
//! `holdings.rs`, what must hold in the end in `convergence.rs`.

mod api_faults;
mod calls;
mod controllers;
mod convergence;
mod fault_plan;
mod holdings;
mod hostile;
mod leadership;
mod lease;
mod process;
mod raw;
mod safety;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use kai_control::controller::{
    Admitted, CallError, Clock, Controller as _, NewEvent, OutputHandler, Skipped, WorkItem, WorkKey, WorkResult,
};
use kai_control::grouper::PlannedWrite;
use kai_control::kinds::Presence;
use kai_control::registry::SCHEDULER;
use kai_control::scheduler::Settings;
use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use crate::checkers::Violation;
use crate::cluster::{Cluster, Due};
use crate::journal::Event as JournalEvent;
use crate::manifest::{Kind, Plan};
use crate::run::{SimulationError, start_time, with_built_ins};
use crate::settings;
use api_faults::WatchFault;
use fault_plan::FaultPlan;
use hostile::{Act, Hostility, Tenant};
use leadership::LeaseEvent;
use lease::Election;
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

/// The scheduler counts its binds until a watch shows them, but not for ever: calls and watch together may take 30 s.
const ASSUMED_AT_LEAST: Span = Span::seconds(15);

/// How often etcd is compacted, as API servers do.
const COMPACTION_PERIOD: Span = Span::seconds(300);

/// How often Kubernetes collects garbage.
const GARBAGE_COLLECTION_PERIOD: Span = Span::seconds(10);

/// Called with everything that happens, line by line.
pub type Trace<'t> = &'t mut dyn FnMut(&str);

/// Runs a plan under faults drawn from the seed.
pub fn run_with_faults(plan: &Plan, seed: u64, trace: Option<Trace<'_>>) -> Result<ChaosStats, SimulationError> {
    let mut run = ChaosRun::new(plan, FaultPlan::new(seed, start_time(plan)), seed, trace)?;
    run.run(plan)?;
    convergence::check_converged(&run.cluster, &run.settings, run.since_start())?;
    Ok(run.into_stats())
}

/// What disturbs a run of fixed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Calls and watches have the delays that they always have.
    None,
    /// Calls fail and watches lag; etcd is compacted every five minutes. Processes stay.
    Lasting,
}

/// Runs a plan for so long, and reports each time that a period has passed. What has happened until then is counted, and
/// the simulator forgets it.
pub fn run_for(
    plan: &Plan,
    seed: u64,
    disturbance: Disturbance,
    (length, period): (Span, Span),
    on_period: &mut dyn FnMut(Span),
) -> Result<ChaosStats, SimulationError> {
    let start = start_time(plan);
    let faults = match disturbance {
        Disturbance::None => FaultPlan::none(start, true),
        Disturbance::Lasting => FaultPlan::lasting(seed, start, length),
    };
    let mut run = ChaosRun::new(plan, faults, seed, None)?;
    run.plan_steps(plan);
    if disturbance == Disturbance::Lasting {
        run.add(start.plus(COMPACTION_PERIOD), Event::Compaction);
    }
    let mut passed = Span(0);
    while passed.0 + period.0 <= length.0 {
        passed = Span(passed.0 + period.0);
        let end = start.plus(passed);
        while let Some(at) = run.next_time().filter(|at| *at <= end) {
            run.advance_to(at, plan)?;
        }
        run.cluster.now = end;
        run.count_journal();
        on_period(passed);
    }
    Ok(run.into_stats())
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
    /// etcd forgets old versions, again and again.
    Compaction,
    /// Connections of all watches are cut.
    CutWatches(WatchFault),
    /// A tenant does something.
    Tenant(Act),
    Lease(LeaseEvent),
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
    tenant: Option<Tenant>,
    election: Option<Election>,
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
    fn new(plan: &Plan, mut faults: FaultPlan, seed: u64, trace: Option<Trace<'t>>) -> Result<Self, SimulationError> {
        let mut settings = settings::read(plan)?;
        // Stories are small: half of them ask for binds in batches all the same.
        settings.scheduler.batch_binds = if seed.is_multiple_of(2) { 2 } else { 0 };
        let start = start_time(plan);
        let mut cluster = Cluster::new(plan, settings.grouper.clone(), seed, start);
        cluster.external_grouper = true;
        cluster.store.keep_log();
        cluster.bootstrap(&with_built_ins(plan))?;
        let tenant = faults.tenant.take();
        if tenant.is_some() {
            cluster.store.accept_malformed();
            Tenant::prepare(&mut cluster);
        }
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
            safety: SafetyMonitor::new(tenant.is_some()),
            tenant,
            election: None,
            seen_version: 0,
            changed: (start, 0),
            stats: ChaosStats::default(),
            trace,
        };
        run.not_served = run.faults.kinds_not_served(unused_kinds(&run.cluster).into_iter());
        for _ in run.not_served.clone() {
            run.count("kind not served");
        }
        run.prepare(seed);
        Ok(run)
    }

    /// Starts all processes and plans all faults.
    fn prepare(&mut self, seed: u64) {
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
                    let second = self.double(process);
                    self.add(at, Event::Start { process: second });
                    // It does not come back.
                    self.add(at.plus(lifetime).min(faults_end), Event::Crash { process: second, down: Span(i64::MAX) });
                }
            }
        }
        self.add(faults_end, Event::FaultsEnd);
        self.add(self.start.plus(GARBAGE_COLLECTION_PERIOD), Event::GarbageCollection);
        for (at, fault) in self.faults.api.watch_faults().to_vec() {
            self.add(at, Event::CutWatches(fault));
        }
        let window = self.faults.fault_window();
        for (at, act) in self.tenant.as_mut().map(|tenant| tenant.plan(window)).unwrap_or_default() {
            self.add(self.start.plus(at), Event::Tenant(act));
        }
        if self.faults.has_lease() {
            const SCHEDULER: usize = 0;
            let second = self.double(SCHEDULER);
            self.add(self.start, Event::Start { process: second });
            self.election = Some(Election::new(seed, self.start, window, [SCHEDULER, second]));
        }
    }

    /// Another process of the same controllers.
    fn double(&mut self, process: usize) -> usize {
        self.processes.push(SimProcess::new(self.processes[process].kind));
        let second = self.processes.len() - 1;
        if let Some(colocated_with) = self.processes[process].colocated_with {
            self.processes.push(SimProcess::new(self.processes[colocated_with].kind));
            self.pair(second, second + 1);
        }
        second
    }

    /// Two controllers in one process.
    fn pair(&mut self, one: usize, other: usize) {
        self.processes[one].colocated_with = Some(other);
        self.processes[other].colocated_with = Some(one);
    }

    fn run(&mut self, plan: &Plan) -> Result<(), Violation> {
        self.plan_steps(plan);
        let last_step = plan.steps.iter().map(|step| step.at).max().unwrap_or(Span(0));
        let settled = self.start.plus(self.faults.fault_window().max(last_step));
        while let Some(at) = self.next_time() {
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
            self.advance_to(at, plan)?;
        }
        Ok(())
    }

    fn plan_steps(&mut self, plan: &Plan) {
        for (index, step) in plan.steps.iter().enumerate() {
            self.cluster.events.add(self.start.plus(step.at), Due::Step(index));
        }
    }

    /// When something is due next.
    fn next_time(&self) -> Option<Timestamp> {
        let own = self.queue.keys().next().map(|(at, _)| *at);
        own.into_iter().chain(self.cluster.events.next_time()).min()
    }

    /// Lets the next thing happen, which is due at this time.
    fn advance_to(&mut self, at: Timestamp, plan: &Plan) -> Result<(), Violation> {
        self.cluster.now = at;
        self.cluster.webhooks.available = !self.faults.webhooks_are_down(at);
        if self.cluster.events.next_time() == Some(at) {
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
        Ok(())
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
                let resumes = self.processes[process].can_resume(watch, &self.cluster.store);
                let relist = !resumes || self.faults.watch_restarts(now);
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
                self.count("crash");
                self.crash(process);
                if down.0 != i64::MAX {
                    self.add(now.plus(down), Event::Start { process });
                }
            }
            Event::Start { process } if self.awaits_lease(process) => self.enter_election(process),
            Event::Start { process } => self.start_with_colocated(process),
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
            Event::Compaction => {
                self.cluster.store.compact();
                self.add(now.plus(COMPACTION_PERIOD), Event::Compaction);
            }
            Event::CutWatches(fault) => {
                self.note(|| format!("watches are cut: {fault:?}"));
                self.count(if fault == WatchFault::Expired { "watch storm" } else { "compaction" });
                if fault == WatchFault::Compaction {
                    self.cluster.store.compact();
                }
                for process in &mut self.processes {
                    process.cut_watches(fault == WatchFault::Expired);
                }
                self.schedule_deliveries();
            }
            Event::Tenant(act) => self.act(act),
            Event::Lease(event) => self.on_lease(event),
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

    /// A tenant does something.
    fn act(&mut self, act: Act) {
        let Some(tenant) = &mut self.tenant else { return };
        let done = tenant.perform(act, &mut self.cluster);
        self.note(|| format!("{act:?}: {done:?}"));
        if let Some(done) = done {
            self.count(done);
            // A running group is charged to the queue that it names now.
            if let Act::Hostile(_, Hostility::GroupQueues | Hostility::GroupLinks) = act {
                self.safety.holdings.limits_may_break = true;
            }
        }
    }

    fn crash(&mut self, process: usize) {
        self.note(|| format!("{process} crashes"));
        for one in self.processes[process].colocated_with.into_iter().chain([process]) {
            self.processes[one].crash();
            if let Some(election) = &mut self.election {
                election.stop(one);
            }
            self.on_scheduler_misled(one);
        }
    }

    /// If this process is a scheduler, it may not know of all binds: only binders protect nodes, and none protects limits.
    fn on_scheduler_misled(&mut self, process: usize) {
        let is_scheduler = self.processes[process].kind.component.name == SCHEDULER.component.name;
        self.safety.holdings.limits_may_break |= is_scheduler;
    }

    fn start_with_colocated(&mut self, process: usize) {
        for one in [process].into_iter().chain(self.processes[process].colocated_with) {
            self.start_process(one);
        }
    }

    fn start_process(&mut self, process: usize) {
        if self.processes[process].driver.is_some() {
            return;
        }
        let kind = self.processes[process].kind;
        self.note(|| format!("{process} starts as {kind:?}"));
        if self.cluster.now > self.start {
            self.on_scheduler_misled(process);
        }
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

    /// Plans the delivery of what watches have not shown yet.
    fn schedule_deliveries(&mut self) {
        let (now, processes) = (self.cluster.now, self.processes.len());
        for process in 0..processes {
            let incarnation = self.processes[process].incarnation;
            for (watch, log_position) in self.processes[process].undelivered(&self.cluster.store) {
                let lag = self.faults.api.watch_lag(now, process, processes);
                if lag.is_some() {
                    self.count("slow watcher");
                }
                let delay = lag.unwrap_or_else(|| self.faults.watch_delay(now));
                if delay > ASSUMED_AT_LEAST {
                    self.on_scheduler_misled(process);
                }
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

    /// Counts what the journal has, and empties it.
    fn count_journal(&mut self) {
        for entry in self.cluster.journal.take() {
            *self.stats.seen.entry(entry.event.as_str()).or_default() += 1;
            if (entry.event, entry.subject.kind) == (JournalEvent::Finish, Kind::Job) {
                self.count("job finished");
            }
        }
    }

    fn into_stats(mut self) -> ChaosStats {
        self.count_journal();
        if self.cluster.scaling_pod_changes > 0 {
            self.stats.seen.insert("scaling pod", self.cluster.scaling_pod_changes);
        }
        self.stats
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
