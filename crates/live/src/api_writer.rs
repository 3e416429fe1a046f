//! Calls to the API server: rate-limited, by priority, a bounded number at a time, and retried where that helps.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use kube::api::{DeleteParams, PatchParams, PostParams};
use kube::{Client, Error};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::api_error::is_retryable;
use crate::rate_limit::RateLimiter;
use crate::write_priority::{Deferral, InFlightGuard, PriorityGate, WritePriority};

/// What holds back the calls of a component: its own rate limit, and the writes of higher priority of all components.
#[derive(Debug)]
pub(crate) struct ApiLimits {
    rate: RateLimiter,
    gate: Arc<PriorityGate>,
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

/// Before further attempts. After these the controller decides anew.
const RETRY_DELAYS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1600)];

/// Status writes at the same time.
const STATUS_CONCURRENCY: usize = 4;
/// More than of status: users wait for these.
const PENDING_REASON_CONCURRENCY: usize = 32;

/// Less than the grace period of a pod.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

impl ApiLimits {
    pub(crate) fn new(qps: f64, burst: u32, gate: Arc<PriorityGate>) -> Self {
        Self { rate: RateLimiter::new(qps, burst), gate }
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
        self.start(work, self.limits.gate.track(self.priority));
    }

    /// The same for reads, which hold back nothing.
    pub(crate) fn spawn_read<W>(&self, work: impl FnOnce() -> W + Send + 'static)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        self.start(work, None);
    }

    fn start<W>(&self, work: impl FnOnce() -> W + Send + 'static, in_flight: Option<InFlightGuard>)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let slots = Arc::clone(&self.slots);
        self.tasks.spawn(async move {
            let _slot = slots.acquire_owned().await;
            Box::pin(work()).await;
            drop(in_flight);
        });
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
        for (delay, attempt) in RETRY_DELAYS.into_iter().zip(1..) {
            match self.call_once(call()).await {
                Err(error) if is_retryable(&error) => {
                    tracing::debug!(attempt, ?delay, %error, "API call failed, retrying");
                    tokio::time::sleep(delay).await;
                }
                result => return result,
            }
        }
        self.call_once(call()).await
    }

    /// Calls without retries.
    pub(crate) async fn call_once<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let _lane = self.limits.gate.admit(self.priority, self.deferral).await;
        self.limits.rate.acquire(self.deferral).await;
        call.await
    }
}
