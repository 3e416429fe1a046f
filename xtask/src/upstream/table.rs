//! The comparison as a Markdown table between two marks of the page.

use super::{Cost, Pair, Results};
use std::fmt::Write;

const BEGIN: &str = "<!-- bench-upstream: written by `cargo xtask bench-upstream`, from here -->\n";
const END: &str = "<!-- bench-upstream: to here -->\n";

/// NVIDIA KAI is to need so many times the CPU time of `kai`; more where a cycle takes so long that users notice.
const FASTER: f64 = 50.0;
const MUCH_FASTER: f64 = 300.0;
const SLOW_MS: f64 = 10_000.0;

const HEAD: &str = "\
| scenario | nodes | pods | NVIDIA KAI ms | growth | `kai` ms | growth | ratio | NVIDIA KAI bound/evicted/pipelined | `kai` bound/evicted/pipelined | NVIDIA KAI MB | `kai` MB |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
";

/// The page with its table replaced.
pub(super) fn replace(page: &str, results: &Results) -> Result<String, String> {
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| format!("the page lacks the line {BEGIN}"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("the page lacks the line {END}"))?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", markdown(results)))
}

fn markdown(results: &Results) -> String {
    let mut text = HEAD.to_owned();
    for (scenario, sizes) in results {
        let mut smaller: Option<(usize, &Pair)> = None;
        for (nodes, pair) in sizes {
            text.push_str(&line(scenario, *nodes, pair, smaller));
            smaller = Some((*nodes, pair));
        }
    }
    text
}

fn line(scenario: &str, nodes: usize, pair: &Pair, smaller: Option<(usize, &Pair)>) -> String {
    let Pair { pods, kai, upstream } = pair;
    let growth = |pick: fn(&Pair) -> &Cost| {
        let Some((from, smaller)) = smaller.filter(|(_, smaller)| !pick(smaller).stopped && !pick(pair).stopped) else {
            return String::new();
        };
        let steps = (nodes as f64 / from as f64).ln();
        format!("{:.2}", (pick(pair).cycle_ms / pick(smaller).cycle_ms).ln() / steps)
    };
    let at_least = if upstream.stopped { "> " } else { "" };
    let memory = if upstream.stopped { "–".to_owned() } else { format!("{:.0}", upstream.rss_mb) };
    let mut text = format!(
        "| {scenario} | {nodes} | {pods} | {at_least}{} | {} ",
        short(upstream.cycle_ms),
        growth(|pair| &pair.upstream)
    );
    let _ = write!(text, "| {} | {} ", short(kai.cycle_ms), growth(|pair| &pair.kai));
    let _ = write!(
        text,
        "| {at_least}{} | {} | {} | {memory} | {:.0} |",
        ratio(pair),
        decided(upstream),
        decided(kai),
        kai.rss_mb
    );
    text.push('\n');
    text
}

fn ratio(pair: &Pair) -> String {
    let ratio = pair.upstream.cycle_ms / pair.kai.cycle_ms;
    let wanted = if pair.upstream.cycle_ms > SLOW_MS { MUCH_FASTER } else { FASTER };
    format!("{ratio:.0} {}", if ratio >= wanted { "✓" } else { "✗" })
}

fn decided(cost: &Cost) -> String {
    if cost.stopped { "stopped".to_owned() } else { format!("{}/{}/{}", cost.bound, cost.evicted, cost.pipelined) }
}

/// Three digits that matter.
fn short(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 100.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

/// One line for the terminal.
pub(super) fn in_short(pair: &Pair) -> String {
    let Pair { kai, upstream, .. } = pair;
    let times = format!("NVIDIA KAI {} ms, kai {} ms, {}", short(upstream.cycle_ms), short(kai.cycle_ms), ratio(pair));
    format!("{times}; NVIDIA KAI {}, kai {}", decided(upstream), decided(kai))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(upstream_ms: f64, kai_ms: f64) -> Pair {
        let cost = |cycle_ms: f64, rss_mb: f64| Cost {
            open_ms: 1.0,
            cycle_ms,
            bound: 1,
            pipelined: 3,
            evicted: 2,
            rss_mb,
            stopped: false,
        };
        Pair { pods: 50, kai: cost(kai_ms, 9.0), upstream: cost(upstream_ms, 300.0) }
    }

    #[test]
    fn a_row_has_ratios_growth_and_decisions() {
        let mut stopped = pair(400_000.0, 100.0);
        stopped.upstream.stopped = true;
        let results: Results =
            [("preempt".to_owned(), [(100, pair(500.0, 4.0)), (1000, pair(50_000.0, 400.0)), (2000, stopped)].into())]
                .into();
        let page = format!("before\n{BEGIN}old\n{END}after\n");
        let page = replace(&page, &results).unwrap();
        assert!(page.starts_with("before\n") && page.ends_with("after\n") && !page.contains("old"));
        let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("| preempt")).collect();
        assert_eq!(
            lines,
            [
                "| preempt | 100 | 50 | 500 |  | 4.00 |  | 125 ✓ | 1/2/3 | 1/2/3 | 300 | 9 |",
                "| preempt | 1000 | 50 | 50000 | 2.00 | 400 | 2.00 | 125 ✗ | 1/2/3 | 1/2/3 | 300 | 9 |",
                "| preempt | 2000 | 50 | > 400000 |  | 100 | -2.00 | > 4000 ✓ | stopped | 1/2/3 | – | 9 |",
            ]
        );
    }

    #[test]
    fn a_page_without_marks_is_left_alone() {
        assert!(replace("nothing", &Results::new()).unwrap_err().starts_with("the page lacks the line"));
    }
}
