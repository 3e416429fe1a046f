//! What is taken of NUMA zones: sums over states, like everything else in the ledger.

use super::{HoldKind, Ledger, When};
use crate::ids::NodeId;
use crate::snapshot::{Snapshot, ZoneAllocation};

/// Amounts taken of every zone and column, for nodes whose zones are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ZoneUsage {
    /// Where the rows of each node begin; nothing if no node has zones.
    start: Vec<usize>,
    loads: Vec<Load>,
}

/// Amounts by how pods hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    allocated: i64,
    pipelined: i64,
    releasing: i64,
}

impl ZoneUsage {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let mut start = Vec::new();
        let mut rows = 0;
        for node in &snapshot.numa.nodes {
            start.push(rows);
            rows += node.as_ref().map_or(0, |node| node.zones.len()) * snapshot.resources.len();
        }
        Self { start, loads: vec![Load::default(); rows] }
    }

    fn at(&self, snapshot: &Snapshot, node: NodeId, zone: u32, column: u32) -> usize {
        self.start[node.index()] + zone as usize * snapshot.resources.len() + column as usize
    }

    pub(super) fn load(&mut self, snapshot: &Snapshot, node: NodeId, share: ZoneAllocation, kind: HoldKind, sign: i64) {
        let at = self.at(snapshot, node, share.zone, share.column);
        let row = &mut self.loads[at];
        let amount = sign * share.amount;
        match kind {
            HoldKind::Allocated => row.allocated += amount,
            HoldKind::Pipelined => row.pipelined += amount,
            HoldKind::Releasing => row.releasing += amount,
        }
    }
}

impl Ledger<'_> {
    /// What a zone has left of a column.
    pub fn zone_free(&self, node: NodeId, zone: u32, column: u32, when: When) -> i64 {
        let Some(Some(row)) = self.snapshot.numa.nodes.get(node.index()) else { return 0 };
        let row = &row.zones[zone as usize];
        let load = self.zones.loads[self.zones.at(self.snapshot, node, zone, column)];
        let column = column as usize;
        let stays = row.allocatable[column] - row.unmanaged_used[column] - load.allocated - load.pipelined;
        match when {
            When::Later => stays,
            When::Now => stays - load.releasing - row.unmanaged_releasing[column],
        }
    }
}
