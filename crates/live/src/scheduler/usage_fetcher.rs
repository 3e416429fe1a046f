//! Fetches the historical usage of queues from Prometheus, periodically. A cycle takes the latest and does not wait.

use std::error::Error;
use std::time::Duration;

use axum::http::{Request, Uri};
use kai_control::scheduler::Usage;
use kai_control::scheduler::usage::UsageRule;
use kai_control::scheduler::usage::prometheus::{Answers, Connection, Queries, by_queue, queries, total, usage};
use kai_engine::units::{Span, Timestamp};
use kube::{Client, Config};
use percent_encoding::percent_decode_str;
use prometheus_client::metrics::histogram::Histogram;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::metrics::Stopwatch;
use crate::{FatalError, clock};

/// The latest usage, and when it was fetched.
type LatestUsage = Option<(Usage, Timestamp)>;

pub(super) struct UsageFetcher {
    /// Without a rule, past usage does not count.
    rule: Option<UsageRule>,
    known: watch::Receiver<LatestUsage>,
    began: Timestamp,
    is_stale: bool,
    /// Ends with the value.
    _fetching: JoinSet<()>,
}

impl UsageFetcher {
    /// Starts to fetch, if past usage counts; observes the latency of queries in milliseconds.
    pub(super) fn start(rule: Option<UsageRule>, latency: Histogram) -> Result<Self, FatalError> {
        let (latest, known) = watch::channel(None);
        let mut fetching = JoinSet::new();
        if let Some(rule) = rule.clone() {
            let prometheus = Prometheus { client: connect(&rule.source.connection)?, latency };
            fetching.spawn(fetch_periodically(prometheus, rule, latest));
        }
        Ok(Self { rule, known, began: clock::now(), is_stale: false, _fetching: fetching })
    }

    /// The latest usage, at any time.
    pub(super) fn last(&self) -> impl Fn() -> Usage + Clone + Send + Sync + 'static {
        let known = self.known.clone();
        move || known.borrow().as_ref().map(|(usage, _)| usage.clone()).unwrap_or_default()
    }

    /// The usage to schedule with; nothing while the first answer should be awaited.
    pub(super) fn usage(&mut self, now: Timestamp) -> Option<Usage> {
        let Some(rule) = &self.rule else { return Some(Usage::default()) };
        let known = self.known.borrow();
        let Some((usage, at)) = &*known else {
            return (now.since(self.began) > rule.source.wait).then(Usage::default);
        };
        let was_stale = std::mem::replace(&mut self.is_stale, now.since(*at) > rule.staleness);
        if self.is_stale && !was_stale {
            let age = now.since(*at).0 / 1_000_000;
            tracing::warn!(age, "usage data is stale, fair share ignores past usage until Prometheus answers");
        }
        Some(if self.is_stale { Usage::default() } else { usage.clone() })
    }
}

struct Prometheus {
    client: Client,
    latency: Histogram,
}

fn connect(connection: &Connection) -> Result<Client, FatalError> {
    let wrong = |problem: String| FatalError::UsageSource(problem);
    let url = match connection {
        Connection::Unsaid => {
            return Err(wrong("set usageDBConfig.connectionString to its URL".to_owned()));
        }
        Connection::Url(url) => url.clone(),
        Connection::Variable(name) => {
            std::env::var(name).map_err(|_| wrong(format!("the environment variable {name} is not set")))?
        }
    };
    // The text leaves out the address, which may hold a password.
    let config =
        config(&url).map_err(|error| wrong(format!("usageDBConfig.connectionString is not a URL: {error}")))?;
    // The same client as for the API server; it is an HTTP client first of all.
    Client::try_from(config).map_err(|error| FatalError::Client(Box::new(error)))
}

/// Moves a name and a password from the address to the credentials.
fn config(url: &str) -> Result<Config, axum::http::Error> {
    let url: Uri = url.parse()?;
    let Some((login, place)) = url.authority().and_then(|authority| authority.as_str().rsplit_once('@')) else {
        return Ok(without_retries(Config::new(url)));
    };
    let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (name, password) = login.split_once(':').unwrap_or((login, ""));
    let mut parts = url.clone().into_parts();
    parts.authority = Some(place.parse()?);
    let mut config = without_retries(Config::new(Uri::from_parts(parts)?));
    config.auth_info.username = Some(plain(name));
    config.auth_info.password = Some(plain(password).into());
    Ok(config)
}

/// A query that fails is repeated at the next interval.
fn without_retries(mut config: Config) -> Config {
    config.default_retry = false;
    config
}

async fn fetch_periodically(prometheus: Prometheus, rule: UsageRule, latest: watch::Sender<LatestUsage>) {
    let retry_in = duration(rule.fetch_interval).as_secs();
    let mut tick = tokio::time::interval(duration(rule.fetch_interval));
    loop {
        tick.tick().await;
        let now = clock::now();
        match tokio::time::timeout(duration(rule.source.timeout), prometheus.fetch(&rule, now)).await {
            Ok(Ok(usage)) => {
                tracing::debug!(queues = usage.queues.len(), "fetched usage from Prometheus");
                latest.send_replace(Some((usage, now)));
            }
            Ok(Err(error)) => tracing::warn!(error, retry_in, "usage query failed"),
            Err(_) => tracing::warn!(timeout = ?duration(rule.source.timeout), retry_in, "usage query timed out"),
        }
    }
}

impl Prometheus {
    async fn fetch(&self, rule: &UsageRule, now: Timestamp) -> Result<Usage, String> {
        let Some(queries) = queries(rule, now) else { return Ok(Usage::default()) };
        let mut answers: [Answers; 3] = Default::default();
        for (answer, Queries { allocated, capacity }) in answers.iter_mut().zip(&queries) {
            answer.allocated = by_queue(&self.ask(allocated, now).await?)?;
            answer.capacity = total(&self.ask(capacity, now).await?)?;
        }
        Ok(usage(&answers))
    }

    async fn ask(&self, query: &str, now: Timestamp) -> Result<Value, String> {
        let seconds = (now.0 / 1_000_000).to_string();
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("query", query), ("time", &seconds)])
            .finish();
        let request =
            Request::get(format!("/api/v1/query?{form}")).body(Vec::new()).map_err(|error| error.to_string())?;
        let watch = Stopwatch::start();
        // The client would log its own failures as errors, without saying of what.
        let answer = self.client.request(request).with_subscriber(NoSubscriber::default()).await;
        self.latency.observe(watch.milliseconds());
        match answer {
            // Prometheus explains an error in an answer of the usual form; a proxy before it may not.
            Err(kube::Error::Api(status)) => serde_json::from_str(&status.message).map_err(|_| status.message),
            answer => answer.map_err(|error| with_reasons(&error)),
        }
    }
}

fn with_reasons(error: &(dyn Error + 'static)) -> String {
    let reasons = std::iter::successors(error.source(), |&error| error.source());
    reasons.map(ToString::to_string).fold(error.to_string(), |text, reason| {
        // Some repeat theirs.
        if text.ends_with(&reason) { text } else { format!("{text}: {reason}") }
    })
}

fn duration(span: Span) -> Duration {
    Duration::from_micros(span.0.max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::extract::{RawQuery, State};
    use axum::http::{HeaderMap, StatusCode};
    use serde_json::json;

    use super::*;

    /// Answers like Prometheus: two queues, one of which held a quarter of everything.
    async fn serve(asked: Arc<Mutex<Vec<String>>>) -> String {
        let answer = |State(asked): State<Arc<Mutex<Vec<String>>>>, RawQuery(form): RawQuery| async move {
            let form = form.unwrap_or_default();
            let query = form_urlencoded::parse(form.as_bytes()).find(|(key, _)| key == "query").unwrap().1.into_owned();
            let sample = |metric: Value, sum: &str| json!({"metric": metric, "value": [1, sum]});
            let result = if query.contains("capacity") {
                vec![sample(json!({}), "400")]
            } else {
                vec![sample(json!({"queue_name": "a"}), "100"), sample(json!({"queue_name": "b"}), "0")]
            };
            asked.lock().unwrap().push(query);
            json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string()
        };
        let routes = Router::new().route("/prometheus/api/v1/query", axum::routing::get(answer)).with_state(asked);
        format!("http://{}/prometheus", listen(routes).await)
    }

    #[tokio::test]
    async fn a_password_in_the_address_is_used() {
        let let_in = |headers: HeaderMap| async move {
            // Base64 of `kai:p@ss`.
            if headers.get("authorization").is_some_and(|login| login == "Basic a2FpOnBAc3M=") {
                (StatusCode::OK, r#"{"status": "success", "data": {"resultType": "vector", "result": []}}"#)
            } else {
                (StatusCode::UNAUTHORIZED, "Unauthorized")
            }
        };
        let place = listen(Router::new().route("/api/v1/query", axum::routing::get(let_in))).await;
        let ask = async |login: &str| {
            let client = connect(&Connection::Url(format!("http://{login}{place}"))).unwrap();
            Prometheus { client, latency: latency() }.ask("up", Timestamp(0)).await.map(|answer| total(&answer))
        };
        assert_eq!(ask("kai:p%40ss@").await, Ok(Ok(0.0)));
        assert_eq!(ask("").await, Err("Unauthorized".to_owned()));
    }

    #[tokio::test]
    async fn errors_have_their_reasons() {
        let refuse = || async { (StatusCode::BAD_REQUEST, r#"{"status": "error", "error": "1:5: parse error"}"#) };
        let place = listen(Router::new().route("/api/v1/query", axum::routing::get(refuse))).await;
        let ask = async |place: &str| {
            let client = connect(&Connection::Url(format!("http://{place}"))).unwrap();
            Prometheus { client, latency: latency() }
                .ask("up)", Timestamp(0))
                .await
                .and_then(|answer| total(&answer))
                .unwrap_err()
        };
        assert_eq!(ask(&place).await, "1:5: parse error");
        let error = ask("127.0.0.1:1").await;
        assert!(error.contains("refused"), "{error}");
    }

    fn latency() -> Histogram {
        Histogram::new([])
    }

    /// Serves on loopback; returns where.
    async fn listen(routes: Router) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        place
    }

    fn rule(connection: Connection) -> UsageRule {
        let mut rule = UsageRule::every(Span::seconds(60));
        rule.source.connection = connection;
        rule
    }

    #[tokio::test]
    async fn usage_is_fetched_and_too_old_usage_does_not_count() {
        let asked = Arc::default();
        let url = serve(Arc::clone(&asked)).await;
        let mut fetcher = UsageFetcher::start(Some(rule(Connection::Url(url))), latency()).unwrap();
        fetcher.known.changed().await.unwrap();
        let now = clock::now();
        let quarter = BTreeMap::from([("a".to_owned(), [250_000; 3]), ("b".to_owned(), [0; 3])]);
        assert_eq!(fetcher.usage(now).unwrap().queues, quarter);
        assert_eq!(fetcher.usage(now.plus(Span::seconds(400))).unwrap(), Usage::default());
        assert_eq!(fetcher.usage(now).unwrap().queues, quarter, "new data counts again");
        assert_eq!(asked.lock().unwrap().len(), 6);
    }

    #[tokio::test]
    async fn the_first_cycle_waits_for_the_first_answer_but_not_for_ever() {
        let unreachable = "http://127.0.0.1:1".to_owned();
        let mut fetcher = UsageFetcher::start(Some(rule(Connection::Url(unreachable))), latency()).unwrap();
        let now = clock::now();
        assert_eq!(fetcher.usage(now), None);
        assert_eq!(fetcher.usage(now.plus(Span::seconds(61))), Some(Usage::default()));
        assert_eq!(
            UsageFetcher::start(None, latency()).unwrap().usage(now),
            Some(Usage::default()),
            "where past usage does not count"
        );
    }

    #[tokio::test]
    async fn mistakes_are_reported_at_start() {
        let wrong =
            |connection| UsageFetcher::start(Some(rule(connection)), latency()).err().map(|fault| fault.to_string());
        let unsaid = "usage-based fairness needs Prometheus: set usageDBConfig.connectionString to its URL";
        assert_eq!(wrong(Connection::Unsaid).as_deref(), Some(unsaid));
        let unset = "usage-based fairness needs Prometheus: the environment variable KAI_TEST_UNSET is not set";
        assert_eq!(wrong(Connection::Variable("KAI_TEST_UNSET".to_owned())).as_deref(), Some(unset));
    }
}
