//! Half of the queues hold the whole cluster; the other half wants its share back.

use super::running_load;
use crate::cluster::{Cluster, JobSpec, PodRequest};
use crate::size::Size;

/// Few queues, so that the quota of each is at least two gangs of 64 GPUs.
pub(super) fn size(nodes: usize) -> Size {
    Size::with_queues(nodes, (nodes / 32 * 2).max(2))
}

pub(super) fn gangs(cluster: &mut Cluster) {
    reclaim(cluster, 8);
}

pub(super) fn singles(cluster: &mut Cluster) {
    reclaim(cluster, 1);
}

fn reclaim(cluster: &mut Cluster, pods: usize) {
    let holders = cluster.size.queues / 2;
    let claimants = cluster.size.queues - holders;
    running_load::fill_all_nodes(cluster, holders, 50);
    let pending = cluster.size.pending.unwrap_or((cluster.size.nodes / 25).max(2));
    for index in 0..pending {
        cluster.add_job(holders + index % claimants, JobSpec::pending(pods, PodRequest::whole(8)));
    }
}
