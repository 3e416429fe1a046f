//! The only retry policy of API calls: a few attempts with exponential backoff and jitter, or as the API server asks.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use kai_control::controller::{RETRIES, RETRY_DELAY_MIN, RETRY_FACTOR};
use kube::Error;

use crate::api_error::is_retryable;

const BACKOFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_micros(RETRY_DELAY_MIN.0.cast_unsigned()))
    .with_factor(RETRY_FACTOR as f32)
    .with_max_delay(Duration::from_secs(2))
    .with_max_times(RETRIES as usize)
    .with_jitter();

/// A longer wait, as the API server asks for it, is better spent on deciding anew.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// A failed attempt that is repeated.
#[derive(Debug)]
pub(crate) struct Retry<'e> {
    pub(crate) attempt: u32,
    pub(crate) delay: Duration,
    pub(crate) error: &'e Error,
}

/// Calls, and repeats what failed with an error that may pass.
pub(crate) async fn retry<T, F>(mut call: impl FnMut() -> F, mut on_retry: impl FnMut(&Retry<'_>)) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut backoff = BACKOFF.build();
    for attempt in 1.. {
        let error = match call().await {
            Err(error) if is_retryable(&error) => error,
            result => return result,
        };
        let Some(delay) = backoff.next() else { return Err(error) };
        let delay = retry_after(&error).map_or(delay, |asked| asked.max(delay));
        on_retry(&Retry { attempt, delay, error: &error });
        tokio::time::sleep(delay).await;
    }
    unreachable!("attempts are limited by the backoff")
}

fn retry_after(error: &Error) -> Option<Duration> {
    let Error::Api(status) = error else { return None };
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::StatusDetails;

    use super::*;

    fn rejected(code: u16, retry_after_seconds: u32) -> Error {
        let details =
            serde_json::from_value::<StatusDetails>(serde_json::json!({"retryAfterSeconds": retry_after_seconds})).ok();
        Error::Api(Box::new(Status { code, details, ..Status::default() }))
    }

    #[test]
    fn the_api_server_may_ask_for_a_longer_wait() {
        assert_eq!(retry_after(&rejected(429, 0)), None);
        assert_eq!(retry_after(&rejected(429, 2)), Some(Duration::from_secs(2)));
        assert_eq!(retry_after(&rejected(429, 600)), Some(RETRY_AFTER_MAX));
    }

    #[tokio::test]
    async fn passing_errors_are_repeated_a_few_times_and_others_never() {
        let attempts = async |code: u16| {
            let (mut calls, mut retries) = (0, 0);
            let call = || {
                calls += 1;
                async move { Err::<(), _>(rejected(code, 0)) }
            };
            assert!(retry(call, |_| retries += 1).await.is_err());
            (calls, retries)
        };
        assert_eq!(attempts(503).await, (4, 3));
        assert_eq!(attempts(404).await, (1, 0));
    }
}
