//! Running jobs that take every GPU.

use crate::cluster::{Cluster, GPUS_PER_NODE, JobSpec, PodRequest};

/// Fills `singles_percent` of the nodes with one-GPU jobs, the others with gangs of 4 pods of 8 GPUs.
///
/// Jobs are dealt out to the first `queues` leaf queues in turn.
pub(super) fn fill_all_nodes(cluster: &mut Cluster, queues: usize, singles_percent: usize) {
    let mut order: Vec<usize> = (0..cluster.size.nodes).collect();
    cluster.shuffle(&mut order);
    let (singles, gangs) = order.split_at(order.len() * singles_percent / 100);
    let mut turn = (0..queues).cycle();
    let mut next = || turn.next().expect("a cluster has queues");
    for node in singles {
        for _ in 0..GPUS_PER_NODE {
            cluster.add_job(next(), JobSpec::running(PodRequest::whole(1), &[*node]));
        }
    }
    for nodes in gangs.chunks(4) {
        cluster.add_job(next(), JobSpec::running(PodRequest::whole(8), nodes));
    }
}
