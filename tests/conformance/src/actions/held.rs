//! Whole GPUs of each node as the session sees them, recomputed from task standings.
//!
//! The engine keeps such sums itself; this second computation is here to judge it, and to print.

use std::collections::BTreeMap;

use super::case::{Kind, Status};
use super::session::Session;
use super::state::Standing;

/// Whole GPUs of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gpus {
    /// In no use at all.
    pub(super) idle: i64,
    /// About to be free and promised to nobody.
    pub(super) releasing: i64,
}

/// How a task stands on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grip {
    Held,
    Leaving,
    Promised,
}

/// Tasks on one shared device.
#[derive(Clone, Copy, Debug, Default)]
struct Sharers {
    held: u32,
    leaving: u32,
    promised: u32,
}

/// GPUs by node, before the actions.
pub(super) fn before<'a>(session: &Session<'a>) -> BTreeMap<&'a str, Gpus> {
    count(session, |uid| vec![grip(session.before.get(uid))])
}

/// GPUs by node, after the actions.
pub(super) fn after<'a>(session: &Session<'a>) -> BTreeMap<&'a str, Gpus> {
    count(session, |uid| {
        let (was, is) = (session.before.get(uid), session.after.get(uid));
        // A moved pod is still on its old node while it is promised the new one.
        let left = is.status == Status::Pipelined && was.status.is_used() && was.status != Status::Pipelined;
        let old = left.then_some((Grip::Leaving, was));
        vec![old, grip(is)]
    })
}

fn grip(standing: &Standing) -> Option<(Grip, &Standing)> {
    let grip = match standing.status {
        Status::Releasing => Grip::Leaving,
        Status::Pipelined => Grip::Promised,
        status if status.is_used() => Grip::Held,
        _ => return None,
    };
    Some((grip, standing))
}

fn count<'a, 's>(
    session: &'s Session<'a>,
    grips: impl Fn(&str) -> Vec<Option<(Grip, &'s Standing)>>,
) -> BTreeMap<&'a str, Gpus> {
    let mut nodes: BTreeMap<&str, Gpus> = session
        .lowered
        .nodes
        .iter()
        .map(|node| (node.name.as_str(), Gpus { idle: node.allocatable.gpus, releasing: 0 }))
        .collect();
    let mut devices: BTreeMap<(&str, &str), Sharers> = BTreeMap::new();
    for task in &session.lowered.tasks {
        for (grip, standing) in grips(&task.uid).into_iter().flatten() {
            let Some(node) = standing.node.as_deref() else { continue };
            for label in &standing.groups {
                let sharers = devices.entry((node, label)).or_default();
                match grip {
                    Grip::Held => sharers.held += 1,
                    Grip::Leaving => sharers.leaving += 1,
                    Grip::Promised => sharers.promised += 1,
                }
            }
            let whole = if task.request.kind == Kind::Gpu { task.request.gpus } else { 0 };
            if let Some(gpus) = nodes.get_mut(node) {
                gpus.idle -= if grip == Grip::Promised { 0 } else { whole };
                gpus.releasing += match grip {
                    Grip::Held => 0,
                    Grip::Leaving => whole,
                    Grip::Promised => -whole,
                };
            }
        }
    }
    for ((node, _), sharers) in devices {
        let Some(gpus) = nodes.get_mut(node) else { continue };
        gpus.idle -= i64::from(sharers.held + sharers.leaving > 0);
        if sharers.held == 0 {
            gpus.releasing += i64::from(sharers.leaving > 0) - i64::from(sharers.promised > 0);
        }
    }
    nodes
}
