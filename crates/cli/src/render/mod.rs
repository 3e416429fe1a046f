//! A report as text for people: timeline, nodes, queues, pending pods.

mod nodes;
mod pending;
pub(crate) mod queues;
pub(crate) mod table;
mod timeline;

use anstyle::{AnsiColor, Style};
use kai_sim::Report;
use kai_sim::time::show_span;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const OK: Style = AnsiColor::Green.on_default();
pub(crate) const ERROR: Style = AnsiColor::Red.on_default();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();

/// Text in a style; streams that cannot show it drop the style again.
pub(crate) fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// The whole report.
pub(crate) fn report(report: &Report) -> String {
    let mut out = String::new();
    heading(&mut out, "Timeline");
    out.push_str(&timeline::render(&report.timeline));
    let reason = if report.end.quiet { "nothing more happens" } else { "the time is up" };
    let cycles = match report.end.cycles {
        1 => "one scheduling cycle".to_owned(),
        cycles => format!("{cycles} scheduling cycles"),
    };
    let (time, event) = (timeline::TIME_WIDTH, timeline::EVENT_WIDTH);
    let end = format!("{:>time$}  {:<event$}  {reason}, after {cycles}", show_span(report.end.at), "end");
    out.push_str(&paint(DIM, end));
    out.push('\n');
    heading(&mut out, "Nodes");
    out.push_str(&nodes::render(&report.nodes));
    heading(&mut out, "Queues");
    let no_gpus = report.nodes.iter().all(|node| node.gpu.total.0 == 0);
    out.push_str(&queues::render(&report.queues, no_gpus));
    heading(&mut out, "Pending");
    out.push_str(&pending::render(&report.pending));
    out
}

pub(crate) fn heading(out: &mut String, text: &str) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(&paint(BOLD, text));
    out.push('\n');
}
