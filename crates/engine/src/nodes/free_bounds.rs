//! Lower and upper bound of what is free on any one node, by resource: enough to tell that a request fits nowhere, and
//! why, without a look at the nodes.
//!
//! Many requests differ only in resources that every node has enough of. Without these they are equal, so a result
//! cached for one (no node fits, and why) holds for the others.

use crate::ids::NodeId;
use crate::ledger::Ledger;
use crate::nodes::resources;
use crate::outcome::{NodeObstacle, ObstacleCounts};
use crate::snapshot::{GPUS, PODS, Shape};

/// Bounds on what is free, now or later.
#[derive(Clone, Debug)]
pub struct FreeBounds {
    lower: Vec<i64>,
    upper: Vec<i64>,
    /// How much of the ledger's log of changed nodes is accounted for.
    generation: usize,
    /// Whether some node has just that little, and some just that much.
    exact: bool,
}

/// A request without what every node has plenty of, and without what it costs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScarceRequest(Shape);

impl FreeBounds {
    /// The present bounds.
    pub fn new(ledger: &Ledger<'_>) -> Self {
        let width = ledger.snapshot.resources.len();
        let (lower, upper) = (vec![i64::MAX; width], vec![i64::MIN; width]);
        let mut bounds = Self { lower, upper, generation: ledger.generation(), exact: true };
        for node in ledger.snapshot.nodes.ids() {
            bounds.widen(ledger, node);
        }
        bounds
    }

    /// Takes into account what has changed since. Bounds only move apart, so this is cheap; they may be too wide then.
    pub fn refresh(&mut self, ledger: &Ledger<'_>) {
        let Some(changed) = ledger.nodes_changed_since(self.generation) else {
            *self = Self::new(ledger);
            return;
        };
        self.exact &= self.generation == ledger.generation();
        self.generation = ledger.generation();
        for node in changed {
            self.widen(ledger, node);
        }
    }

    fn widen(&mut self, ledger: &Ledger<'_>, node: NodeId) {
        let free = ledger.idle(node).iter().zip(ledger.releasing(node)).map(|(idle, releasing)| idle + releasing);
        for (column, ((lower, upper), free)) in self.lower.iter_mut().zip(&mut self.upper).zip(free).enumerate() {
            *lower = free.min(*lower);
            // What devices of claims provide is not counted here.
            *upper = if resources::left_to_claims(ledger, node, column) { i64::MAX } else { free.max(*upper) };
        }
    }

    /// Whether no node has enough of some column.
    pub fn rules_out(&self, shape: &Shape) -> bool {
        let shared = shape.gpu.shared_devices().is_some();
        let mut columns = shape.need.iter().zip(&self.upper).enumerate();
        columns.any(|(column, (need, upper))| need > upper && !(shared && column == GPUS))
    }

    /// The request without what every node has enough of.
    pub fn scarce_part(&self, shape: &Shape) -> ScarceRequest {
        let scarce = |(need, lower): (&i64, &i64)| if need > lower { *need } else { i64::MIN };
        let need = shape.need.iter().zip(&self.lower).map(scarce).collect();
        ScarceRequest(Shape { need, quota_gpu: 0, ..shape.clone() })
    }

    /// Why every node refuses the request, if it is the same column everywhere.
    pub fn obstacles(&mut self, ledger: &Ledger<'_>, shape: &Shape) -> Option<ObstacleCounts> {
        if !self.exact {
            *self = Self::new(ledger);
        }
        let scarce = |column: &usize| shape.need[*column] > self.lower[*column];
        let column = resources::columns_in_order(ledger.snapshot, shape).find(scarce)?;
        let missing = shape.need[column] - self.upper[column];
        let nodes = u32::try_from(ledger.snapshot.nodes.len()).expect("ids are 32 bits");
        let obstacle = if column == PODS {
            NodeObstacle::PodSlots
        } else {
            NodeObstacle::Short { column: column as u32, least: missing }
        };
        (missing > 0 && nodes > 0).then(|| ObstacleCounts { counts: vec![(obstacle, nodes)] })
    }
}
