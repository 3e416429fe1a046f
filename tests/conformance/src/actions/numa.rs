//! NUMA zones: what a case says of them, and what its tasks leave free of them.

use std::collections::BTreeMap;

use kai_engine::builder::Builder;
use kai_engine::ids::NodeId;
use kai_engine::snapshot::{
    CPU, GPUS, MEMORY, NumaAsk, NumaNode, NumaUnit, NumaZone, Shape, TopologyManagerPolicy, TopologyManagerScope,
    ZoneAllocation,
};
use kai_engine::units::GPU;

use super::case::{Node, Numa, Task};
use super::session::Session;
use crate::verdict::Fault;

/// Amounts by zone, then by recorded name.
pub(super) type ZonePlacement = BTreeMap<String, BTreeMap<String, i64>>;

/// The column of a recorded name, and its unit in that column. Others are names that no task can ask for.
fn column(name: &str) -> Option<(usize, i64)> {
    match name {
        "cpu_milli" => Some((CPU, 1)),
        "memory_bytes" => Some((MEMORY, 1)),
        "gpus" => Some((GPUS, GPU)),
        _ => None,
    }
}

pub(super) fn add(builder: &mut Builder, node: &Node, id: NodeId) -> Result<(), Fault> {
    let Some(numa) = &node.numa else { return Ok(()) };
    let policy = match numa.policy.as_str() {
        "none" => TopologyManagerPolicy::None,
        "best-effort" => TopologyManagerPolicy::BestEffort,
        "restricted" => TopologyManagerPolicy::Restricted,
        "single-numa-node" => TopologyManagerPolicy::SingleZone,
        other => return Err(Fault(format!("NUMA policy {other} is not known"))),
    };
    let scope = match numa.scope.as_str() {
        "container" => TopologyManagerScope::Container,
        "pod" => TopologyManagerScope::Pod,
        other => return Err(Fault(format!("NUMA scope {other} is not known"))),
    };
    let nothing = vec![0; builder.width()];
    let zone = |amounts: &BTreeMap<String, i64>| {
        let mut allocatable = nothing.clone();
        for (name, amount) in amounts {
            if let Some((column, unit)) = column(name) {
                allocatable[column] = amount * unit;
            }
        }
        NumaZone { allocatable, unmanaged_used: nothing.clone(), unmanaged_releasing: nothing.clone() }
    };
    let zones = numa.zones.iter().map(|row| zone(&row.allocatable)).collect();
    builder.zones(id, NumaNode { policy, scope, zones });
    Ok(())
}

/// What a task asks of zones: guaranteed pods all, the others only devices. Recorded tasks have one container.
pub(super) fn ask(task: &Task, shape: &Shape) -> NumaAsk {
    let guaranteed = task.qos_class.as_deref() == Some("Guaranteed");
    let counts = |column: usize| match column {
        CPU => guaranteed && shape.need[CPU] % 1000 == 0,
        MEMORY => guaranteed,
        _ => true,
    };
    let columns = [CPU, MEMORY, GPUS].into_iter().filter(|column| counts(*column) && shape.need[*column] > 0);
    let need: Vec<(u32, i64)> = columns.map(|column| (column as u32, shape.need[column])).collect();
    NumaAsk { pod: need.clone(), containers: vec![NumaUnit { need, keeps_running: true }] }
}

/// A recorded placement as the engine has it.
pub(super) fn shares(node: &Node, placement: &ZonePlacement) -> Vec<ZoneAllocation> {
    let zones = node.numa.as_ref().map_or(&[][..], |numa: &Numa| &numa.zones);
    let mut shares = Vec::new();
    for (index, zone) in zones.iter().enumerate() {
        for (name, amount) in placement.get(&zone.id).into_iter().flatten() {
            if let Some((column, unit)) = column(name) {
                shares.push(ZoneAllocation { zone: index as u32, column: column as u32, amount: amount * unit });
            }
        }
    }
    shares.sort_unstable();
    shares
}

/// The same back to recorded names.
pub(super) fn placement(node: &Node, shares: &[ZoneAllocation]) -> ZonePlacement {
    let zones = node.numa.as_ref().map_or(&[][..], |numa| &numa.zones);
    let mut placement = ZonePlacement::new();
    for share in shares {
        let (name, unit) = match share.column as usize {
            CPU => ("cpu_milli", 1),
            MEMORY => ("memory_bytes", 1),
            _ => ("gpus", GPU),
        };
        let zone = placement.entry(zones[share.zone as usize].id.clone()).or_default();
        *zone.entry(name.to_string()).or_default() += share.amount / unit;
    }
    placement
}

/// Numbers of the zones that a task occupies.
pub(super) fn occupied(session: &Session<'_>, uid: &str) -> Vec<u32> {
    let placement = session.after.get(uid);
    let node = session.lowered.nodes.iter().find(|node| Some(&node.name) == placement.node.as_ref());
    let zones = node.and_then(|node| node.numa.as_ref()).map_or(&[][..], |numa| &numa.zones);
    let numbered = zones.iter().enumerate().filter(|(_, zone)| placement.zones.contains_key(&zone.id));
    numbered.map(|(index, _)| index as u32).collect()
}

/// What tasks that stay leave of each zone.
pub(super) fn available(session: &Session<'_>, node: &str) -> ZonePlacement {
    let Some(row) = session.lowered.nodes.iter().find(|row| row.name == node) else { return ZonePlacement::new() };
    let zones = row.numa.as_ref().map_or(&[][..], |numa| &numa.zones);
    let mut left: ZonePlacement = zones.iter().map(|zone| (zone.id.clone(), zone.allocatable.clone())).collect();
    let stays = |uid: &str| {
        let placement = session.after.get(uid);
        let active = placement.status.is_allocated() || placement.status == super::case::Status::Pipelined;
        (active && placement.node.as_deref() == Some(node)).then_some(&placement.zones)
    };
    for held in session.lowered.tasks.iter().filter_map(|task| stays(&task.uid)) {
        for (zone, amounts) in held {
            for (name, amount) in amounts {
                if let Some(row) = left.get_mut(zone) {
                    *row.entry(name.clone()).or_default() -= amount;
                }
            }
        }
    }
    left
}
