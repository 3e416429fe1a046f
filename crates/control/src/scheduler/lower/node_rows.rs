//! Rows of nodes: what each has, and what pods outside of jobs hold there.

use kai_engine::builder::{Builder, NodeRow};
use kai_engine::snapshot::{GPUS, PODS, ResourceKind};
use kai_engine::units::compat::DEVICE_MEMORY_DEFAULT;
use kai_engine::units::{GPU, ResourceQuantities};

use super::columns::{ExtraColumn, quota_gpu, vector};
use super::nodes::ShardNodes;
use super::pod_partition::{Charge, NonJobPod, PodPartition};
use crate::scheduler::settings::Settings;

pub(super) fn add(
    nodes: &ShardNodes<'_>,
    partition: &PodPartition<'_>,
    columns: &[ExtraColumn<'_>],
    settings: &Settings,
    builder: &mut Builder,
) {
    for (facts, non_job_pod) in nodes.list.iter().zip(&partition.non_job_pods) {
        let mut allocatable = vector(&facts.node.allocatable, columns);
        allocatable[GPUS] += i64::from(facts.claimed_gpus) * GPU;
        let mut row = NodeRow {
            ready: facts.node.is_ready(),
            device_memory: facts.device_memory.unwrap_or(DEVICE_MEMORY_DEFAULT),
            ..NodeRow::idle(allocatable)
        };
        for pod in non_job_pod {
            hold(&mut row, pod, columns, builder);
        }
        if settings.restrict_node_scheduling && !facts.gpu_worker {
            // No pod may use these GPUs, so they do not count as capacity that queues share.
            row.other_schedulers_requested += ResourceQuantities::new(0, 0, capacity_gpus(&row.allocatable, columns));
        }
        builder.node(row);
    }
}

fn capacity_gpus(allocatable: &[i64], columns: &[ExtraColumn<'_>]) -> i64 {
    let extra = columns.iter().zip(&allocatable[PODS + 1..]);
    ResourceKind::Gpu.quota_gpu(allocatable[GPUS])
        + extra.map(|(column, amount)| column.kind.quota_gpu(*amount)).sum::<i64>()
}

/// Books a pod that belongs to no job. What the node has none of is not charged: it comes from elsewhere.
fn hold(row: &mut NodeRow, non_job_pod: &NonJobPod<'_>, columns: &[ExtraColumn<'_>], builder: &mut Builder) {
    let request = &non_job_pod.pod.request;
    if non_job_pod.foreign {
        let resources = &request.resources;
        row.other_schedulers_requested +=
            ResourceQuantities::new(resources.cpu_milli, resources.memory_bytes, quota_gpu(request));
    }
    if non_job_pod.charge == Charge::Elsewhere {
        return;
    }
    let mut amounts = vector(&request.resources, columns);
    if non_job_pod.charge == Charge::AllButGpus {
        amounts[GPUS] = 0;
    }
    for (index, amount) in amounts.into_iter().enumerate().filter(|(index, _)| row.allocatable[*index] != 0) {
        row.unmanaged_used[index] += amount;
        if non_job_pod.leaving {
            row.unmanaged_releasing[index] += amount;
        }
    }
    row.ports.extend(non_job_pod.pod.host_ports.iter().map(|port| builder.port(*port)));
}
