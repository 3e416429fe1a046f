//! Whole GPUs of each node as the session sees them, recomputed from task placements.
//!
//! The engine keeps such sums itself; this second computation is here to judge it, and to print.

use std::collections::BTreeMap;

use super::case::{Kind, Status};
use super::session::Session;
use super::state::TaskPlacement;

/// Whole GPUs of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gpus {
    /// In no use at all.
    pub(super) idle: i64,
    /// Being released, and no pod is pipelined on it.
    pub(super) releasing: i64,
}

/// How a task holds GPUs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoldKind {
    Allocated,
    Releasing,
    Pipelined,
}

/// Tasks on one shared device.
#[derive(Clone, Copy, Debug, Default)]
struct Sharers {
    allocated: u32,
    releasing: u32,
    pipelined: u32,
}

/// GPUs by node, before the actions.
pub(super) fn before<'a>(session: &Session<'a>) -> BTreeMap<&'a str, Gpus> {
    count(session, |uid| vec![hold(session.before.get(uid))])
}

/// GPUs by node, after the actions.
pub(super) fn after<'a>(session: &Session<'a>) -> BTreeMap<&'a str, Gpus> {
    count(session, |uid| {
        let (was, is) = (session.before.get(uid), session.after.get(uid));
        // A moved pod is still on its old node while it is pipelined on the new one.
        let left = is.status == Status::Pipelined && was.status.is_used() && was.status != Status::Pipelined;
        let old = left.then_some((HoldKind::Releasing, was));
        vec![old, hold(is)]
    })
}

fn hold(placement: &TaskPlacement) -> Option<(HoldKind, &TaskPlacement)> {
    let hold = match placement.status {
        Status::Releasing => HoldKind::Releasing,
        Status::Pipelined => HoldKind::Pipelined,
        status if status.is_used() => HoldKind::Allocated,
        _ => return None,
    };
    Some((hold, placement))
}

fn count<'a, 's>(
    session: &'s Session<'a>,
    holds: impl Fn(&str) -> Vec<Option<(HoldKind, &'s TaskPlacement)>>,
) -> BTreeMap<&'a str, Gpus> {
    let mut nodes: BTreeMap<&str, Gpus> = session
        .lowered
        .nodes
        .iter()
        .map(|node| (node.name.as_str(), Gpus { idle: node.allocatable.gpus, releasing: 0 }))
        .collect();
    let mut devices: BTreeMap<(&str, &str), Sharers> = BTreeMap::new();
    for task in &session.lowered.tasks {
        for (hold, placement) in holds(&task.uid).into_iter().flatten() {
            let Some(node) = placement.node.as_deref() else { continue };
            for label in &placement.groups {
                let sharers = devices.entry((node, label)).or_default();
                match hold {
                    HoldKind::Allocated => sharers.allocated += 1,
                    HoldKind::Releasing => sharers.releasing += 1,
                    HoldKind::Pipelined => sharers.pipelined += 1,
                }
            }
            let whole = if task.request.kind == Kind::Gpu { task.request.gpus } else { 0 };
            if let Some(gpus) = nodes.get_mut(node) {
                gpus.idle -= if hold == HoldKind::Pipelined { 0 } else { whole };
                gpus.releasing += match hold {
                    HoldKind::Allocated => 0,
                    HoldKind::Releasing => whole,
                    HoldKind::Pipelined => -whole,
                };
            }
        }
    }
    for ((node, _), sharers) in devices {
        let Some(gpus) = nodes.get_mut(node) else { continue };
        gpus.idle -= i64::from(sharers.allocated + sharers.releasing > 0);
        if sharers.allocated == 0 {
            gpus.releasing += i64::from(sharers.releasing > 0) - i64::from(sharers.pipelined > 0);
        }
    }
    nodes
}
