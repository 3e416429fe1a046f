//! Invariants of queues: limits, quotas and totals at every level.

use kai_engine::ids::{JobId, QueueId};
use kai_engine::units::{Ceiling, QueueResource, ResourceQuantities};

use super::outcome_view::{CheckResult, OutcomeView, ensure};

fn queues(after: &OutcomeView<'_>) -> impl Iterator<Item = QueueId> + use<> {
    (0..after.snapshot.queues.len()).map(QueueId::at)
}

/// No queue holds more than its limit, unless it did before, and then not more than before.
pub(super) fn limits_hold(after: &OutcomeView<'_>) -> CheckResult {
    bounds_hold(after, "limit", false, |after, queue| after.snapshot.queues[queue.index()].limit)
}

/// Work that cannot be preempted stays within quota, unless it was above before.
pub(super) fn fixed_work_stays_within_quota(after: &OutcomeView<'_>) -> CheckResult {
    bounds_hold(after, "quota", true, |after, queue| after.snapshot.queues[queue.index()].quota)
}

fn bounds_hold(
    after: &OutcomeView<'_>,
    what: &str,
    only_fixed: bool,
    ceilings: fn(&OutcomeView<'_>, QueueId) -> [Ceiling; 3],
) -> CheckResult {
    for queue in queues(after) {
        let (before, later) = (after.held(queue, false, only_fixed), after.held(queue, true, only_fixed));
        for resource in QueueResource::ALL {
            let (before, later) = (before.get(resource), later.get(resource));
            let ceiling = ceilings(after, queue)[resource as usize];
            let name = &after.world.names.queues[queue.index()];
            ensure!(
                ceiling.allows(later) || later <= before,
                "{name} goes from {before} to {later} {resource:?}, above its {what} {ceiling:?}"
            );
        }
    }
    Ok(())
}

/// What the outcome reports of queues is the sum over their pods.
pub(super) fn totals_add_up(after: &OutcomeView<'_>) -> CheckResult {
    for queue in queues(after) {
        let state = &after.outcome.queue_states[queue.index()];
        let (all, fixed) = (after.held(queue, true, false), after.held(queue, true, true));
        let name = &after.world.names.queues[queue.index()];
        ensure!(state.allocated == all, "{name} reports {:?} and holds {all:?}", state.allocated);
        let reported = state.allocated_non_preemptible;
        ensure!(reported == fixed, "{name} reports {reported:?} and holds {fixed:?} that cannot be preempted");
    }
    Ok(())
}

/// Every queue is entitled to what it asks for up to its quota, if everyone above it is; at the top that is everyone.
pub(super) fn quotas_are_guaranteed(after: &OutcomeView<'_>) -> CheckResult {
    for queue in queues(after) {
        let row = &after.snapshot.queues[queue.index()];
        let state = &after.outcome.queue_states[queue.index()];
        for resource in QueueResource::ALL {
            let index = resource as usize;
            let Ceiling::At(quota) = row.quota[index] else { continue };
            let asked = row.limit[index].cap(state.request.get(resource));
            let share = state.fair_share.get(resource);
            let name = &after.world.names.queues[queue.index()];
            ensure!(share >= quota.min(asked), "{name} is entitled to {share} {resource:?} of {quota}, asks {asked}");
        }
    }
    Ok(())
}

/// Whether the job's queue and all above it could take on this much more once everything has happened.
pub(super) fn may_grow(after: &OutcomeView<'_>, job: JobId, cost: ResourceQuantities) -> bool {
    let row = after.snapshot.job(job);
    let Some(own) = row.queue else { return false };
    after.path(own).into_iter().all(|queue| {
        let bounds = &after.snapshot.queues[queue.index()];
        let within = |ceilings: [Ceiling; 3], held: ResourceQuantities| {
            QueueResource::ALL.into_iter().all(|resource| {
                cost.get(resource) == 0 || ceilings[resource as usize].allows((held + cost).get(resource))
            })
        };
        within(bounds.limit, after.held(queue, true, false))
            && (row.preemptible || within(bounds.quota, after.held(queue, true, true)))
    })
}
