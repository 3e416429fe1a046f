//! Differences that have a reason: `known.yaml`.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::Failed;
use crate::compare::Difference;

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Known(Vec<Reason>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reason {
    pub(crate) title: String,
    pub(crate) because: String,
    /// `kai` is wrong, and it is not corrected yet.
    #[serde(default)]
    pub(crate) to_mend: bool,
    /// Seen in one run and not in the next: never listed one by one.
    #[serde(default)]
    pub(crate) by_chance: bool,
    #[serde(rename = "differences")]
    patterns: Vec<Pattern>,
}

/// What is not given may be anything; `*` stands for any text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pattern {
    pub(crate) kind: String,
    pub(crate) field: String,
    kai: Option<String>,
    ours: Option<String>,
    scenario: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Explained<'a> {
    /// Pattern by pattern, in the order of the file.
    pub(crate) found: Vec<Found<'a>>,
    pub(crate) unexplained: Vec<Difference>,
}

#[derive(Debug)]
pub(crate) struct Found<'a> {
    pub(crate) reason: &'a Reason,
    pub(crate) pattern: &'a Pattern,
    pub(crate) differences: Vec<Difference>,
}

impl Known {
    pub(crate) fn read(path: &Path) -> Result<Self, Failed> {
        yaml_serde::from_str(&fs::read_to_string(path)?).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    /// The first pattern that fits a difference explains it.
    pub(crate) fn explain(&self, differences: Vec<Difference>) -> Explained<'_> {
        let patterns = self.0.iter().flat_map(|reason| reason.patterns.iter().map(move |pattern| (reason, pattern)));
        let mut found: Vec<Found<'_>> =
            patterns.map(|(reason, pattern)| Found { reason, pattern, differences: Vec::new() }).collect();
        let mut unexplained = Vec::new();
        for difference in differences {
            match found.iter_mut().find(|found| found.pattern.matches(&difference)) {
                Some(found) => found.differences.push(difference),
                None => unexplained.push(difference),
            }
        }
        Explained { found, unexplained }
    }
}

impl Explained<'_> {
    /// Patterns that no difference has any more.
    pub(crate) fn unused(&self) -> impl Iterator<Item = &Pattern> {
        let unused = |found: &&Found<'_>| found.differences.is_empty() && !found.reason.by_chance;
        self.found.iter().filter(unused).map(|found| found.pattern)
    }
}

impl Pattern {
    fn matches(&self, difference: &Difference) -> bool {
        let optional =
            |pattern: &Option<String>, text: &str| pattern.as_ref().is_none_or(|pattern| fits(pattern, text));
        self.kind == difference.kind
            && fits(&self.field, &difference.field)
            && optional(&self.kai, &difference.theirs)
            && optional(&self.ours, &difference.ours)
            && optional(&self.scenario, &difference.scenario)
    }
}

fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| fits(after, &rest[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text) in
            [("", ""), ("*", ""), ("a*", "a"), ("*c", "abc"), ("a*c*", "abcd"), ("spec.*[*]", "spec.x[y]")]
        {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a", "ab"), ("a*c", "ab"), ("*b", "abc")] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn what_no_reason_lists_is_unexplained_and_what_nothing_needs_is_unused() {
        let text = r#"
- title: names
  because: they are better
  differences:
    - {kind: Pod, field: name, ours: b}
    - {kind: Queue, field: "*"}
- title: moods
  because: they come and go
  by_chance: true
  differences: [{kind: Step, field: "*"}]
"#;
        let known: Known = yaml_serde::from_str(text).unwrap();
        let difference = |ours: &str| Difference {
            kind: "Pod".to_owned(),
            field: "name".to_owned(),
            theirs: "a".to_owned(),
            ours: ours.to_owned(),
            name: "p".to_owned(),
            scenario: "s".to_owned(),
        };
        let explained = known.explain(vec![difference("b"), difference("c")]);
        assert_eq!(explained.found[0].differences, [difference("b")]);
        assert_eq!(explained.unexplained, [difference("c")]);
        assert_eq!(explained.unused().map(|pattern| pattern.kind.as_str()).collect::<Vec<_>>(), ["Queue"]);
    }
}
