//! Everything that the engine decided in a round, as text without words, so that it stays the same when only the words of
//! the code change. Each field is named here, so that a new one cannot be left out unnoticed.

use std::fmt::Write;

use kai_engine::ids::JobId;
use kai_engine::outcome::{
    Assignment, Decision, DeviceRef, EvictionCause, JobTimestamps, Nomination, Outcome, QueueState, ReclaimSide,
    Verdict,
};
use kai_engine::policy::Action;
use kai_engine::snapshot::{Grant, Pick, ZoneAllocation};
use kai_engine::units::{ResourceQuantities, Timestamp};

use super::session::Session;

/// Appends decisions in their order, then which jobs are pending for how many reasons, queues, times and nominations.
pub(super) fn round(text: &mut String, session: &Session<'_>) {
    // When the next cycle may decide otherwise is a hint to the shell, and no decision.
    let Outcome { decisions, verdicts, queue_states, job_timestamps, nominations, next_change_at: _ } =
        &session.outcome;
    for each in decisions {
        decision(text, each);
    }
    for Verdict { job, reasons } in verdicts {
        let _ = writeln!(text, "pending {} {}", job.index(), reasons.len());
    }
    for QueueState { fair_share, allocated, allocated_non_preemptible, request } in queue_states {
        text.push_str("queue");
        for triple in [fair_share, allocated, allocated_non_preemptible, request] {
            amounts(text, *triple);
        }
        text.push('\n');
    }
    for JobTimestamps { job, last_start, stale_since, last_eviction } in job_timestamps {
        let _ = write!(text, "times {}", job.index());
        for at in [last_start, stale_since, last_eviction] {
            time(text, *at);
        }
        text.push('\n');
    }
    for Nomination { task, node } in nominations {
        let _ = writeln!(text, "nominate {} on {:?}", task.index(), node.map(kai_engine::ids::NodeId::index));
    }
}

fn decision(text: &mut String, decision: &Decision) {
    match decision {
        Decision::Bind { task, assignment } => place(text, "bind", task.index(), assignment),
        Decision::Pipeline { task, assignment } => place(text, "pipeline", task.index(), assignment),
        Decision::Evict { task, cause } => {
            let EvictionCause { action, preemptor, gang_size, reclaim_sides } = cause;
            let (action, preemptor) = (number(*action), preemptor.map(JobId::index));
            let _ = write!(text, "evict {} by {action} for {preemptor:?} in {gang_size}", task.index());
            for ReclaimSide { queue, allocated, fair_share } in
                reclaim_sides.iter().flat_map(|(one, other)| [one, other])
            {
                let _ = write!(text, " queue {}", queue.index());
                amounts(text, *allocated);
                amounts(text, *fair_share);
            }
            text.push('\n');
        }
    }
}

fn number(action: Action) -> u32 {
    match action {
        Action::Allocate => 0,
        Action::Consolidate => 1,
        Action::Reclaim => 2,
        Action::Preempt => 3,
        Action::EvictStale => 4,
    }
}

fn place(text: &mut String, what: &str, task: usize, assignment: &Assignment) {
    let Assignment { node, devices, zones, grants } = assignment;
    let _ = write!(text, "{what} {task} on {}", node.index());
    for device in devices {
        let _ = match device {
            DeviceRef::Existing(id) => write!(text, " shared {}", id.index()),
            DeviceRef::Fresh(number) => write!(text, " new {number}"),
        };
    }
    for ZoneAllocation { zone, column, amount } in zones {
        let _ = write!(text, " zone {zone} {column} {amount}");
    }
    for Grant { claim, picks } in grants {
        let _ = write!(text, " claim {}", claim.index());
        for Pick { request, alternative, device, admin } in picks {
            let _ = write!(text, " pick {request} {alternative} {device} {admin}");
        }
    }
    text.push('\n');
}

fn amounts(text: &mut String, amounts: ResourceQuantities) {
    for amount in amounts.0 {
        let _ = write!(text, " {amount}");
    }
}

fn time(text: &mut String, at: Option<Timestamp>) {
    let _ = match at {
        Some(at) => write!(text, " {}", at.0),
        None => write!(text, " -"),
    };
}
