//! Queues.

use std::collections::BTreeMap;

use kai_engine::builder::Builder;
use kai_engine::ids::QueueId;
use kai_engine::snapshot::Queue as Row;
use kai_engine::units::compat::QUEUE_MEMORY_UNIT;
use kai_engine::units::{GPU, Span};

use super::super::case::{Case, Queue};
use super::super::numbers::{ceiling, millionths};
use super::{NOW, Names};

/// Adds all queues that hang from the top, and returns their names by id.
pub(super) fn add<'a>(builder: &mut Builder, case: &'a Case, names: &mut Names<'a>) -> Vec<&'a str> {
    let all: BTreeMap<&str, &Queue> = case.cluster.queues.iter().map(|queue| (queue.name.as_str(), queue)).collect();
    let rooted: Vec<&Queue> = all.values().copied().filter(|queue| reaches_top(&all, queue)).collect();
    names.queues = rooted.iter().enumerate().map(|(index, queue)| (queue.name.as_str(), QueueId::at(index))).collect();
    for queue in &rooted {
        builder.queue(row(queue, names.queues.get(queue.parent.as_str()).copied()));
    }
    rooted.iter().map(|queue| queue.name.as_str()).collect()
}

/// A queue below one that does not exist, or in a cycle, is not there at all.
fn reaches_top(all: &BTreeMap<&str, &Queue>, queue: &Queue) -> bool {
    let mut at = queue;
    for _ in 0..all.len() {
        if at.parent.is_empty() {
            return true;
        }
        let Some(parent) = all.get(at.parent.as_str()) else { return false };
        at = parent;
    }
    false
}

fn row(queue: &Queue, parent: Option<QueueId>) -> Row {
    let Queue { cpu_milli, memory_mb, gpu, .. } = queue;
    let spans = |seconds: Option<i64>| seconds.map(Span::seconds);
    Row {
        parent,
        priority: queue.priority,
        created: NOW.plus(Span::seconds(queue.created_offset_seconds)),
        quota: [ceiling(cpu_milli.quota, 1), ceiling(memory_mb.quota, QUEUE_MEMORY_UNIT), ceiling(gpu.quota, GPU)],
        limit: [ceiling(cpu_milli.limit, 1), ceiling(memory_mb.limit, QUEUE_MEMORY_UNIT), ceiling(gpu.limit, GPU)],
        weight: [cpu_milli.weight, memory_mb.weight, gpu.weight].map(millionths),
        usage: [0; 3],
        preempt_min_runtime: spans(queue.preempt_min_runtime_seconds),
        reclaim_min_runtime: spans(queue.reclaim_min_runtime_seconds),
    }
}
