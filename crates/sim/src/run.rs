//! The loop: time jumps from event to event. The scheduler runs at the pace of a live one: a cycle soon after changes, and
//! evictions at most once a period.

use kai_control::controller::Clock;
use kai_control::key::GroupKey;
use kai_control::scheduler::record::{ActionRecord, CycleRecord};
use kai_control::scheduler::{
    CYCLE_DEBOUNCE, CycleProgress, CycleResult, Effect, EvictionPacing, Settings, cycle_with_progress,
};
use kai_engine::units::{Span, Timestamp};
use serde_json::{Value, json};
use thiserror::Error;

use crate::checkers::{self, ClusterView, CycleHistory, CycleObservation, Violation};
use crate::cluster::{Cluster, Due, Performed, next_tick};
use crate::input_error::InputError;
use crate::manifest::{Id, Item, Kind, Plan};
use crate::report::{End, Report, report};
use crate::settings;
use crate::usage_sampler::UsageSampler;

/// How to run a plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// When to stop; the scenario's word otherwise, or when nothing more can happen.
    pub until: Option<Span>,
    /// For what varies by chance: start-up jitter, if the scenario asks for it.
    pub seed: u64,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Virtual time since the start.
    pub at: Span,
    /// When it will stop at the latest.
    pub until: Span,
    /// Scheduling cycles run so far.
    pub cycles: u64,
}

/// Why a run gave no report.
#[derive(Clone, Debug, Error)]
pub enum SimulationError {
    /// Something in the input cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Something that must always hold did not: a bug.
    #[error(transparent)]
    Violation(#[from] Violation),
}

/// A run without an end in sight stops here: a day shows whatever repeats.
const UNTIL_MAX: Span = Span::seconds(24 * 3600);

/// Runs a plan to its end.
pub fn simulate(plan: &Plan, options: Options, progress: &mut dyn FnMut(Progress)) -> Result<Report, SimulationError> {
    let settings = settings::read(plan)?;
    let start = start_time(plan);
    let mut run = Run {
        cluster: Cluster::new(plan, settings.grouper, options.seed, start),
        usage: settings.scheduler.usage.clone().map(|rule| UsageSampler::new(rule, start)),
        settings: settings.scheduler,
        eviction_pacing: EvictionPacing::default(),
        last: CycleResult::default(),
        record: None,
        seen: 0,
        last_cycle: None,
        cycles: 0,
        start,
        history: CycleHistory::default(),
    };
    let until = options.until.or(plan.scenario.until).unwrap_or(UNTIL_MAX);
    run.cluster.bootstrap(&with_built_ins(plan))?;
    for (index, step) in plan.steps.iter().enumerate() {
        run.cluster.events.add(start.plus(step.at), Due::Step(index));
    }
    run.cluster.events.add_cycle(start);
    let quiet = loop {
        let Some(next) = run.cluster.events.next_time() else { break true };
        if next > start.plus(until) {
            break false;
        }
        let Some((at, due)) = run.cluster.events.take() else { break true };
        run.advance_to(at);
        run.handle(&due, plan)?;
        progress(Progress { at: at.since(start), until, cycles: run.cycles });
    };
    if quiet {
        let workload_of = |job: &GroupKey| run.cluster.workload_of(job);
        let seen =
            ClusterView { world: run.cluster.world(), workload_of: &workload_of, at: run.cluster.now.since(start) };
        run.history.check_final(&seen)?;
    }
    let end = if quiet { run.cluster.now } else { start.plus(until) };
    let end = End { at: end.since(start), quiet, cycles: run.cycles };
    let report = report(&run.cluster, &run.last, &run.settings, end);
    Ok(Report { warnings: settings.warnings, last_cycle: run.record, ..report })
}

struct Run {
    cluster: Cluster,
    settings: Settings,
    eviction_pacing: EvictionPacing,
    /// What the queues have used, if it counts.
    usage: Option<UsageSampler>,
    /// The last cycle.
    last: CycleResult,
    /// Of the last cycle.
    record: Option<CycleRecord>,
    /// State of the store that it has seen.
    seen: u64,
    last_cycle: Option<Timestamp>,
    cycles: u64,
    start: Timestamp,
    /// What the scheduler has done since it was last disturbed.
    history: CycleHistory,
}

impl Run {
    fn handle(&mut self, due: &Due, plan: &Plan) -> Result<(), Violation> {
        let mut performed = Performed::default();
        match due {
            Due::Step(index) => self.cluster.apply_step(&plan.steps[*index].action),
            Due::Cycle => performed = self.schedule(),
            other => self.cluster.due(other),
        }
        let idle = CycleResult::default();
        let observation = CycleObservation {
            world: self.cluster.world(),
            settings: &self.settings,
            cycle: if *due == Due::Cycle { &self.last } else { &idle },
            performed: &performed,
            now: self.cluster.now,
        };
        // Before controllers react, so that what is checked is what the scheduler left behind.
        let at = self.cluster.now.since(self.start);
        checkers::check(&observation, at)?;
        match due {
            Due::Cycle => {
                let workload_of = |job: &GroupKey| self.cluster.workload_of(job);
                let seen = ClusterView { world: self.cluster.world(), workload_of: &workload_of, at };
                self.history.observe(&seen, &self.last.effects)?;
            }
            // Consequences of the scheduler's own actions.
            Due::PodUp { .. } | Due::PodGone { .. } | Due::ScalingPodDone { .. } => {}
            Due::Step(_) | Due::PodDone { .. } | Due::NodeLost { .. } => self.history.reset(),
        }
        self.cluster.run_controllers();
        self.plan_next_cycle();
        Ok(())
    }

    /// Lets time go by. Nothing changes in between, so the cluster as it is stands for all of that time.
    fn advance_to(&mut self, at: Timestamp) {
        if let Some(usage) = &mut self.usage {
            let before = usage.next_fetch();
            usage.advance_to(at, self.cluster.world(), &self.settings);
            if usage.next_fetch() != before {
                // New usage data is a change like any other.
                self.history.reset();
            }
        }
        self.cluster.now = at;
    }

    fn schedule(&mut self) -> Performed {
        self.seen = self.cluster.store.version();
        self.last_cycle = Some(self.cluster.now);
        self.cycles += 1;
        let usage = self.usage.as_ref().map(|usage| usage.usage().clone()).unwrap_or_default();
        let (world, now, mut statistics) = (self.cluster.world(), self.cluster.now, Vec::new());
        let clock = Clock { wall: now, steady: now };
        let allowed = self.eviction_pacing.allowed(&self.settings, world, false, clock);
        allowed.apply(&mut self.settings.policy);
        let mut cycle = cycle_with_progress(world, &self.settings, &usage, now, |progress| {
            if let CycleProgress::ActionDone(action, stats) = progress {
                statistics.push(ActionRecord::new(action, stats));
            }
        });
        let seen = (world, &self.settings, &usage);
        self.record = Some(CycleRecord::new(self.cycles, now, seen, &cycle, statistics));
        self.eviction_pacing.on_cycle(allowed, &mut cycle, &self.last, now);
        self.last = cycle.clone();
        self.cluster.perform(&cycle)
    }

    /// The next cycle is due when something has changed since the last, when that one acted, or when time alone may change a
    /// decision. Otherwise it would decide the same, so it is skipped.
    fn plan_next_cycle(&mut self) {
        let now = self.cluster.now;
        let earliest = self.last_cycle.map_or(self.start, |last| last.plus(CYCLE_DEBOUNCE));
        let tick = |at: Timestamp| next_tick(self.start, CYCLE_DEBOUNCE, at);
        let soon = tick(now.max(earliest));
        let acted = self.last_cycle == Some(now)
            && self.last.effects.iter().any(|effect| {
                !matches!(effect, Effect::SetGroupTimestamps { .. } | Effect::MarkPod { .. } | Effect::Nominate { .. })
            });
        if self.cluster.store.version() != self.seen || acted {
            self.cluster.events.add_cycle(soon);
        } else if let Some(at) = self.last.next_change_at {
            self.cluster.events.add_cycle(tick(at.max(soon)));
        }
        if let Some(at) = self.eviction_pacing.next(&self.settings.evictions) {
            self.cluster.events.add_cycle(tick(at.max(soon)));
        }
        // While workloads are pending, new usage data may change the decision.
        if let Some(usage) = self.usage.as_ref().filter(|_| !self.last.pending.is_empty()) {
            self.cluster.events.add_cycle(tick(usage.next_fetch().max(soon)));
        }
    }
}

/// Virtual time zero: a fixed day, or later if the manifests remember a later one, so that nothing in a cluster is
/// younger than the cluster.
pub(crate) fn start_time(plan: &Plan) -> Timestamp {
    // 2026-01-01T00:00:00Z.
    const DAY: i64 = 1_767_225_600;
    let written = |item: &Item| {
        let text = item.value.pointer("/metadata/creationTimestamp").and_then(Value::as_str)?;
        text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
    };
    let latest = plan.initial.iter().filter_map(written).max().unwrap_or(DAY).max(DAY);
    Timestamp(latest * 1_000_000)
}

/// What an installation brings along: four priority classes, and a queue where there is none.
pub(crate) fn with_built_ins(plan: &Plan) -> Vec<Item> {
    const CLASSES: [(&str, i32); 4] = [("train", 50), ("build-preemptible", 75), ("build", 100), ("inference", 125)];
    const PARENT: &str = "default-parent-queue";
    let mut items = Vec::new();
    let mut add = |kind: Kind, name: &str, value: Value| {
        let id = Id::cluster(kind, name);
        if plan.initial.iter().all(|item| item.id != id) {
            items.push(Item { location: crate::input_error::SourceLocation::default(), id, value });
        }
    };
    for (name, value) in CLASSES {
        add(Kind::PriorityClass, name, json!({"value": value}));
    }
    let described = plan.all_items().any(|item| item.id.kind == Kind::Queue);
    if !described {
        let open = json!({"quota": 0, "limit": -1, "overQuotaWeight": 1});
        let resources = json!({"gpu": open, "cpu": open, "memory": open});
        add(Kind::Queue, PARENT, json!({"spec": {"resources": resources}}));
        add(Kind::Queue, "default-queue", json!({"spec": {"parentQueue": PARENT, "resources": resources}}));
    }
    items.extend(plan.initial.iter().cloned());
    items.sort_by_key(|item| item.id.kind);
    items
}
