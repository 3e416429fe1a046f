//! Messages of events about what was done with a pod. They begin as KAI's do.

use kai_engine::policy::Action;

use crate::key::{GroupKey, PodKey};
use crate::scheduler::reasons::EvictionReason;

pub(in crate::scheduler) fn bind_requested(pod: &PodKey, node: &str, node_pool: &str) -> String {
    format!("Successfully assigned pod {pod} to node {node} at node-pool {node_pool}")
}

pub(in crate::scheduler) fn pipelined(pod: &PodKey, node: &str) -> String {
    format!("Pod {pod} was pipelined to node {node}")
}

pub(in crate::scheduler) fn evicted(
    pod: &PodKey,
    action: Action,
    preemptor: Option<&GroupKey>,
    why: &EvictionReason,
) -> String {
    let preemptor = preemptor.map_or_else(String::new, ToString::to_string);
    let known = match action {
        Action::Reclaim => format!("Pod {pod} was preempted by workload {preemptor}."),
        Action::Preempt => format!("Pod {pod} was preempted by higher priority workload {preemptor}"),
        Action::Consolidate => {
            format!("Pod {pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure")
        }
        Action::EvictStale | Action::Allocate => {
            format!("Workload doesn't meet the minimum required number of pods, evicting remaining pod: {pod}")
        }
    };
    format!("{}: {why}", known.trim_end_matches('.'))
}
