//! A synthetic cluster as the engine sees it, without the detour over objects.
//!
//! Names are not needed, their order is: a job's queue is part of its name, so jobs of one queue are neighbours.

use std::collections::BTreeMap;

use kai_engine::builder::{Builder, GroupRow, JobRow, MemberRow, NodeRow, PodSetRow, TaskRow};
use kai_engine::ids::{NodeFilterId, NodeId, QueueId};
use kai_engine::snapshot::{Constraint, GpuAsk, LevelRef, Queue, Shape, Snapshot, Topology};
use kai_engine::units::compat::{floor_device_memory, share_of_gpu};
use kai_engine::units::{Ceiling, GPU, ONE, Timestamp};
use kai_generate::cluster::{
    BUILD, FIRST_JOB_SECONDS, GPUS_PER_NODE, Gpus, Job, JobSpec, Level, NOW_SECONDS, PodRequest, QUEUES_SECONDS,
    TopologyPlacement,
};
use kai_generate::{Cluster, Scenario, Size};

/// When the cycle runs.
pub const NOW: Timestamp = seconds(NOW_SECONDS);

/// The snapshot of a scenario.
pub fn of_scenario(scenario: &Scenario, size: Size) -> Snapshot {
    of_cluster(&scenario.cluster(size))
}

/// The snapshot of a cluster.
pub fn of_cluster(cluster: &Cluster) -> Snapshot {
    let size = cluster.size;
    let mut builder = Builder::new(Vec::new());
    for _ in 0..size.nodes {
        let allocatable = vec![220_000, 2_050_000_000 << 10, GPUS_PER_NODE as i64 * GPU, 110];
        builder.node(NodeRow { device_memory: floor_device_memory(81_559), ..NodeRow::idle(allocatable) });
    }
    // Pods without, with shared and with whole GPUs are held to different rules, though all nodes pass here.
    let classes = std::array::from_fn(|_| builder.add_node_filter_of_all());
    let departments: Vec<QueueId> =
        (0..size.departments).map(|_| builder.queue(queue(None, cluster.quota(size.departments)))).collect();
    let leaf = |index: usize| queue(Some(departments[index % size.departments]), cluster.quota(size.queues));
    let leaves: Vec<QueueId> = (0..size.queues).map(|index| builder.queue(leaf(index))).collect();
    let mut rows = Rows { constraints: constraints(cluster, &mut builder), builder, classes, alike: BTreeMap::new() };
    // Of one queue the older job has the smaller name.
    let mut jobs: Vec<&Job> = cluster.jobs().iter().collect();
    jobs.sort_by_key(|job| (job.queue, job.number));
    for job in jobs {
        let row = rows.job(leaves[job.queue], job);
        rows.builder.job(row);
    }
    rows.builder.finish()
}

/// Numbers of the constraints that jobs have.
fn constraints(cluster: &Cluster, builder: &mut Builder) -> BTreeMap<TopologyPlacement, u32> {
    let mut constraints = BTreeMap::new();
    if !cluster.has_topology() {
        return constraints;
    }
    let domains = |level: Level| (0..cluster.size.nodes).map(|node| Some((node / level.nodes()) as u32)).collect();
    let topology = builder.topology(Topology { levels: Level::ALL.map(domains).to_vec() });
    for together in cluster.jobs().iter().filter_map(|job| job.spec.together) {
        constraints.entry(together).or_insert_with(|| {
            builder.constraint(Constraint {
                topology: Some(topology),
                required: Some(LevelRef::At(together.required as u32)),
                preferred: Some(LevelRef::At(together.preferred as u32)),
            })
        });
    }
    constraints
}

/// What makes two waiting jobs alike, whatever amounts they ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Likeness {
    pods: usize,
    priority: i32,
    together: Option<TopologyPlacement>,
}

struct Rows {
    builder: Builder,
    classes: [NodeFilterId; 3],
    constraints: BTreeMap<TopologyPlacement, u32>,
    alike: BTreeMap<Likeness, u32>,
}

impl Rows {
    fn job(&mut self, queue: QueueId, job: &Job) -> JobRow {
        let Job { number, spec, .. } = job;
        let shape = self.builder.shape(shape(spec.ask));
        let class = self.classes[match spec.ask.gpus {
            Gpus::None => 0,
            Gpus::Half => 1,
            Gpus::Whole(_) => 2,
        }];
        let tasks: Vec<TaskRow> = match &spec.nodes {
            None => vec![TaskRow::pending(shape, class); spec.pods],
            Some(nodes) => nodes.iter().map(|node| TaskRow::running(shape, class, NodeId::at(*node))).collect(),
        };
        let runs = spec.nodes.is_some();
        let constraint = spec.together.map(|together| self.constraints[&together]);
        let leaf = PodSetRow { min: spec.min as u32, constraint: None, tasks };
        let root = GroupRow { min_members: None, constraint, members: vec![MemberRow::PodSet(leaf)] };
        let created = FIRST_JOB_SECONDS + *number as i64;
        JobRow {
            priority: spec.priority,
            preemptible: spec.priority < BUILD,
            last_start: runs.then(|| seconds(created + 30)),
            // A job without waiting pods has nothing in which to be alike.
            signature: if runs { 0 } else { self.signature(spec) },
            ..JobRow::new(queue, seconds(created), root)
        }
    }

    fn signature(&mut self, spec: &JobSpec) -> u32 {
        let likeness = Likeness { pods: spec.pods, priority: spec.priority, together: spec.together };
        let next = self.alike.len() as u32 + 1;
        *self.alike.entry(likeness).or_insert(next)
    }
}

fn shape(ask: PodRequest) -> Shape {
    let (gpu, whole, quota_gpu) = match ask.gpus {
        Gpus::None => (GpuAsk::None, 0, 0),
        Gpus::Half => (GpuAsk::Fraction { devices: 1, portion: GPU / 2 }, 0, share_of_gpu(GPU / 2, 1)),
        Gpus::Whole(count) => (GpuAsk::Whole, i64::from(count) * GPU, i64::from(count) * GPU),
    };
    Shape { need: vec![ask.cpu_milli, ask.memory, whole, 1], gpu, quota_gpu, numa: None }
}

/// A queue that is guaranteed so many GPUs and may take more, and any amount of the rest.
fn queue(parent: Option<QueueId>, gpus: f64) -> Queue {
    Queue {
        parent,
        priority: 100,
        created: seconds(QUEUES_SECONDS),
        quota: [Ceiling::Unlimited, Ceiling::Unlimited, Ceiling::At((gpus * GPU as f64).round() as i64)],
        limit: [Ceiling::Unlimited; 3],
        weight: [ONE; 3],
        usage: [0; 3],
        preempt_min_runtime: None,
        reclaim_min_runtime: None,
    }
}

const fn seconds(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1_000_000)
}
