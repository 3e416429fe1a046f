//! No node is empty, but many could be if pods moved together.

use crate::cluster::{Cluster, GPUS_PER_NODE, JobSpec, PodRequest};

/// One pod of 4 GPUs on each node: moving one frees a whole node.
pub(super) fn easy(cluster: &mut Cluster) {
    for node in 0..cluster.size.nodes {
        cluster.add_job(node, JobSpec::running(PodRequest::whole(4), &[node]));
    }
    whole_nodes_wanted(cluster);
}

/// 1 to 3 GPUs free on each node, the others held by one-GPU pods: a node takes 5 moves to free, to several nodes.
pub(super) fn hard(cluster: &mut Cluster) {
    let mut queue = 0;
    for node in 0..cluster.size.nodes {
        for _ in 0..GPUS_PER_NODE - 1 - node % 3 {
            cluster.add_job(queue, JobSpec::running(PodRequest::whole(1), &[node]));
            queue += 1;
        }
    }
    whole_nodes_wanted(cluster);
}

fn whole_nodes_wanted(cluster: &mut Cluster) {
    let pending = cluster.size.pending.unwrap_or((cluster.size.nodes / 20).max(2));
    for index in 0..pending {
        cluster.add_job(index, JobSpec::pending(1, PodRequest::whole(8)));
    }
}
