//! A cluster being filled: nodes of 8 GPUs, departments with leaf queues, jobs that run or wait.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::size::Size;

/// GPUs of a node.
pub const GPUS_PER_NODE: usize = 8;
/// Nodes of a rack.
pub const NODES_PER_RACK: usize = 16;
/// Racks of a block.
pub const RACKS_PER_BLOCK: usize = 8;

/// When the first job was created, in seconds. Nodes and queues are a hundred days older.
pub const FIRST_JOB_SECONDS: i64 = 1_767_000_000;
/// When nodes and queues were created, in seconds.
pub const QUEUES_SECONDS: i64 = FIRST_JOB_SECONDS - 8_640_000;
/// When the cycle runs, in seconds: about two weeks after the first job was created.
pub const NOW_SECONDS: i64 = 1_768_478_400;

const GIB: i64 = 1 << 30;

/// Priority of ordinary training.
pub const TRAIN: i32 = 50;
/// Priority of interactive work that may be preempted.
pub const BUILD_PREEMPTIBLE: i32 = 75;
/// Priority of interactive work; from here up, jobs are not preempted.
pub const BUILD: i32 = 100;

/// What each pod of a job asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodRequest {
    pub gpus: Gpus,
    pub cpu_milli: i64,
    /// Bytes.
    pub memory: i64,
}

/// GPUs of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpus {
    None,
    /// Half of one that others share.
    Half,
    Whole(u32),
}

impl PodRequest {
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
}

/// Widths of the cluster's tree of nodes, from wide to narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Block,
    Rack,
    Host,
}

impl Level {
    /// All of them, from wide to narrow.
    pub const ALL: [Self; 3] = [Self::Block, Self::Rack, Self::Host];

    /// Nodes of one domain.
    pub fn nodes(self) -> usize {
        match self {
            Self::Block => NODES_PER_RACK * RACKS_PER_BLOCK,
            Self::Rack => NODES_PER_RACK,
            Self::Host => 1,
        }
    }
}

/// Topology constraint of a job: its pods are in one domain of these levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopologyPlacement {
    pub required: Level,
    pub preferred: Level,
}

/// A job to be added.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Pods, all alike.
    pub pods: usize,
    /// Pods that must run together.
    pub min: usize,
    pub ask: PodRequest,
    /// Higher first.
    pub priority: i32,
    pub together: Option<TopologyPlacement>,
    /// The node of each pod, if the job runs.
    pub nodes: Option<Vec<usize>>,
}

impl JobSpec {
    /// A training job that waits, all pods together.
    pub fn pending(pods: usize, ask: PodRequest) -> Self {
        Self { pods, min: pods, ask, priority: TRAIN, together: None, nodes: None }
    }

    /// A training job that runs, one pod on each of the nodes.
    pub fn running(ask: PodRequest, nodes: &[usize]) -> Self {
        Self { nodes: Some(nodes.to_vec()), ..Self::pending(nodes.len(), ask) }
    }
}

/// A job of a leaf queue.
#[derive(Clone, Debug)]
pub struct Job {
    /// From 1 up; younger jobs have higher ones.
    pub number: usize,
    pub queue: usize,
    pub spec: JobSpec,
}

/// A cluster being filled.
#[derive(Debug)]
pub struct Cluster {
    /// Its arguments.
    pub size: Size,
    /// The only source of random numbers.
    rng: Pcg64,
    jobs: Vec<Job>,
}

impl Cluster {
    /// Empty nodes, and queues that divide their GPUs evenly.
    pub fn new(size: Size) -> Self {
        Self { size, rng: Pcg64::new(u128::from(size.seed), 1), jobs: Vec::new() }
    }

    /// Adds a job to a leaf queue (modulo their number), younger than all before.
    pub fn add_job(&mut self, queue: usize, spec: JobSpec) {
        self.jobs.push(Job { number: self.jobs.len() + 1, queue: queue % self.size.queues, spec });
    }

    /// All jobs, oldest first.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Pods of all jobs.
    pub fn pods(&self) -> usize {
        self.jobs.iter().map(|job| job.spec.pods).sum()
    }

    /// Whether any job has a topology constraint.
    pub fn has_topology(&self) -> bool {
        self.jobs.iter().any(|job| job.spec.together.is_some())
    }

    /// GPUs that a queue is guaranteed that shares the cluster evenly with so many siblings.
    pub fn quota(&self, siblings: usize) -> f64 {
        (self.size.nodes * GPUS_PER_NODE) as f64 / siblings as f64
    }

    /// Puts a list in random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            let other = self.random_below(end + 1);
            list.swap(end, other);
        }
    }

    /// A random number below `end`.
    pub fn random_below(&mut self, end: usize) -> usize {
        // The bias of the remainder is beyond notice: `end` is small beside 2⁶⁴.
        (self.rng.next_u64() % end as u64) as usize
    }
}
