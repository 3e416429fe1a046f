//! Dense ids: an index into one column of one snapshot, and nothing else.
//!
//! Ids are given out in name order, so comparing two ids of a kind compares their names. That is the last
//! tie-break of every order.

use fixedbitset::FixedBitSet;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// Position in its column.
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of a position.
            pub fn at(index: usize) -> Self {
                Self(u32::try_from(index).expect("a snapshot has fewer than 2³² rows"))
            }
        }
    )*};
}

ids! {
    /// A node, by name.
    NodeId,
    /// A queue, by name.
    QueueId,
    /// A job (pod group), by namespace and name.
    JobId,
    /// A pod. Pods of one pod set are neighbours, in task order.
    TaskId,
    /// A pod set: a leaf of a job's sub-group tree.
    PodSetId,
    /// An inner group of a job's sub-group tree; the root is one.
    GroupId,
    /// A distinct resource request.
    ShapeId,
    /// A distinct set of rules about where a pod may run, whatever else runs there.
    NodeFilterId,
    /// A GPU that is, or may become, shared. Ids past the snapshot's are devices opened in this cycle.
    DeviceId,
    /// A host port that some pod asks for.
    PortId,
    /// A tree of node domains.
    TopologyId,
    /// A node label whose values are domains.
    TopologyKeyId,
    /// Pods that a selector matches, counted by domain of one topology key.
    PodMatcherId,
    /// A resource claim.
    ClaimId,
}

/// A range of ids, as stored in columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdRange {
    /// First index.
    pub start: u32,
    /// One past the last index.
    pub end: u32,
}

impl IdRange {
    /// The range as indices.
    pub fn indices(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Number of ids.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether it holds nothing.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// Nodes to choose from.
#[derive(Clone, Copy, Debug)]
pub enum NodeSet<'a> {
    /// All nodes.
    All,
    /// These nodes.
    Only(&'a FixedBitSet),
}

impl<'a> NodeSet<'a> {
    /// Whether the node may be chosen.
    pub fn contains(self, node: NodeId) -> bool {
        match self {
            Self::All => true,
            Self::Only(set) => set.contains(node.index()),
        }
    }

    /// The nodes, in name order.
    pub fn iter(self, count: usize) -> impl Iterator<Item = NodeId> + use<'a> {
        let (all, some) = match self {
            Self::All => (Some(0..count), None),
            Self::Only(set) => (None, Some(set.ones())),
        };
        all.into_iter().flatten().chain(some.into_iter().flatten()).map(NodeId::at)
    }
}
