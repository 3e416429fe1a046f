//! The queue controller on a cluster: the controller of control, with metrics of queues.

mod metrics;

use std::sync::Arc;

use kai_control::controller::{Clock, Controller, Output, Skipped, Wrapped, Wrapper};
use kai_control::registry::QUEUE_CONTROLLER;
use kai_control::status::{QueueAggregator, StatusController};
use kai_control::{Key, Kind};
use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use crate::controller_loop::{Context, ControllerLoop, Writers};
use crate::{FatalError, LeaderElectionOptions};
use metrics::QueueMetrics;

#[derive(Clone, Debug)]
pub struct QueueStatusOptions {
    /// API calls at the same time.
    pub workers: usize,
    /// Labels of queues that their metrics carry, too.
    pub queue_labels: Vec<QueueLabel>,
    pub election: Option<LeaderElectionOptions>,
}

/// A label of queues as a label of metrics.
#[derive(Clone, Debug)]
pub struct QueueLabel {
    pub label: String,
    pub metric_label: String,
    /// For queues without the label.
    pub default: String,
}

/// How often metrics of queues follow changes.
const METRICS_PERIOD: Span = Span(250_000);

/// Keeps the status and the metrics of queues until stopped.
pub(crate) async fn run(options: QueueStatusOptions, context: Context) -> Result<(), FatalError> {
    let component = QUEUE_CONTROLLER.component;
    let metrics = QueueMetrics::register(&context.health, options.queue_labels);
    let inner = StatusController::new(QueueAggregator::default());
    let controller = Wrapped(MeteredQueueStatus { inner, metrics, due: None });
    let writers = Writers::new(&context, options.workers);
    ControllerLoop::new(component.name, component.reporter, controller, writers, context).run(options.election).await
}

/// Also shows in metrics what queues have.
struct MeteredQueueStatus {
    inner: StatusController<QueueAggregator>,
    metrics: QueueMetrics,
    /// When to update the metrics, if something has changed.
    due: Option<Timestamp>,
}

impl Wrapper for MeteredQueueStatus {
    type Inner = StatusController<QueueAggregator>;

    fn inner(&self) -> &Self::Inner {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut self.inner
    }

    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, now: Clock) -> Vec<Skipped> {
        self.due.get_or_insert(now.steady.plus(METRICS_PERIOD));
        self.inner.on_apply(kind, object, now)
    }

    fn on_delete(&mut self, kind: Kind, key: &Key, now: Clock) {
        self.due.get_or_insert(now.steady.plus(METRICS_PERIOD));
        self.inner.on_delete(kind, key, now);
    }

    fn poll(&mut self, now: Clock) -> Output {
        if self.due.is_some_and(|due| due <= now.steady) {
            self.due = None;
            self.metrics.update(&self.inner.aggregator);
        }
        self.inner.poll(now)
    }

    fn next_poll(&self, now: Clock) -> Option<Timestamp> {
        self.due.into_iter().chain(self.inner.next_poll(now)).min()
    }
}
