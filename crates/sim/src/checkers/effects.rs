//! Whatever the scheduler asks for can be done: it knew the cluster as it is.

use super::CycleObservation;

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    observation.performed.rejected.clone()
}
