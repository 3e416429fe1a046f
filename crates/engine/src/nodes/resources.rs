//! Whether a request fits on a node, now or once others have left, and which shared GPUs it would use.

use std::cmp::Reverse;

use crate::ids::{DeviceId, NodeId};
use crate::ledger::{Ledger, When};
use crate::policy::DeviceOrder;
use crate::snapshot::{CPU, GPUS, GpuAsk, MEMORY, PODS, ResourceKind, Shape, Snapshot};
use crate::units::GPU;

/// Whether the request fits on the node.
pub(crate) fn fits(ledger: &Ledger<'_>, shape: &Shape, node: NodeId, when: When) -> bool {
    let (idle, releasing) = (ledger.idle(node), ledger.releasing(node));
    let free = |column: usize| if when == When::Now { idle[column] } else { idle[column] + releasing[column] };
    let shared = shape.gpu.shared_devices();
    let columns = shape.need.iter().enumerate().all(|(column, need)| {
        // A node that is over-committed in anything takes no more; shared GPUs are looked at below.
        (column == GPUS && shared.is_some()) || *need <= free(column) || left_to_claims(ledger, node, column)
    });
    if !columns {
        return false;
    }
    let Some(devices) = shared else { return true };
    let whole = free(GPUS).div_euclid(GPU);
    device_is_large_enough(ledger, shape.gpu, node)
        && (whole >= i64::from(devices)
            || whole + fitting_devices(ledger, shape.gpu, node).take(devices as usize).count() as i64
                >= i64::from(devices))
}

/// Columns in which a node may be short of what is asked for, in the order in which people look: GPUs, CPU, memory, the
/// rest.
pub(crate) fn columns_in_order<'s>(snapshot: &'s Snapshot, shape: &Shape) -> impl Iterator<Item = usize> + use<'s> {
    let is_mig = |column: &usize| matches!(snapshot.resources[*column], ResourceKind::Mig { .. });
    let columns = 0..snapshot.resources.len();
    let migs = columns.clone().filter(is_mig);
    let rest = columns.filter(move |column| *column >= PODS && !is_mig(column));
    let whole = shape.gpu.shared_devices().is_none().then_some(GPUS);
    migs.chain(whole).chain([CPU, MEMORY]).chain(rest)
}

/// Whether devices of a resource claim serve the column on this node.
pub(crate) fn left_to_claims(ledger: &Ledger<'_>, node: NodeId, column: usize) -> bool {
    let snapshot = ledger.snapshot;
    snapshot.resources[column] == ResourceKind::DeviceClassBacked
        && snapshot.row(&snapshot.nodes.allocatable, node)[column] == 0
}

/// Whether one GPU of the node could hold the request if it were empty.
pub(crate) fn device_is_large_enough(ledger: &Ledger<'_>, gpu: GpuAsk, node: NodeId) -> bool {
    match gpu {
        GpuAsk::Memory { mib, .. } => mib <= ledger.snapshot.nodes.device_memory[node.index()],
        _ => true,
    }
}

/// Shared GPUs of the node with room for the request, now or later.
pub(crate) fn fitting_devices<'a>(
    ledger: &'a Ledger<'_>,
    gpu: GpuAsk,
    node: NodeId,
) -> impl Iterator<Item = DeviceId> + 'a {
    let memory = ledger.memory_on(gpu, node);
    let device_memory = ledger.snapshot.nodes.device_memory[node.index()];
    let devices = ledger.devices_on(node).iter().copied();
    devices.filter(move |device| ledger.device(*device).fits(memory, device_memory))
}

/// The shared GPUs that a request would use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceChoice {
    /// Devices that are shared already.
    pub existing: Vec<DeviceId>,
    /// How many more devices are opened.
    pub fresh: u32,
    /// Whether all of them are free right now.
    pub now: bool,
}

/// Chooses devices on the node; `None` if there are too few.
pub(crate) fn choose_devices(
    ledger: &Ledger<'_>,
    shape: &Shape,
    node: NodeId,
    order: Option<DeviceOrder>,
) -> Option<DeviceChoice> {
    let wanted = shape.gpu.shared_devices()? as usize;
    let memory = ledger.memory_on(shape.gpu, node);
    let device_memory = ledger.snapshot.nodes.device_memory[node.index()];
    let mut fitting: Vec<_> = fitting_devices(ledger, shape.gpu, node).collect();
    match order {
        Some(DeviceOrder::Pack) => fitting.sort_by_key(|device| (Reverse(ledger.device(*device).used()), *device)),
        Some(DeviceOrder::Spread) => fitting.sort_by_key(|device| (ledger.device(*device).used(), *device)),
        None => fitting.sort(),
    }
    let whole = (ledger.idle(node)[GPUS] / GPU + ledger.releasing(node)[GPUS] / GPU).max(0) as usize;
    let existing = match order {
        Some(DeviceOrder::Spread) => wanted.saturating_sub(whole),
        _ => wanted.min(fitting.len()),
    };
    if existing > fitting.len() || wanted - existing > whole {
        return None;
    }
    fitting.truncate(existing);
    let fits_now = fits(ledger, shape, node, When::Now);
    // A whole device may also be one that is still being given back; KAI binds to it if shared ones have room.
    let idle = ledger.idle(node)[GPUS].max(0) / GPU;
    let fresh_now = (wanted - existing) as i64 <= idle || !ledger.repairs.gpu_sharing;
    let now =
        fits_now && fresh_now && fitting.iter().all(|device| ledger.device(*device).fits_now(memory, device_memory));
    Some(DeviceChoice { existing: fitting, fresh: (wanted - existing) as u32, now })
}

/// Whether pod slots suffice: a newly shared GPU needs one more, for the pod that reserves it.
pub(crate) fn slots_suffice(ledger: &Ledger<'_>, node: NodeId, fresh: u32) -> bool {
    let free = ledger.idle(node)[PODS] + ledger.releasing(node)[PODS];
    free >= if fresh > 0 || !ledger.repairs.gpu_sharing { 2 } else { 1 }
}
