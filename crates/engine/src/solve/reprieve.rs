//! Reprieves victims of a successful scenario: as many as possible keep their place.
//!
//! The simulation re-places victims in queue order on their best node, so pods may be evicted or moved although their
//! old place is still free. Here they get it back, smallest pods first, then those with most work to lose, as long as
//! the job keeps its place and no other pod loses more.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::disruption::{is_out, lost_work};
use super::victims::VictimBatch;
use crate::gang::{Gang, GangStatus};
use crate::ids::{JobId, NodeSet, TaskId};
use crate::ledger::TaskState;
use crate::session::Session;
use crate::session::place::Attempt;

/// Pods of one job that are evicted or reprieved together.
type VictimGroup = Vec<TaskId>;

/// Puts victims back where they were, wherever that works out; whether fewer pods are evicted now.
pub(super) fn reprieve(
    session: &mut Session<'_>,
    batches: &[&Arc<VictimBatch>],
    dependent_moves: &[TaskId],
    nodes: &FixedBitSet,
) -> bool {
    let mut groups: Vec<VictimGroup> = batches.iter().map(|batch| batch.tasks.clone()).collect();
    groups.extend(dependent_moves.iter().map(|dependent| vec![*dependent]));
    for group in &mut groups {
        group.retain(|task| is_out(session, *task));
    }
    groups.retain(|group| !group.is_empty());
    // What was evicted last is what a job needs most.
    groups.reverse();
    groups.sort_by_cached_key(|group| cost(session, group));
    rearrange(session, &groups, nodes) || put_all_back(session, &groups)
}

/// Gives up the new places of moving pods, so that as many as possible stay, and lets the others move again.
fn rearrange(session: &mut Session<'_>, groups: &[VictimGroup], nodes: &FixedBitSet) -> bool {
    let (before, whole_before) = (EvictionCost::of(session, groups), whole_jobs(session, groups));
    let mark = session.ledger.mark();
    let mut moved: Vec<VictimGroup> = Vec::new();
    for group in groups {
        let movers: VictimGroup = group
            .iter()
            .copied()
            .filter(|task| matches!(session.ledger.state(*task), TaskState::Moving { .. }))
            .collect();
        for task in &movers {
            leave(session, *task);
        }
        moved.push(movers);
    }
    if put_all_back(session, groups) {
        for mut movers in moved {
            movers.retain(|task| is_out(session, *task));
            if let Some(first) = movers.first() {
                let job = session.snapshot.task(*first).job;
                session.place_chunk(job, &movers, NodeSet::Only(nodes), Attempt::WhatIf);
            }
        }
        let after = EvictionCost::of(session, groups);
        let better = after.evicted < before.evicted && after.lost <= before.lost;
        if better && whole_before.is_subset(&whole_jobs(session, groups)) {
            return true;
        }
    }
    session.ledger.rollback(mark);
    false
}

/// Whether any pod is back.
fn put_all_back(session: &mut Session<'_>, groups: &[VictimGroup]) -> bool {
    let mut out: Vec<&VictimGroup> = groups.iter().collect();
    loop {
        let before = out.len();
        out.retain(|group| !put_back(session, group));
        // A job that has what it needs may take back its surplus.
        if out.len() == before || out.is_empty() {
            return out.len() < groups.len();
        }
    }
}

/// Gives pods of one job their old places back, all or none.
fn put_back(session: &mut Session<'_>, group: &VictimGroup) -> bool {
    let job = session.snapshot.task(group[0]).job;
    let mark = session.ledger.mark();
    for task in group {
        leave(session, *task);
    }
    let mut homes = FixedBitSet::with_capacity(session.snapshot.nodes.len());
    homes.extend(
        group.iter().filter_map(|task| session.ledger.state(*task).placement()).map(|placement| placement.node.index()),
    );
    let back = session.place_chunk(job, group, NodeSet::Only(&homes), Attempt::WhatIf)
        && group.iter().all(|task| matches!(session.ledger.state(*task), TaskState::Allocated(_)))
        && is_whole(session, job);
    if !back {
        session.ledger.rollback(mark);
    }
    back
}

/// The pod loses the place it was to move to.
fn leave(session: &mut Session<'_>, task: TaskId) {
    if let TaskState::Moving { from, .. } = session.ledger.state(task) {
        session.ledger.shift(task, TaskState::Releasing(from));
    }
}

/// What a scenario does to its victims.
struct EvictionCost {
    /// Pods that end without a place.
    lost: usize,
    /// Pods that lose their place, those that find another included.
    evicted: usize,
}

impl EvictionCost {
    fn of(session: &Session<'_>, groups: &[VictimGroup]) -> Self {
        let tasks = || groups.iter().flatten();
        Self {
            lost: tasks().filter(|task| matches!(session.ledger.state(**task), TaskState::Releasing(_))).count(),
            evicted: tasks().filter(|task| is_out(session, **task)).count(),
        }
    }
}

/// Small pods first; then those with most work to lose.
fn cost(session: &Session<'_>, group: &VictimGroup) -> (i64, Reverse<i128>) {
    let size = |task: &TaskId| session.cost_before(*task).0[2];
    let largest = group.iter().map(size).max().unwrap_or(0);
    let work = group.iter().map(|task| lost_work(session, *task));
    (largest, Reverse(work.sum()))
}

/// Whether the job has what it needs, or all that it had before.
fn is_whole(session: &Session<'_>, job: JobId) -> bool {
    Gang::new(&session.ledger, job).state() != GangStatus::BelowMin
        || !session.snapshot.job_tasks(job).any(|task| is_out(session, task))
}

fn whole_jobs(session: &Session<'_>, groups: &[VictimGroup]) -> BTreeSet<JobId> {
    let jobs = groups.iter().map(|group| session.snapshot.task(group[0]).job);
    jobs.filter(|job| is_whole(session, *job)).collect()
}
