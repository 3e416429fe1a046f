//! A cluster being filled: nodes of 8 GPUs, departments with leaf queues, jobs that run or wait.
//!
//! Names are not needed, their order is: a job's queue is part of its name, so jobs of one queue are neighbours.

use std::collections::BTreeMap;

use kai_engine::builder::{Builder, GroupRow, JobRow, MemberRow, NodeRow, PodSetRow, TaskRow};
use kai_engine::ids::{ClassId, NodeId, QueueId, TopologyId};
use kai_engine::snapshot::{Constraint, GpuAsk, LevelRef, Queue, Shape, Snapshot, Topology};
use kai_engine::units::compat::{floor_device_memory, share_of_gpu};
use kai_engine::units::{Ceiling, GPU, ONE, Timestamp};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::size::Size;

/// GPUs of a node.
pub const GPUS_PER_NODE: usize = 8;

/// When the cycle runs: about two weeks after the first job was created.
pub const NOW: Timestamp = Timestamp(1_768_478_400_000_000);

const FIRST_JOB_SECONDS: i64 = 1_767_000_000;
/// Nodes and queues are a hundred days older than the first job.
const QUEUES_SECONDS: i64 = FIRST_JOB_SECONDS - 8_640_000;
const GIB: i64 = 1 << 30;

/// Priority of ordinary training.
pub const TRAIN: i32 = 50;
/// Priority of interactive work that may be preempted.
pub const BUILD_PREEMPTIBLE: i32 = 75;
/// Priority of interactive work; from here up, jobs are not preempted.
pub const BUILD: i32 = 100;

/// What each pod of a job asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// GPUs.
    pub gpus: Gpus,
    /// Milli-cores.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory: i64,
}

/// GPUs of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// None at all.
    None,
    /// Half of one that others share.
    Half,
    /// Whole ones.
    Whole(u32),
}

impl Ask {
    /// Whole GPUs with 4 cores and 32 GiB each.
    pub fn whole(gpus: u32) -> Self {
        Self { gpus: Gpus::Whole(gpus), cpu_milli: 4000 * i64::from(gpus), memory: 32 * GIB * i64::from(gpus) }
    }

    /// Half a GPU with its cores and memory.
    pub fn half() -> Self {
        Self { gpus: Gpus::Half, cpu_milli: 2000, memory: 16 * GIB }
    }

    /// No GPU.
    pub fn cpu_only(cores: i64) -> Self {
        Self { gpus: Gpus::None, cpu_milli: 1000 * cores, memory: 4 * GIB * cores }
    }

    fn shape(self) -> Shape {
        let (gpu, whole, quota_gpu) = match self.gpus {
            Gpus::None => (GpuAsk::None, 0, 0),
            Gpus::Half => (GpuAsk::Share { devices: 1, portion: GPU / 2 }, 0, share_of_gpu(GPU / 2, 1)),
            Gpus::Whole(count) => (GpuAsk::Whole, i64::from(count) * GPU, i64::from(count) * GPU),
        };
        Shape { need: vec![self.cpu_milli, self.memory, whole, 1], gpu, quota_gpu }
    }
}

/// A job to be added.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Pods, all alike.
    pub pods: usize,
    /// Pods that must run together.
    pub min: usize,
    /// What each asks for.
    pub ask: Ask,
    /// Higher first.
    pub priority: i32,
    /// Where it must and should stay together, from [`Cluster::constraint`].
    pub constraint: Option<u32>,
    /// The node of each pod, if the job runs.
    pub nodes: Option<Vec<usize>>,
}

impl Draft {
    /// A training job that waits, all pods together.
    pub fn pending(pods: usize, ask: Ask) -> Self {
        Self { pods, min: pods, ask, priority: TRAIN, constraint: None, nodes: None }
    }

    /// A training job that runs, one pod on each of the nodes.
    pub fn running(ask: Ask, nodes: &[usize]) -> Self {
        Self { nodes: Some(nodes.to_vec()), ..Self::pending(nodes.len(), ask) }
    }
}

/// What makes two waiting jobs alike, whatever amounts they ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Likeness {
    pods: usize,
    priority: i32,
    constraint: Option<u32>,
}

/// A cluster being filled.
#[derive(Debug)]
pub struct Cluster {
    /// Its arguments.
    pub size: Size,
    /// The only source of chance.
    dice: Pcg64,
    builder: Builder,
    leaves: Vec<QueueId>,
    classes: [ClassId; 3],
    /// By leaf queue; each with the number it was created with.
    jobs: Vec<Vec<(i64, Draft)>>,
    created: i64,
}

impl Cluster {
    /// Empty nodes, and queues that divide their GPUs evenly.
    pub fn new(size: Size) -> Self {
        let mut builder = Builder::new(Vec::new());
        for _ in 0..size.nodes {
            let allocatable = vec![220_000, 2_050_000_000 << 10, GPUS_PER_NODE as i64 * GPU, 110];
            builder.node(NodeRow { device_memory: floor_device_memory(81_559), ..NodeRow::idle(allocatable) });
        }
        // Pods without, with shared and with whole GPUs are held to different rules, though all nodes pass here.
        let classes = std::array::from_fn(|_| builder.class_of_all_nodes());
        let gpus = size.nodes * GPUS_PER_NODE;
        let departments: Vec<QueueId> =
            (0..size.departments).map(|_| builder.queue(queue(None, gpus, size.departments))).collect();
        let leaves = (0..size.queues)
            .map(|index| builder.queue(queue(Some(departments[index % size.departments]), gpus, size.queues)))
            .collect();
        Self {
            size,
            dice: Pcg64::new(u128::from(size.seed), 1),
            builder,
            leaves,
            classes,
            jobs: vec![Vec::new(); size.queues],
            created: 0,
        }
    }

    /// Adds a job to a leaf queue (counted round and round), younger than all before.
    pub fn job(&mut self, queue: usize, draft: Draft) {
        self.created += 1;
        self.jobs[queue % self.size.queues].push((self.created, draft));
    }

    /// Puts a list in random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            let other = self.below(end + 1);
            list.swap(end, other);
        }
    }

    /// A random number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        // The bias of the remainder is beyond notice: `end` is small beside 2⁶⁴.
        (self.dice.next_u64() % end as u64) as usize
    }

    /// Adds a tree of node domains.
    pub fn topology(&mut self, levels: Vec<Vec<Option<u32>>>) -> TopologyId {
        self.builder.topology(Topology { levels })
    }

    /// The number of a constraint: levels of a topology, from 0.
    pub fn constraint(&mut self, topology: TopologyId, required: u32, preferred: u32) -> u32 {
        self.builder.constraint(Constraint {
            topology: Some(topology),
            required: Some(LevelRef::At(required)),
            preferred: Some(LevelRef::At(preferred)),
        })
    }

    /// The snapshot.
    pub fn finish(mut self) -> Snapshot {
        let mut alike: BTreeMap<Likeness, u32> = BTreeMap::new();
        for (jobs, queue) in std::mem::take(&mut self.jobs).into_iter().zip(self.leaves.clone()) {
            for (number, draft) in jobs {
                let row = self.row(queue, number, &draft, &mut alike);
                self.builder.job(row);
            }
        }
        self.builder.finish()
    }

    fn row(&mut self, queue: QueueId, number: i64, draft: &Draft, alike: &mut BTreeMap<Likeness, u32>) -> JobRow {
        let shape = self.builder.shape(draft.ask.shape());
        let class = self.classes[match draft.ask.gpus {
            Gpus::None => 0,
            Gpus::Half => 1,
            Gpus::Whole(_) => 2,
        }];
        let tasks: Vec<TaskRow> = match &draft.nodes {
            None => vec![TaskRow::pending(shape, class); draft.pods],
            Some(nodes) => nodes.iter().map(|node| TaskRow::running(shape, class, NodeId::at(*node))).collect(),
        };
        let runs = draft.nodes.is_some();
        let likeness = Likeness { pods: draft.pods, priority: draft.priority, constraint: draft.constraint };
        let next = alike.len() as u32 + 1;
        let leaf = PodSetRow { min: draft.min as u32, constraint: None, tasks };
        let root = GroupRow { need: None, constraint: draft.constraint, members: vec![MemberRow::PodSet(leaf)] };
        let created = seconds(FIRST_JOB_SECONDS + number);
        JobRow {
            priority: draft.priority,
            preemptible: draft.priority < BUILD,
            last_start: runs.then(|| seconds(FIRST_JOB_SECONDS + number + 30)),
            // A job without waiting pods has nothing in which to be alike.
            signature: if runs { 0 } else { *alike.entry(likeness).or_insert(next) },
            ..JobRow::new(queue, created, root)
        }
    }
}

/// A queue that is guaranteed its even part of the GPUs and may take more, and any amount of the rest.
fn queue(parent: Option<QueueId>, gpus: usize, siblings: usize) -> Queue {
    let quota = (gpus as f64 / siblings as f64 * GPU as f64).round() as i64;
    Queue {
        parent,
        priority: 100,
        created: seconds(QUEUES_SECONDS),
        quota: [Ceiling::Unlimited, Ceiling::Unlimited, Ceiling::At(quota)],
        limit: [Ceiling::Unlimited; 3],
        weight: [ONE; 3],
        usage: [0; 3],
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
    }
}

fn seconds(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1_000_000)
}
