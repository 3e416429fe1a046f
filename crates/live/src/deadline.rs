//! Every call has an end: a connection that hangs must not hold a slot, or a component, for ever. Watches are no calls.

use std::time::Duration;

use kube::Error;
use thiserror::Error as ThisError;

/// Longer than the API server takes for the largest page of a list, or waits for a webhook.
pub(crate) const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// There was no reply in time: the call may have been done all the same.
#[derive(Debug, ThisError)]
#[error("no reply from the API server within {} s", .0.as_secs_f64())]
pub(crate) struct DeadlineExceeded(Duration);

/// Calls, and gives up after a while.
pub(crate) async fn with_deadline<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    within(CALL_DEADLINE, call).await
}

pub(crate) async fn within<T>(deadline: Duration, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let ended = tokio::time::timeout(deadline, call).await;
    ended.unwrap_or_else(|_| Err(Error::Service(Box::new(DeadlineExceeded(deadline)))))
}
