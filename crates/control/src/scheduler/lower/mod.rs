//! From a [`World`] to a snapshot: text becomes numbers, names become ids, rules become node sets.
//!
//! ```text
//!   nodes, queues of the shard ──▶ rows          pods ──▶ tasks of jobs     (their group is in the shard)
//!   bind requests ──▶ pods being bound               └──▶ used, releasing   (other pods on nodes of the shard)
//! ```
//!
//! Everything is visited in name order, so equal worlds give equal snapshots. What cannot be used is left out
//! and reported.

mod claims;
mod columns;
mod incremental;
mod inter_pod;
mod jobs;
mod name_index;
mod node_filters;
mod node_rows;
mod nodes;
mod numa;
mod pod_partition;
mod queues;
mod shapes;
mod signatures;
mod status;
mod sub_group_tree;
mod topologies;
mod volumes;

pub(crate) use claims::Devices;
pub(crate) use incremental::IncrementalSnapshot;
pub(crate) use inter_pod::MatcherName;
pub(crate) use pod_partition::JobFault;

use std::borrow::Cow;
use std::collections::BTreeMap;

use kai_engine::Snapshot;
use kai_engine::builder::Builder;
use kai_engine::ids::NodeId;
use kai_engine::units::Timestamp;

use self::jobs::Tables;
use self::topologies::Topologies;
use super::effect::{Effect, Problem};
use super::settings::Settings;
use super::usage::Usage;
use crate::key::{GroupKey, PodKey};
use crate::objects::{Queue, TopologyConstraint};
use crate::world::World;

/// A snapshot and what its ids stand for.
#[derive(Debug)]
pub(crate) struct Lowered<'w> {
    pub(crate) snapshot: Cow<'w, Snapshot>,
    pub(crate) names: Names<'w>,
    /// Jobs that cannot be scheduled as written, by id.
    pub(crate) faults: Vec<(usize, JobFault)>,
    /// Things to do that follow from the objects alone.
    pub(crate) effects: Vec<Effect>,
    pub(crate) problems: Vec<Problem>,
    /// When the snapshot changes though nothing happens in the cluster.
    pub(crate) next_change_at: Option<Timestamp>,
    /// Resource claims, if there are any.
    pub(crate) devices: Option<Devices<'w>>,
}

/// What the ids of a snapshot stand for; every list is indexed by id.
#[derive(Debug, Default)]
pub(crate) struct Names<'w> {
    pub(crate) nodes: Vec<&'w str>,
    pub(crate) queues: Vec<QueueName<'w>>,
    /// `None` is the stand-in for pods that hold shared GPUs but belong to no job here.
    pub(crate) jobs: Vec<Option<&'w GroupKey>>,
    pub(crate) pod_sets: Vec<&'w str>,
    pub(crate) tasks: Vec<&'w PodKey>,
    /// Group names of shared GPUs.
    pub(crate) devices: Vec<&'w str>,
    pub(crate) columns: Vec<&'w str>,
    /// Numbers of constraints as users wrote them; several may share one.
    pub(crate) constraints: BTreeMap<&'w TopologyConstraint, u32>,
    pub(crate) domains: Vec<topologies::DomainNames>,
    pub(crate) matchers: Vec<MatcherName<'w>>,
    /// Pods outside of jobs that inter-pod rules of others match.
    pub(crate) unmanaged_pods: Vec<&'w PodKey>,
    /// Drivers of volumes that some node limits.
    pub(crate) volume_drivers: Vec<&'w str>,
    /// Storage classes, by what their claims take from.
    pub(crate) storage_kinds: Vec<&'w str>,
    /// Names of NUMA zones, for nodes that have some.
    pub(crate) zones: BTreeMap<NodeId, Vec<&'w str>>,
}

/// A queue of the cluster, or the one that flattening puts above all others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueueName<'w> {
    Real(&'w Queue),
    Synthetic,
}

/// Name of the queue that flattening puts above all others.
pub(crate) const SYNTHETIC_QUEUE: &str = "default";

impl<'w> QueueName<'w> {
    pub(crate) fn name(self) -> &'w str {
        match self {
            Self::Real(queue) => &queue.name,
            Self::Synthetic => SYNTHETIC_QUEUE,
        }
    }

    /// What people call it.
    pub(crate) fn shown(self) -> &'w str {
        match self {
            Self::Real(queue) => queue.shown(),
            Self::Synthetic => SYNTHETIC_QUEUE,
        }
    }
}

impl<'w> Names<'w> {
    pub(crate) fn job(&self, index: usize) -> Option<&'w GroupKey> {
        self.jobs[index]
    }
}

/// Makes the snapshot of one shard.
pub(crate) fn lower<'w>(world: &'w World, settings: &Settings, usage: &Usage, now: Timestamp) -> Lowered<'w> {
    lower_into(world, settings, usage, now, &mut Tables::default()).0
}

/// Makes the snapshot, with what the next one can be made from incrementally; only the snapshot if that cannot be.
pub(crate) fn lower_incremental<'w>(
    world: &'w World,
    settings: &Settings,
    usage: &Usage,
    now: Timestamp,
) -> Result<IncrementalSnapshot, Box<Lowered<'w>>> {
    let mut tables = Tables::default();
    let (lowered, node_filters) = lower_into(world, settings, usage, now, &mut tables);
    IncrementalSnapshot::from_full(lowered, tables, node_filters, world, settings)
}

/// Makes the snapshot. Answers also with the number of each node filter in the tables.
fn lower_into<'w>(
    world: &'w World,
    settings: &Settings,
    usage: &Usage,
    now: Timestamp,
    tables: &mut Tables,
) -> (Lowered<'w>, Vec<u32>) {
    let queues = queues::select(world, settings);
    let mut nodes = nodes::select(world, settings);
    let partition = pod_partition::partition(world, settings, &nodes, now);
    let inventory = claims::inventory(world, &nodes, &partition);
    if let Some(inventory) = &inventory {
        nodes.count_devices(inventory);
    }
    let columns = columns::columns(&nodes, &partition, inventory.as_ref());

    let mut builder = Builder::new(columns.iter().map(|column| column.kind).collect());
    let mut names = Names {
        nodes: nodes.list.iter().map(|facts| facts.node.name.as_str()).collect(),
        columns: columns::FIXED_NAMES.into_iter().chain(columns.iter().map(|column| column.name)).collect(),
        ..Names::default()
    };
    let mut problems = queues.problems;
    problems.extend(partition.problems.iter().cloned());
    let queue_ids = queues::add(queues.rows, usage, now, &mut builder, &mut names);
    node_rows::add(&nodes, &partition, &columns, settings, &mut builder);
    let devices = inventory.map(|inventory| claims::add(world, settings, &nodes, &partition, inventory, &mut builder));
    let zones = numa::add(world, settings, &nodes, &partition, &columns, &mut builder);
    names.zones.clone_from(zones.names());
    let topologies = Topologies::add(world, &nodes, &mut builder, &mut names);
    let added = jobs::add(
        world,
        settings,
        &nodes,
        &partition,
        &columns,
        &queue_ids,
        topologies,
        tables,
        zones,
        devices.as_ref(),
        &mut builder,
        &mut names,
    );
    for (job, fault) in &added.faults {
        let key = names.jobs[*job].expect("only real groups have trees");
        problems.extend(fault.problem(key));
    }
    problems.sort_by_cached_key(|problem| problem.object.to_string());
    let snapshot = Cow::Owned(builder.finish());
    let lowered = Lowered {
        snapshot,
        names,
        faults: added.faults,
        effects: partition.effects,
        problems,
        next_change_at: partition.next_change_at,
        devices,
    };
    (lowered, added.node_filters)
}

/// Whether an object with these labels belongs to the shard.
fn in_shard(labels: &BTreeMap<String, String>, settings: &Settings) -> bool {
    let key = &settings.node_pool_label_key;
    key.is_empty() || labels.get(key) == settings.node_pool_value.as_ref()
}
