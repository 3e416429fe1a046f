//! Topologies and the constraints that name their levels.

use crate::ids::TopologyId;

/// A tree of node domains, such as zones and racks.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// For each level, from wide to narrow: the domain of each node, if the node belongs to the topology.
    pub levels: Vec<Vec<Option<u32>>>,
}

/// Where a group or pod set must or should stay together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// The tree; `None` if the named one does not exist.
    pub topology: Option<TopologyId>,
    /// Level that must hold everything.
    pub required: Option<LevelRef>,
    /// Level that should hold everything.
    pub preferred: Option<LevelRef>,
}

/// A level named by a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelRef {
    /// Position in the topology.
    At(u32),
    /// The topology has no such level.
    Unknown,
}
