//! Only work that may be preempted is taken from its place to make room for other work.

use super::CycleObservation;

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let fixed = observation.evictions().filter(|eviction| {
        let group = observation.world.pod_groups.get(eviction.job);
        group.is_some_and(|group| !observation.preemptible(group))
    });
    fixed.map(|eviction| format!("pod {} was evicted, but cannot be preempted", eviction.pod)).collect()
}
