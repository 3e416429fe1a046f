//! Work that cannot be preempted is only placed within the quota of its queue and of every queue above.

use kai_engine::units::QueueResource;

use super::Evidence;
use super::limits::over;

pub(super) fn check(evidence: &Evidence<'_>) -> Vec<String> {
    let fixed = |group: &kai_control::objects::PodGroup| !evidence.preemptible(group);
    if evidence.performed.bound.is_empty() {
        return Vec::new();
    }
    let held = evidence.allocated(fixed);
    let mut wrong = Vec::new();
    for (name, new) in evidence.newly_charged(fixed) {
        let Some(queue) = evidence.world.queues.get(name) else { continue };
        let total = held.get(name).copied().unwrap_or_default();
        for (resource, amounts) in QueueResource::ALL.into_iter().zip(queue.amounts()) {
            if new.get(resource) > 0 && !amounts.quota.allows(total.get(resource)) {
                wrong.push(over("quota with work that cannot be preempted", name, resource, total));
            }
        }
    }
    wrong
}
