//! Requests as vectors over the columns of a snapshot.

use std::collections::{BTreeMap, BTreeSet};

use kai_api::keys::resource;
use kai_engine::builder::Builder;
use kai_engine::ids::ShapeId;
use kai_engine::snapshot::{GPUS, GpuAsk, ResourceKind, Shape};
use kai_engine::units::GPU;
use kai_engine::units::compat::share_of_gpu;

use super::nodes::{self, fixed_columns};
use super::numa::Zones;
use super::pod_partition::PodPartition;
use crate::devices::{Consumed, Inventory};
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
/// What nodes offer and nobody wants is left out: it can refuse no pod.
pub(super) fn columns<'w>(
    nodes: &nodes::ShardNodes<'w>,
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

/// Shapes by request, so that each distinct request is turned into a vector once.
#[derive(Default)]
pub(super) struct Shapes<'w> {
    known: BTreeMap<(&'w Request, ClaimedGpus), ShapeId>,
    /// The last one, since those who follow each other are often alike.
    last: Option<(&'w Request, ClaimedGpus, ShapeId)>,
}

/// What claims add to a request: GPUs, GPUs that its queue pays for, and whether it is about GPUs at all.
type ClaimedGpus = (u32, u32, bool);

impl<'w> Shapes<'w> {
    pub(super) fn id(
        &mut self,
        request: &'w Request,
        columns: &[ExtraColumn<'w>],
        zones: &Zones<'_>,
        claimed: Option<&Consumed>,
        builder: &mut Builder,
    ) -> ShapeId {
        let claimed = claimed.map_or((0, 0, false), |claimed| (claimed.gpus, claimed.quota_gpus, claimed.needs_gpu));
        if let Some((last, claimed_last, id)) = self.last
            && claimed_last == claimed
            && last == request
        {
            return id;
        }
        let id = *self.known.entry((request, claimed)).or_insert_with(|| {
            let mut shape = shape(request, columns);
            shape.numa = zones.ask(request, columns, builder);
            shape.need[GPUS] += i64::from(claimed.0) * GPU;
            shape.quota_gpu += i64::from(claimed.1) * GPU;
            if claimed.2 && shape.gpu == GpuAsk::None {
                shape.gpu = GpuAsk::Whole;
            }
            builder.shape(shape)
        });
        self.last = Some((request, claimed, id));
        id
    }
}

fn shape(request: &Request, columns: &[ExtraColumn<'_>]) -> Shape {
    let gpu = match request.sharing {
        Some(GpuSharing::Fraction { devices, portion }) => GpuAsk::Fraction { devices, portion },
        Some(GpuSharing::Memory { devices, mib }) => GpuAsk::Memory { devices, mib },
        None if request.is_mig() => GpuAsk::Mig,
        None if request.resources.gpus > 0 => GpuAsk::Whole,
        None => GpuAsk::None,
    };
    Shape { need: vector(&request.resources, columns), gpu, quota_gpu: quota_gpu(request), numa: None }
}
