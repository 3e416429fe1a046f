//! How large a synthetic cluster is.

/// Arguments of a scenario. Equal arguments give equal snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Nodes of 8 GPUs.
    pub nodes: usize,
    /// Leaf queues.
    pub queues: usize,
    /// Queues above them.
    pub departments: usize,
    /// Jobs that wait, or pods in an empty cluster; `None` takes the scenario's own number.
    pub pending: Option<usize>,
    /// Start of every random sequence.
    pub seed: u64,
}

impl Size {
    /// A cluster with the usual number of queues: about one for ten nodes.
    pub fn of(nodes: usize) -> Self {
        let queues = match nodes {
            100 => 20,
            0..100 => (nodes / 10).max(4),
            _ => (nodes / 10).clamp(20, 200),
        };
        Self::with_queues(nodes, queues)
    }

    /// A cluster with so many leaf queues (made even, so that they split into halves), ten to a department.
    pub fn with_queues(nodes: usize, queues: usize) -> Self {
        let queues = queues + queues % 2;
        Self { nodes, queues, departments: (queues / 10).max(2), pending: None, seed: 1 }
    }
}
