//! Metrics of the scheduler, with the names that KAI's dashboards use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use kai_api::keys::name;
use kai_control::key::GroupKey;
use kai_control::scheduler::{CycleResult, Effect, EvictionStats, QueueView, Settings, Usage, action_name};
use kai_control::world::World;
use kai_engine::CycleProgress;
use kai_engine::units::{GPU, Timestamp};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use tokio::time::Instant;

use crate::Health;

type Labels = Vec<(String, String)>;
type Number = Gauge<f64, AtomicU64>;

#[derive(Debug)]
pub(super) struct Metrics {
    latency: Number,
    open_session: Number,
    close_session: Number,
    actions: Family<Labels, Number>,
    cycles: Counter,
    failed: Counter,
    pods_bind_requested: Counter,
    evictions: Counter,
    evictions_by_action: Family<Labels, Counter>,
    /// Seconds of run time × GPUs.
    lost_gpu_seconds: Counter<f64, AtomicU64>,
    finished_pods: Counter,
    evictions_per_finished_pod: Number,
    waiting: Gauge,
    /// Counted up like a counter, but counters get an ending that KAI's has not.
    scheduled: Family<Labels, Gauge>,
    podgroups_considered: Family<Labels, Gauge>,
    scenarios_simulated: Family<Labels, Gauge>,
    scenarios_filtered: Family<Labels, Gauge>,
    scheduling_latency: Histogram,
    pub(super) bind_request_latency: Histogram,
    pub(super) usage_query_latency: Histogram,
    evicted_pods: Family<Labels, Counter>,
    /// Series of a pod group, to be removed with it.
    evicted: BTreeMap<GroupKey, BTreeSet<Labels>>,
    queues: [Family<Labels, Number>; 6],
}

/// Fair share and usage of queues: CPU, memory and GPUs of each.
const QUEUES: [(&str, &str); 6] = [
    ("queue_fair_share_cpu_cores", "CPU cores of the queue's fair share"),
    ("queue_fair_share_memory_gb", "Gigabytes of memory of the queue's fair share"),
    ("queue_fair_share_gpu", "GPUs of the queue's fair share"),
    ("queue_cpu_usage", "Fraction of all CPU cores that the queue has used recently, in the usage window"),
    ("queue_memory_usage", "Fraction of all memory that the queue has used recently, in the usage window"),
    ("queue_gpu_usage", "Fraction of all GPUs that the queue has used recently, in the usage window"),
];

/// How long a cycle takes, and its parts.
#[derive(Debug)]
pub(super) struct Stopwatch {
    started: Instant,
    passed: Vec<(CycleProgress, Duration)>,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self { started: Instant::now(), passed: Vec::new() }
    }

    pub(super) fn pass(&mut self, moment: CycleProgress) {
        self.passed.push((moment, self.started.elapsed()));
    }

    pub(super) fn milliseconds(&self) -> f64 {
        milliseconds(self.started.elapsed())
    }
}

impl Metrics {
    pub(super) fn register(health: &Health) -> Self {
        // From 5 ms to 2.56 s.
        let histogram = || Histogram::new(exponential_buckets(5.0, 2.0, 10));
        let metrics = Self {
            latency: Gauge::default(),
            open_session: Gauge::default(),
            close_session: Gauge::default(),
            actions: Family::default(),
            cycles: Counter::default(),
            failed: Counter::default(),
            pods_bind_requested: Counter::default(),
            evictions: Counter::default(),
            evictions_by_action: Family::default(),
            lost_gpu_seconds: Counter::default(),
            finished_pods: Counter::default(),
            evictions_per_finished_pod: Gauge::default(),
            waiting: Gauge::default(),
            scheduled: Family::default(),
            podgroups_considered: Family::default(),
            scenarios_simulated: Family::default(),
            scenarios_filtered: Family::default(),
            scheduling_latency: histogram(),
            bind_request_latency: histogram(),
            usage_query_latency: histogram(),
            evicted_pods: Family::default(),
            evicted: BTreeMap::new(),
            queues: std::array::from_fn(|_| Family::default()),
        };
        health.register(|registry| {
            let latency = "Duration of the last scheduling cycle, in milliseconds";
            registry.register("e2e_scheduling_latency_milliseconds", latency, metrics.latency.clone());
            let open_session = "Duration of the last cycle before its first action, in milliseconds";
            registry.register("open_session_latency_milliseconds", open_session, metrics.open_session.clone());
            let close_session = "Duration of the last cycle after its last action, in milliseconds";
            registry.register("close_session_latency_milliseconds", close_session, metrics.close_session.clone());
            let actions = "Duration of an action in the last cycle, in milliseconds";
            registry.register("action_scheduling_latency_milliseconds", actions, metrics.actions.clone());
            registry.register("scheduling_cycles", "Scheduling cycles", metrics.cycles.clone());
            let failed = "Scheduling cycles that panicked";
            registry.register("scheduling_cycles_failed", failed, metrics.failed.clone());
            registry.register(
                "bind_requests",
                "Pods for which a bind was requested",
                metrics.pods_bind_requested.clone(),
            );
            registry.register("evictions", "Pods evicted", metrics.evictions.clone());
            let by_action = "Pods evicted, by action";
            registry.register("evictions_by_action", by_action, metrics.evictions_by_action.clone());
            let lost = "Run time of evicted pods since their jobs last started, times their GPUs, in seconds";
            registry.register("evictions_lost_gpu_seconds", lost, metrics.lost_gpu_seconds.clone());
            registry.register("pods_finished", "Pods that succeeded", metrics.finished_pods.clone());
            let per_finished = "Pods evicted for each pod that succeeded, since the scheduler started";
            registry.register("evictions_per_finished_pod", per_finished, metrics.evictions_per_finished_pod.clone());
            registry.register(
                "podgroups_waiting",
                "Pod groups left pending by the last cycle",
                metrics.waiting.clone(),
            );
            let scheduled = "Pod groups placed, by action";
            registry.register("podgroups_scheduled_by_action", scheduled, metrics.scheduled.clone());
            let considered = "Pod groups considered, by action";
            registry.register("podgroups_acted_on_by_action", considered, metrics.podgroups_considered.clone());
            let simulated = "Victim scenarios simulated";
            registry.register("scenarios_simulation_by_action", simulated, metrics.scenarios_simulated.clone());
            let filtered = "Victim scenarios rejected by filters before simulation";
            registry.register("scenarios_filtered_by_action", filtered, metrics.scenarios_filtered.clone());
            let scheduling_latency = "Time from the creation of a pod until a node was chosen for it, in milliseconds";
            registry.register(
                "task_scheduling_latency_milliseconds",
                scheduling_latency,
                metrics.scheduling_latency.clone(),
            );
            let bind_latency = "Latency of creating a bind request, in milliseconds";
            registry.register("task_bind_latency_milliseconds", bind_latency, metrics.bind_request_latency.clone());
            let usage = "Latency of usage queries to Prometheus, in milliseconds";
            registry.register("usage_query_latency_milliseconds", usage, metrics.usage_query_latency.clone());
            let evicted = "Pods of a pod group that were evicted";
            registry.register("pod_group_evicted_pods", evicted, metrics.evicted_pods.clone());
            for ((name, help), family) in QUEUES.iter().zip(&metrics.queues) {
                registry.register(*name, *help, family.clone());
            }
        });
        metrics
    }

    /// Counts a cycle that has come to its end.
    pub(super) fn cycle(
        &mut self,
        watch: &Stopwatch,
        cycle: &CycleResult,
        (world, settings): (&World, &Settings),
        usage: &Usage,
        now: Timestamp,
    ) {
        let mut before = Duration::ZERO;
        for (moment, at) in &watch.passed {
            let took = milliseconds(at.saturating_sub(before));
            match moment {
                CycleProgress::SessionOpened => {
                    self.open_session.set(took);
                }
                CycleProgress::ActionDone(action, effort) => {
                    let labels = of_action(action_name(*action));
                    self.actions.get_or_create(&labels).set(took);
                    for (family, count) in [
                        (&self.podgroups_considered, effort.job_attempts),
                        (&self.scenarios_simulated, effort.simulated),
                        (&self.scenarios_filtered, effort.filtered),
                    ] {
                        family.get_or_create(&labels).inc_by(i64::try_from(count).unwrap_or(i64::MAX));
                    }
                }
            }
            before = *at;
        }
        self.latency.set(watch.milliseconds());
        self.close_session.set(watch.milliseconds() - milliseconds(before));
        self.cycles.inc();
        self.waiting.set(cycle.pending.len() as i64);
        let mut scheduled = BTreeSet::new();
        for effect in &cycle.effects {
            match effect {
                Effect::Bind { pod, job, .. } => {
                    self.pods_bind_requested.inc();
                    scheduled.insert(("allocate", job));
                    let waited = world.pods.get(pod).map_or(0, |pod| now.since(pod.created).0.max(0));
                    self.scheduling_latency.observe(waited as f64 / 1000.0);
                }
                Effect::Evict { job, action, preemptor, .. } => {
                    self.evictions.inc();
                    scheduled.extend(preemptor.iter().map(|preemptor| (action_name(*action), preemptor)));
                    let labels = evicted(world, settings, job, action_name(*action));
                    self.evicted_pods.get_or_create(&labels).inc();
                    self.evicted.entry(job.clone()).or_default().insert(labels);
                }
                _ => {}
            }
        }
        for (action, _) in scheduled {
            self.scheduled.get_or_create(&of_action(action)).inc();
        }
        self.evicted.retain(|group, series| {
            let stays = world.pod_groups.contains_key(group);
            for labels in series.iter().filter(|_| !stays) {
                self.evicted_pods.remove(labels);
            }
            stays
        });
        self.set_queues(world, &cycle.queues, usage);
    }

    /// Brings the counters of evictions up to date.
    pub(super) fn evicted(&self, stats: &EvictionStats) {
        for (action, pods) in &stats.evicted {
            let counter = self.evictions_by_action.get_or_create_owned(&of_action(action_name(*action)));
            counter.inc_by(pods.saturating_sub(counter.get()));
        }
        self.lost_gpu_seconds.inc_by((stats.lost_gpu_seconds() - self.lost_gpu_seconds.get()).max(0.0));
        self.finished_pods.inc_by(stats.finished_pods.saturating_sub(self.finished_pods.get()));
        self.evictions_per_finished_pod.set(stats.evictions_per_finished_pod().unwrap_or_default());
    }

    /// Sets the values of all queues, and removes those of deleted ones.
    fn set_queues(&self, world: &World, queues: &[QueueView], usage: &Usage) {
        for family in &self.queues {
            family.clear();
        }
        for queue in queues {
            let given = world.queues.get(&queue.name).and_then(|row| row.display_name.as_deref());
            let labels = labels([
                ("queue_name", &queue.display_name),
                ("queue_metadata_name", &queue.name),
                ("queue_display_name", given.unwrap_or_default()),
            ]);
            let share = queue.fair_share.0.map(|share| share as f64);
            let used = usage.queues.get(&queue.name).copied().unwrap_or_default().map(|used| used as f64 / 1e6);
            let values = [share[0] / 1e3, share[1] / 1e9, share[2] / GPU as f64, used[0], used[1], used[2]];
            for (family, value) in self.queues.iter().zip(values) {
                family.get_or_create(&labels).set(value);
            }
        }
    }

    pub(super) fn failed(&self) {
        self.failed.inc();
    }
}

fn evicted(world: &World, settings: &Settings, group: &GroupKey, action: &str) -> Labels {
    let row = world.pod_groups.get(group);
    let pool =
        row.and_then(|row| row.labels.get(&settings.node_pool_label_key)).map_or(name::DEFAULT_SHARD, String::as_str);
    labels([
        ("podgroup", &group.name),
        ("namespace", &group.namespace),
        ("uid", row.map_or("", |row| &row.uid)),
        ("nodepool", pool),
        ("action", action),
    ])
}

fn of_action(action: &str) -> Labels {
    labels([("action", action)])
}

fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
