//! A tournament tree over all nodes: the best node for one request stays on top, and after a placement only changed
//! nodes are compared again.

use super::filter::PodFilters;
use super::score::{self, Score};
use crate::ids::NodeId;

/// Keeps the best node for one shape and node filter on top.
#[derive(Debug)]
pub(super) struct Tournament {
    scores: Vec<Option<Score>>,
    /// Winners, root at 1; leaf `i` is at `width + i`. Holds node indices.
    winners: Vec<u32>,
    width: usize,
    /// How much of the ledger's log of changed nodes is accounted for.
    generation: usize,
}

const NO_WINNER: u32 = u32::MAX;

impl Tournament {
    pub(super) fn new(filters: &PodFilters<'_, '_>) -> Self {
        let count = filters.ledger.snapshot.nodes.len();
        let width = count.next_power_of_two().max(1);
        let scores = (0..count).map(|node| Self::score(filters, NodeId::at(node))).collect();
        let mut tree =
            Self { scores, winners: vec![NO_WINNER; 2 * width], width, generation: filters.ledger.generation() };
        for node in 0..count {
            tree.winners[width + node] = tree.entrant(node);
        }
        for slot in (1..width).rev() {
            tree.winners[slot] = tree.winner_of(slot);
        }
        tree
    }

    fn score(filters: &PodFilters<'_, '_>, node: NodeId) -> Option<Score> {
        let PodFilters { ledger, policy, shape, .. } = filters;
        filters.accept_request(node).then(|| score::score(ledger, policy, shape, node))
    }

    fn entrant(&self, node: usize) -> u32 {
        if self.scores[node].is_some() { node as u32 } else { NO_WINNER }
    }

    fn winner_of(&self, slot: usize) -> u32 {
        let (left, right) = (self.winners[2 * slot], self.winners[2 * slot + 1]);
        match (left, right) {
            (NO_WINNER, other) | (other, NO_WINNER) => other,
            // The left one comes first by name, so it keeps ties.
            _ if self.scores[right as usize] > self.scores[left as usize] => right,
            _ => left,
        }
    }

    pub(super) fn refresh(&mut self, filters: &PodFilters<'_, '_>) {
        let Some(changed) = filters.ledger.nodes_changed_since(self.generation) else {
            *self = Self::new(filters);
            return;
        };
        self.generation = filters.ledger.generation();
        for node in changed {
            let score = Self::score(filters, node);
            if score == self.scores[node.index()] {
                continue;
            }
            self.scores[node.index()] = score;
            let mut slot = self.width + node.index();
            self.winners[slot] = self.entrant(node.index());
            while slot > 1 {
                slot /= 2;
                self.winners[slot] = self.winner_of(slot);
            }
        }
    }

    pub(super) fn best(&self) -> Option<NodeId> {
        let winner = self.winners[1];
        (winner != NO_WINNER).then_some(NodeId(winner))
    }
}
