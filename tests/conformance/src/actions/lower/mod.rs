//! A recorded cluster -> the engine's snapshot, and back from ids to names.

mod classes;
mod jobs;
mod neighbours;
mod nodes;
mod queues;

use std::collections::BTreeMap;

use kai_engine::Snapshot;
use kai_engine::builder::Builder;
use kai_engine::ids::{DeviceId, NodeId, QueueId};
use kai_engine::snapshot::GPUS;
use kai_engine::units::{GPU, Timestamp};

use self::jobs::Added;
use super::case::{Case, Job, Node, Task};
use super::state::State;
use super::{claims, numa};
use crate::verdict::Fault;

/// The moment of every round: ages in a case are relative, so any moment will do.
pub(super) const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

/// A snapshot with the names behind its ids.
pub(super) struct Lowered<'a> {
    pub(super) snapshot: Snapshot,
    /// By node id.
    pub(super) nodes: Vec<&'a Node>,
    /// By queue id.
    pub(super) queues: Vec<&'a str>,
    /// By job id.
    pub(super) jobs: Vec<&'a Job>,
    /// By task id.
    pub(super) tasks: Vec<&'a Task>,
    /// Labels by device id.
    pub(super) devices: Vec<&'a str>,
    /// Domain names by topology, level and number.
    pub(super) domains: Vec<Vec<Vec<String>>>,
    /// Objects of dynamic resource allocation, if the case has any.
    pub(super) objects: Option<claims::Objects>,
    pub(super) claims: Option<claims::Lowered>,
}

/// Ids by name, while rows are made.
struct Names<'a> {
    nodes: BTreeMap<&'a str, NodeId>,
    queues: BTreeMap<&'a str, QueueId>,
    devices: BTreeMap<(NodeId, &'a str), DeviceId>,
    /// Index in a resource vector, by MIG resource name.
    profiles: BTreeMap<&'a str, usize>,
}

pub(super) fn lower<'a>(case: &'a Case, state: &'a State) -> Result<Lowered<'a>, Fault> {
    let profiles = nodes::profiles(case);
    let mut builder = Builder::new(nodes::columns(&profiles)?);
    let nodes = nodes::sorted(case);
    let mut names = Names {
        nodes: nodes.iter().enumerate().map(|(index, node)| (node.name.as_str(), NodeId::at(index))).collect(),
        queues: BTreeMap::new(),
        devices: BTreeMap::new(),
        profiles,
    };
    let objects = case.cluster.dra.as_ref().map(|_| claims::Objects::of(case, &state.claims)).transpose()?;
    let claims = objects.as_ref().map(|objects| objects.lower(case, state, &nodes));
    for (index, node) in nodes.iter().enumerate() {
        let mut row = nodes::row(node, &names.profiles);
        row.allocatable[GPUS] += claims.as_ref().map_or(0, |claims| i64::from(claims.gpus[index]) * GPU);
        let id = builder.node(row);
        numa::add(&mut builder, node, id)?;
    }
    if let Some(claims) = &claims {
        builder.claims(claims.columns.clone());
    }
    let queues = queues::add(&mut builder, case, &mut names);
    add_devices(&mut builder, state, &mut names)?;
    let Added { jobs, tasks, domains } = jobs::add(&mut builder, case, state, &names, &nodes, claims.as_ref())?;
    let devices = names.devices.iter().map(|((_, label), _)| *label).collect();
    Ok(Lowered { snapshot: builder.finish(), nodes, queues, jobs, tasks, devices, domains, objects, claims })
}

/// One device per node and label, in that order, so that device ids follow labels within a node.
fn add_devices<'a>(builder: &mut Builder, state: &'a State, names: &mut Names<'a>) -> Result<(), Fault> {
    for placement in state.placements.values().filter(|placement| placement.status.is_used()) {
        for label in &placement.groups {
            let node = placement.node.as_deref().and_then(|node| names.nodes.get(node));
            let node = node.ok_or_else(|| Fault(format!("device {label} is on no node")))?;
            names.devices.insert((*node, label), DeviceId(0));
        }
    }
    for ((node, _), id) in &mut names.devices {
        *id = builder.device(*node);
    }
    Ok(())
}
