//! Words of our own invention where the field has one. They are refused in names, comments and messages, since what is
//! called by a private name cannot be found by searching.

use super::{
    Problem,
    tokens::{Kind, Piece, pieces},
};
use crate::workspace::{File, Workspace};
use std::{collections::BTreeMap, fmt::Write};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Parts of names of items, fields, variables and files.
    Names,
    /// Sentences in comments and messages.
    Prose,
    Everywhere,
}
use Scope::{Everywhere, Names, Prose};

/// A word, or words in a row, and what the field says instead.
const PRIVATE: [(&str, Scope, &str); 41] = [
    ("anybody", Everywhere, "name the pod, job, user or component"),
    ("beneficiary", Everywhere, "preemptor"),
    ("calm", Everywhere, "quiet period, debounce"),
    ("complaint", Names, "error"),
    ("complaints", Names, "errors"),
    ("deed", Everywhere, "action, bind, eviction"),
    ("deeds", Everywhere, "actions, binds, evictions"),
    ("dice", Names, "rng"),
    ("everybody", Everywhere, "all pods, jobs, users or components"),
    ("glance", Everywhere, "poll, refresh"),
    ("hurry", Everywhere, "priority, urgency"),
    ("impatient", Everywhere, "overdue"),
    ("lately", Everywhere, "recently, or name the window"),
    ("look", Names, "cycle, reconcile, poll, refresh"),
    ("looks", Names, "cycles, rechecks, throttle"),
    ("newcomer", Everywhere, "new subscriber, new pod"),
    ("newcomers", Everywhere, "new subscribers, new pods"),
    ("news", Everywhere, "update, change, dirty"),
    ("nobody", Everywhere, "no pod, no job, none"),
    ("nobodys", Everywhere, "not owned, unused"),
    ("patience", Everywhere, "timeout, deadline, back-off"),
    ("patient", Everywhere, "deferrable, low priority"),
    ("promise", Everywhere, "pipeline"),
    ("promised", Everywhere, "pipelined"),
    ("promises", Everywhere, "pipelined"),
    ("said", Everywhere, "reported, written, sent"),
    ("say", Names, "report, describe"),
    ("says", Names, "reports, describes"),
    ("somebody", Everywhere, "name the pod, job, user or component"),
    ("somebodys", Everywhere, "owned, used"),
    ("stubborn", Everywhere, "retried, unconditional"),
    ("tell", Names, "publish, report, broadcast"),
    ("telling", Everywhere, "reporting"),
    ("tells", Names, "publishes, reports"),
    ("told", Everywhere, "reported, published"),
    ("truth", Everywhere, "invariant"),
    ("truths", Everywhere, "invariants"),
    ("under way", Everywhere, "in flight"),
    ("we", Prose, "name the component"),
    ("whoever", Everywhere, "name the pod, job, user or component"),
    ("wish", Names, "rule, request, requirement"),
];

/// What contains a word of the list and is the field's own.
const USUAL: [&str; 3] = ["look ahead", "look up", "word boundary"];

/// Files, or folders that end in a slash, in which a word is the right one, and why.
const ALLOWED: [(&str, &str, &str); 0] = [];

pub(super) fn check(workspace: &Workspace) -> Vec<Problem> {
    against(workspace, &ALLOWED)
}

/// How often each file has which words, most first; for one file or folder each place.
pub(super) fn report(workspace: &Workspace, below: Option<&str>) -> String {
    if let Some(below) = below {
        let mut problems = against(workspace, &ALLOWED);
        problems.retain(|problem| problem.place.starts_with(below));
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        return format!("{}\n{} in {below}", lines.join("\n"), problems.len());
    }
    let mut files: Vec<(&str, Vec<&str>)> = Vec::new();
    for file in workspace.files.iter().filter(|file| is_read(file)) {
        let found = unexcused(file, &ALLOWED).into_iter().map(|hit| hit.phrase);
        files.push((&file.path, found.collect()));
    }
    files.sort_by_key(|(_, found)| std::cmp::Reverse(found.len()));
    let mut report = String::new();
    for (path, found) in files.iter().filter(|(_, found)| !found.is_empty()) {
        let _ = writeln!(report, "{:5} {path}: {}", found.len(), counts(found));
    }
    let all: Vec<&str> = files.into_iter().flat_map(|(_, found)| found).collect();
    let _ = write!(report, "{:5} in all: {}", all.len(), counts(&all));
    report
}

fn counts(found: &[&str]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for &phrase in found {
        *counts.entry(phrase).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    counts.into_iter().map(|(phrase, count)| format!("{phrase} {count}")).collect::<Vec<_>>().join(", ")
}

fn against(workspace: &Workspace, allowed: &[(&str, &str, &str)]) -> Vec<Problem> {
    let rust = || workspace.files.iter().filter(|file| is_read(file));
    let mut problems = Vec::new();
    for file in rust() {
        for Hit { line, phrase, instead } in unexcused(file, allowed) {
            problems
                .push(Problem::new(format!("{}:{line}", file.path), format!("{phrase} is a private word; {instead}")));
        }
    }
    for (phrase, place, _) in allowed {
        let used = rust().any(|file| covers(place, &file.path) && hits(file).iter().any(|hit| hit.phrase == *phrase));
        if !used {
            problems.push(Problem::new(*place, format!("is excused for the word {phrase}, but does not use it")));
        }
    }
    problems
}

/// All sources but this one, which has to name the words.
fn is_read(file: &File) -> bool {
    file.is_rust() && file.path != "xtask/src/tidy/vocabulary.rs"
}

fn unexcused(file: &File, allowed: &[(&str, &str, &str)]) -> Vec<Hit> {
    let excused =
        |hit: &Hit| allowed.iter().any(|(phrase, place, _)| *phrase == hit.phrase && covers(place, &file.path));
    hits(file).into_iter().filter(|hit| !excused(hit)).collect()
}

fn covers(place: &str, path: &str) -> bool {
    if place.ends_with('/') { path.starts_with(place) } else { path == place }
}

struct Hit {
    line: usize,
    phrase: &'static str,
    instead: &'static str,
}

fn hits(file: &File) -> Vec<Hit> {
    let mut hits = Vec::new();
    let stem = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
    find(&parts(stem), Names, 1, &mut hits);
    for Piece { line, kind, text } in pieces(&file.text) {
        match kind {
            Kind::Token => find(&parts(text), Names, line, &mut hits),
            Kind::Comment => in_comment(text, line, &mut hits),
            // A literal of one word is data.
            Kind::Literal if text.contains(' ') => in_lines(text, line, &mut hits),
            Kind::Literal => {}
        }
    }
    hits
}

/// Code is quoted in comments by backticks.
fn in_comment(text: &str, line: usize, hits: &mut Vec<Hit>) {
    for (offset, text) in text.lines().enumerate() {
        let mut prose = String::new();
        for (index, text) in text.split('`').enumerate() {
            if index % 2 == 1 {
                find(&parts(text), Names, line + offset, hits);
                prose.push_str(" . ");
            } else {
                prose.push_str(text);
            }
        }
        find(&sentence(&prose), Prose, line + offset, hits);
    }
}

fn in_lines(text: &str, line: usize, hits: &mut Vec<Hit>) {
    for (offset, text) in text.lines().enumerate() {
        find(&sentence(text), Prose, line + offset, hits);
    }
}

fn find(parts: &[String], place: Scope, line: usize, hits: &mut Vec<Hit>) {
    let usual: Vec<Vec<&str>> = USUAL.iter().map(|phrase| phrase.split(' ').collect()).collect();
    let mut at = 0;
    while at < parts.len() {
        if let Some(usual) = usual.iter().find(|usual| starts_with(&parts[at..], usual)) {
            at += usual.len();
            continue;
        }
        for &(phrase, scope, instead) in &PRIVATE {
            let words: Vec<&str> = phrase.split(' ').collect();
            if (scope == Everywhere || scope == place) && starts_with(&parts[at..], &words) {
                hits.push(Hit { line, phrase, instead });
            }
        }
        at += 1;
    }
}

fn starts_with(parts: &[String], words: &[&str]) -> bool {
    parts.len() >= words.len() && parts.iter().zip(words).all(|(part, word)| part == word)
}

/// Words of a sentence; `'s` is left out, and what joins words to something else than a sentence is a word of its own.
fn sentence(text: &str) -> Vec<String> {
    let in_word = |c: char| c.is_alphanumeric() || ['_', '-', '\'', '.', '/', '\\'].contains(&c);
    let words = text.split(|c| !in_word(c)).map(|word| word.trim_matches(['.', '\'', '-', '/']));
    words.map(|word| word.strip_suffix("'s").unwrap_or(word).to_lowercase()).filter(|word| !word.is_empty()).collect()
}

/// Parts of names: `under_way`, `UnderWay` and `UNDER_WAY` are two each; `GPUs` is one.
fn parts(names: &str) -> Vec<String> {
    let mut parts = Vec::new();
    for name in names.split(|c: char| !c.is_alphabetic()) {
        let chars: Vec<char> = name.chars().collect();
        let mut part = String::new();
        for (at, &c) in chars.iter().enumerate() {
            let before = at.checked_sub(1).map(|before| chars[before]);
            let after = |by: usize| chars.get(at + by).copied();
            let after_lower = before.is_some_and(char::is_lowercase);
            let plural = after(1) == Some('s') && !after(2).is_some_and(char::is_lowercase);
            let begins_word =
                before.is_some_and(char::is_uppercase) && after(1).is_some_and(char::is_lowercase) && !plural;
            if c.is_uppercase() && (after_lower || begins_word) {
                parts.push(std::mem::take(&mut part));
            }
            part.extend(c.to_lowercase());
        }
        parts.push(part);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{lines, sample};

    fn found(source: &str) -> Vec<String> {
        let files = sample(&[("crates/engine/src/x.rs", source)], &[]);
        against(&files, &[])
            .iter()
            .map(|problem| problem.what.split(" is a").next().unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn every_word_is_caught_where_it_is_private() {
        for (phrase, scope, _) in PRIVATE {
            let snake = phrase.replace(' ', "_");
            if scope != Prose {
                assert_eq!(found(&format!("fn {snake}() {{}}")), [phrase]);
                assert_eq!(found(&format!("const A_{}: u8 = 1;", snake.to_uppercase())), [phrase]);
                assert_eq!(found(&format!("// See `a_{snake}`.")), [phrase]);
            }
            if scope != Names {
                assert_eq!(found(&format!("/// Here {phrase}, there.")), [phrase]);
                assert_eq!(found(&format!("f(\"Here {phrase}.\")")), [phrase]);
            }
        }
    }

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(parts("XMLHttp_requestOf2GPUs UnderWay"), ["xml", "http", "request", "of", "gpus", "under", "way"]);
        assert_eq!(parts("HTTPServer IDs A_B aB"), ["http", "server", "ids", "a", "b", "a", "b"]);
        assert_eq!(found("enum E { UnderWay, NewsSeen }"), ["under way", "news"]);
    }

    #[test]
    fn a_hit_names_its_line_and_what_to_write() {
        let files =
            sample(&[("crates/a/src/news.rs", "//! Fine.\n/* a\n nobody\u{27}s */\nfn f() { g(\"a\nwe\") }\n")], &[]);
        assert_eq!(
            lines(&against(&files, &[])),
            [
                "crates/a/src/news.rs:1: news is a private word; update, change, dirty",
                "crates/a/src/news.rs:3: nobody is a private word; no pod, no job, none",
            ]
        );
    }

    #[test]
    fn other_uses_are_not() {
        for source in [
            "// It tells a pod from a job; in other words, it looks.",
            "fn look_up() {} // `LookAhead`",
            "let x = \"nobody\"; let y = \"said\";",
            "struct Newsletter; fn foretold() {} mod sayings {}",
            "// see ../news/x.rs, un-patient",
        ] {
            assert!(found(source).is_empty(), "{source}: {:?}", found(source));
        }
    }

    #[test]
    fn an_excuse_holds_for_its_place_and_must_be_used() {
        let files = sample(&[("a/lex.rs", "struct Wish;"), ("a/b/x.rs", "fn tell() {}")], &[]);
        let excuses = [("wish", "a/lex.rs", "a wish list"), ("tell", "a/b/", "io::Seek"), ("say", "a/lex.rs", "")];
        assert_eq!(lines(&against(&files, &excuses)), ["a/lex.rs: is excused for the word say, but does not use it"]);
    }

    #[test]
    fn the_report_counts_by_file() {
        let files = sample(&[("a.rs", "fn tell() {}"), ("b.rs", "// told said told"), ("c.md", "told")], &[]);
        assert_eq!(
            report(&files, None),
            "    3 b.rs: told 2, said 1\n    1 a.rs: tell 1\n    4 in all: told 2, said 1, tell 1"
        );
        assert_eq!(
            report(&files, Some("a.rs")),
            "a.rs:1: tell is a private word; publish, report, broadcast\n1 in a.rs"
        );
    }
}
