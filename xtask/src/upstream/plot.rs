//! The comparison as a picture: a small plot for each scenario, both axes logarithmic, so that a straight line is a
//! power of the size and the gap between two lines is a ratio.

use super::{Cost, Pair, Results};
use std::fmt::Write;

const COLUMNS: usize = 4;
const WIDTH: f64 = 230.0;
const HEIGHT: f64 = 190.0;
const MARGIN: f64 = 36.0;
const UPSTREAM_COLOR: &str = "#c2571a";
const KAI_COLOR: &str = "#1668b8";

/// Milliseconds, and nodes: whole decades that hold everything.
struct Frame {
    nodes: (f64, f64),
    ms: (f64, f64),
}

pub(super) fn svg(results: &Results) -> String {
    let frame = Frame::around(results);
    let rows = results.len().div_ceil(COLUMNS).max(1);
    let (width, height) = (WIDTH * COLUMNS as f64, HEIGHT * rows as f64 + 30.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"10\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"18\">CPU milliseconds of one cycle over nodes: \
         <tspan fill=\"{UPSTREAM_COLOR}\">NVIDIA KAI v0.12.0</tspan>, <tspan fill=\"{KAI_COLOR}\">kai</tspan></text>\n"
    );
    for (index, (scenario, sizes)) in results.iter().enumerate() {
        let (x, y) = ((index % COLUMNS) as f64 * WIDTH, (index / COLUMNS) as f64 * HEIGHT + 30.0);
        let _ = writeln!(out, "<g transform=\"translate({x} {y})\">");
        out.push_str(&frame.grid(scenario));
        let line = |pick: fn(&Pair) -> &Cost, color: &str| {
            let points = sizes.iter().map(|(nodes, pair)| (frame.x(*nodes as f64), frame.y(pick(pair).cycle_ms)));
            polyline(&points.collect::<Vec<_>>(), color)
        };
        out.push_str(&line(|pair| &pair.upstream, UPSTREAM_COLOR));
        out.push_str(&line(|pair| &pair.kai, KAI_COLOR));
        out.push_str("</g>\n");
    }
    out + "</svg>\n"
}

fn polyline(points: &[(f64, f64)], color: &str) -> String {
    let text: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut out =
        format!("<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>\n", text.join(" "));
    for (x, y) in points {
        let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.2\" fill=\"{color}\"/>");
    }
    out
}

impl Frame {
    fn around(results: &Results) -> Self {
        let pairs = || results.values().flatten();
        let nodes = pairs().map(|(nodes, _)| *nodes as f64);
        let ms = pairs().flat_map(|(_, pair)| [pair.upstream.cycle_ms, pair.kai.cycle_ms]);
        Self { nodes: decades(nodes), ms: decades(ms) }
    }

    fn x(&self, nodes: f64) -> f64 {
        MARGIN + (WIDTH - MARGIN - 10.0) * part(nodes, self.nodes)
    }

    fn y(&self, ms: f64) -> f64 {
        HEIGHT - 24.0 - (HEIGHT - 44.0) * part(ms, self.ms)
    }

    fn grid(&self, title: &str) -> String {
        let (left, right) = (self.x(self.nodes.0), self.x(self.nodes.1));
        let (bottom, top) = (self.y(self.ms.0), self.y(self.ms.1));
        let mut out = format!("<text x=\"{left:.1}\" y=\"{:.1}\" font-weight=\"bold\">{title}</text>\n", top - 6.0);
        for ms in ticks(self.ms) {
            let y = self.y(ms);
            let _ =
                writeln!(out, "<line x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>");
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
                left - 4.0,
                y + 3.0,
                label(ms)
            );
        }
        for nodes in ticks(self.nodes) {
            let x = self.x(nodes);
            let _ =
                writeln!(out, "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\" stroke=\"#ddd\"/>");
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
                bottom + 13.0,
                label(nodes)
            );
        }
        out
    }
}

/// Powers of ten around all values; one decade if there are none.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    if high <= 0.0 {
        return (1.0, 10.0);
    }
    let (first, last) = (low.max(0.01).log10().floor(), high.log10().ceil());
    (10_f64.powf(first), 10_f64.powf(last.max(first + 1.0)))
}

fn ticks((first, last): (f64, f64)) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(first), |tick| Some(tick * 10.0)).take_while(move |tick| *tick <= last * 1.001)
}

/// Where a value lies between two others, in orders of magnitude.
fn part(value: f64, (low, high): (f64, f64)) -> f64 {
    (value.max(low) / low).log10() / (high / low).log10()
}

fn label(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.0}M", value / 1e6),
        value if value >= 1e3 => format!("{:.0}k", value / 1e3),
        value if value >= 1.0 => format!("{value:.0}"),
        value => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(cycle_ms: f64) -> Cost {
        Cost { open_ms: 0.0, cycle_ms, bound: 0, pipelined: 0, evicted: 0, rss_mb: 0.0, stopped: false }
    }

    #[test]
    fn axes_are_whole_decades() {
        assert_eq!(decades([200.0, 1000.0].into_iter()), (100.0, 1000.0));
        assert_eq!(decades(std::iter::empty()), (1.0, 10.0));
        assert_eq!(ticks((1.0, 100.0)).collect::<Vec<_>>(), [1.0, 10.0, 100.0]);
        assert!((part(10.0, (1.0, 100.0)) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn each_scenario_has_two_lines() {
        let pair = |upstream: f64, kai: f64| Pair { pods: 1, kai: cost(kai), upstream: cost(upstream) };
        let results: Results =
            ["a", "b"].map(|name| (name.to_owned(), [(100, pair(50.0, 1.0)), (1000, pair(900.0, 9.0))].into())).into();
        let picture = svg(&results);
        assert_eq!(picture.matches("<polyline").count(), 4);
        assert_eq!(picture.matches("<circle").count(), 8);
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }
}
