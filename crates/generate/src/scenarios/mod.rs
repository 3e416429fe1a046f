//! The scenarios: one file per kind, one row per name.

mod allocate;
mod consolidation;
mod mixed;
mod preempt;
mod reclaim;
mod running_load;
mod saturated;
mod topology;

use crate::cluster::Cluster;
use crate::size::Size;

/// A kind of cluster of which only the size is open.
#[derive(Debug)]
pub struct Scenario {
    /// How it is called.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Its usual size for so many nodes.
    size: fn(usize) -> Size,
    fill: fn(&mut Cluster),
}

/// All of them.
pub const SCENARIOS: [Scenario; 12] = [
    Scenario {
        name: "mixed",
        about: "empty cluster, 100 queues, 10 pending pods a node in gangs of all kinds, about 90 % of all GPUs",
        size: |nodes| Size::with_queues(nodes, 100),
        fill: mixed::fill,
    },
    Scenario {
        name: "allocate",
        about: "empty cluster, 10 pending pods a node: gangs of 8 × 8 GPUs, 1-GPU and half-GPU pods, about 87 % of all GPUs",
        size: Size::of,
        fill: allocate::fill,
    },
    Scenario {
        name: "saturated",
        about: "every GPU taken, queues exactly at their share, 2 pending jobs a node: nothing can or should happen",
        size: Size::of,
        fill: saturated::alike,
    },
    Scenario {
        name: "saturated_distinct",
        about: "saturated, but no two pending jobs ask for the same CPU and memory",
        size: Size::of,
        fill: saturated::distinct,
    },
    Scenario {
        name: "reclaim",
        about: "half of the queues hold everything, the others submit N/25 gangs of 8 × 8 GPUs",
        size: reclaim::size,
        fill: reclaim::gangs,
    },
    Scenario {
        name: "reclaim_g1",
        about: "reclaim with single pods of 8 GPUs",
        size: reclaim::size,
        fill: reclaim::singles,
    },
    Scenario {
        name: "preempt",
        about: "N/4 pending jobs of priority 75 over running ones of 50, queues unevenly filled: also reclaims",
        size: Size::of,
        fill: preempt::uneven,
    },
    Scenario {
        name: "preempt_even",
        about: "preempt with one-GPU victims and every queue exactly at its share: no reclaim",
        size: Size::of,
        fill: preempt::even,
    },
    Scenario {
        name: "consolidation",
        about: "one 4-GPU pod on each node, N/20 pending 8-GPU pods",
        size: Size::of,
        fill: consolidation::easy,
    },
    Scenario {
        name: "consolidation_hard",
        about: "5 to 7 one-GPU pods on each node, N/20 pending 8-GPU pods",
        size: Size::of,
        fill: consolidation::hard,
    },
    Scenario {
        name: "topology",
        about: "blocks, racks, hosts; 30 % scattered load; gangs of 64: required block, preferred rack",
        size: Size::of,
        fill: topology::block,
    },
    Scenario {
        name: "topology_rack",
        about: "topology with required rack, preferred host",
        size: Size::of,
        fill: topology::rack,
    },
];

impl Scenario {
    /// The scenario of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }

    /// Its usual size for so many nodes.
    pub fn size(&self, nodes: usize) -> Size {
        (self.size)(nodes)
    }

    /// The cluster of that size.
    pub fn cluster(&self, size: Size) -> Cluster {
        let mut cluster = Cluster::new(size);
        (self.fill)(&mut cluster);
        cluster
    }
}
