//! Where every task stands between two rounds.

use std::collections::BTreeMap;
use std::fmt;

use super::case::{Case, Status};
use super::claims::{self, Statuses};
use super::numa::Placement;

/// Standings of all tasks, by uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) standings: BTreeMap<String, Standing>,
    pub(super) claims: Statuses,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) status: Status,
    pub(super) node: Option<String>,
    /// Labels of the shared devices it holds.
    pub(super) groups: Vec<String>,
    /// What it holds of NUMA zones.
    pub(super) zones: Placement,
}

impl fmt::Display for Standing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(out, "{:?}@{node}", self.status),
            None => write!(out, "{:?}", self.status),
        }
    }
}

impl Standing {
    fn waiting() -> Self {
        Self { status: Status::Pending, node: None, groups: Vec::new(), zones: Placement::new() }
    }
}

impl State {
    /// As the case begins.
    pub(super) fn of(case: &Case) -> Self {
        let standings = case.tasks().map(|(_, task)| {
            // Device labels of a task that shares nothing are leftovers of the recording.
            let groups = if task.request.kind.shares() { task.gpu_groups.clone() } else { Vec::new() };
            let zones = task.numa_observed_placement.clone();
            (task.uid.clone(), Standing { status: task.status, node: task.node.clone(), groups, zones })
        });
        Self { standings: standings.collect(), claims: claims::statuses(case) }
    }

    pub(super) fn get(&self, uid: &str) -> &Standing {
        &self.standings[uid]
    }

    /// What the cluster makes of a round: bound pods start, promises are forgotten, evicted pods come back.
    pub(super) fn advance(&mut self, case: &Case) {
        for (job, task) in case.tasks() {
            let standing = self.standings.get_mut(&task.uid).expect("the state holds every task of the case");
            match standing.status {
                Status::Binding => standing.status = Status::Running,
                Status::Releasing if job.eviction_is_delete => {}
                Status::Pipelined | Status::Releasing => *standing = Standing::waiting(),
                _ => {}
            }
        }
    }
}
