//! `usageDBConfig`: whether past usage counts, and which part of the past.
//!
//! ```yaml
//! usageDBConfig:
//!   clientType: prometheus
//!   usageParams: {windowType: sliding, windowSize: 1w, halfLifePeriod: 24h}
//! ```

use kai_engine::units::Span;

use super::suggestion;
use crate::duration;
use crate::objects::Malformed;
use crate::objects::field_reader::FieldReader;
use crate::scheduler::usage::prometheus::{Connection, Source};
use crate::scheduler::usage::{UsageRule, Window};

/// Where usage may come from. The simulator takes its own past, whichever is named.
const CLIENTS: [&str; 4] = ["prometheus", "simulated", "fake", "fake-with-history"];

const WINDOWS: [&str; 3] = ["sliding", "tumbling", "cron"];

const MINUTE: Span = Span::seconds(60);
const WEEK: Span = Span::seconds(7 * 24 * 3600);

pub(super) fn read(place: &FieldReader<'_>) -> Result<Option<UsageRule>, Malformed> {
    if !place.exists() {
        return Ok(None);
    }
    let client = place.field("clientType");
    let name = client.text_or_empty()?;
    if !CLIENTS.contains(&name.as_str()) {
        let problem = if name.is_empty() {
            "clientType is missing".to_owned()
        } else {
            format!("`{name}` is no source of usage{}", suggestion(&name, CLIENTS))
        };
        return Err(client.invalid(problem, format!("use {}", CLIENTS.join(", "))));
    }
    let params = place.field("usageParams");
    let extra = params.field("extraParams");
    let usual = UsageRule::every(MINUTE);
    let fetch_interval = positive(&params.field("fetchInterval"))?.unwrap_or(usual.fetch_interval);
    let staleness = params.field("stalenessPeriod").span()?.unwrap_or(usual.staleness);
    Ok(Some(UsageRule {
        window: window(&params)?,
        half_life: params.field("halfLifePeriod").span()?.filter(|half_life| half_life.0 > 0),
        resolution: positive(&extra.field("queryResolution"))?.unwrap_or(usual.resolution),
        fetch_interval,
        staleness: staleness.max(fetch_interval),
        source: Source {
            connection: connection(place)?,
            timeout: positive(&extra.field("usageQueryTimeout"))?.unwrap_or(usual.source.timeout),
            wait: params.field("waitTimeout").span()?.unwrap_or(usual.source.wait),
            allocation: metrics(&extra, "AllocationMetric", usual.source.allocation)?,
            capacity: metrics(&extra, "CapacityMetric", usual.source.capacity)?,
        },
    }))
}

fn connection(place: &FieldReader<'_>) -> Result<Connection, Malformed> {
    let (url, variable) = (place.field("connectionString"), place.field("connectionStringEnvVar"));
    let configured =
        |place: &FieldReader<'_>| place.text_or_empty().map(|text| Some(text).filter(|text| !text.is_empty()));
    match (configured(&url)?, configured(&variable)?) {
        (None, None) => Ok(Connection::Unsaid),
        (Some(url), None) => Ok(Connection::Url(url)),
        (None, Some(variable)) => Ok(Connection::Variable(variable)),
        (Some(_), Some(_)) => Err(variable.invalid("connectionString is set, too", "keep one of the two")),
    }
}

/// Metrics that go by other names in this cluster, of cores, bytes and GPUs.
fn metrics(extra: &FieldReader<'_>, suffix: &str, usual: [String; 3]) -> Result<[String; 3], Malformed> {
    let mut names = usual;
    for (name, resource) in names.iter_mut().zip(["cpu", "memory", "gpu"]) {
        let configured = extra.field(&format!("{resource}{suffix}")).text_or_empty()?;
        if !configured.is_empty() {
            *name = configured;
        }
    }
    Ok(names)
}

fn window(params: &FieldReader<'_>) -> Result<Window, Malformed> {
    let size = window_size(&params.field("windowSize"))?.unwrap_or(WEEK);
    let kind = params.field("windowType");
    match kind.text_or_empty()?.as_str() {
        "" | "sliding" => Ok(Window::Sliding { size }),
        "tumbling" => {
            let first = params.field("tumblingWindowStartTime");
            let first = first.time()?.ok_or_else(|| {
                first.invalid("a tumbling window needs a beginning", "write a time such as 2026-01-05T00:00:00Z")
            })?;
            Ok(Window::Tumbling { size, first })
        }
        "cron" => Err(kind.invalid(
            "windows that follow a cron expression are not supported",
            "use tumbling with tumblingWindowStartTime and windowSize, which can begin every day or week",
        )),
        other => {
            let problem = format!("`{other}` is not a kind of window{}", suggestion(other, WINDOWS));
            Err(kind.invalid(problem, "use sliding or tumbling"))
        }
    }
}

/// Prometheus' notation, which knows days and weeks. KAI takes what it cannot read as a window that begins now and so
/// forgets everything; here it is an error.
fn window_size(place: &FieldReader<'_>) -> Result<Option<Span>, Malformed> {
    let Some(text) = place.text()?.filter(|text| !text.is_empty()) else { return Ok(None) };
    match duration::parse_long(text).filter(|size| size.0 > 0) {
        Some(size) => Ok(Some(size)),
        None => Err(place.invalid(format!("`{text}` is not the size of a window"), "write one such as 1w, 7d or 12h")),
    }
}

fn positive(place: &FieldReader<'_>) -> Result<Option<Span>, Malformed> {
    match place.span()? {
        Some(span) if span.0 <= 0 => Err(place.invalid("must be positive", "use a span such as 1m")),
        span => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use kai_engine::units::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn rule(params: &Value) -> Result<Option<UsageRule>, Malformed> {
        let file = json!({"usageDBConfig": {"clientType": "prometheus", "usageParams": params}});
        read(&FieldReader::root(&file).field("usageDBConfig"))
    }

    #[test]
    fn absent_is_off() {
        assert_eq!(read(&FieldReader::root(&json!({})).field("usageDBConfig")), Ok(None));
    }

    #[test]
    fn defaults_are_those_of_kai() {
        let rule = rule(&json!({})).unwrap().unwrap();
        assert_eq!(rule.window, Window::Sliding { size: WEEK });
        assert_eq!(rule.half_life, None);
        assert_eq!((rule.resolution, rule.fetch_interval, rule.staleness), (MINUTE, MINUTE, Span(5 * MINUTE.0)));
    }

    #[test]
    fn everything_can_be_set() {
        let rule = rule(&json!({
            "windowType": "tumbling", "windowSize": "1d12h", "tumblingWindowStartTime": "1970-01-02T00:00:00Z",
            "halfLifePeriod": "6h", "fetchInterval": "10m", "stalenessPeriod": "1m",
            "waitTimeout": "5s",
            "extraParams": {"queryResolution": "30s", "usageQueryTimeout": "3s", "gpuAllocationMetric": "held_gpus"},
        }));
        let rule = rule.unwrap().unwrap();
        let first = Timestamp(86_400_000_000);
        assert_eq!(rule.window, Window::Tumbling { size: Span::seconds(36 * 3600), first });
        assert_eq!(rule.half_life, Some(Span::seconds(6 * 3600)));
        assert_eq!(rule.resolution, Span::seconds(30));
        assert_eq!(rule.staleness, Span::seconds(600), "data is never stale before it is fetched again");
        assert_eq!((rule.source.timeout, rule.source.wait), (Span::seconds(3), Span::seconds(5)));
        assert_eq!(rule.source.allocation[1..], ["kai_queue_allocated_memory_bytes", "held_gpus"]);
    }

    #[test]
    fn prometheus_is_named_once() {
        let connection = |config: &Value| connection(&FieldReader::root(config)).map_err(|wrong| wrong.to_string());
        let url = json!({"connectionString": "http://prometheus:9090"});
        assert_eq!(connection(&url), Ok(Connection::Url("http://prometheus:9090".to_owned())));
        let variable = json!({"connectionStringEnvVar": "PROMETHEUS"});
        assert_eq!(connection(&variable), Ok(Connection::Variable("PROMETHEUS".to_owned())));
        assert_eq!(connection(&json!({})), Ok(Connection::Unsaid));
        let both = json!({"connectionString": "http://prometheus:9090", "connectionStringEnvVar": "PROMETHEUS"});
        let wrong = "connectionStringEnvVar: connectionString is set, too".to_owned();
        assert_eq!(connection(&both), Err(wrong));
    }

    fn refused(params: &Value, expected: &Expect) {
        let wrong = rule(params).unwrap_err();
        expected.assert_eq(&format!("{wrong}; {}", wrong.hint));
    }

    #[test]
    fn mistakes_are_refused() {
        refused(
            &json!({"windowType": "cron", "cronString": "0 0 * * 1"}),
            &expect![
                "usageDBConfig.usageParams.windowType: windows that follow a cron expression are not supported; use tumbling with tumblingWindowStartTime and windowSize, which can begin every day or week"
            ],
        );
        refused(
            &json!({"windowType": "slidng"}),
            &expect![
                "usageDBConfig.usageParams.windowType: `slidng` is not a kind of window; did you mean sliding?; use sliding or tumbling"
            ],
        );
        refused(
            &json!({"windowType": "tumbling"}),
            &expect![
                "usageDBConfig.usageParams.tumblingWindowStartTime: a tumbling window needs a beginning; write a time such as 2026-01-05T00:00:00Z"
            ],
        );
        refused(
            &json!({"windowSize": "long"}),
            &expect![
                "usageDBConfig.usageParams.windowSize: `long` is not the size of a window; write one such as 1w, 7d or 12h"
            ],
        );
        let file = json!({"clientType": "promethus"});
        let wrong = read(&FieldReader::root(&file)).unwrap_err();
        expect!["clientType: `promethus` is no source of usage; did you mean prometheus?; use prometheus, simulated, fake, fake-with-history"]
            .assert_eq(&format!("{wrong}; {}", wrong.hint));
    }
}
