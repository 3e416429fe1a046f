//! NUMA zones of nodes, and what pods ask of them.

/// NUMA zones of nodes, and what pods ask of them. Empty where the scheduler does not know zones.
#[derive(Clone, Debug, Default)]
pub struct Numa {
    /// By node, `None` where nothing is known; empty if nothing is known of any.
    pub nodes: Vec<Option<NumaNode>>,
    /// Distinct requests.
    pub asks: Vec<NumaAsk>,
}

/// The zones of a node and how its kubelet treats them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// Policy of the topology manager.
    pub policy: TopologyManagerPolicy,
    /// What is aligned as one.
    pub scope: TopologyManagerScope,
    /// Zones in the order of their numbers.
    pub zones: Vec<NumaZone>,
}

/// Policy of a kubelet's topology manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyManagerPolicy {
    /// Does not align.
    None,
    /// Aligns where it can.
    BestEffort,
    /// Refuses pods that could sit closer together on an empty node.
    Restricted,
    /// Refuses pods that need more than one zone.
    SingleZone,
}

/// What a kubelet aligns as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyManagerScope {
    /// Each container by itself.
    Container,
    /// The pod as a whole.
    Pod,
}

/// One zone; vectors hold one amount per column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaZone {
    /// What it has.
    pub allocatable: Vec<i64>,
    /// Held for good by pods that belong to no job here.
    pub unmanaged_used: Vec<i64>,
    /// Held by pods that belong to no job here and are about to leave.
    pub unmanaged_releasing: Vec<i64>,
}

/// What a pod asks of zones: pairs of column and amount, in column order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumaAsk {
    /// The pod as one.
    pub pod: Vec<(u32, i64)>,
    /// Its containers, in the order in which they start.
    pub containers: Vec<NumaUnit>,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumaUnit {
    /// Pairs of column and amount.
    pub need: Vec<(u32, i64)>,
    /// Whether it runs beside those that follow; an ordinary init container does not.
    pub keeps_running: bool,
}

/// An amount of one NUMA zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZoneAllocation {
    /// The zone, by its position on the node.
    pub zone: u32,
    /// The column.
    pub column: u32,
    /// How much.
    pub amount: i64,
}
