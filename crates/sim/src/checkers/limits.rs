//! No queue, at any level, holds more than its limit once something was placed in it.

use kai_engine::units::{QueueResource, ResourceQuantities};

use super::CycleObservation;

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    if observation.performed.bound.is_empty() {
        return Vec::new();
    }
    let held = observation.allocated(|_| true);
    let mut wrong = Vec::new();
    for (name, new) in observation.newly_charged(|_| true) {
        let Some(queue) = observation.world.queues.get(name) else { continue };
        let total = held.get(name).copied().unwrap_or_default();
        for (resource, amounts) in QueueResource::ALL.into_iter().zip(queue.amounts()) {
            if new.get(resource) > 0 && !amounts.limit.allows(total.get(resource)) {
                wrong.push(over("limit", name, resource, total));
            }
        }
    }
    wrong
}

pub(super) fn over(bound: &str, queue: &str, resource: QueueResource, held: ResourceQuantities) -> String {
    format!("queue {queue} holds {} of {resource:?}, above its {bound}", held.get(resource))
}
