//! Jobs of higher priority wait in queues that fill the cluster with jobs of lower priority.

use super::running_load;
use crate::cluster::{BUILD_PREEMPTIBLE, Cluster, JobSpec, PodRequest};

/// Single pods and gangs run, so that queues hold unequal parts and those with less may also reclaim.
pub(super) fn uneven(cluster: &mut Cluster) {
    preempt(cluster, 50);
}

/// Only one-GPU pods run, every queue exactly at its share.
pub(super) fn even(cluster: &mut Cluster) {
    preempt(cluster, 100);
}

fn preempt(cluster: &mut Cluster, singles_percent: usize) {
    running_load::fill_all_nodes(cluster, cluster.size.queues, singles_percent);
    let pending = cluster.size.pending.unwrap_or((cluster.size.nodes / 4).max(4));
    for index in 0..pending {
        let spec = match index % 8 {
            0 => JobSpec::pending(4, PodRequest::whole(8)),
            1 | 2 => JobSpec::pending(1, PodRequest::whole(8)),
            _ => JobSpec::pending(1, PodRequest::whole(1)),
        };
        cluster.add_job(index, JobSpec { priority: BUILD_PREEMPTIBLE, ..spec });
    }
}
