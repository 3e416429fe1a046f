//! Gangs of 64 one-GPU pods that must stay together, in a cluster with scattered load.

use crate::cluster::{Cluster, GPUS_PER_NODE, JobSpec, Level, PodRequest, TopologyPlacement};

const GANG: usize = 64;

pub(super) fn block(cluster: &mut Cluster) {
    gangs(cluster, TopologyPlacement { required: Level::Block, preferred: Level::Rack });
}

pub(super) fn rack(cluster: &mut Cluster) {
    gangs(cluster, TopologyPlacement { required: Level::Rack, preferred: Level::Host });
}

fn gangs(cluster: &mut Cluster, together: TopologyPlacement) {
    let nodes = cluster.size.nodes;
    let mut slots: Vec<usize> = (0..nodes * GPUS_PER_NODE).map(|slot| slot / GPUS_PER_NODE).collect();
    cluster.shuffle(&mut slots);
    for (index, node) in slots[..slots.len() * 3 / 10].iter().enumerate() {
        cluster.add_job(index, JobSpec::running(PodRequest::whole(1), &[*node]));
    }
    // Half of the cluster.
    let pending = cluster.size.pending.unwrap_or((nodes * GPUS_PER_NODE / (2 * GANG)).max(2));
    for index in 0..pending {
        cluster.add_job(index, JobSpec { together: Some(together), ..JobSpec::pending(GANG, PodRequest::whole(1)) });
    }
}
