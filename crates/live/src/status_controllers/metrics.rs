//! Metrics of queues: quota and allocation.

use std::sync::atomic::AtomicU64;

use kai_control::objects::Queue;
use kai_control::quantity::Quantity;
use kai_control::status::QueueAggregator;
use kai_engine::units::{Ceiling, GPU};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::Value;

use super::QueueLabel;
use crate::Health;

type Labels = Vec<(String, String)>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;

#[derive(Debug, Default)]
pub(super) struct QueueMetrics {
    queue_labels: Vec<QueueLabel>,
    info: Gauges,
    deserved_gpus: Gauges,
    quota_cpu_cores: Gauges,
    quota_memory_bytes: Gauges,
    allocated_gpus: Gauges,
    allocated_cpu_cores: Gauges,
    allocated_memory_bytes: Gauges,
}

impl QueueMetrics {
    pub(super) fn register(health: &Health, queue_labels: Vec<QueueLabel>) -> Self {
        let metrics = Self { queue_labels, ..Self::default() };
        health.register(|registry| {
            for (name, help, family) in metrics.families() {
                registry.register(name, help, family.clone());
            }
        });
        metrics
    }

    fn families(&self) -> [(&'static str, &'static str, &Gauges); 7] {
        [
            ("queue_info", "Always 1; the labels describe the queue", &self.info),
            ("queue_deserved_gpus", "GPUs of the queue's quota, -1 for unlimited", &self.deserved_gpus),
            ("queue_quota_cpu_cores", "CPU cores of the queue's quota, -1 for unlimited", &self.quota_cpu_cores),
            (
                "queue_quota_memory_bytes",
                "Bytes of memory of the queue's quota, -1 for unlimited",
                &self.quota_memory_bytes,
            ),
            ("queue_allocated_gpus", "GPUs allocated to the queue's workloads", &self.allocated_gpus),
            ("queue_allocated_cpu_cores", "CPU cores allocated to the queue's workloads", &self.allocated_cpu_cores),
            (
                "queue_allocated_memory_bytes",
                "Bytes of memory allocated to the queue's workloads",
                &self.allocated_memory_bytes,
            ),
        ]
    }

    /// Sets the values of all queues, and removes those of deleted ones.
    pub(super) fn update(&self, queues: &QueueAggregator) {
        for (_, _, family) in self.families() {
            family.clear();
        }
        for (name, queue) in queues.queues() {
            let labels = self.labels(queue);
            let set = |family: &Gauges, value: f64| {
                family.get_or_create(&labels).set(value);
            };
            set(&self.info, 1.0);
            set(&self.deserved_gpus, amount(queue.gpu.quota, GPU as f64));
            set(&self.quota_cpu_cores, amount(queue.cpu.quota, 1000.0));
            set(&self.quota_memory_bytes, amount(queue.memory.quota, 1.0));
            let allocated = &queues.observed().get(name).map_or(&Value::Null, |status| &status["allocated"]);
            let gpus = allocated.as_object().into_iter().flatten().find(|(name, _)| name.ends_with("/gpu"));
            set(&self.allocated_gpus, gpus.map_or(0.0, |(_, gpus)| number(gpus)));
            set(&self.allocated_cpu_cores, number(&allocated["cpu"]));
            set(&self.allocated_memory_bytes, number(&allocated["memory"]));
        }
    }

    fn labels(&self, queue: &Queue) -> Labels {
        let mut labels = vec![
            ("queue_name".to_owned(), queue.name.clone()),
            ("queue_metadata_name".to_owned(), queue.name.clone()),
            ("queue_display_name".to_owned(), queue.display_name.clone().unwrap_or_default()),
        ];
        labels.extend(self.queue_labels.iter().map(|extra| {
            let value = queue.labels.get(&extra.label).unwrap_or(&extra.default);
            (extra.metric_label.clone(), value.clone())
        }));
        labels
    }
}

fn amount(quota: Ceiling, unit: f64) -> f64 {
    match quota {
        Ceiling::Unlimited => -1.0,
        Ceiling::At(quota) => quota as f64 / unit,
    }
}

/// With four decimals, and nothing for what is no quantity.
fn number(written: &Value) -> f64 {
    let milli = written.as_str().and_then(|text| Quantity::parse(text).ok()).map_or(0, Quantity::milli);
    milli as f64 / 1000.0
}
