//! What a simulation shows at its end: view models, ready to print or to serialise.
//!
//! GPUs are numbers of devices with fractions, CPU is in cores, memory in bytes, times are seconds since the start.
//! A missing bound is `null`, never a magic number.

use std::collections::{BTreeMap, BTreeSet};

use kai_control::key::Key;
use kai_control::objects::{GpuSharing, Node, Phase, Pod};
use kai_control::scheduler::record::CycleRecord;
use kai_control::scheduler::{CycleResult, Effect, JobNames, PendingJob, QueueView, Settings};
use kai_engine::units::{Ceiling, GPU, Span, compat};
use serde::{Serialize, Serializer};

use crate::amounts::{device_memory, gpu_on, holds_node};
use crate::cluster::Cluster;
use crate::journal::Entry;
use crate::manifest::{Id, Kind};

/// Everything there is to show.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What happened, in order.
    pub timeline: Vec<TimelineRow>,
    /// Nodes at the end, by name.
    pub nodes: Vec<NodeRow>,
    /// Queues at the end, each before its children.
    pub queues: Vec<QueueRow>,
    /// Who waits at the end, by name.
    pub pending: Vec<PendingRow>,
    /// When it ended. Shown to people; programs have the timeline.
    #[serde(skip)]
    pub end: End,
    /// What in the input has no effect.
    #[serde(skip)]
    pub warnings: Vec<String>,
    /// The record of the last cycle.
    #[serde(skip)]
    pub last_cycle: Option<CycleRecord>,
}

/// When and why a simulation ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Since the start.
    pub at: Span,
    /// Nothing was left to happen; otherwise the time was up.
    pub quiet: bool,
    /// Scheduling cycles that were run.
    pub cycles: u64,
}

/// One line of the timeline.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineRow {
    /// Seconds since the start.
    pub t: Amount,
    /// One word.
    pub event: &'static str,
    /// The pod, as `namespace/name`, if it is about one.
    pub pod: Option<String>,
    /// The workload, as `namespace/name`, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Any other object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The node.
    pub node: Option<String>,
    /// Why, in a sentence.
    pub why: String,
}

/// A node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    pub name: String,
    /// Whether pods may be placed on it.
    pub ready: bool,
    pub gpu: Room,
    pub cpu: Room,
    pub memory: Room,
    /// Pods that hold its resources, by name.
    pub pods: Vec<PodRow>,
    /// GPUs that several pods share, or could.
    pub devices: Vec<DeviceRow>,
}

/// How much there is and how much of it is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Room {
    pub total: Amount,
    pub free: Amount,
}

/// A pod on a node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRow {
    /// `namespace/name`.
    pub name: String,
    /// GPUs it holds.
    pub gpu: Amount,
    /// `Bound`, `Running` or `Terminating`.
    pub phase: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Names of shared GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
}

/// A shared GPU.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceRow {
    pub name: String,
    pub free: Amount,
    pub pods: Vec<ShareRow>,
}

/// A pod's part of a shared GPU.
#[derive(Clone, Debug, Serialize)]
pub struct ShareRow {
    /// `namespace/name`.
    pub name: String,
    pub share: Amount,
}

/// A queue. Numbers without a name are GPUs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow {
    pub name: String,
    pub parent: Option<String>,
    /// Number of queues above it.
    #[serde(skip)]
    pub depth: usize,
    pub priority: i32,
    #[serde(flatten)]
    pub gpu: QueueAmounts,
    pub cpu: QueueAmounts,
    pub memory: QueueAmounts,
}

/// One resource of a queue.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueAmounts {
    pub quota: Option<Amount>,
    pub limit: Option<Amount>,
    pub fair_share: Amount,
    pub allocated: Amount,
    pub requested: Amount,
}

/// A workload that waits, in whole or in part.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingRow {
    /// `namespace/name`.
    pub name: String,
    /// `Job`, `Deployment`, `Pod`, `PodGroup` …
    pub kind: &'static str,
    pub queue: Option<String>,
    /// Pods that wait, as `namespace/name`.
    pub pods: Vec<String>,
    /// Pods of the same workload that do not.
    pub placed: usize,
    /// Sentences.
    pub reasons: Vec<String>,
    /// The same for programs.
    pub codes: Vec<&'static str>,
}

/// Millionths, written as a whole number where it is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(pub i64);

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 % GPU == 0 {
            serializer.serialize_i64(self.0 / GPU)
        } else {
            serializer.serialize_f64(self.0 as f64 / GPU as f64)
        }
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.pad(&crate::amounts::number(self.0))
    }
}

/// Builds the report from the cluster as it stands and the last cycle.
pub(crate) fn report(cluster: &Cluster, cycle: &CycleResult, settings: &Settings, end: End) -> Report {
    Report {
        timeline: cluster.journal.entries().iter().map(timeline_row).collect(),
        nodes: nodes(cluster),
        queues: queue_rows(&cycle.queues),
        pending: pending(cluster, cycle, settings),
        end,
        warnings: Vec::new(),
        last_cycle: None,
    }
}

fn timeline_row(entry: &Entry) -> TimelineRow {
    let name = || Some(entry.subject.path());
    let (mut pod, mut job, mut object) = (None, None, None);
    match entry.subject.kind {
        Kind::Pod => pod = name(),
        Kind::PodGroup => job = name(),
        kind if kind.makes_pods() => job = name(),
        // The node has a column of its own.
        Kind::Node => {}
        _ => object = Some(entry.subject.to_string()),
    }
    let node = entry.node.clone();
    TimelineRow { t: Amount(entry.at.0), event: entry.event.as_str(), pod, job, object, node, why: entry.why.clone() }
}

fn nodes(cluster: &Cluster) -> Vec<NodeRow> {
    let mut pods_by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in cluster.world().pods.values().filter(|pod| holds_node(pod)) {
        pods_by_node.entry(pod.node.as_deref().unwrap_or_default()).or_default().push(pod);
    }
    cluster
        .world()
        .nodes
        .values()
        .map(|node| node_row(cluster, node, pods_by_node.get(node.name.as_str()).map_or(&[][..], Vec::as_slice)))
        .collect()
}

fn node_row(cluster: &Cluster, node: &Node, pods: &[&Pod]) -> NodeRow {
    let mut devices: BTreeMap<&str, DeviceRow> = BTreeMap::new();
    let mut rows = Vec::new();
    let (mut cpu, mut memory, mut gpu) = (0, 0, 0);
    for pod in pods {
        cpu += pod.request.resources.cpu_milli;
        memory += pod.request.resources.memory_bytes;
        let held = gpu_on(&pod.request, Some(node));
        gpu += held;
        let share = match pod.request.sharing {
            Some(GpuSharing::Fraction { portion, .. }) => compat::share_of_gpu(portion, 1),
            Some(GpuSharing::Memory { mib, .. }) => compat::memory_to_share(mib, device_memory(node)),
            None => 0,
        };
        let groups = if pod.request.sharing.is_some() { pod.gpu_groups() } else { Vec::new() };
        for group in &groups {
            let device = devices.entry(*group).or_insert_with(|| DeviceRow {
                name: (*group).to_owned(),
                free: Amount(GPU),
                pods: Vec::new(),
            });
            device.free.0 -= share;
            device.pods.push(ShareRow { name: pod.key.to_string(), share: Amount(share) });
        }
        rows.push(PodRow {
            name: pod.key.to_string(),
            gpu: Amount(held),
            phase: match (pod.deletion.is_some(), pod.phase) {
                (true, _) => "Terminating",
                (false, Phase::Running) => "Running",
                (false, _) => "Bound",
            },
            queue: queue_of(cluster, pod),
            devices: groups.into_iter().map(str::to_owned).collect(),
        });
    }
    let amount = |value: i64, unit: i64| Amount(value.saturating_mul(unit));
    let room = |total: i64, used: i64, unit: i64| Room { total: amount(total, unit), free: amount(total - used, unit) };
    NodeRow {
        name: node.name.clone(),
        ready: node.is_ready(),
        gpu: Room { total: Amount(node.allocatable.gpus * GPU), free: Amount(node.allocatable.gpus * GPU - gpu) },
        cpu: room(node.allocatable.cpu_milli, cpu, GPU / 1000),
        memory: room(node.allocatable.memory_bytes, memory, GPU),
        pods: rows,
        devices: devices.into_values().collect(),
    }
}

fn queue_of(cluster: &Cluster, pod: &Pod) -> Option<String> {
    Some(cluster.world().pod_groups.get(&pod.group()?)?.queue.clone())
}

/// Parents before children, siblings by name.
pub fn queue_rows(views: &[QueueView]) -> Vec<QueueRow> {
    let known: BTreeSet<&str> = views.iter().map(|view| view.name.as_str()).collect();
    let mut rows = Vec::new();
    let mut open: Vec<(&QueueView, usize)> = Vec::new();
    let mut children: BTreeMap<Option<&str>, Vec<&QueueView>> = BTreeMap::new();
    for view in views {
        // A queue whose parent is missing is shown at the top, where it will be noticed.
        children.entry(view.parent.as_deref().filter(|parent| known.contains(parent))).or_default().push(view);
    }
    // The last is taken first.
    for found in children.values_mut() {
        found.sort_by(|left, right| right.name.cmp(&left.name));
    }
    open.extend(children.remove(&None).into_iter().flatten().map(|view| (view, 0)));
    while let Some((view, depth)) = open.pop() {
        rows.push(queue_row(view, depth));
        let below = children.remove(&Some(view.name.as_str()));
        open.extend(below.into_iter().flatten().map(|child| (child, depth + 1)));
    }
    rows
}

fn queue_row(view: &QueueView, depth: usize) -> QueueRow {
    let amounts = |index: usize, unit: i64| {
        let amount = |value: i64| Amount(value.saturating_mul(unit));
        let bound = |ceiling: Ceiling| match ceiling {
            Ceiling::Unlimited => None,
            Ceiling::At(value) => Some(amount(value)),
        };
        QueueAmounts {
            quota: bound(view.quota[index]),
            limit: bound(view.limit[index]),
            fair_share: amount(view.fair_share.0[index]),
            allocated: amount(view.allocated.0[index]),
            requested: amount(view.request.0[index]),
        }
    };
    QueueRow {
        name: view.name.clone(),
        parent: view.parent.clone(),
        depth,
        priority: view.priority,
        cpu: amounts(0, GPU / 1000),
        memory: amounts(1, GPU),
        gpu: amounts(2, 1),
    }
}

fn pending(cluster: &Cluster, cycle: &CycleResult, settings: &Settings) -> Vec<PendingRow> {
    let mut placed: BTreeMap<Id, usize> = BTreeMap::new();
    for group in cluster.world().pods.values().filter(|pod| holds_node(pod)).filter_map(Pod::group) {
        *placed.entry(cluster.workload_of(&group)).or_default() += 1;
    }
    let answers = Answers::new(cycle);
    let mut rows: BTreeMap<(String, &'static str), PendingRow> = BTreeMap::new();
    let waits = |pod: &Pod| pod.node.is_none() && pod.phase == Phase::Pending;
    for pod in cluster.world().pods.values().filter(|pod| waits(pod)) {
        let group = pod.group().filter(|group| cluster.world().pod_groups.contains_key(group));
        let id = match &group {
            Some(group) => cluster.workload_of(group),
            None => crate::cluster::pod_id(&pod.key),
        };
        let (reasons, codes) = match &group {
            Some(group) => answers.about(cluster, group),
            None => lone_reasons(cluster, pod, settings),
        };
        let key = (id.path(), id.kind.name());
        let row = rows.entry(key).or_insert_with(|| PendingRow {
            name: id.path(),
            kind: id.kind.name(),
            queue: queue_of(cluster, pod),
            pods: Vec::new(),
            placed: placed.get(&id).copied().unwrap_or(0),
            reasons: Vec::new(),
            codes: Vec::new(),
        });
        // Replicas of a Deployment are jobs of their own; what holds for several is one entry.
        for (reason, code) in reasons.into_iter().zip(codes) {
            if !row.codes.contains(&code) {
                row.reasons.push(reason);
                row.codes.push(code);
            }
        }
        row.pods.push(pod.key.to_string());
    }
    rows.into_values().collect()
}

/// Why jobs are pending, as of the last cycle.
struct Answers<'a> {
    pipelined: BTreeMap<&'a Key, &'a str>,
    pending: BTreeMap<&'a Key, &'a PendingJob>,
}

impl<'a> Answers<'a> {
    fn new(cycle: &'a CycleResult) -> Self {
        let pipelined = cycle.effects.iter().filter_map(|effect| match effect {
            Effect::Pipeline { job, node, .. } => Some((job, node.as_str())),
            _ => None,
        });
        let pending = cycle.pending.iter().map(|pending| (&pending.job, pending.as_ref()));
        Self { pipelined: pipelined.collect(), pending: pending.collect() }
    }

    fn about(&self, cluster: &Cluster, group: &Key) -> (Vec<String>, Vec<&'static str>) {
        if let Some(node) = self.pipelined.get(group) {
            return (
                vec![format!("pipelined: starts on {node} when terminating pods release the resources")],
                vec!["Pipelined"],
            );
        }
        match self.pending.get(group) {
            Some(pending) => {
                let names = |job: &Key| cluster.workload_name(job);
                let explanations = pending.explain(JobNames::by(&names));
                explanations.into_iter().map(|explanation| (explanation.message, explanation.reason)).unzip()
            }
            None => (vec!["not considered yet; the next scheduling cycle will".to_owned()], vec!["NotConsideredYet"]),
        }
    }
}

/// Why a pod without a group waits.
fn lone_reasons(cluster: &Cluster, pod: &Pod, settings: &Settings) -> (Vec<String>, Vec<&'static str>) {
    if pod.scheduler != settings.scheduler_name {
        let named = if pod.scheduler.is_empty() { "default-scheduler" } else { &pod.scheduler };
        let message = format!(
            "it asks for another scheduler, {named}; set spec.schedulerName to {} to have it placed here",
            settings.scheduler_name
        );
        return (vec![message], vec!["OtherScheduler"]);
    }
    if let Some(problem) = cluster.grouping_problem(&pod.key) {
        return (vec![problem.to_owned()], vec!["NotGrouped"]);
    }
    let message = match pod.group() {
        Some(group) => format!("its pod group {group} does not exist"),
        None => "it belongs to no pod group".to_owned(),
    };
    (vec![message], vec!["NoPodGroup"])
}
