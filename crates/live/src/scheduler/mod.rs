//! The scheduler on a cluster: watches feed the World, every period a cycle looks at it, effects are performed.

mod metrics;
mod perform;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use kai_api::{BindRequest, PodGroup, Queue, Topology};
use kai_control::Key;
use kai_control::in_flight::{Asked, InFlight, Table};
use kai_control::objects::Object;
use kai_control::scheduler::{Cycle, Problem, Reporter, Settings, Usage, Write, cycle};
use kai_engine::units::Span;
use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::events::Events;
use crate::health::Part;
use crate::watch::{Seen, Watched, follow, key_of};
use crate::writer::Writer;
use crate::{Fault, Health, LeaseOptions, Pace, clock, lease};
use metrics::Metrics;
use perform::Performer;

#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    pub settings: Settings,
    /// Between the beginnings of two cycles.
    pub period: Duration,
    /// Delete victims instead of asking for their eviction: budgets for disruptions do not count then.
    pub evict_by_delete: bool,
    /// API calls at the same time.
    pub writers: usize,
    pub lease: Option<LeaseOptions>,
}

/// How long an echo may take. A bind that was done all the same is then refused the second time.
const ECHO_PATIENCE: Span = Span::seconds(30);

/// Something that happened.
enum News {
    Seen(Table, Seen),
    /// What was asked for was not done.
    Refused(Asked),
}

/// Schedules until stopped.
pub(crate) async fn run(
    client: Client,
    options: SchedulerOptions,
    pace: Arc<Pace>,
    health: Health,
    stop: CancellationToken,
) -> Result<(), Fault> {
    let part = health.part();
    let metrics = Metrics::register(&health);
    let lease = options.lease.clone();
    let shell = Shell::new(client.clone(), options, pace, part, metrics);
    lease::lead(client, lease, stop.clone(), shell.run(stop)).await?;
    tracing::info!("scheduler has ended");
    Ok(())
}

struct Shell {
    client: Client,
    options: SchedulerOptions,
    known: InFlight,
    /// Kinds that no watch has shown yet.
    unseen: BTreeSet<Table>,
    performer: Performer,
    reporter: Reporter,
    /// Complaints about objects, to log each of them once.
    complaints: BTreeSet<String>,
    part: Part,
    metrics: Metrics,
    /// Something changed since the last cycle.
    news: bool,
    last: Cycle,
}

const TABLES: [Table; 14] = [
    Table::Nodes,
    Table::Pods,
    Table::Queues,
    Table::PodGroups,
    Table::PriorityClasses,
    Table::Topologies,
    Table::BindRequests,
    Table::StorageClasses,
    Table::CsiDrivers,
    Table::CsiNodes,
    Table::StorageCapacities,
    Table::Volumes,
    Table::VolumeClaims,
    Table::ConfigMaps,
];

fn watched(table: Table) -> Watched {
    match table {
        Table::Nodes => Watched::all::<Node>(),
        // Of other schedulers, too: they take up room. Those that have failed are as good as gone.
        Table::Pods => Watched::with::<Pod>("status.phase!=Failed".to_owned()),
        Table::Queues => Watched::all::<Queue>(),
        Table::PodGroups => Watched::all::<PodGroup>(),
        Table::PriorityClasses => Watched::all::<PriorityClass>(),
        Table::Topologies => Watched::all::<Topology>(),
        Table::BindRequests => Watched::all::<BindRequest>(),
        Table::StorageClasses => Watched::all::<StorageClass>(),
        Table::CsiDrivers => Watched::all::<CSIDriver>(),
        Table::CsiNodes => Watched::all::<CSINode>(),
        Table::StorageCapacities => Watched::all::<CSIStorageCapacity>(),
        Table::Volumes => Watched::all::<PersistentVolume>(),
        Table::VolumeClaims => Watched::all::<PersistentVolumeClaim>(),
        Table::ConfigMaps => Watched::all::<ConfigMap>(),
    }
}

impl Shell {
    fn new(client: Client, options: SchedulerOptions, pace: Arc<Pace>, part: Part, metrics: Metrics) -> Self {
        let writer = Writer::new(client.clone(), pace, options.writers);
        let events = Events::new(writer.clone(), options.settings.scheduler_name.clone());
        Self {
            performer: Performer::new(writer, events, &options),
            client,
            options,
            known: InFlight::default(),
            unseen: TABLES.into(),
            reporter: Reporter::default(),
            complaints: BTreeSet::new(),
            part,
            metrics,
            news: false,
            last: Cycle::default(),
        }
    }

    async fn run(mut self, stop: CancellationToken) {
        let (out, mut news) = mpsc::channel(1024);
        let mut watches = tokio::task::JoinSet::new();
        for table in TABLES {
            watches
                .spawn(follow(self.client.clone(), watched(table), out.clone(), move |seen| News::Seen(table, seen)));
        }
        // Never full: refusals are fewer than effects, and effects wait for slots.
        let (refuse, mut refused) = mpsc::unbounded_channel();
        let mut tick = tokio::time::interval(self.options.period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // In this order: a flood of news must not keep the scheduler from scheduling.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = tick.tick() => self.cycle(&refuse),
                Some(done) = refused.recv() => self.take(done),
                Some(seen) = news.recv() => {
                    self.take(seen);
                    // All that is there already, so that a cycle sees as much as it can.
                    while let Ok(seen) = news.try_recv() {
                        self.take(seen);
                    }
                }
            }
        }
        drop(watches);
        self.performer.writer.drain().await;
    }

    fn take(&mut self, news: News) {
        match news {
            News::Seen(table, Seen::Applied(value)) => match read(&value) {
                Some(object) => self.known.see(object),
                None => self.forget(table, key_of(&value)),
            },
            News::Seen(table, Seen::Deleted(key)) => self.forget(table, key),
            News::Seen(table, Seen::Listed { all, .. }) => {
                self.known.reset(table, all.iter().filter_map(read).collect());
                self.unseen.remove(&table);
                if self.unseen.is_empty() && !self.part.is_ready() {
                    tracing::info!(nodes = self.known.world().nodes.len(), "the cluster is known");
                    self.part.ready();
                }
            }
            News::Refused(asked) => self.known.refused(&asked),
        }
        self.news = true;
    }

    fn forget(&mut self, table: Table, key: Key) {
        self.known.lose(&table.reference(key));
    }

    fn cycle(&mut self, refuse: &mpsc::UnboundedSender<News>) {
        if !self.part.is_ready() || !self.is_worth_a_cycle() {
            return;
        }
        let now = clock::now();
        self.news = false;
        self.known.expire(now, ECHO_PATIENCE);
        let (world, settings) = (self.known.world(), &self.options.settings);
        let watch = metrics::Stopwatch::start();
        let run = || catch_unwind(AssertUnwindSafe(|| cycle(world, settings, &Usage::default(), now)));
        // Others go on meanwhile: watches are read, writes are finished.
        let Ok(done) = tokio::task::block_in_place(run) else {
            // What it was about was printed where it happened. Nothing of this cycle leaves.
            tracing::error!("a cycle failed; the next one starts from what is known then");
            self.metrics.failed();
            self.news = true;
            return;
        };
        self.metrics.cycle(&watch, &done);
        self.complain(&done);
        let writes = self.reporter.report(self.known.world(), &done, &self.options.settings, now);
        for effect in &done.effects {
            self.known.assume(effect, now);
        }
        self.write(writes, refuse);
        self.last = done;
    }

    /// Another look at the same would show the same, unless somebody waits for time to pass.
    fn is_worth_a_cycle(&self) -> bool {
        self.news
            || !self.last.effects.is_empty()
            || !self.last.pending.is_empty()
            || !self.known.is_empty()
            || self.known.world().pod_groups.values().any(|group| group.stale_since.is_some())
    }

    fn complain(&mut self, done: &Cycle) {
        let line = |problem: &Problem| format!("{}: {}", problem.object, problem.words.message);
        let complaints: BTreeSet<String> = done.problems.iter().map(line).collect();
        for new in complaints.difference(&self.complaints) {
            tracing::warn!("{new}");
        }
        self.complaints = complaints;
    }

    /// One after the other on the same object, different ones side by side.
    fn write(&self, writes: Vec<Write>, refuse: &mpsc::UnboundedSender<News>) {
        let mut by_object: BTreeMap<perform::Target, Vec<Write>> = BTreeMap::new();
        for write in writes {
            match write {
                Write::Emit(event) => self.performer.emit(event),
                write => by_object.entry(perform::target(&write)).or_default().push(write),
            }
        }
        for writes in by_object.into_values() {
            let (performer, refuse) = (self.performer.clone(), refuse.clone());
            self.performer.writer.spawn(async move {
                for write in writes {
                    if let Err(why) = performer.perform(&write).await {
                        tracing::warn!(?write, why, "not done");
                        // The loop may have ended.
                        let _ = perform::asked(&write).map(|asked| refuse.send(News::Refused(asked)));
                        break;
                    }
                }
            });
        }
    }
}

/// A malformed object is as good as none: it must not keep the others from being seen.
pub(crate) fn read(value: &Value) -> Option<Object> {
    match Object::parse(value) {
        Ok(object) => object,
        Err(malformed) => {
            let (kind, key) = (value["kind"].as_str(), key_of(value));
            tracing::warn!(kind, %key, hint = malformed.hint, "ignored: {malformed}");
            None
        }
    }
}
