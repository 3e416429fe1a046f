//! `    10s  bind     team-a/train-0  node-3  …why`.

use anstyle::Style;
use kai_sim::report::TimelineRow;
use kai_sim::time::show_span;

use super::table::{Cell, lines};
use super::{DIM, ERROR, OK, WARN};

/// Times stand right, in a column wide enough for the first days.
pub(super) const TIME_WIDTH: usize = 7;

/// As wide as the longest word, so that tables of different runs line up.
pub(super) const EVENT_WIDTH: usize = 9;

pub(super) fn render(rows: &[TimelineRow]) -> String {
    let cells: Vec<Vec<Cell>> = rows.iter().map(row).collect();
    lines(&cells)
}

fn row(row: &TimelineRow) -> Vec<Cell> {
    let time = show_span(kai_sim::Span(row.t.0));
    let subject = row.pod.as_ref().or(row.job.as_ref()).or(row.object.as_ref()).cloned().unwrap_or_default();
    vec![
        Cell::right(format!("{time:>TIME_WIDTH$}")),
        Cell::left(format!("{:<EVENT_WIDTH$}", row.event)).style(style(row.event)),
        Cell::left(subject),
        Cell::left(row.node.clone().unwrap_or_default()),
        Cell::left(row.why.clone()).style(DIM),
    ]
}

fn style(event: &str) -> Style {
    match event {
        "bind" | "run" | "finish" | "node-up" => OK,
        "evict" | "lost" | "node-down" => ERROR,
        "move" | "wait" | "pipelined" | "warn" => WARN,
        _ => Style::new(),
    }
}
