//! The numbers behind a limit or quota that keeps a job waiting, for programs that read conditions.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kai_api::keys::resource;
use kai_api::{QueueDetails, UnschedulableDetails};
use kai_engine::units::{Ceiling, ResourceQuantities};

use crate::resource_sum::ResourceSum;
use crate::scheduler::effect::{Blocked, QueueView};

/// Of the queue that blocks; queues are ordered by name.
pub(in crate::scheduler) fn of(queues: &[QueueView], blocked: &Blocked) -> Option<UnschedulableDetails> {
    let at = queues.binary_search_by(|queue| queue.name.cmp(&blocked.queue)).ok()?;
    let queue = &queues[at];
    let non_preemptible = if blocked.preemptible { ResourceQuantities::ZERO } else { blocked.request };
    let details = QueueDetails {
        name: queue.name.clone(),
        queue_requested_resources: amounts(queue.request),
        queue_deserved_resources: bounds(queue.quota),
        queue_allocated_resources: amounts(queue.allocated),
        queue_allocated_non_preemptible_resources: amounts(queue.allocated_non_preemptible),
        queue_resource_limits: bounds(queue.limit),
        pod_group_requested_resources: amounts(blocked.request),
        pod_group_requested_non_preemptible_resources: amounts(non_preemptible),
    };
    Some(UnschedulableDetails { queue_details: Some(details) })
}

fn amounts(ResourceQuantities(parts): ResourceQuantities) -> BTreeMap<String, Quantity> {
    bounds(parts.map(Ceiling::At))
}

/// What has no bound is left out.
fn bounds(ceilings: [Ceiling; 3]) -> BTreeMap<String, Quantity> {
    let mut sum = ResourceSum::default();
    // Milli-cores, bytes, millionths of a GPU; all in billionths.
    let units = [("cpu", 1_000_000), ("memory", 1_000_000_000), (resource::NVIDIA_GPU, 1000)];
    for ((name, unit), ceiling) in units.into_iter().zip(ceilings) {
        if let Ceiling::At(amount) = ceiling {
            sum.add_nano(name, i128::from(amount) * unit, false);
        }
    }
    sum.to_list()
}
