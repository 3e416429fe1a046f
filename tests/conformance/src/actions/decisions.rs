//! Everything that the engine decided in a round, as text without words, so that it stays the same when only the words of
//! the code change.

use std::fmt::Write;

use kai_engine::ids::JobId;
use kai_engine::outcome::{Assignment, Decision, DeviceRef};
use kai_engine::units::ResourceQuantities;

use super::session::Session;

/// Appends decisions in their order, then who waits for how many reasons, times, nominations and queues.
pub(super) fn round(text: &mut String, session: &Session<'_>) {
    let outcome = &session.outcome;
    for decision in &outcome.decisions {
        let task = decision.task().index();
        match decision {
            Decision::Bind { assignment, .. } => place(text, "bind", task, assignment),
            Decision::Pipeline { assignment, .. } => place(text, "pipeline", task, assignment),
            Decision::Evict { cause, .. } => {
                let preemptor = cause.preemptor.map(JobId::index);
                let _ = write!(text, "evict {task} for {preemptor:?} in {}", cause.gang_size);
                if let Some((ours, theirs)) = &cause.reclaim_sides {
                    for side in [ours, theirs] {
                        let _ = write!(text, " queue {}", side.queue.index());
                        amounts(text, side.allocated);
                        amounts(text, side.fair_share);
                    }
                }
                text.push('\n');
            }
        }
    }
    for verdict in &outcome.verdicts {
        let _ = writeln!(text, "waits {} {}", verdict.job.index(), verdict.reasons.len());
    }
    for state in &outcome.queue_states {
        text.push_str("queue");
        for triple in [state.fair_share, state.allocated, state.allocated_non_preemptible, state.request] {
            amounts(text, triple);
        }
        text.push('\n');
    }
}

fn place(text: &mut String, what: &str, task: usize, place: &Assignment) {
    let _ = write!(text, "{what} {task} on {}", place.node.index());
    for device in &place.devices {
        let _ = match device {
            DeviceRef::Existing(id) => write!(text, " shared {}", id.index()),
            DeviceRef::Fresh(number) => write!(text, " new {number}"),
        };
    }
    let _ = writeln!(text, " zones {} claims {}", place.zones.len(), place.grants.len());
}

fn amounts(text: &mut String, amounts: ResourceQuantities) {
    for amount in amounts.0 {
        let _ = write!(text, " {amount}");
    }
}
