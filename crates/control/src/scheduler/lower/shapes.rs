//! Requests as vectors over the columns of a snapshot, each distinct one once.

use std::collections::BTreeMap;

use kai_engine::builder::Builder;
use kai_engine::ids::ShapeId;
use kai_engine::snapshot::{GPUS, GpuAsk, Shape};
use kai_engine::units::GPU;

use super::columns::{ExtraColumn, quota_gpu, vector};
use super::numa::Zones;
use crate::devices::Consumed;
use crate::objects::{GpuSharing, Request};

/// Shapes by request, so that each distinct request is turned into a vector once.
#[derive(Default)]
pub(super) struct Shapes<'w> {
    known: BTreeMap<(&'w Request, ClaimedGpus), ShapeId>,
    /// The last one: neighbouring pods are often alike.
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
        // One that asks for MIG instances as well holds both.
        None if request.resources.gpus > 0 => GpuAsk::Whole,
        None if request.is_mig() => GpuAsk::Mig,
        None => GpuAsk::None,
    };
    Shape { need: vector(&request.resources, columns), gpu, quota_gpu: quota_gpu(request), numa: None }
}
