//! The least and the most that is free on any one node, by column: enough to tell that a request fits nowhere, and
//! why, without looking at the nodes.
//!
//! Most requests differ in columns of which every node has plenty. Seen through [`Bounds::essence`] they are equal,
//! so that what was found out about one holds for the others.

use crate::fit;
use crate::ids::NodeId;
use crate::ledger::Ledger;
use crate::outcome::{NodeObstacle, NodeTally};
use crate::snapshot::{GPUS, PODS, Shape};

/// Bounds on what is free, now or later.
#[derive(Clone, Debug)]
pub struct Bounds {
    least: Vec<i64>,
    most: Vec<i64>,
    /// How much of the ledger's log of touched nodes is accounted for.
    seen: usize,
    /// Whether some node has just that little, and some just that much.
    exact: bool,
}

/// A request without what every node has plenty of, and without what it costs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Essence(Shape);

impl Bounds {
    /// The bounds as things stand.
    pub fn new(ledger: &Ledger<'_>) -> Self {
        let width = ledger.snapshot.columns.len();
        let (least, most) = (vec![i64::MAX; width], vec![i64::MIN; width]);
        let mut bounds = Self { least, most, seen: ledger.touches(), exact: true };
        for node in ledger.snapshot.nodes.ids() {
            bounds.widen(ledger, node);
        }
        bounds
    }

    /// Takes into account what was touched since. Bounds only grow apart, so this is cheap; they may be too wide then.
    pub fn refresh(&mut self, ledger: &Ledger<'_>) {
        let Some(touched) = ledger.touched_since(self.seen) else {
            *self = Self::new(ledger);
            return;
        };
        self.exact &= self.seen == ledger.touches();
        self.seen = ledger.touches();
        for node in touched {
            self.widen(ledger, node);
        }
    }

    fn widen(&mut self, ledger: &Ledger<'_>, node: NodeId) {
        let free = ledger.idle(node).iter().zip(ledger.releasing(node)).map(|(idle, releasing)| idle + releasing);
        for (column, ((least, most), free)) in self.least.iter_mut().zip(&mut self.most).zip(free).enumerate() {
            *least = free.min(*least);
            // Of what devices provide, nobody knows here how much there is.
            *most = if fit::left_to_claims(ledger, node, column) { i64::MAX } else { free.max(*most) };
        }
    }

    /// Whether no node has enough of some column.
    pub fn exclude(&self, shape: &Shape) -> bool {
        let shared = shape.gpu.shared_devices().is_some();
        let mut columns = shape.need.iter().zip(&self.most).enumerate();
        columns.any(|(column, (need, most))| need > most && !(shared && column == GPUS))
    }

    /// The request without what every node has enough of.
    pub fn essence(&self, shape: &Shape) -> Essence {
        let scarce = |(need, least): (&i64, &i64)| if need > least { *need } else { i64::MIN };
        let need = shape.need.iter().zip(&self.least).map(scarce).collect();
        Essence(Shape { need, quota_gpu: 0, ..shape.clone() })
    }

    /// Why every node refuses the request, if it is the same column everywhere.
    pub fn tally(&mut self, ledger: &Ledger<'_>, shape: &Shape) -> Option<NodeTally> {
        if !self.exact {
            *self = Self::new(ledger);
        }
        let scarce = |column: &usize| shape.need[*column] > self.least[*column];
        let column = fit::columns_in_order(ledger.snapshot, shape).find(scarce)?;
        let missing = shape.need[column] - self.most[column];
        let nodes = u32::try_from(ledger.snapshot.nodes.len()).expect("ids are 32 bits");
        let obstacle = if column == PODS {
            NodeObstacle::PodSlots
        } else {
            NodeObstacle::Short { column: column as u32, least: missing }
        };
        (missing > 0 && nodes > 0).then(|| NodeTally { counts: vec![(obstacle, nodes)] })
    }
}
