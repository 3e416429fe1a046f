//! `docs/compat/golden.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::compare::NONE;
use crate::known::{Explained, Found, Pattern, Reason};
use crate::scenario::Scenario;
use crate::sight::Sight;

const OPENING: &str = "\
# Side by side with KAI's own programs

Written by `cargo xtask golden`, which plays the same scenarios with the programs of KAI v0.12.0 and with `kai`, each on
a real API server with simulated nodes and the same custom resources, and compares what users can see: pod groups, bind
requests, labels and annotations of pods, types and reasons of conditions and events, status of queues. Texts of
messages are not compared. `kai` follows KAI v0.17, which is not the version that is run here.
";

pub(crate) fn markdown(scenarios: &[Scenario], ours: &[Sight], explained: &Explained<'_>) -> String {
    let mut text = OPENING.to_owned();
    let values: usize = ours.iter().flat_map(|sight| sight.0.values().flatten()).map(BTreeMap::len).sum();
    let always = |found: &&Found<'_>| !found.reason.by_chance;
    let different: usize = explained.found.iter().filter(always).map(|found| found.differences.len()).sum();
    // Rounded: some messages are written only by chance.
    let values = values / 100 * 100;
    let _ = writeln!(text, "\nOf more than {values} values in {} scenarios, {different} differ.", scenarios.len());
    for reason in explained.found.chunk_by(|one, next| std::ptr::eq(one.reason, next.reason)) {
        section(&mut text, reason);
    }
    text += "\n## Scenarios\n\n| in `tests/golden/scenarios` | |\n|---|---|\n";
    for scenario in scenarios {
        let _ = writeln!(text, "| {} | {} |", scenario.name, scenario.description);
    }
    text
}

/// All that has one reason.
fn section(text: &mut String, found: &[Found<'_>]) {
    let Some(Reason { title, because, to_mend, by_chance, .. }) = found.first().map(|found| found.reason) else {
        return;
    };
    let mend = if *to_mend { " **To mend.**" } else { "" };
    let _ = writeln!(text, "\n## {title}\n\n{}{mend}", because.trim());
    if *by_chance {
        return;
    }
    *text += "\n| | KAI v0.12.0 | kai | scenarios |\n|---|---|---|---|\n";
    for Found { pattern, differences, .. } in found.iter().filter(|found| !found.differences.is_empty()) {
        let Pattern { kind, field, .. } = pattern;
        let subject = if field.is_empty() { format!("how many {kind}s") } else { format!("{kind} `{field}`") };
        let theirs = some(differences.iter().map(|difference| shown(&difference.theirs)));
        let ours = some(differences.iter().map(|difference| shown(&difference.ours)));
        let scenarios = some(differences.iter().map(|difference| difference.scenario.clone()));
        let _ = writeln!(text, "| {subject} | {theirs} | {ours} | {scenarios} |");
    }
}

/// As many as one can take in.
const SOME: usize = 4;

fn some(values: impl Iterator<Item = String>) -> String {
    let values: BTreeSet<String> = values.collect();
    let shown: Vec<&str> = values.iter().take(SOME).map(String::as_str).collect();
    match values.len().saturating_sub(SOME) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn shown(value: &str) -> String {
    if value == NONE { "–".to_owned() } else { format!("`{}`", value.replace('|', "\\|")) }
}
