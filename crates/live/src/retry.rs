//! The only retry policy of API calls: a few attempts with exponential backoff and jitter, or as the API server asks in
//! `details.retryAfterSeconds` of its answer; and more attempts where another client writes the same object.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use kai_control::controller::{RETRIES, RETRY_DELAY_MIN, RETRY_FACTOR};
use kube::Error;

use crate::api_error::{is_retryable, status_code};

const BACKOFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_micros(RETRY_DELAY_MIN.0.cast_unsigned()))
    .with_factor(RETRY_FACTOR as f32)
    .with_max_delay(Duration::from_secs(2))
    .with_max_times(RETRIES as usize)
    .with_jitter();

/// A longer wait, as the API server asks for it, is better spent on deciding anew.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);

/// When other clients write the same object at the same time.
const CONFLICT_ATTEMPTS: u32 = 5;

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

/// What became of an attempt to change an object that others may change at the same time.
pub(crate) enum Attempt<T> {
    Done(T),
    /// Another client was first: the object is to be read again.
    Conflict(Error),
}

impl<T> Attempt<T> {
    pub(crate) fn of(result: Result<T, Error>) -> Result<Self, Error> {
        match result {
            Err(error) if status_code(&error) == Some(409) => Ok(Self::Conflict(error)),
            result => result.map(Self::Done),
        }
    }
}

/// Repeats an attempt, which reads the object anew, while other clients write that object at the same time.
pub(crate) async fn retry_on_conflict<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<Attempt<T>, Error>>,
{
    let mut attempts = 0;
    loop {
        attempts += 1;
        match attempt().await? {
            Attempt::Done(done) => return Ok(done),
            Attempt::Conflict(error) if attempts >= CONFLICT_ATTEMPTS => return Err(error),
            Attempt::Conflict(_) => {}
        }
    }
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
    async fn conflicts_are_repeated_a_few_times_and_other_errors_never() {
        let attempts = async |code: u16, succeeds_at: u32| {
            let mut calls = 0;
            let attempt = || {
                calls += 1;
                let result = if calls == succeeds_at { Ok(()) } else { Err(rejected(code, 0)) };
                async move { Attempt::of(result) }
            };
            (retry_on_conflict(attempt).await.is_ok(), calls)
        };
        assert_eq!(attempts(409, 3).await, (true, 3));
        assert_eq!(attempts(409, 9).await, (false, CONFLICT_ATTEMPTS));
        assert_eq!(attempts(403, 3).await, (false, 1));
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
