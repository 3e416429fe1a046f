//! Why a pod found no node: every node counts once, for the first filter that it does not pass.

use std::collections::BTreeMap;

use super::filter::PodFilters;
use crate::ids::{NodeSet, TaskId};
use crate::ledger::Ledger;
use crate::outcome::{NodeObstacle, ObstacleCounts};
use crate::policy::Policy;

/// Counts the first obstacle of each node.
pub(crate) fn count_obstacles(
    ledger: &Ledger<'_>,
    policy: &Policy,
    task: TaskId,
    nodes: NodeSet<'_>,
) -> ObstacleCounts {
    let mut counts: BTreeMap<NodeObstacle, u32> = BTreeMap::new();
    let mut shortages: BTreeMap<u32, (i64, u32)> = BTreeMap::new();
    let mut too_small: Option<(i64, u32)> = None;
    let filters = PodFilters::new(ledger, policy, task);
    for node in ledger.snapshot.nodes.ids() {
        match filters.obstacle(nodes, node) {
            Some(NodeObstacle::Short { column, least }) => {
                let entry = shortages.entry(column).or_insert((least, 0));
                *entry = (entry.0.min(least), entry.1 + 1);
            }
            Some(NodeObstacle::DeviceTooSmall { largest }) => {
                let (known, count) = too_small.unwrap_or((largest, 0));
                too_small = Some((known.max(largest), count + 1));
            }
            Some(other) => *counts.entry(other).or_insert(0) += 1,
            None => {}
        }
    }
    let shortages =
        shortages.into_iter().map(|(column, (least, count))| (NodeObstacle::Short { column, least }, count));
    let too_small = too_small.map(|(largest, count)| (NodeObstacle::DeviceTooSmall { largest }, count));
    ObstacleCounts { counts: shortages.chain(too_small).chain(counts).collect() }
}
