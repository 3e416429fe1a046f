//! When to go on with a watch that was interrupted. kube's watcher knows where to go on: at the last version, or with a list
//! if that has expired. Its own backoff begins anew with every list that is attempted, so that a watch that never gets beyond
//! its list, or that expires right after it, would list everything about once a second.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use futures::{Stream, StreamExt as _, stream};
use kube::runtime::watcher::{self, Event};
use kube::{Error, core::Status};
use tokio::time::Instant;

/// 1 s, 2 s, and so on up to 30 s, with jitter: all watches are interrupted at the same time when an API server restarts.
const BACKOFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_secs(1))
    .with_factor(2.0)
    .with_max_delay(DELAY_MAX)
    .without_max_times()
    .with_jitter();
const DELAY_MAX: Duration = Duration::from_secs(30);

/// A watch without an error for so long is a healthy one: the next delay is the shortest again.
const RESET_AFTER: Duration = Duration::from_mins(2);

/// The longest wait that the API server can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// Delays a watch after each error, which is reported with the delay.
pub(super) fn resume<K>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    on_error: impl Fn(Duration, &watcher::Error) + Send,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Send,
{
    let state = (events.boxed(), Delays::default(), Duration::ZERO, on_error);
    stream::unfold(state, |(mut events, mut delays, delay, on_error)| async move {
        tokio::time::sleep(delay).await;
        let event = events.next().await?;
        let delay = match &event {
            Ok(_) => Duration::ZERO,
            Err(error) => {
                let delay = delays.next(error, Instant::now());
                on_error(delay, error);
                delay
            }
        };
        Some((event, (events, delays, delay, on_error)))
    })
}

struct Delays {
    backoff: ExponentialBackoff,
    last_error: Option<Instant>,
}

impl Default for Delays {
    fn default() -> Self {
        Self { backoff: BACKOFF.build(), last_error: None }
    }
}

impl Delays {
    fn next(&mut self, error: &watcher::Error, now: Instant) -> Duration {
        let last = self.last_error.replace(now);
        if last.is_some_and(|last| now.duration_since(last) > RESET_AFTER + DELAY_MAX) {
            self.backoff = BACKOFF.build();
        }
        let delay = self.backoff.next().unwrap_or(DELAY_MAX);
        retry_after(error).map_or(delay, |asked| asked.max(delay))
    }
}

fn retry_after(error: &watcher::Error) -> Option<Duration> {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    let status: &Status = match error {
        InitialListFailed(Error::Api(status))
        | WatchStartFailed(Error::Api(status))
        | WatchFailed(Error::Api(status))
        | WatchError(status) => status,
        _ => return None,
    };
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use k8s_openapi::api::core::v1::Pod;
    use kube::Client;
    use kube::api::Api;
    use serde_json::json;

    use super::*;

    /// What an API server answers to lists and to watches.
    type Answer = fn(&Uri) -> (StatusCode, String);

    fn list(_: &Uri) -> (StatusCode, String) {
        let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []});
        (StatusCode::OK, list.to_string())
    }

    fn failure(code: u16, retry_after: u32) -> String {
        let details = json!({"retryAfterSeconds": retry_after});
        json!({"kind": "Status", "status": "Failure", "reason": "x", "message": "x", "code": code, "details": details})
            .to_string()
    }

    /// The seconds at which pods are listed within ten minutes.
    async fn lists(answer_list: Answer, answer_watch: Answer) -> Vec<u64> {
        let (began, lists) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let asked = Arc::clone(&lists);
        let answer = move |uri: Uri| async move {
            if uri.query().unwrap_or_default().contains("watch=true") {
                return answer_watch(&uri);
            }
            asked.lock().unwrap().push(began.elapsed().as_secs());
            answer_list(&uri)
        };
        let client = Client::new(Router::new().fallback(answer), "default");
        let watch = watcher::watcher(Api::<Pod>::all(client), watcher::Config::default());
        let watching = resume(watch, |_, _| {}).for_each(|_| std::future::ready(()));
        let _ = tokio::time::timeout(Duration::from_mins(10), watching).await;
        lists.lock().unwrap().clone()
    }

    fn assert_few(lists: &[u64]) {
        assert!((10..40).contains(&lists.len()), "{lists:?}");
        assert!(lists[lists.len() - 1] - lists[lists.len() - 2] >= 30, "{lists:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_whose_version_expires_again_and_again_lists_less_and_less_often() {
        let expired = |_: &Uri| {
            let error = serde_json::from_str::<serde_json::Value>(&failure(410, 0)).unwrap();
            (StatusCode::OK, json!({"type": "ERROR", "object": error}).to_string() + "\n")
        };
        assert_few(&lists(list, expired).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_cannot_be_listed_is_requested_less_and_less_often() {
        assert_few(&lists(|_| (StatusCode::FORBIDDEN, failure(403, 0)), list).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_api_server_may_ask_for_a_longer_delay() {
        let lists = lists(|_| (StatusCode::TOO_MANY_REQUESTS, failure(429, 45)), list).await;
        assert!(lists.windows(2).all(|pair| pair[1] - pair[0] >= 45), "{lists:?}");
        assert!(lists.len() > 10);
    }

    #[test]
    fn after_a_healthy_time_the_delay_is_short_again() {
        let (mut delays, mut now) = (Delays::default(), Instant::now());
        for _ in 0..10 {
            delays.next(&watcher::Error::NoResourceVersion, now);
        }
        assert!(delays.next(&watcher::Error::NoResourceVersion, now) >= DELAY_MAX);
        now += RESET_AFTER + DELAY_MAX * 2;
        assert!(delays.next(&watcher::Error::NoResourceVersion, now) <= Duration::from_secs(2));
    }
}
