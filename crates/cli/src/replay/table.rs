//! A replayed cycle: what was decided and why, the shares of queues, what is pending, CPU time and memory.

use anstyle::Style;
use kai_control::World;

use super::report::{BIND, Decision, EVICT, Report};
use crate::render::table::{Cell, lines};
use crate::render::{BOLD, DIM, ERROR, OK, WARN, heading, paint, queues};

pub(super) fn render(report: &Report, world: &World) -> String {
    let mut out = String::new();
    heading(&mut out, "Decisions");
    out.push_str(&decisions(report));
    heading(&mut out, "Queues");
    let no_gpus = world.nodes.values().all(|node| node.allocatable.gpus == 0);
    out.push_str(&queues::render(&report.shares, no_gpus));
    heading(&mut out, "Pending");
    out.push_str(&pending(report));
    if !report.problems.is_empty() {
        heading(&mut out, "Problems");
        out.extend(report.problems.iter().flat_map(|problem| [problem.as_str(), "\n"]));
    }
    heading(&mut out, "Cycle");
    out.push_str(&costs(report));
    out
}

fn decisions(report: &Report) -> String {
    if report.decisions.is_empty() {
        return "none\n".to_owned();
    }
    let row = |decision: &Decision| {
        vec![
            Cell::left(decision.kind).style(style(decision.kind)),
            Cell::left(decision.pod.clone()),
            Cell::left(decision.node.clone().unwrap_or_default()),
            Cell::left(decision.why.clone()).style(DIM),
        ]
    };
    lines(&report.decisions.iter().map(row).collect::<Vec<_>>())
}

fn style(kind: &str) -> Style {
    match kind {
        BIND => OK,
        EVICT => ERROR,
        _ => WARN,
    }
}

fn pending(report: &Report) -> String {
    if report.pending.is_empty() {
        return "nothing waits\n".to_owned();
    }
    let mut out = String::new();
    for job in &report.pending {
        out.extend([&paint(BOLD, &job.job), "\n"]);
        for reason in &job.reasons {
            out.extend(["  ", &paint(WARN, "-"), " ", reason, "\n"]);
        }
    }
    out
}

fn costs(report: &Report) -> String {
    let counts = format!(
        "{} nodes, {} pods: {} bound, {} pipelined, {} evicted\n",
        report.nodes, report.pods, report.bound, report.pipelined, report.evicted
    );
    let mut rows = vec![vec![Cell::left("open"), Cell::right(format!("{:.2} ms", report.open_ms))]];
    for (name, ms) in &report.actions_ms.0 {
        rows.push(vec![Cell::left(*name), Cell::right(format!("{ms:.2} ms"))]);
    }
    rows.push(vec![Cell::left("cycle").style(BOLD), Cell::right(format!("{:.2} ms", report.cycle_ms)).style(BOLD)]);
    rows.push(vec![Cell::left("memory"), Cell::right(format!("{:.1} MB", report.rss_mb))]);
    counts + &lines(&rows)
}
