//! Gangs of 64 one-GPU pods that must stay together, in a cluster with scattered load.

use crate::cluster::{Ask, Cluster, Draft, GPUS_PER_NODE};

const NODES_PER_RACK: usize = 16;
const RACKS_PER_BLOCK: usize = 8;
const GANG: usize = 64;

const BLOCK: u32 = 0;
const RACK: u32 = 1;
const HOST: u32 = 2;

pub(super) fn block(cluster: &mut Cluster) {
    gangs(cluster, BLOCK, RACK);
}

pub(super) fn rack(cluster: &mut Cluster) {
    gangs(cluster, RACK, HOST);
}

fn gangs(cluster: &mut Cluster, required: u32, preferred: u32) {
    let nodes = cluster.size.nodes;
    let level = |width: usize| (0..nodes).map(|node| Some((node / width) as u32)).collect();
    let levels = vec![level(NODES_PER_RACK * RACKS_PER_BLOCK), level(NODES_PER_RACK), level(1)];
    let topology = cluster.topology(levels);
    let constraint = Some(cluster.constraint(topology, required, preferred));

    let mut slots: Vec<usize> = (0..nodes * GPUS_PER_NODE).map(|slot| slot / GPUS_PER_NODE).collect();
    cluster.shuffle(&mut slots);
    for (index, node) in slots[..slots.len() * 3 / 10].iter().enumerate() {
        cluster.job(index, Draft::running(Ask::whole(1), &[*node]));
    }
    // Half of the cluster.
    let pending = cluster.size.pending.unwrap_or((nodes * GPUS_PER_NODE / (2 * GANG)).max(2));
    for index in 0..pending {
        cluster.job(index, Draft { constraint, ..Draft::pending(GANG, Ask::whole(1)) });
    }
}
