//! How kai uses the API server: requests, retries, queues, watches and leadership, for all components of a process.
//!
//! Requests are counted in the client, below everything else, so that none is missed.

use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{Method, Request, Response};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tower::{Layer, Service};

use crate::write_priority::WritePriority;

type Seconds = Counter<f64, AtomicU64>;

#[derive(Clone, Debug, Default)]
pub(crate) struct ApiMetrics {
    requests: Family<RequestLabels, Counter>,
    retries: Counter,
    queued: Family<PriorityLabels, Gauge>,
    rate_limiter_wait: Seconds,
    events_dropped: Counter,
    watch_restarts: Family<KindLabels, Counter>,
    leader: Family<LeaseLabels, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PriorityLabels {
    priority: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    lease: String,
}

impl ApiMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let requests = "Requests to the API server, by verb and status code; the code is `error` without an answer";
        registry.register("api_requests", requests, self.requests.clone());
        registry.register("api_retries", "API calls that were repeated after a passing error", self.retries.clone());
        let queued = "API writes that wait for a free slot, by priority";
        registry.register("api_writes_queued", queued, self.queued.clone());
        let wait = "Time that API calls waited for the rate limiter (--qps, --burst)";
        registry.register("api_rate_limiter_wait_seconds", wait, self.rate_limiter_wait.clone());
        registry.register("events_dropped", "Events dropped because the queue was full", self.events_dropped.clone());
        let restarts = "Watches that were interrupted and resumed, by kind";
        registry.register("watch_restarts", restarts, self.watch_restarts.clone());
        registry.register(
            "leader",
            "1 while this replica holds the lease, 0 while it waits for it",
            self.leader.clone(),
        );
    }

    pub(crate) fn retried(&self) {
        self.retries.inc();
    }

    /// Waits for a slot until the value is dropped.
    pub(crate) fn queued(&self, priority: WritePriority) -> Queued {
        let priority = match priority {
            WritePriority::Action => "action",
            WritePriority::PendingReason => "pending-reason",
            WritePriority::Status => "status",
        };
        let gauge = self.queued.get_or_create_owned(&PriorityLabels { priority });
        gauge.inc();
        Queued(gauge)
    }

    pub(crate) fn rate_limited(&self, wait: Duration) {
        self.rate_limiter_wait.inc_by(wait.as_secs_f64());
    }

    pub(crate) fn event_dropped(&self) {
        self.events_dropped.inc();
    }

    pub(crate) fn watch_restarted(&self, kind: &str) {
        self.watch_restarts.get_or_create(&KindLabels { kind: kind.to_owned() }).inc();
    }

    pub(crate) fn set_leader(&self, lease: &str, leader: bool) {
        self.leader.get_or_create(&LeaseLabels { lease: lease.to_owned() }).set(i64::from(leader));
    }
}

#[derive(Debug)]
pub(crate) struct Queued(Gauge);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts every request of a client.
impl<S> Layer<S> for ApiMetrics {
    type Service = CountRequests<S>;

    fn layer(&self, inner: S) -> CountRequests<S> {
        CountRequests { inner, metrics: self.clone() }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct CountRequests<S> {
    inner: S,
    metrics: ApiMetrics,
}

impl<S, Q, R> Service<Request<Q>> for CountRequests<S>
where
    S: Service<Request<Q>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let verb = verb(request.method(), request.uri().query().unwrap_or_default());
        let (answer, metrics) = (self.inner.call(request), self.metrics.clone());
        Box::pin(async move {
            let answer = answer.await;
            let code = match &answer {
                Ok(response) => response.status().as_u16().to_string(),
                Err(_) => "error".to_owned(),
            };
            metrics.requests.get_or_create(&RequestLabels { verb, code }).inc();
            answer
        })
    }
}

/// As Kubernetes calls it; lists count as `get`.
fn verb(method: &Method, query: &str) -> &'static str {
    match method.as_str() {
        "GET" if query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")) => "watch",
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Health;

    #[test]
    fn the_use_of_the_api_appears_in_metrics() {
        let health = Health::new("kai");
        let metrics = health.api_metrics();
        let labels = RequestLabels { verb: verb(&Method::GET, "limit=500&watch=true"), code: "200".to_owned() };
        metrics.requests.get_or_create(&labels).inc();
        metrics.retried();
        metrics.rate_limited(Duration::from_millis(250));
        metrics.event_dropped();
        metrics.watch_restarted("Pod");
        metrics.set_leader("kai-scheduler", true);
        let queued = metrics.queued(WritePriority::Action);
        let text = health.metrics();
        for line in [
            r#"kai_api_requests_total{verb="watch",code="200"} 1"#,
            "kai_api_retries_total 1",
            r#"kai_api_writes_queued{priority="action"} 1"#,
            "kai_api_rate_limiter_wait_seconds_total 0.25",
            "kai_events_dropped_total 1",
            r#"kai_watch_restarts_total{kind="Pod"} 1"#,
            r#"kai_leader{lease="kai-scheduler"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing from:\n{text}");
        }
        drop(queued);
        assert!(health.metrics().contains(r#"kai_api_writes_queued{priority="action"} 0"#));
    }
}
