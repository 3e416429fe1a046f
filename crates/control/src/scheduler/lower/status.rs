//! The status of a pod, from its phase, node, deletion time, gates and bind request.

use kai_engine::snapshot::Status;
use kai_engine::units::{Span, Timestamp};

use crate::objects::{Phase, Pod};

/// `None` for failed pods, which hold nothing.
pub(super) fn of(pod: &Pod, being_bound: bool, stuck_after: Span, now: Timestamp) -> Option<Status> {
    Some(match (pod.phase, pod.deletion) {
        (Phase::Failed, _) => return None,
        (Phase::Succeeded, _) => Status::Succeeded,
        (Phase::Unknown, _) => Status::FailedOrUnknown,
        (Phase::Running, None) => Status::Running,
        // The deletion time already contains the grace period: after it, the pod should no longer exist.
        (Phase::Running, Some(due)) if now.since(due) > stuck_after => Status::StuckInReleasing,
        (Phase::Running | Phase::Pending, Some(_)) => Status::Releasing,
        (Phase::Pending, None) if pod.node.is_some() => Status::Bound,
        (Phase::Pending, None) if being_bound => Status::Binding,
        (Phase::Pending, None) if pod.gated => Status::Gated,
        (Phase::Pending, None) => Status::Pending,
    })
}

/// When the status changes though nothing happens: a terminating pod counts as stuck from then on.
pub(super) fn next_change_at(pod: &Pod, stuck_after: Span, now: Timestamp) -> Option<Timestamp> {
    let due = pod.deletion.filter(|_| pod.phase == Phase::Running)?;
    // More than the threshold, in a clock of microseconds.
    Some(due.plus(stuck_after).plus(Span(1))).filter(|change| *change > now)
}

/// Whether a pod of this status holds resources on its node.
pub(super) fn holds_room(status: Status) -> bool {
    is_placed(status) || matches!(status, Status::Releasing | Status::StuckInReleasing)
}

/// Whether a pod of this status has a node and is not terminating.
pub(super) fn is_placed(status: Status) -> bool {
    matches!(status, Status::Binding | Status::Bound | Status::Running | Status::Pipelined)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(phase: &str, deletion: &Value, spec: &Value, being_bound: bool) -> Option<Status> {
        let metadata = json!({"name": "a", "deletionTimestamp": deletion});
        let pod = Pod::parse(&json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}})).unwrap();
        of(&pod, being_bound, Span::seconds(120), Timestamp(1_000_000_000))
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let (none, nothing) = (Value::Null, json!({}));
        let gated = json!({"schedulingGates": [{"name": "quota"}]});
        let placed = json!({"nodeName": "n", "schedulingGates": []});
        // The clock stands at 00:16:40.
        let (recent, long_ago) = (json!("1970-01-01T00:16:00Z"), json!("1970-01-01T00:14:00Z"));
        assert_eq!(status("Running", &none, &placed, false), Some(Status::Running));
        assert_eq!(status("Running", &recent, &placed, false), Some(Status::Releasing));
        assert_eq!(status("Running", &long_ago, &placed, false), Some(Status::StuckInReleasing));
        assert_eq!(status("Pending", &long_ago, &placed, false), Some(Status::Releasing));
        assert_eq!(status("Pending", &none, &placed, true), Some(Status::Bound));
        assert_eq!(status("Pending", &none, &gated, true), Some(Status::Binding));
        assert_eq!(status("Pending", &none, &gated, false), Some(Status::Gated));
        assert_eq!(status("Pending", &none, &nothing, false), Some(Status::Pending));
        assert_eq!(status("Succeeded", &none, &placed, false), Some(Status::Succeeded));
        assert_eq!(status("Unknown", &none, &placed, false), Some(Status::FailedOrUnknown));
        assert_eq!(status("Failed", &none, &placed, false), None);
    }

    #[test]
    fn a_terminating_pod_counts_as_stuck_from_the_next_change_on() {
        let metadata = json!({"name": "a", "deletionTimestamp": "1970-01-01T00:16:00Z"});
        let pod = |phase: &str| Pod::parse(&json!({"metadata": metadata, "status": {"phase": phase}})).unwrap();
        let (running, after, now) = (pod("Running"), Span::seconds(120), Timestamp(1_000_000_000));
        let change = next_change_at(&running, after, now).unwrap();
        assert_eq!(change, Timestamp(1_080_000_001));
        assert_eq!(of(&running, false, after, Timestamp(change.0 - 1)), Some(Status::Releasing));
        assert_eq!(of(&running, false, after, change), Some(Status::StuckInReleasing));
        assert_eq!(next_change_at(&running, after, change), None);
        assert_eq!(next_change_at(&pod("Pending"), after, now), None);
    }
}
