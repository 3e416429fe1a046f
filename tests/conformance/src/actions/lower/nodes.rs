//! Nodes, and the columns that their resources need.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::builder::NodeRow;
use kai_engine::snapshot::ResourceKind;
use kai_engine::units::GPU;
use kai_engine::units::compat::{DEVICE_MEMORY_DEFAULT, floor_device_memory};

use super::super::case::{Case, Node};
use crate::verdict::Fault;

/// The fixed columns in front of the MIG profiles.
const FIXED: usize = 4;

/// Nodes in the order of their ids.
pub(super) fn sorted(case: &Case) -> Vec<&Node> {
    let mut nodes: Vec<&Node> = case.cluster.nodes.iter().collect();
    nodes.sort_by_key(|node| &node.name);
    nodes
}

/// Column index of every MIG resource that a node offers or a task asks for.
pub(super) fn profiles(case: &Case) -> BTreeMap<&str, usize> {
    let offered = case.cluster.nodes.iter().flat_map(|node| node.allocatable.mig.keys());
    let asked = case.tasks().flat_map(|(_, task)| task.request.mig.keys());
    let names: BTreeSet<&str> = offered.chain(asked).map(String::as_str).collect();
    names.into_iter().enumerate().map(|(index, name)| (name, FIXED + index)).collect()
}

pub(super) fn columns(profiles: &BTreeMap<&str, usize>) -> Result<Vec<ResourceKind>, Fault> {
    let column = |name: &&str| {
        let (slices, memory) = profile(name).ok_or_else(|| Fault(format!("MIG resource {name} cannot be read")))?;
        Ok(ResourceKind::Mig { slices, memory })
    };
    // The map is in name order, and so are the indices.
    profiles.keys().map(column).collect()
}

/// Slices and memory of `nvidia.com/mig-<slices>g.<memory>gb`.
pub(super) fn profile(name: &str) -> Option<(u32, u32)> {
    let (slices, memory) = name.strip_prefix("nvidia.com/mig-")?.split_once("g.")?;
    Some((slices.parse().ok()?, memory.strip_suffix("gb")?.parse().ok()?))
}

pub(super) fn row(node: &Node, profiles: &BTreeMap<&str, usize>) -> NodeRow {
    let amounts = &node.allocatable;
    let mut allocatable = vec![0; FIXED + profiles.len()];
    allocatable[..FIXED].copy_from_slice(&[amounts.cpu_milli, amounts.memory_bytes, amounts.gpus * GPU, amounts.pods]);
    for (name, count) in &amounts.mig {
        allocatable[profiles[name.as_str()]] = *count;
    }
    let device_memory = floor_device_memory(node.gpu_memory_mib.unwrap_or(DEVICE_MEMORY_DEFAULT));
    NodeRow { device_memory, ..NodeRow::idle(allocatable) }
}

/// MIG mode of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mig {
    /// Plain GPUs.
    Off,
    /// MIG without a known strategy: anything may run.
    Free,
    /// Whole GPUs only.
    Single,
    /// MIG instances only.
    Mixed,
}

/// The strategy label counts only where MIG is on.
pub(super) fn mig(node: &Node) -> Mig {
    let enabled = match node.labels.get("node-role.kubernetes.io/mig-enabled") {
        Some(text) => text == "true",
        None => !node.allocatable.mig.is_empty(),
    };
    match node.labels.get("nvidia.com/mig.strategy").map(String::as_str) {
        _ if !enabled => Mig::Off,
        Some("single") => Mig::Single,
        Some("mixed") => Mig::Mixed,
        _ => Mig::Free,
    }
}

/// Whether the node says how much memory its GPUs have.
pub(super) fn memory_known(node: &Node) -> bool {
    node.labels.get("nvidia.com/gpu.memory").is_some_and(|text| text.parse::<i64>().is_ok())
}

/// Whether GPUs of the node come from resource slices.
pub(super) fn has_dra_gpus(case: &Case, node: &Node) -> bool {
    let slices = case.cluster.dra.as_ref().and_then(|dra| dra["resource_slices"].as_array());
    slices.into_iter().flatten().any(|slice| {
        let driver = slice["spec"]["driver"].as_str().unwrap_or_default();
        slice["spec"]["nodeName"].as_str() == Some(&node.name) && driver.to_lowercase().contains("gpu")
    })
}
