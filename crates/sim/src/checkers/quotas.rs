//! Work that cannot be preempted is only placed within the quota of its queue and of every queue above.

use kai_engine::units::QueueResource;

use super::CycleObservation;
use super::limits::over;

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let fixed = |group: &kai_control::objects::PodGroup| !observation.preemptible(group);
    if observation.performed.bound.is_empty() {
        return Vec::new();
    }
    let held = observation.allocated(fixed);
    let mut wrong = Vec::new();
    for (name, new) in observation.newly_charged(fixed) {
        let Some(queue) = observation.world.queues.get(name) else { continue };
        let total = held.get(name).copied().unwrap_or_default();
        for (resource, amounts) in QueueResource::ALL.into_iter().zip(queue.amounts()) {
            if new.get(resource) > 0 && !amounts.quota.allows(total.get(resource)) {
                wrong.push(over("quota with work that cannot be preempted", name, resource, total));
            }
        }
    }
    wrong
}
