//! Every GPU taken by queues that are exactly at their share: a cycle has nothing to do and must notice quickly.

use super::running_load;
use crate::cluster::{Cluster, JobSpec, PodRequest};

const MIB: i64 = 1 << 20;

/// Pending jobs of three kinds.
pub(super) fn alike(cluster: &mut Cluster) {
    saturate(cluster, |_, ask| ask);
}

/// Each pending job asks for its own CPU and memory, so that nothing learnt about one shape helps with the next.
pub(super) fn distinct(cluster: &mut Cluster) {
    saturate(cluster, |index, ask| PodRequest {
        cpu_milli: 2000 + index as i64,
        memory: (8192 + index as i64) * MIB,
        ..ask
    });
}

fn saturate(cluster: &mut Cluster, vary: impl Fn(usize, PodRequest) -> PodRequest) {
    running_load::fill_all_nodes(cluster, cluster.size.queues, 100);
    let pending = cluster.size.pending.unwrap_or(2 * cluster.size.nodes);
    for index in 0..pending {
        let (pods, ask) = match index % 10 {
            0 => (8, PodRequest::whole(8)),
            1..7 => (1, PodRequest::whole(1)),
            _ => (1, PodRequest::half()),
        };
        cluster.add_job(index, JobSpec::pending(pods, vary(index, ask)));
    }
}
