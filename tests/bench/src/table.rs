//! Results as Markdown tables.

use crate::budget;
use crate::kai::{self, Cost};
use crate::measure::{CYCLE_MAX, Outcome, Sample};

/// One scenario at one size.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// Nodes.
    pub nodes: usize,
    /// What came out.
    pub outcome: Outcome,
}

const TIME: &str = "\
| scenario | nodes | pods | CPU ms | worst | budget ms | NVIDIA KAI v0.13 | v0.17 | v0.13 ÷ `kai` | growth |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
";

const RESULT: &str = "\
| scenario | nodes | bound/evicted/pipelined | waiting | NVIDIA KAI v0.13 | v0.17 | peak MB | NVIDIA KAI's | B a pod | of budget |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
";

/// Two tables: what cycles cost, and what they decided in how much memory. Sizes of a scenario stand one below the other.
pub fn markdown(rows: &[Row]) -> String {
    let mut text = TIME.to_owned();
    let mut before: Option<(&Row, &Sample)> = None;
    for row in rows {
        text.push_str(&time_line(row, before.filter(|(smaller, _)| smaller.scenario == row.scenario)));
        if let Outcome::Done(sample) = &row.outcome {
            before = Some((row, sample));
        }
    }
    text.push('\n');
    text.push_str(RESULT);
    for row in rows {
        if let Outcome::Done(sample) = &row.outcome {
            text.push_str(&result_line(row, sample));
        }
    }
    text
}

fn time_line(row: &Row, smaller: Option<(&Row, &Sample)>) -> String {
    let known = kai::reference(row.scenario, row.nodes);
    let (v13, v17) = (cost(known.and_then(|known| known.v13)), cost(known.and_then(|known| known.v17)));
    let (pods, best, first, budget, ratio, growth) = match &row.outcome {
        Outcome::Done(sample) => {
            let kai = known.and_then(|kai| kai.v13.or(kai.v17));
            (
                grouped(sample.pods as u64),
                short(sample.best_ms),
                short(sample.first_ms),
                budget_column(row, sample.best_ms),
                kai.map(|kai| format!("{:.0}", kai.ms() / sample.best_ms)).unwrap_or_default(),
                smaller.map(|(smaller, cost)| growth((smaller.nodes, cost.best_ms), (row.nodes, sample.best_ms))),
            )
        }
        Outcome::TooLong => {
            let best = format!("> {}", grouped(CYCLE_MAX.as_millis() as u64));
            (String::new(), best, String::new(), budget_column(row, f64::INFINITY), String::new(), None)
        }
        Outcome::Failed(how) => {
            (String::new(), format!("failed: {how}"), String::new(), String::new(), String::new(), None)
        }
    };
    let nodes = grouped(row.nodes as u64);
    let growth = growth.unwrap_or_default();
    format!(
        "| {} | {nodes} | {pods} | {best} | {first} | {budget} | {v13} | {v17} | {ratio} | {growth} |\n",
        row.scenario
    )
}

fn result_line(row: &Row, sample: &Sample) -> String {
    let share = sample.work_bytes as f64 / budget::memory(row.nodes, sample.pods) as f64;
    let known = kai::decisions(row.scenario, row.nodes);
    let peak = |peak: Option<u32>| peak.map_or_else(|| "–".to_owned(), |peak| grouped(u64::from(peak)));
    let peaks = known.map(|known| format!("{} / {}", peak(known.peak_mb.0), peak(known.peak_mb.1)));
    format!(
        "| {} | {} | {} | {} | {} | {} | {:.1} | {} | {} | {:.0} % |\n",
        row.scenario,
        grouped(row.nodes as u64),
        sample.count,
        grouped(sample.count.waiting as u64),
        known.map_or("", |known| known.v13),
        known.map_or("", |known| known.v17),
        sample.peak_bytes as f64 / 1e6,
        peaks.unwrap_or_default(),
        sample.work_bytes / sample.pods as u64,
        100.0 * share,
    )
}

/// The exponent; marked where it is steeper than that of n·log n.
fn growth(from: (usize, f64), to: (usize, f64)) -> String {
    let exponent = budget::exponent(from, to);
    let mark = if exponent > budget::growth(from.0, to.0) { " ✗" } else { "" };
    format!("{exponent:.2}{mark}")
}

fn budget_column(row: &Row, ms: f64) -> String {
    let budget = budget::cpu_ms(row.scenario, row.nodes, kai::reference(row.scenario, row.nodes));
    budget.map(|budget| format!("{} {}", short(budget), if ms <= budget { "✓" } else { "✗" })).unwrap_or_default()
}

fn cost(cost: Option<Cost>) -> String {
    match cost {
        Some(Cost::Ms(ms)) => grouped(u64::from(ms)),
        Some(Cost::Over(ms)) => format!("> {}", grouped(u64::from(ms))),
        Some(Cost::About(ms)) => format!("≈ {}", grouped(u64::from(ms))),
        None => String::new(),
    }
}

/// Three digits that matter.
fn short(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => grouped(ms.round() as u64),
    }
}

/// Thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Count;

    fn row(nodes: usize, best_ms: f64) -> Row {
        let count = Count { bound: 0, evicted: 50, pipelined: 100, waiting: 0 };
        let sample = Sample {
            pods: nodes + nodes / 20,
            count,
            first_ms: 2.0 * best_ms,
            best_ms,
            snapshot_bytes: 0,
            work_bytes: 1 << 20,
            peak_bytes: 3_000_000,
        };
        Row { scenario: "consolidation", nodes, outcome: Outcome::Done(sample) }
    }

    #[test]
    fn a_row_has_cost_budget_and_decisions() {
        let text = markdown(&[row(500, 5.0), row(1000, 25.0), Row { outcome: Outcome::TooLong, ..row(5000, 0.0) }]);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("| c")).collect();
        assert_eq!(
            lines,
            [
                "| consolidation | 500 | 525 | 5.00 | 10.0 | 5.92 ✓ | 296 | 291 | 59 |  |",
                "| consolidation | 1,000 | 1,050 | 25.0 | 50.0 | 21.5 ✗ | 1,075 | 1,350 | 43 | 2.32 ✗ |",
                "| consolidation | 5,000 |  | > 60,000 |  |  |  |  |  |  |",
                "| consolidation | 500 | 0/50/100 | 0 |  |  | 3.0 |  | 1997 | 67 % |",
                "| consolidation | 1,000 | 0/50/100 | 0 | 0/50/100 | 0/50/100 | 3.0 | 217 / 197 | 998 | 34 % |",
            ]
        );
    }
}
