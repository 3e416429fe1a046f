//! An empty cluster and pods enough for most of it.

use crate::cluster::{Cluster, JobSpec, PodRequest};

const PODS_PER_NODE: usize = 10;

pub(super) fn fill(cluster: &mut Cluster) {
    let nodes = cluster.size.nodes;
    // 15 % of the nodes go to gangs, rounded to whole gangs of 8 nodes.
    let gangs = ((0.15 * nodes as f64 / 8.0).round_ties_even() as usize).max(1);
    let singles = nodes * 16 / 10;
    let pods = cluster.size.pending.unwrap_or(PODS_PER_NODE * nodes);
    let halves = pods.saturating_sub(gangs * 8 + singles);
    let mut jobs = vec![JobSpec::pending(8, PodRequest::whole(8)); gangs];
    jobs.extend(vec![JobSpec::pending(1, PodRequest::whole(1)); singles]);
    jobs.extend(vec![JobSpec::pending(1, PodRequest::half()); halves]);
    cluster.shuffle(&mut jobs);
    for (index, job) in jobs.into_iter().enumerate() {
        cluster.add_job(index, job);
    }
}
