//! What a person, or a program, reads at the end.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;

use crate::known::Known;
use crate::run::Outcome;
use crate::verdict::{Part, Verdict};

/// Differences shown per failure; the rest is counted.
const DIFFERENCES_SHOWN: usize = 4;

/// Results of a run, with sums.
pub struct Report<'a> {
    pub outcomes: &'a [Outcome],
    /// All listed differences, to find those that are no longer any.
    known: &'a BTreeMap<String, Known>,
    /// Whether groups are complete, so that shares of a group mean something.
    complete: bool,
}

/// Sums of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub passed: usize,
    /// Passed without one of our repairs only; counted as passed, because the difference is ours on purpose.
    pub repaired: usize,
    pub failed: usize,
    /// Failed and listed.
    pub listed: usize,
    pub skipped: usize,
}

impl Sums {
    fn count(&mut self, outcome: &Outcome) {
        match &outcome.verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed(_) if outcome.is_repaired() => {
                self.passed += 1;
                self.repaired += 1;
            }
            Verdict::Failed(_) => {
                self.failed += 1;
                self.listed += usize::from(outcome.known.is_some());
            }
            Verdict::Skipped(_) => self.skipped += 1,
        }
    }

    fn cases(self) -> usize {
        self.passed + self.failed + self.skipped
    }
}

impl<'a> Report<'a> {
    pub fn new(outcomes: &'a [Outcome], known: &'a BTreeMap<String, Known>, complete: bool) -> Self {
        Self { outcomes, known, complete }
    }

    pub fn total(&self) -> Sums {
        let mut sums = Sums::default();
        self.outcomes.iter().for_each(|outcome| sums.count(outcome));
        sums
    }

    /// By group, in the order in which groups appear.
    pub fn groups(&self) -> Vec<(&str, Sums)> {
        let mut groups: Vec<(&str, Sums)> = Vec::new();
        for outcome in self.outcomes {
            let index = groups.iter().position(|(name, _)| *name == outcome.group).unwrap_or_else(|| {
                groups.push((&outcome.group, Sums::default()));
                groups.len() - 1
            });
            groups[index].1.count(outcome);
        }
        groups
    }

    /// Whether everything that failed is listed, and no list is too long.
    pub fn is_good(&self) -> bool {
        let total = self.total();
        total.failed == total.listed && self.overlong().is_empty()
    }

    /// Groups with more listed differences than compatibility allows.
    fn overlong(&self) -> Vec<String> {
        if !self.complete {
            return Vec::new();
        }
        let too_long = self.groups().into_iter().filter(|(name, sums)| sums.listed > listed_max(name, sums.cases()));
        too_long
            .map(|(name, sums)| {
                format!(
                    "{name}: {} differences are listed, {} are allowed",
                    sums.listed,
                    listed_max(name, sums.cases())
                )
            })
            .collect()
    }

    /// Listed cases that pass: the list should shrink.
    fn outlived(&self) -> Vec<&str> {
        let passes = |outcome: &&Outcome| matches!(outcome.verdict, Verdict::Passed) && outcome.known.is_some();
        self.outcomes.iter().filter(passes).map(|outcome| outcome.key.as_str()).collect()
    }

    /// Listed cases that a complete corpus does not have.
    fn unheard_of(&self) -> Vec<&str> {
        if !self.complete {
            return Vec::new();
        }
        // A corpus may be split over several runs: only groups that are here can miss a case.
        let here = |key: &str| self.outcomes.iter().any(|outcome| key.starts_with(&format!("{}/", outcome.group)));
        let exists = |key: &str| self.outcomes.iter().any(|outcome| outcome.key == key);
        self.known.keys().map(String::as_str).filter(|key| here(key) && !exists(key)).collect()
    }

    /// Failures by the part that they need.
    fn failures_by_part(&self) -> BTreeMap<Part, usize> {
        let mut parts = BTreeMap::new();
        let failed = |outcome: &&Outcome| matches!(outcome.verdict, Verdict::Failed(_)) && !outcome.is_repaired();
        for outcome in self.outcomes.iter().filter(failed) {
            for part in &outcome.needs {
                *parts.entry(*part).or_default() += 1;
            }
        }
        parts
    }

    /// A line per failure, a table of groups, notes, and the closing line.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for outcome in self.outcomes {
            if !outcome.log.is_empty() {
                let _ = writeln!(out, "{}", outcome.log);
            }
            if let Some(line) = failure(outcome) {
                let _ = writeln!(out, "{line}");
            }
        }
        out.push_str(&self.table());
        for note in self.notes() {
            let _ = writeln!(out, "{note}");
        }
        let total = self.total();
        let _ = write!(out, "{} passed, {} failed", total.passed, total.failed);
        if total.skipped > 0 {
            let _ = write!(out, ", {} skipped", total.skipped);
        }
        out.push('\n');
        out
    }

    fn table(&self) -> String {
        let mut out = String::new();
        let width = self.groups().iter().map(|(name, _)| name.len()).max().unwrap_or(0).max("group".len());
        let _ = writeln!(
            out,
            "\n{:width$}  {:>6}  {:>6}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}",
            "group", "cases", "passed", "repaired", "failed", "listed", "skipped", "passed"
        );
        for (name, sums) in self.groups() {
            let run = sums.passed + sums.failed;
            let share =
                if run == 0 { "-".to_string() } else { format!("{:.1} %", 100.0 * sums.passed as f64 / run as f64) };
            let _ = writeln!(
                out,
                "{name:width$}  {:>6}  {:>6}  {:>8}  {:>6}  {:>6}  {:>7}  {share:>7}",
                sums.cases(),
                sums.passed,
                sums.repaired,
                sums.failed,
                sums.listed,
                sums.skipped
            );
        }
        out.push('\n');
        out
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let parts: Vec<String> =
            self.failures_by_part().into_iter().map(|(part, count)| format!("{} {count}", part.name())).collect();
        if !parts.is_empty() {
            notes.push(format!("failures among cases that need: {}", parts.join(", ")));
        }
        let mut explained: BTreeMap<&str, usize> = BTreeMap::new();
        for repair in self.outcomes.iter().filter_map(|outcome| outcome.explained_by) {
            *explained.entry(repair).or_default() += 1;
        }
        if !explained.is_empty() {
            let parts: Vec<String> = explained.into_iter().map(|(name, count)| format!("{name} {count}")).collect();
            notes.push(format!("different from KAI because of a repair of ours: {}", parts.join(", ")));
        }
        let mut skipped: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for outcome in self.outcomes {
            if let Verdict::Skipped(why) = outcome.verdict {
                *skipped.entry((&outcome.group, why)).or_default() += 1;
            }
        }
        notes.extend(skipped.into_iter().map(|((group, why), count)| format!("SKIPPED {count} of {group}: {why}")));
        notes.extend(self.outlived().into_iter().map(|key| format!("listed but passes: {key}")));
        notes.extend(self.unheard_of().into_iter().map(|key| format!("listed but not in the corpus: {key}")));
        notes.extend(self.overlong().into_iter().map(|text| format!("too many known differences in {text}")));
        notes
    }

    /// The cases behind each repair.
    pub fn repairs(&self) -> String {
        let mut by_repair: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for outcome in self.outcomes.iter().filter(|outcome| outcome.is_repaired()) {
            by_repair.entry(outcome.explained_by.unwrap_or_default()).or_default().push(&outcome.key);
        }
        let mut out = String::new();
        for (repair, keys) in by_repair {
            let _ = writeln!(out, "{repair}: {}", keys.join(" "));
        }
        out
    }

    /// Everything as one JSON document.
    pub fn json(&self) -> serde_json::Value {
        let sums = |sums: Sums| {
            json!({
                "cases": sums.cases(),
                "passed": sums.passed,
                "repaired": sums.repaired,
                "failed": sums.failed,
                "listed": sums.listed,
                "skipped": sums.skipped,
            })
        };
        let groups: serde_json::Map<_, _> =
            self.groups().into_iter().map(|(name, group)| (name.to_string(), sums(group))).collect();
        let cases: Vec<_> = self
            .outcomes
            .iter()
            .map(|outcome| {
                let (result, detail) = match &outcome.verdict {
                    Verdict::Passed => ("passed", serde_json::Value::Null),
                    Verdict::Failed(differences) if outcome.is_repaired() => ("repaired", json!(differences)),
                    Verdict::Failed(differences) => ("failed", json!(differences)),
                    Verdict::Skipped(why) => ("skipped", json!(why)),
                };
                json!({
                    "id": outcome.id,
                    "group": outcome.group,
                    "result": result,
                    "detail": detail,
                    "needs": outcome.needs,
                    "passes_without": outcome.explained_by,
                    "known": outcome.known.as_ref().map(|known| &known.reason),
                })
            })
            .collect();
        json!({ "cases": cases, "groups": groups, "total": sums(self.total()), "notes": self.notes() })
    }
}

/// How many known differences a group may have: one in a hundred, or three where clusters are made at random and
/// a choice that KAI leaves open is hit often, rounded to whole cases. A group of any size may have one.
fn listed_max(group: &str, cases: usize) -> usize {
    let percent = if group == "random" || group.starts_with("rnd-") { 3 } else { 1 };
    ((cases * percent + 50) / 100).max(1)
}

fn failure(outcome: &Outcome) -> Option<String> {
    let Verdict::Failed(differences) = &outcome.verdict else { return None };
    let shown: Vec<String> = differences.iter().take(DIFFERENCES_SHOWN).map(ToString::to_string).collect();
    if outcome.is_repaired() && outcome.log.is_empty() {
        return None;
    }
    let word = if outcome.is_repaired() { "DIFF" } else { "FAIL" };
    let mut line = format!("{word} {}  {}", outcome.key, shown.join("; "));
    if differences.len() > DIFFERENCES_SHOWN {
        let _ = write!(line, "; and {} more", differences.len() - DIFFERENCES_SHOWN);
    }
    if let Some(repair) = outcome.explained_by {
        let _ = write!(line, "  [passes without repair: {repair}]");
    }
    if let Some(known) = &outcome.known {
        let _ = write!(line, "  [known: {}: {}]", known.document, known.reason);
    }
    Some(line)
}
