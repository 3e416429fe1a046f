//! Calls to the API server: rate-limited, by priority, a bounded number at a time, and retried where that helps.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, EvictParams, PatchParams, PostParams};
use kube::{Client, Error};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::api_metrics::{ApiMetrics, Queued};
use crate::deadline::{CALL_DEADLINE, within};
use crate::rate_limit::RateLimiter;
use crate::retry::{Retry, retry};
use crate::write_fence::WriteFence;
use crate::write_priority::{Deferral, InFlightGuard, PriorityGate, WritePriority};

/// What holds back the calls of a component: its own rate limit, the writes of higher priority of all components, and that
/// it may have lost its lease.
#[derive(Debug)]
pub(crate) struct ApiLimits {
    rate: RateLimiter,
    gate: Arc<PriorityGate>,
    fence: WriteFence,
    metrics: ApiMetrics,
    deadline: Duration,
}

#[derive(Clone)]
pub(crate) struct ApiWriter {
    pub(crate) client: Client,
    limits: Arc<ApiLimits>,
    priority: WritePriority,
    deferral: Deferral,
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// The owner of fields, as the API server records it.
pub(crate) const FIELD_MANAGER: &str = "kai";

/// Parameters of nearly every call.
pub(crate) static POST: LazyLock<PostParams> =
    LazyLock::new(|| PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() });
pub(crate) static PATCH: LazyLock<PatchParams> =
    LazyLock::new(|| PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() });
pub(crate) static DELETE: LazyLock<DeleteParams> = LazyLock::new(DeleteParams::default);

/// Status writes at the same time.
const STATUS_CONCURRENCY: usize = 4;
/// More than of status: users wait for these.
const PENDING_REASON_CONCURRENCY: usize = 32;

/// Less than the grace period of a pod.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

impl ApiLimits {
    pub(crate) fn new(qps: f64, burst: u32, gate: Arc<PriorityGate>, metrics: ApiMetrics) -> Self {
        let (rate, fence) = (RateLimiter::new(qps, burst), WriteFence::default());
        Self { rate, gate, fence, metrics, deadline: CALL_DEADLINE }
    }

    /// What the renewal of the component's lease moves.
    pub(crate) fn fence(&self) -> &WriteFence {
        &self.fence
    }

    #[cfg(test)]
    pub(crate) fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }
}

impl ApiWriter {
    pub(crate) fn new(client: Client, limits: Arc<ApiLimits>, slots: usize) -> Self {
        let (priority, deferral) = (WritePriority::Action, Deferral::Immediate);
        let slots = Arc::new(Semaphore::new(slots.max(1)));
        Self { client, limits, priority, deferral, slots, tasks: TaskTracker::new() }
    }

    /// For what is not latency-critical. It has slots of its own, waits while actions are in flight, and leaves a part of
    /// the burst to them.
    pub(crate) fn at_status_priority(&self) -> Self {
        self.deferrable(WritePriority::Status, STATUS_CONCURRENCY)
    }

    /// For why something is not scheduled: before other status writes.
    pub(crate) fn at_pending_reason_priority(&self) -> Self {
        self.deferrable(WritePriority::PendingReason, PENDING_REASON_CONCURRENCY)
    }

    /// With the same slots, for writes that are held back for so long from now on at most.
    pub(crate) fn defer_up_to(&self, at_most: Duration) -> Self {
        Self { deferral: Deferral::defer_for(at_most), ..self.clone() }
    }

    fn deferrable(&self, priority: WritePriority, slots: usize) -> Self {
        Self { priority, deferral: Deferral::Deferrable, slots: Arc::new(Semaphore::new(slots)), ..self.clone() }
    }

    /// Runs this in a task of its own once there is a free slot. The future is made only then: thousands may be queued,
    /// and a call takes much more memory than the knowledge which call to make.
    pub(crate) fn spawn<W>(&self, work: impl FnOnce() -> W + Send + 'static)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let queued = self.limits.metrics.queued(self.priority);
        self.start(work, self.limits.gate.track(self.priority), Some(queued));
    }

    /// The same for reads, which hold back nothing, and are not counted among the writes that wait.
    pub(crate) fn spawn_read<W>(&self, work: impl FnOnce() -> W + Send + 'static)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        self.start(work, None, None);
    }

    fn start<W>(
        &self,
        work: impl FnOnce() -> W + Send + 'static,
        in_flight: Option<InFlightGuard>,
        queued: Option<Queued>,
    ) where
        W: Future<Output = ()> + Send + 'static,
    {
        let slots = Arc::clone(&self.slots);
        self.tasks.spawn(async move {
            let _slot = slots.acquire_owned().await;
            drop(queued);
            Box::pin(work()).await;
            drop(in_flight);
        });
    }

    pub(crate) fn metrics(&self) -> &ApiMetrics {
        &self.limits.metrics
    }

    /// Whether this replica is alone in writing: it holds the lease, or there is no leader election.
    pub(crate) fn may_write(&self) -> bool {
        self.limits.fence.may_write()
    }

    /// Actions and pending reasons of this process that are in flight or wait for a slot.
    pub(crate) fn urgent_in_flight(&self) -> usize {
        self.limits.gate.urgent_in_flight()
    }

    /// Waits for the calls in flight, for a limited time.
    pub(crate) async fn drain(&self) {
        self.tasks.close();
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, self.tasks.wait()).await.is_err() {
            let (calls, timeout) = (self.tasks.len(), SHUTDOWN_TIMEOUT.as_secs());
            tracing::warn!(calls, timeout, "shutdown timed out, abandoned API calls");
        }
    }

    /// Calls, and retries errors that may pass.
    pub(crate) async fn call<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let on_retry = |Retry { attempt, delay, error }: &Retry<'_>| {
            tracing::debug!(attempt, ?delay, %error, "API call failed, retrying");
            self.limits.metrics.retried();
        };
        retry(|| self.call_once(call()), on_retry).await
    }

    /// Calls without retries, and with a deadline: a connection that hangs must give back its slot. The only place that
    /// makes calls: whatever was queued, held back or repeated, nothing is sent without the lease.
    pub(crate) async fn call_once<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let _lane = self.limits.gate.admit(self.priority, self.deferral).await;
        let wait = self.limits.rate.acquire(self.deferral).await;
        if !wait.is_zero() {
            self.limits.metrics.rate_limited(wait);
        }
        self.limits.fence.guard(within(self.limits.deadline, call)).await
    }

    /// Evicts a pod, without retries: 429 is how a `PodDisruptionBudget` forbids it, and the answer stays the same.
    pub(crate) async fn evict(&self, pods: &Api<Pod>, name: &str, delete: DeleteParams) -> Result<(), Error> {
        let params = EvictParams { delete_options: Some(delete), ..EvictParams::default() };
        self.call_once(pods.evict(name, &params)).await.map(|_| ())
    }
}
