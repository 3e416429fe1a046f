//! How much a cycle decided.

use std::collections::BTreeSet;
use std::fmt;

use kai_engine::outcome::Decision;
use kai_engine::snapshot::Status;
use kai_engine::{Outcome, Snapshot};
use serde::{Deserialize, Serialize};

/// Pods, by what was decided about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Bound now.
    pub bound: usize,
    /// Evicted, whether or not they get another place.
    pub evicted: usize,
    /// Assigned to resources that are being released; evicted ones that move are among them.
    pub pipelined: usize,
    /// Waited and still do.
    pub waiting: usize,
}

impl Count {
    /// Counts the decisions of a cycle.
    pub fn of(snapshot: &Snapshot, outcome: &Outcome) -> Self {
        let mut count = Self::default();
        let mut placed = BTreeSet::new();
        for decision in &outcome.decisions {
            match decision {
                Decision::Bind { task, .. } => {
                    count.bound += 1;
                    placed.insert(*task);
                }
                Decision::Pipeline { task, .. } => {
                    count.pipelined += 1;
                    placed.insert(*task);
                }
                Decision::Evict { .. } => count.evicted += 1,
            }
        }
        let pending = |task: &&kai_engine::snapshot::Task| task.status == Status::Pending;
        let helped = placed.iter().filter(|task| pending(&snapshot.task(**task))).count();
        count.waiting = snapshot.tasks.iter().filter(pending).count() - helped;
        count
    }
}

/// `bound/evicted/pipelined`.
impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}/{}", self.bound, self.evicted, self.pipelined)
    }
}
