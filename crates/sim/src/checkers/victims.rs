//! Only work that may be preempted is taken from its place to make room for other work.

use super::Evidence;

pub(super) fn check(evidence: &Evidence<'_>) -> Vec<String> {
    let fixed = evidence.evictions().filter(|eviction| {
        let group = evidence.world.pod_groups.get(eviction.job);
        group.is_some_and(|group| !evidence.preemptible(group))
    });
    fixed.map(|eviction| format!("pod {} was evicted, but cannot be preempted", eviction.pod)).collect()
}
