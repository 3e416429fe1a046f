//! Turns a described cluster into what the engine sees, and remembers the names.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use kai_engine::builder::{Builder, GroupRow, HostPort, JobRow, MemberRow, NodeRow, PodSetRow, Protocol, TaskRow};
use kai_engine::ids::{DeviceId, NodeFilterId, NodeId, QueueId, TopologyId};
use kai_engine::outcome::Outcome;
use kai_engine::snapshot::{
    Constraint, GpuAsk, LevelRef, NodeFilter, NodeRule, Queue as QueueRow, ResourceKind, Shape, Snapshot, Topology,
};
use kai_engine::units::compat::{DEVICE_MEMORY_DEFAULT, share_of_gpu};
use kai_engine::units::{GPU, ResourceQuantities, Span, Timestamp};
use kai_engine::{Policy, cycle};

use super::cluster::{Ask, Cluster, Flag, Gpu, Grace, Group, Job, LevelConstraint, Member, Node, Queue, Set};
use super::inter_pod::Neighbours;
use super::settings;

/// The time of every test.
pub(crate) const NOW: Timestamp = Timestamp(1_000_000_000_000_000);

/// A cluster ready to be scheduled.
pub(crate) struct World {
    pub(crate) snapshot: Snapshot,
    pub(crate) policy: Policy,
    pub(crate) names: Names,
}

/// What ids are called.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) columns: Vec<String>,
    pub(crate) nodes: Vec<String>,
    pub(crate) queues: Vec<String>,
    pub(crate) jobs: Vec<String>,
    pub(crate) pod_sets: Vec<String>,
    pub(crate) pods: Vec<String>,
    /// Number of each shared GPU on its node.
    pub(crate) devices: Vec<(NodeId, u32)>,
    /// Domain names of each topology level.
    pub(crate) domains: Vec<Vec<String>>,
    /// Who is counted where.
    pub(crate) matchers: Vec<String>,
}

impl World {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let mut build = Build::new(cluster);
        build.nodes();
        build.queues();
        build.jobs();
        let policy = settings::policy(&cluster.settings);
        World { snapshot: build.builder.finish(), policy, names: build.names }
    }

    pub(crate) fn cycle(&self) -> Outcome {
        cycle(&self.snapshot, &self.policy, NOW)
    }
}

fn seconds_ago(seconds: i64) -> Timestamp {
    Timestamp(NOW.0 - Span::seconds(seconds).0)
}

/// What decides where a pod may run, whatever else runs there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ClassKey {
    only: Option<Vec<String>>,
    tolerates: bool,
    kind: AskKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AskKind {
    NoGpu,
    Whole,
    Share,
    Memory,
    Mig,
}

impl AskKind {
    fn of(ask: &Ask) -> Self {
        match ask.gpu {
            _ if ask.is_mig() => Self::Mig,
            Gpu::None => Self::NoGpu,
            Gpu::Whole(_) => Self::Whole,
            Gpu::Share { .. } => Self::Share,
            Gpu::Memory { .. } => Self::Memory,
        }
    }
}

struct Build<'c> {
    cluster: &'c Cluster,
    builder: Builder,
    names: Names,
    classes: BTreeMap<ClassKey, NodeFilterId>,
    signatures: BTreeMap<String, u32>,
    neighbours: Neighbours,
}

impl<'c> Build<'c> {
    fn new(cluster: &'c Cluster) -> Self {
        let of_nodes = cluster.nodes.iter().flat_map(|node| node.extra.keys());
        let of_pods = cluster.jobs.iter().flat_map(|job| sets(&job.root)).flat_map(|set| set.ask.extra.keys());
        let extra: BTreeSet<&String> = of_nodes.chain(of_pods).collect();
        let columns = extra.iter().map(|name| column(name)).collect();
        let fixed = ["CPU", "memory", "GPU", "pod slots"].map(str::to_owned);
        let names = fixed.into_iter().chain(extra.into_iter().cloned()).collect();
        Self {
            cluster,
            builder: Builder::new(columns),
            names: Names { columns: names, ..Names::default() },
            classes: BTreeMap::new(),
            signatures: BTreeMap::new(),
            neighbours: Neighbours::default(),
        }
    }

    fn extra_amounts(&self, extra: &BTreeMap<String, i64>) -> Vec<i64> {
        self.names.columns[4..].iter().map(|name| extra.get(name).copied().unwrap_or(0)).collect()
    }

    fn nodes(&mut self) {
        let nodes = by_name(&self.cluster.nodes, |node| &node.name);
        let mut topology = Topology { levels: vec![vec![None; nodes.len()]; self.cluster.levels.len()] };
        self.names.domains = vec![Vec::new(); self.cluster.levels.len()];
        for (index, node) in nodes.iter().enumerate() {
            let mut allocatable = vec![node.cpu_milli, node.memory, node.gpus * GPU, node.pods];
            allocatable.extend(self.extra_amounts(&node.extra));
            let gpus = |count: i64, pods: i64| {
                let mut row = vec![0; allocatable.len()];
                (row[2], row[3]) = (count * GPU, pods);
                row
            };
            let (taken, leaving) = (gpus(node.taken, 0), gpus(node.leaving, 0));
            let unready = |flag: &Flag| matches!(flag, Flag::Cordoned | Flag::NotReady);
            self.builder.node(NodeRow {
                unmanaged_used: taken,
                unmanaged_releasing: leaving,
                other_schedulers_requested: ResourceQuantities::new(0, 0, node.taken * GPU),
                ready: !node.flags.iter().any(unready),
                device_memory: node.gpu_memory.unwrap_or(DEVICE_MEMORY_DEFAULT),
                ..NodeRow::idle(allocatable)
            });
            self.names.nodes.push(node.name.clone());
            self.domains(node, index, &mut topology);
        }
        if !self.cluster.levels.is_empty() {
            self.builder.topology(topology);
        }
    }

    /// A node without a domain on some level belongs to none.
    fn domains(&mut self, node: &Node, index: usize, topology: &mut Topology) {
        let path: Option<Vec<_>> = self.cluster.levels.iter().map(|level| node.domains.get(level).cloned()).collect();
        let Some(path) = path else { return };
        for level in 0..path.len() {
            let known = &mut self.names.domains[level];
            let name = path[..=level].join(".");
            let at = known.iter().position(|other| *other == name).unwrap_or_else(|| {
                known.push(name);
                known.len() - 1
            });
            topology.levels[level][index] = Some(at as u32);
        }
    }

    fn queues(&mut self) {
        let queues = by_name(&self.cluster.queues, |queue| &queue.name);
        self.names.queues = queues.iter().map(|queue| queue.name.clone()).collect();
        for queue in queues {
            let row = self.queue(queue);
            self.builder.queue(row);
        }
    }

    fn queue(&self, queue: &Queue) -> QueueRow {
        QueueRow {
            parent: queue.parent.as_ref().map(|name| self.queue_id(name).expect("a parent exists")),
            priority: queue.priority,
            created: seconds_ago(queue.age),
            quota: queue.quota,
            limit: queue.limit,
            weight: [queue.weight; 3],
            usage: [queue.usage; 3],
            preempt_min_runtime: queue.preempt_min.map(Span::seconds),
            reclaim_min_runtime: queue.reclaim_min.map(Span::seconds),
        }
    }

    fn queue_id(&self, name: &str) -> Option<QueueId> {
        self.names.queues.iter().position(|known| known == name).map(QueueId::at)
    }

    fn node_id(&self, name: &str) -> NodeId {
        let index = self.names.nodes.iter().position(|known| known == name);
        NodeId::at(index.unwrap_or_else(|| panic!("there is no node {name}")))
    }

    fn jobs(&mut self) {
        let jobs = by_name(&self.cluster.jobs, |job| &job.name);
        let mut devices = BTreeSet::new();
        for set in jobs.iter().flat_map(|job| sets(&job.root)) {
            for (node, numbers) in set.pods.iter().filter_map(|pod| pod.place.as_ref()) {
                devices.extend(numbers.iter().map(|number| (self.node_id(node), *number)));
            }
        }
        for (node, number) in devices {
            self.builder.device(node);
            self.names.devices.push((node, number));
        }
        for job in jobs {
            let signature = self.signature(job);
            let root = self.group(job, &job.root, &job.name);
            self.names.jobs.push(job.name.clone());
            self.builder.job(JobRow {
                queue: self.queue_id(&job.queue),
                priority: job.priority,
                preemptible: job.preemptible,
                created: seconds_ago(job.age),
                last_start: job.started.map(seconds_ago),
                stale_since: job.stale.map(seconds_ago),
                last_eviction: job.evicted.map(seconds_ago),
                preemption_delay: Span::seconds(job.delay),
                staleness_grace: match job.grace {
                    Grace::Default => None,
                    Grace::Never => Some(None),
                    Grace::Seconds(seconds) => Some(Some(Span::seconds(seconds))),
                },
                signature,
                root,
            });
        }
    }

    /// Jobs are alike if nothing but amounts tells their pods apart.
    fn signature(&mut self, job: &Job) -> u32 {
        let of_set = |set: &Set| {
            format!("{:?}{:?}{:?}{:?}{:?}", AskKind::of(&set.ask), set.bounds, set.ports, set.tags, set.pod_rules)
        };
        let of_sets: Vec<_> = sets(&job.root).into_iter().map(of_set).collect();
        let text = format!("{:?}{}{:?}{of_sets:?}", job.only, job.tolerates, job.root.bounds);
        let next = self.signatures.len() as u32;
        *self.signatures.entry(text).or_insert(next)
    }

    fn group(&mut self, job: &Job, group: &Group, path: &str) -> GroupRow {
        let members = by_name(&group.members, Member::name);
        let members = members.into_iter().map(|member| match member {
            Member::Group(inner) => MemberRow::Group(self.group(job, inner, &format!("{path}.{}", inner.name))),
            Member::Set(set) => MemberRow::PodSet(self.set(job, set, path)),
        });
        let members = members.collect();
        GroupRow { min_members: group.need, constraint: self.constraint(&group.bounds), members }
    }

    fn constraint(&mut self, bounds: &LevelConstraint) -> Option<u32> {
        if *bounds == LevelConstraint::default() {
            return None;
        }
        let level = |name: &String| match self.cluster.levels.iter().position(|known| known == name) {
            Some(index) => LevelRef::At(index as u32),
            None => LevelRef::Unknown,
        };
        let topology = (!self.cluster.levels.is_empty()).then_some(TopologyId(0));
        let (required, preferred) = (bounds.required.as_ref().map(level), bounds.preferred.as_ref().map(level));
        Some(self.builder.constraint(Constraint { topology, required, preferred }))
    }

    fn set(&mut self, job: &Job, set: &Set, path: &str) -> PodSetRow {
        let name = if set.name.is_empty() { path.to_owned() } else { format!("{path}.{}", set.name) };
        let shape = self.builder.shape(Shape {
            need: self.need(&set.ask),
            gpu: gpu_ask(&set.ask),
            quota_gpu: quota_gpu(&set.ask),
            numa: None,
        });
        let class = self.class(job, &set.ask);
        let port = |number: &u16| HostPort { number: *number, protocol: Protocol::Tcp, address: None };
        let ports = set.ports.iter().map(|number| self.builder.port(port(number))).collect();
        let ports = self.builder.port_set(ports);
        let (inter_pod, matchers) = self.neighbours.rows(self.cluster, job, set, &mut self.builder, &mut self.names);
        let mut tasks = Vec::new();
        for (index, pod) in set.pods.iter().enumerate() {
            self.names.pods.push(format!("{name}-{index}"));
            let node = pod.place.as_ref().map(|(node, _)| self.node_id(node));
            let numbers = pod.place.as_ref().map_or(&[][..], |(_, numbers)| numbers);
            tasks.push(TaskRow {
                status: pod.status,
                node,
                devices: numbers.iter().map(|number| self.device(node, *number)).collect(),
                ports,
                inter_pod,
                matchers,
                nominated: set.nominated.as_ref().map(|name| self.node_id(name)),
                ..TaskRow::pending(shape, class)
            });
        }
        self.names.pod_sets.push(name);
        PodSetRow { min: set.min, constraint: self.constraint(&set.bounds), tasks }
    }

    fn device(&self, node: Option<NodeId>, number: u32) -> DeviceId {
        let index = self.names.devices.iter().position(|(host, known)| Some(*host) == node && *known == number);
        DeviceId::at(index.expect("devices of pods were collected"))
    }

    fn need(&self, ask: &Ask) -> Vec<i64> {
        let whole = if let Gpu::Whole(count) = ask.gpu { count * GPU } else { 0 };
        let mut need = vec![ask.cpu_milli, ask.memory, whole, 1];
        need.extend(self.extra_amounts(&ask.extra));
        need
    }

    fn class(&mut self, job: &Job, ask: &Ask) -> NodeFilterId {
        let key = ClassKey { only: job.only.clone(), tolerates: job.tolerates, kind: AskKind::of(ask) };
        if let Some(id) = self.classes.get(&key) {
            return *id;
        }
        let count = self.names.nodes.len();
        let mut feasible = FixedBitSet::with_capacity(count);
        let mut excluded: BTreeMap<NodeRule, FixedBitSet> = BTreeMap::new();
        for (index, name) in self.names.nodes.iter().enumerate() {
            match rule(self.cluster.node(name), &key) {
                None => feasible.insert(index),
                Some(rule) => {
                    excluded.entry(rule).or_insert_with(|| FixedBitSet::with_capacity(count)).insert(index);
                }
            }
        }
        let id = self.builder.add_node_filter(NodeFilter { feasible, excluded: excluded.into_iter().collect() });
        self.classes.insert(key, id);
        id
    }
}

/// The first rule that keeps such pods off the node.
fn rule(node: &Node, key: &ClassKey) -> Option<NodeRule> {
    let has = |flag: Flag| node.flags.contains(&flag);
    let is_mig = has(Flag::MigMixed) || has(Flag::MigSingle) || node.extra.keys().any(|name| name.starts_with("mig-"));
    let selected = key.only.as_ref().is_none_or(|only| only.contains(&node.name));
    let rules = [
        (NodeRule::MigOnly, key.kind == AskKind::Mig && !is_mig),
        (NodeRule::MigSingle, has(Flag::MigSingle) && !matches!(key.kind, AskKind::Whole | AskKind::NoGpu)),
        (NodeRule::MigMixed, has(Flag::MigMixed) && !matches!(key.kind, AskKind::Mig | AskKind::NoGpu)),
        (NodeRule::DeviceMemoryUnknown, key.kind == AskKind::Memory && node.gpu_memory.is_none()),
        (NodeRule::Cordoned, has(Flag::Cordoned)),
        (NodeRule::NotReady, has(Flag::NotReady)),
        (NodeRule::Taint, has(Flag::Tainted) && !key.tolerates),
        (NodeRule::Affinity, !selected),
    ];
    rules.into_iter().find(|(_, fails)| *fails).map(|(rule, _)| rule)
}

fn gpu_ask(ask: &Ask) -> GpuAsk {
    match ask.gpu {
        _ if ask.is_mig() => GpuAsk::Mig,
        Gpu::None => GpuAsk::None,
        Gpu::Whole(_) => GpuAsk::Whole,
        Gpu::Share { devices, portion } => GpuAsk::Fraction { devices, portion },
        Gpu::Memory { devices, mib } => GpuAsk::Memory { devices, mib },
    }
}

fn quota_gpu(ask: &Ask) -> i64 {
    let migs = ask.extra.iter().map(|(name, count)| column(name).quota_gpu(*count)).sum::<i64>();
    migs + match ask.gpu {
        Gpu::Whole(count) => count * GPU,
        Gpu::Share { devices, portion } => share_of_gpu(portion, devices),
        Gpu::None | Gpu::Memory { .. } => 0,
    }
}

/// `mig-1g.5gb` is a profile of one slice and five units of memory.
fn column(name: &str) -> ResourceKind {
    let Some(profile) = name.strip_prefix("mig-") else { return ResourceKind::Scalar };
    let parts = profile.split_once("g.").and_then(|(slices, memory)| Some((slices, memory.strip_suffix("gb")?)));
    let (slices, memory) = parts.unwrap_or_else(|| panic!("{name} is no profile"));
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{name} is no profile"));
    ResourceKind::Mig { slices: number(slices), memory: number(memory) }
}

fn by_name<T>(rows: &[T], name: impl Fn(&T) -> &str) -> Vec<&T> {
    let mut rows: Vec<&T> = rows.iter().collect();
    rows.sort_by(|left, right| name(left).cmp(name(right)));
    rows
}

/// All pod sets below a group.
pub(crate) fn sets(group: &Group) -> Vec<&Set> {
    let mut found = Vec::new();
    for member in &group.members {
        match member {
            Member::Group(inner) => found.extend(sets(inner)),
            Member::Set(set) => found.push(set),
        }
    }
    found
}
