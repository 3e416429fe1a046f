//! The status and placement of every task between two rounds.

use std::collections::BTreeMap;
use std::fmt;

use super::case::{Case, Status};
use super::claims::{self, Statuses};
use super::numa::ZonePlacement;

/// All tasks, by uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) placements: BTreeMap<String, TaskPlacement>,
    pub(super) claims: Statuses,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskPlacement {
    pub(super) status: Status,
    pub(super) node: Option<String>,
    /// Labels of the shared devices it holds.
    pub(super) groups: Vec<String>,
    /// What it holds of NUMA zones.
    pub(super) zones: ZonePlacement,
}

impl fmt::Display for TaskPlacement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(out, "{:?}@{node}", self.status),
            None => write!(out, "{:?}", self.status),
        }
    }
}

impl TaskPlacement {
    fn waiting() -> Self {
        Self { status: Status::Pending, node: None, groups: Vec::new(), zones: ZonePlacement::new() }
    }
}

impl State {
    /// As the case begins.
    pub(super) fn of(case: &Case) -> Self {
        let placements = case.tasks().map(|(_, task)| {
            // Device labels of a task that shares nothing are leftovers of the recording.
            let groups = if task.request.kind.shares() { task.gpu_groups.clone() } else { Vec::new() };
            let zones = task.numa_observed_placement.clone();
            (task.uid.clone(), TaskPlacement { status: task.status, node: task.node.clone(), groups, zones })
        });
        Self { placements: placements.collect(), claims: claims::statuses(case) }
    }

    pub(super) fn get(&self, uid: &str) -> &TaskPlacement {
        &self.placements[uid]
    }

    /// What the cluster makes of a round: bound pods start, pipelined pods are pending again, evicted pods come back.
    pub(super) fn advance(&mut self, case: &Case) {
        for (job, task) in case.tasks() {
            let placement = self.placements.get_mut(&task.uid).expect("the state holds every task of the case");
            match placement.status {
                Status::Binding => placement.status = Status::Running,
                Status::Releasing if job.eviction_is_delete => {}
                Status::Pipelined | Status::Releasing => *placement = TaskPlacement::waiting(),
                _ => {}
            }
        }
    }
}
