//! Usage as Prometheus knows it: what to ask, and what the answers say.
//!
//! For each resource two instant queries: what each queue held, and what there was, both summed over the window.
//! Each moment of the window counts once for a queue, however many series tell of it: replicas tell the same at the same
//! time, and a controller that moved, or a queue with another display name, goes on in a new series.

use std::collections::BTreeMap;

use kai_engine::units::{ONE, Span, Timestamp};
use serde_json::Value;

use super::{Usage, UsageRule};

/// Where Prometheus is, and what the metrics are called there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub connection: Connection,
    /// For one fetch, all queries together.
    pub timeout: Span,
    /// How long the first cycle waits for the first answer.
    pub wait: Span,
    /// What each queue holds of cores, bytes and GPUs.
    pub allocation: [String; 3],
    /// What there is of them.
    pub capacity: [String; 3],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The simulator needs none.
    Unsaid,
    Url(String),
    /// An environment variable with the address: it may contain a password.
    Variable(String),
}

/// The questions about one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queries {
    pub allocated: String,
    pub capacity: String,
}

/// The answers about one resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// By queue.
    pub allocated: BTreeMap<String, f64>,
    pub capacity: f64,
}

/// Label with the name of the queue.
const QUEUE: &str = "queue_name";

/// What to ask now, for each resource; nothing while the first window has not begun.
pub fn queries(rule: &UsageRule, now: Timestamp) -> Option<[Queries; 3]> {
    let window = now.since(rule.window.start(now));
    (window.0 >= rule.resolution.0).then(|| {
        let over = |metric: &str| over_window(metric, rule, window, now);
        let source = &rule.source;
        std::array::from_fn(|index| Queries {
            allocated: over(&format!("max by ({QUEUE}) ({})", source.allocation[index])),
            capacity: over(&source.capacity[index]),
        })
    })
}

fn over_window(metric: &str, rule: &UsageRule, window: Span, now: Timestamp) -> String {
    let seconds = |span: Span| span.0 / 1_000_000;
    let weighted = match rule.half_life {
        // Inside of a sub-query, `time()` is the time of the sample.
        Some(half_life) => {
            format!("{metric} * (0.5 ^ (({} - time()) / {}))", now.0 / 1_000_000, seconds(half_life).max(1))
        }
        None => metric.to_owned(),
    };
    format!("sum_over_time(({weighted})[{}s:{}s])", seconds(window).max(1), seconds(rule.resolution).max(1))
}

/// Reads the answer to what queues held.
pub fn by_queue(answer: &Value) -> Result<BTreeMap<String, f64>, String> {
    let named = |sample: &&Value| sample["metric"][QUEUE].is_string();
    let read = |sample: &Value| {
        let queue = sample["metric"][QUEUE].as_str().unwrap_or_default();
        Ok((queue.to_owned(), value(&sample["value"])?))
    };
    samples(answer)?.iter().filter(named).map(read).collect()
}

/// Reads the answer to what there was. Nothing is no answer that fails: the cluster may lack the resource.
pub fn total(answer: &Value) -> Result<f64, String> {
    samples(answer)?.iter().map(|sample| value(&sample["value"])).sum()
}

/// What the queues have used.
pub fn usage(answers: &[Answers; 3]) -> Usage {
    let mut queues: BTreeMap<String, [i64; 3]> = BTreeMap::new();
    for (index, Answers { allocated, capacity }) in answers.iter().enumerate() {
        for (queue, held) in allocated {
            let share = if *capacity > 0.0 { held / capacity } else { 0.0 };
            // Rounded towards zero; what is not a number is nothing.
            queues.entry(queue.clone()).or_default()[index] = ((share * ONE as f64) as i64).clamp(0, USAGE_MAX);
        }
    }
    Usage { queues }
}

/// No queue uses more than a thousand times what there is, whatever a database answers.
const USAGE_MAX: i64 = 1_000 * ONE;

fn samples(answer: &Value) -> Result<&[Value], String> {
    if answer["status"] != "success" {
        let error = answer["error"].as_str().unwrap_or("this is no answer of Prometheus");
        return Err(error.to_owned());
    }
    match answer["data"]["resultType"].as_str() {
        Some("vector") => Ok(answer["data"]["result"].as_array().map_or(&[][..], Vec::as_slice)),
        other => Err(format!("an instant vector was asked for, not a {}", other.unwrap_or("result without type"))),
    }
}

/// A time and a number, the number as text.
fn value(pair: &Value) -> Result<f64, String> {
    let text = pair[1].as_str().unwrap_or_default();
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::super::Window;
    use super::*;

    fn rule(window: Window, half_life: Option<Span>) -> UsageRule {
        UsageRule { window, half_life, ..UsageRule::every(Span::seconds(60)) }
    }

    #[test]
    fn sums_over_the_window_are_asked_for() {
        let (day, now) = (Span::seconds(86_400), Timestamp(1_000_000_000_000));
        let sliding = queries(&rule(Window::Sliding { size: day }, None), now).unwrap();
        expect!["sum_over_time((max by (queue_name) (kai_queue_allocated_gpus))[86400s:60s])"]
            .assert_eq(&sliding[2].allocated);
        expect![[r#"sum_over_time((sum(kube_node_status_capacity{resource="cpu"}))[86400s:60s])"#]]
            .assert_eq(&sliding[0].capacity);
        let decaying = queries(&rule(Window::Sliding { size: day }, Some(Span::seconds(3600))), now).unwrap();
        expect!["sum_over_time((max by (queue_name) (kai_queue_allocated_gpus) * (0.5 ^ ((1000000 - time()) / 3600)))[86400s:60s])"]
            .assert_eq(&decaying[2].allocated);
    }

    #[test]
    fn a_tumbling_window_begins_with_a_clean_slate() {
        let day = Span::seconds(86_400);
        let tumbling = rule(Window::Tumbling { size: day, first: Timestamp(0) }, None);
        let asked = |seconds: i64| queries(&tumbling, Timestamp(seconds * 1_000_000));
        expect!["sum_over_time((max by (queue_name) (kai_queue_allocated_gpus))[3600s:60s])"]
            .assert_eq(&asked(90_000).unwrap()[2].allocated);
        assert_eq!(asked(-5), None);
    }

    #[test]
    fn shares_are_parts_of_what_there_was() {
        let vector = |result: Value| json!({"status": "success", "data": {"resultType": "vector", "result": result}});
        let sample = |queue: &str, sum: &str| json!({"metric": {"queue_name": queue}, "value": [1_700_000_000, sum]});
        let allocated = by_queue(&vector(json!([sample("a", "24"), sample("b", "60")]))).unwrap();
        let capacity = total(&vector(json!([{"metric": {}, "value": [1_700_000_000, "240"]}]))).unwrap();
        let gpus = Answers { allocated, capacity };
        let nothing = Answers { allocated: gpus.allocated.clone(), capacity: total(&vector(json!([]))).unwrap() };
        let usage = usage(&[Answers::default(), nothing, gpus]);
        let expected = [("a".to_owned(), [0, 0, 100_000]), ("b".to_owned(), [0, 0, 250_000])];
        assert_eq!(usage.queues, BTreeMap::from(expected));
    }

    #[test]
    fn shares_stay_within_reason() {
        let gpu = |held: f64, capacity: f64| {
            let of = |held: f64| Answers { allocated: [("team".to_owned(), held)].into(), capacity };
            usage(&[of(0.0), of(0.0), of(held)]).queues["team"][2]
        };
        assert_eq!([gpu(1e300, 1.0), gpu(f64::INFINITY, 1.0), gpu(1.0, 1e-300)], [USAGE_MAX; 3]);
        assert_eq!([gpu(-5.0, 1.0), gpu(f64::NAN, 1.0), gpu(f64::NEG_INFINITY, 1.0)], [0; 3]);
    }

    #[test]
    fn an_invalid_answer_gives_the_reason() {
        let error = json!({"status": "error", "errorType": "bad_data", "error": "parse error"});
        assert_eq!(total(&error), Err("parse error".to_owned()));
        assert!(by_queue(&json!("<html>")).is_err());
        let matrix = json!({"status": "success", "data": {"resultType": "matrix", "result": []}});
        assert_eq!(total(&matrix), Err("an instant vector was asked for, not a matrix".to_owned()));
        let odd = json!({"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, "x"]}]}});
        assert_eq!(total(&odd), Err("`x` is not a number".to_owned()));
    }
}
