//! NUMA zones of nodes, what pods ask of them and what they hold.
//!
//! Only where the `numa` plugin is on. Where a running pod's zones are not known, nothing is charged.

use std::collections::BTreeMap;

use kai_api::keys::{annotation, resource};
use kai_engine::builder::Builder;
use kai_engine::ids::NodeId;
use kai_engine::snapshot::{
    CPU, GPUS, MEMORY, NumaAsk, NumaNode, NumaUnit, NumaZone, TopologyManagerPolicy, TopologyManagerScope,
    ZoneAllocation,
};

use super::columns::{ExtraColumn, FIXED_NAMES, vector};
use super::nodes::ShardNodes;
use super::pod_partition::{JobPod, PodPartition};
use super::status;
use crate::objects::{BindRequest, NumaPolicy, NumaScope as Scope, Pod, Request, Resources, ZoneAmount};
use crate::scheduler::settings::{NumaSettings, Settings};
use crate::world::World;

/// Zones by node, and what is left out of account.
#[derive(Default)]
pub(super) struct Zones<'w> {
    settings: Option<NumaSettings>,
    /// Numbers of zones by name, for each node that has some.
    names: BTreeMap<NodeId, Vec<&'w str>>,
}

/// Adds the zones of all nodes; none unless the plugin is on.
pub(super) fn add<'w>(
    world: &'w World,
    settings: &Settings,
    nodes: &ShardNodes<'w>,
    partition: &PodPartition<'w>,
    columns: &[ExtraColumn<'w>],
    builder: &mut Builder,
) -> Zones<'w> {
    let mut zones = Zones { settings: settings.numa.clone(), names: BTreeMap::new() };
    let Some(numa) = &settings.numa else { return zones };
    for (index, facts) in nodes.list.iter().enumerate() {
        let Some(topology) = world.numa_topologies.get(&facts.node.name) else { continue };
        let node = NodeId::at(index);
        zones.names.insert(node, topology.zones.iter().map(|zone| zone.name.as_str()).collect());
        let mut row = NumaNode {
            policy: match topology.policy {
                NumaPolicy::None => TopologyManagerPolicy::None,
                NumaPolicy::BestEffort => TopologyManagerPolicy::BestEffort,
                NumaPolicy::Restricted => TopologyManagerPolicy::Restricted,
                NumaPolicy::SingleNumaNode => TopologyManagerPolicy::SingleZone,
            },
            scope: match topology.scope {
                Scope::Container => TopologyManagerScope::Container,
                Scope::Pod => TopologyManagerScope::Pod,
            },
            zones: topology
                .zones
                .iter()
                .map(|zone| {
                    let allocatable = vector(&zone.allocatable, columns);
                    let nothing = vec![0; allocatable.len()];
                    NumaZone { allocatable, unmanaged_used: nothing.clone(), unmanaged_releasing: nothing }
                })
                .collect(),
        };
        for non_job_pod in &partition.non_job_pods[index] {
            for share in zones.shares(node, known(non_job_pod.pod, None), columns) {
                let zone = &mut row.zones[share.zone as usize];
                let column = if non_job_pod.leaving { &mut zone.unmanaged_releasing } else { &mut zone.unmanaged_used };
                column[share.column as usize] += share.amount;
            }
        }
        if !numa.reconstruct_available {
            trust(&mut row, topology, columns, held(&zones, node, partition, columns));
        }
        builder.zones(node, row);
    }
    zones
}

/// Sets free amounts to what the object reports; the difference is charged to no pod.
fn trust(
    row: &mut NumaNode,
    topology: &crate::objects::NodeResourceTopology,
    columns: &[ExtraColumn<'_>],
    held: Vec<ZoneAllocation>,
) {
    for (zone, reported) in row.zones.iter_mut().zip(&topology.zones) {
        let available = vector(&reported.available, columns);
        zone.unmanaged_releasing.fill(0);
        for (column, taken) in zone.unmanaged_used.iter_mut().enumerate() {
            *taken = zone.allocatable[column] - available[column];
        }
    }
    for share in held {
        row.zones[share.zone as usize].unmanaged_used[share.column as usize] -= share.amount;
    }
}

/// What members of jobs hold of a node's zones.
fn held(
    zones: &Zones<'_>,
    node: NodeId,
    partition: &PodPartition<'_>,
    columns: &[ExtraColumn<'_>],
) -> Vec<ZoneAllocation> {
    let members = partition.jobs.iter().flat_map(|job| job.leaves.iter().flatten());
    let here = members.filter(|member| member.node == Some(node) && status::holds_room(member.status));
    here.flat_map(|member| zones.held_by(member, columns)).collect()
}

/// Where a pod's resources come from: as observed, else as decided, else as predicted.
fn known(pod: &Pod, request: Option<&BindRequest>) -> Vec<ZoneAmount> {
    let noted = |key: &str| pod.annotations.get(key).and_then(|text| ZoneAmount::parse_all(text));
    let decided = || request.map(|request| request.numa_zones.clone()).filter(|zones| !zones.is_empty());
    noted(annotation::NUMA_PLACEMENT_OBSERVED)
        .or_else(decided)
        .or_else(|| noted(annotation::NUMA_PLACEMENT_PREDICTED))
        .unwrap_or_default()
}

impl<'w> Zones<'w> {
    /// Names of zones in the order of their numbers, by node.
    pub(super) fn names(&self) -> &BTreeMap<NodeId, Vec<&'w str>> {
        &self.names
    }

    /// What a member of a job holds of its node's zones.
    pub(super) fn held_by(&self, member: &JobPod<'_>, columns: &[ExtraColumn<'_>]) -> Vec<ZoneAllocation> {
        match member.node {
            Some(node) if self.names.contains_key(&node) && status::holds_room(member.status) => {
                self.shares(node, known(member.pod, member.request), columns)
            }
            _ => Vec::new(),
        }
    }

    fn shares(&self, node: NodeId, amounts: Vec<ZoneAmount>, columns: &[ExtraColumn<'_>]) -> Vec<ZoneAllocation> {
        let Some(names) = self.names.get(&node) else { return Vec::new() };
        let mut shares = Vec::new();
        for ZoneAmount { zone, amount } in amounts {
            let Some(zone) = names.iter().position(|name| *name == zone) else { continue };
            let taken = vector(&amount, columns).into_iter().enumerate().filter(|(_, amount)| *amount > 0);
            let share = |(column, amount)| ZoneAllocation { zone: zone as u32, column: column as u32, amount };
            shares.extend(taken.map(share));
        }
        shares.sort_unstable();
        shares
    }

    /// What a request asks of zones; nothing while no node has any.
    pub(super) fn ask(&self, request: &Request, columns: &[ExtraColumn<'_>], builder: &mut Builder) -> Option<u32> {
        let settings = self.settings.as_ref().filter(|_| !self.names.is_empty())?;
        let aligned = |resources: &Resources| aligned(resources, request.guaranteed, settings, columns);
        let alone = [(request.resources.clone(), true)];
        let containers = if request.containers.is_empty() { &alone[..] } else { &request.containers[..] };
        let mut sidecars = BTreeMap::new();
        let (mut steady, mut starting): (BTreeMap<u32, i64>, BTreeMap<u32, i64>) = Default::default();
        let mut units = Vec::new();
        for (resources, stays) in containers {
            let need = aligned(resources);
            for (column, amount) in &need {
                if *stays {
                    *steady.entry(*column).or_default() += amount;
                    *sidecars.entry(*column).or_insert(0) += amount;
                } else {
                    let beside = sidecars.get(column).copied().unwrap_or(0);
                    let most = starting.entry(*column).or_default();
                    *most = (*most).max(amount + beside);
                }
            }
            units.push(NumaUnit { need, keeps_running: *stays });
        }
        for (column, amount) in starting {
            let most = steady.entry(column).or_default();
            *most = (*most).max(amount);
        }
        builder.numa_ask(NumaAsk { pod: steady.into_iter().collect(), containers: units })
    }
}

/// The part of a container's request that kubelets align: devices, and of guaranteed pods also whole CPUs, memory and
/// huge pages.
fn aligned(
    resources: &Resources,
    guaranteed: bool,
    settings: &NumaSettings,
    columns: &[ExtraColumn<'_>],
) -> Vec<(u32, i64)> {
    let counts = |name: &str| !settings.ignored.contains(name);
    let amounts = vector(resources, columns);
    let mut need = Vec::new();
    let mut add = |column: usize| {
        if amounts[column] > 0 {
            need.push((column as u32, amounts[column]));
        }
    };
    if guaranteed && counts("cpu") && resources.cpu_milli % 1000 == 0 {
        add(CPU);
    }
    if guaranteed && counts("memory") {
        add(MEMORY);
    }
    if counts(resource::NVIDIA_GPU) {
        add(GPUS);
    }
    for (index, column) in columns.iter().enumerate() {
        let device = column.name.contains('/') || guaranteed && column.name.starts_with("hugepages-");
        if device && counts(column.name) {
            add(FIXED_NAMES.len() + index);
        }
    }
    need
}
