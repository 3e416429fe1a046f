//! Queue arithmetic: division, reclaim rules, queue order, capacity.
//!
//! Each kind of case calls one function of the engine with the recorded counters.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write;

use kai_engine::ids::QueueId;
use kai_engine::ledger::{QueueAccounts, QueueRow};
use kai_engine::outcome::CapacityExceeded;
use kai_engine::queues::capacity;
use kai_engine::queues::fair_share::{QueueDemand, divide, divide_tree};
use kai_engine::queues::order::{QueueOrderInput, QueueOrderKey};
use kai_engine::queues::reclaim_rules::{self, Reclaimer};
use kai_engine::units::{GPU, ONE, QueueResource, ResourceQuantities, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::actions::numbers::{ceiling, millionths};
use crate::verdict::{Difference, Fault, Verdict};

/// Recorded case; the shape of input and expectation depends on the kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    #[serde(rename = "id")]
    _id: String,
    kind: String,
    #[serde(rename = "source")]
    _source: Value,
    input: Value,
    expect: Value,
}

/// Runs a case; `decisions` receives every number that came out.
pub fn run(case: &Case, decisions: &mut String) -> Result<Verdict, Fault> {
    let Case { input, expect, .. } = case;
    let differences = match case.kind.as_str() {
        "divide_one" => divide_one(&read(input)?, &read(expect)?, decisions),
        "divide_all" | "divide_tree" => divide_all(&read(input)?, &read(expect)?, decisions),
        "can_reclaim" | "reclaimable" => reclaim(&case.kind, &read(input)?, &read(expect)?, decisions)?,
        "strategy_fair_share" | "strategy_guarantee_quota" => {
            strategy(&case.kind, &read(input)?, &read(expect)?, decisions)
        }
        "queue_order" => queue_order(&read(input)?, &read(expect)?, decisions),
        "capacity_job" | "capacity_task_on_node" | "capacity_limit" | "capacity_quota" | "capacity_non_preemptible" => {
            check_capacity(&case.kind, &read(input)?, &read(expect)?, decisions)?
        }
        other => return Err(Fault(format!("kind {other} is not known"))),
    };
    Ok(differences.into())
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, Fault> {
    T::deserialize(value).map_err(|error| Fault(error.to_string()))
}

/// An amount of each resource; absent is none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Amounts {
    cpu: f64,
    memory: f64,
    gpu: f64,
}

impl Amounts {
    fn triple(self) -> ResourceQuantities {
        ResourceQuantities::new(self.cpu.round() as i64, self.memory.round() as i64, millionths(self.gpu))
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Queue {
    #[serde(rename = "uid")]
    _uid: String,
    #[serde(rename = "name")]
    _name: String,
    parent: String,
    #[serde(rename = "children")]
    _children: Vec<String>,
    priority: i32,
    created_seconds: Option<i64>,
    gpu: Counters,
    cpu: Counters,
    memory: Counters,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counters {
    deserved: f64,
    limit: f64,
    weight: f64,
    request: f64,
    allocated: f64,
    allocated_non_preemptible: f64,
    usage: f64,
    fair_share: f64,
}

type Queues = BTreeMap<String, Queue>;

fn row(queue: &Queue, parent: Option<QueueId>) -> QueueRow {
    let counters = [&queue.cpu, &queue.memory, &queue.gpu];
    let units = [1, 1, GPU];
    let amounts = |pick: fn(&Counters) -> f64| {
        let amount = |index: usize| (pick(counters[index]) * units[index] as f64).round() as i64;
        ResourceQuantities::new(amount(0), amount(1), amount(2))
    };
    let ceilings = |pick: fn(&Counters) -> f64| [0, 1, 2].map(|index| ceiling(pick(counters[index]), units[index]));
    let numbers = |pick: fn(&Counters) -> f64| [0, 1, 2].map(|index| millionths(pick(counters[index])));
    QueueRow {
        parent,
        priority: queue.priority,
        created: queue.created_seconds.map_or(Timestamp::EARLIEST, |seconds| Timestamp(seconds * 1_000_000)),
        quota: ceilings(|counters| counters.deserved),
        limit: ceilings(|counters| counters.limit),
        weight: numbers(|counters| counters.weight),
        usage: numbers(|counters| counters.usage),
        request: amounts(|counters| counters.request),
        allocated: amounts(|counters| counters.allocated),
        allocated_non_preemptible: amounts(|counters| counters.allocated_non_preemptible),
        fair_share: amounts(|counters| counters.fair_share),
        version: 0,
    }
}

/// A book of the queues, numbered in key order; a parent that was not recorded is above the top.
fn book(queues: &Queues, total: ResourceQuantities) -> QueueAccounts {
    let rows = queues.values().map(|queue| row(queue, find(queues, &queue.parent))).collect();
    QueueAccounts { rows, total, version: 0 }
}

fn find(queues: &Queues, key: &str) -> Option<QueueId> {
    queues.keys().position(|other| other == key).map(QueueId::at)
}

fn need(queues: &Queues, key: &str) -> Result<QueueId, Fault> {
    find(queues, key).ok_or_else(|| Fault(format!("queue {key} is not recorded")))
}

fn name(queues: &Queues, id: QueueId) -> &str {
    queues.keys().nth(id.index()).expect("ids are positions in the map")
}

/// Compares within a millionth of a GPU, or one unit of what is counted whole.
fn same(what: String, expected: f64, got: f64) -> Option<Difference> {
    let tolerance = 1e-6_f64.max(expected.abs() * 1e-9);
    ((expected - got).abs() > tolerance).then(|| Difference::new(what, expected, got))
}

fn plain(amount: i64, resource: QueueResource) -> f64 {
    amount as f64 / resource.unit() as f64
}

#[derive(Deserialize)]
struct DivideOne {
    total: f64,
    k: f64,
    resource: String,
    queues: Queues,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DividedOne {
    remaining: f64,
    fair_share: BTreeMap<String, f64>,
}

fn divide_one(input: &DivideOne, expect: &DividedOne, decisions: &mut String) -> Vec<Difference> {
    let resource = match input.resource.as_str() {
        "cpu" => QueueResource::Cpu,
        "memory" => QueueResource::Memory,
        _ => QueueResource::Gpu,
    };
    let index = resource as usize;
    let mut claims: Vec<QueueDemand> = input
        .queues
        .values()
        .map(|queue| {
            let row = row(queue, None);
            QueueDemand {
                quota: row.quota[index],
                limit: row.limit[index],
                weight: row.weight[index],
                usage: row.usage[index],
                request: row.request.get(resource),
                priority: row.priority,
                created: row.created,
                share: row.fair_share.get(resource),
            }
        })
        .collect();
    let total = (input.total * resource.unit() as f64).round() as i64;
    // Over-subscribed quotas leave nothing; the engine says by how much.
    let rest = divide(total, resource.unit(), millionths(input.k), &mut claims).max(0);
    let got: BTreeMap<&String, i64> = input.queues.keys().zip(claims).map(|(key, claim)| (key, claim.share)).collect();
    let _ = writeln!(decisions, "rest {rest} shares {:?}", got.values());
    let shares = expect
        .fair_share
        .iter()
        .filter_map(|(key, expected)| same(format!("fair share of {key}"), *expected, plain(got[key], resource)));
    shares.chain(same("remaining".to_string(), expect.remaining, plain(rest, resource))).collect()
}

#[derive(Deserialize)]
struct DivideAll {
    total: Amounts,
    k: f64,
    queues: Queues,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DividedAll {
    fair_share: BTreeMap<String, Amounts>,
}

/// Siblings are a tree of one level.
fn divide_all(input: &DivideAll, expect: &DividedAll, decisions: &mut String) -> Vec<Difference> {
    let mut book = book(&input.queues, input.total.triple());
    divide_tree(&mut book, millionths(input.k));
    let got: BTreeMap<&String, ResourceQuantities> =
        input.queues.keys().zip(&book.rows).map(|(key, row)| (key, row.fair_share)).collect();
    for share in got.values() {
        let _ = writeln!(decisions, "share {:?}", share.0);
    }
    let mut differences = Vec::new();
    for (key, expected) in &expect.fair_share {
        let resources = QueueResource::ALL.into_iter().zip([expected.cpu, expected.memory, expected.gpu]);
        differences.extend(resources.filter_map(|(resource, expected)| {
            same(format!("{resource:?} share of {key}"), expected, plain(got[key].get(resource), resource))
        }));
    }
    differences
}

#[derive(Deserialize)]
struct Reclaim {
    queues: Queues,
    reclaimer: RecordedReclaimer,
    #[serde(default)]
    victims: BTreeMap<String, Vec<Amounts>>,
    saturation_multiplier: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedReclaimer {
    queue: String,
    preemptible: bool,
    required: Amounts,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    result: bool,
}

impl Answer {
    fn compare(&self, what: &str, got: bool, decisions: &mut String) -> Vec<Difference> {
        let _ = writeln!(decisions, "{got}");
        if self.result == got { Vec::new() } else { vec![Difference::new(what, self.result, got)] }
    }
}

fn reclaim(kind: &str, input: &Reclaim, expect: &Answer, decisions: &mut String) -> Result<Vec<Difference>, Fault> {
    let book = book(&input.queues, ResourceQuantities::ZERO);
    let reclaimer = Reclaimer {
        queue: need(&input.queues, &input.reclaimer.queue)?,
        preemptible: input.reclaimer.preemptible,
        required: input.reclaimer.required.triple(),
    };
    let got = if kind == "can_reclaim" {
        reclaim_rules::can_reclaim(&book, reclaimer)
    } else {
        let mut units = Vec::new();
        for (queue, bundles) in &input.victims {
            let queue = need(&input.queues, queue)?;
            units.extend(bundles.iter().map(|bundle| (queue, bundle.triple())));
        }
        reclaim_rules::reclaimable(&book, reclaimer, &units, input.saturation_multiplier.map_or(ONE, millionths))
    };
    Ok(expect.compare(kind, got, decisions))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Taking {
    reclaimer_queue: Queue,
    reclaimee_queue: Queue,
    reclaimee_remaining: Amounts,
    reclaimer_required: Option<Amounts>,
}

fn strategy(kind: &str, input: &Taking, expect: &Answer, decisions: &mut String) -> Vec<Difference> {
    let rows = vec![row(&input.reclaimer_queue, None), row(&input.reclaimee_queue, None)];
    let book = QueueAccounts { rows, total: ResourceQuantities::ZERO, version: 0 };
    let (reclaimer, victim) = (QueueId(0), QueueId(1));
    let remaining = input.reclaimee_remaining.triple();
    let required = input.reclaimer_required.unwrap_or_default().triple();
    let got = if kind == "strategy_fair_share" {
        reclaim_rules::over_fair_share(&book, victim, remaining)
    } else {
        reclaim_rules::quota_guaranteed(&book, reclaimer, victim, required, remaining)
    };
    expect.compare(kind, got, decisions)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    left: Side,
    right: Side,
    total: Option<Amounts>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Side {
    queue: Queue,
    job_required: Option<Amounts>,
    victims_allocated: Option<Vec<Amounts>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct First {
    first: String,
}

fn queue_order(input: &Pair, expect: &First, decisions: &mut String) -> Vec<Difference> {
    let total = input.total.unwrap_or_default().triple();
    let entitlement = |side: &Side| {
        let mut victims = ResourceQuantities::ZERO;
        for amounts in side.victims_allocated.iter().flatten() {
            victims += amounts.triple();
        }
        let required = side.job_required.unwrap_or_default().triple();
        QueueOrderKey::of(QueueOrderInput { row: &row(&side.queue, None), required, victims }, total)
    };
    let got = match entitlement(&input.left).compare(&entitlement(&input.right)) {
        Ordering::Less => "left",
        Ordering::Equal => "equal",
        Ordering::Greater => "right",
    };
    let _ = writeln!(decisions, "{got}");
    if expect.first == got { Vec::new() } else { vec![Difference::new("first", &expect.first, got)] }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Capacity {
    queues: Queues,
    job_queue: String,
    job_preemptible: bool,
    requested: Amounts,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Admission {
    schedulable: bool,
    reason: String,
    queue: String,
}

fn check_capacity(
    kind: &str,
    input: &Capacity,
    expect: &Admission,
    decisions: &mut String,
) -> Result<Vec<Difference>, Fault> {
    let book = book(&input.queues, ResourceQuantities::ZERO);
    let queue = need(&input.queues, &input.job_queue)?;
    let requested = input.requested.triple();
    let reason = match kind {
        "capacity_limit" => capacity::over_limit(&book, queue, requested).map(capacity::Exceeded::Limit),
        "capacity_quota" | "capacity_non_preemptible" if input.job_preemptible => None,
        "capacity_quota" | "capacity_non_preemptible" => {
            capacity::over_quota(&book, queue, requested).map(capacity::Exceeded::Quota)
        }
        _ => capacity::check(&book, queue, input.job_preemptible, requested),
    };
    let blocked = |block: &CapacityExceeded| name(&input.queues, block.queue).to_string();
    let (reason, queue) = match &reason {
        None => ("", String::new()),
        Some(capacity::Exceeded::Limit(block)) => ("over_limit", blocked(block)),
        Some(capacity::Exceeded::Quota(block)) => ("non_preemptible_over_quota", blocked(block)),
    };
    let text =
        |schedulable: bool, reason: &str, queue: &str| format!("{schedulable} {reason} {queue}").trim_end().to_string();
    let expected = text(expect.schedulable, &expect.reason, &expect.queue);
    let got = text(reason.is_empty(), reason, &queue);
    let _ = writeln!(decisions, "{got}");
    Ok(if expected == got { Vec::new() } else { vec![Difference::new("schedulable", expected, got)] })
}
