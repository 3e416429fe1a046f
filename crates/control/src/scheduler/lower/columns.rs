//! Columns of a snapshot: the resources that its vectors have an amount of.

use std::collections::BTreeSet;

use kai_api::keys::resource;
use kai_engine::snapshot::{CPU, GPUS, MEMORY, PODS, ResourceKind};
use kai_engine::units::GPU;
use kai_engine::units::compat::share_of_gpu;

use super::nodes::ShardNodes;
use super::pod_partition::PodPartition;
use crate::devices::Inventory;
use crate::objects::resources::mig_profile;
use crate::objects::{GpuSharing, Request, Resources};

/// Names of the columns that every snapshot has.
pub(super) const FIXED_NAMES: [&str; 4] = ["CPU", "memory", "GPUs", "pods"];

/// A column after the fixed ones.
pub(super) struct ExtraColumn<'w> {
    pub(super) name: &'w str,
    pub(super) kind: ResourceKind,
}

/// A column for each resource that a pod asks for, and for each MIG profile of a node since those are capacity.
///
/// Resources that no pod requests get no column.
pub(super) fn columns<'w>(
    nodes: &ShardNodes<'w>,
    partition: &PodPartition<'w>,
    inventory: Option<&Inventory<'_>>,
) -> Vec<ExtraColumn<'w>> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for facts in &nodes.list {
        names.extend(facts.node.allocatable.migs().map(|(name, _)| name));
    }
    if partition.features.extended_resources {
        for request in partition.requests() {
            let asked = request.resources.scalars.iter().filter(|(_, amount)| **amount > 0);
            names.extend(asked.map(|(name, _)| name.as_str()));
        }
    }
    let backed = |name: &str| inventory.is_some_and(|inventory| inventory.backs(name));
    names.into_iter().map(|name| ExtraColumn { name, kind: kind(name, backed(name)) }).collect()
}

fn kind(name: &str, backed: bool) -> ResourceKind {
    if name.starts_with(resource::MIG_PREFIX) {
        let (slices, memory) = mig_profile(name);
        ResourceKind::Mig { slices, memory }
    } else if backed {
        ResourceKind::DeviceClassBacked
    } else {
        ResourceKind::Scalar
    }
}

/// One amount per column.
pub(super) fn vector(resources: &Resources, columns: &[ExtraColumn<'_>]) -> Vec<i64> {
    let mut amounts = fixed_columns(resources).to_vec();
    amounts.extend(columns.iter().map(|column| resources.scalars.get(column.name).copied().unwrap_or(0)));
    amounts
}

/// The fixed part of a resource vector.
fn fixed_columns(resources: &Resources) -> [i64; 4] {
    let mut fixed = [0; 4];
    fixed[CPU] = resources.cpu_milli;
    fixed[MEMORY] = resources.memory_bytes;
    fixed[GPUS] = resources.gpus * GPU;
    fixed[PODS] = resources.pods;
    fixed
}

/// What a request costs its queue, in millionths of a GPU. Memory costs nothing until a node is known.
pub(super) fn quota_gpu(request: &Request) -> i64 {
    match request.sharing {
        Some(GpuSharing::Fraction { devices, portion }) => share_of_gpu(portion, devices),
        Some(GpuSharing::Memory { .. }) => 0,
        None => {
            let slices = |(name, count): (&str, i64)| i64::from(mig_profile(name).0) * count;
            GPU * (request.resources.gpus + request.resources.migs().map(slices).sum::<i64>())
        }
    }
}
