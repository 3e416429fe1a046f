//! What review forgets: who may depend on whom, what pure code may not touch, how long files get, which words are
//! private, what must not leak.
//!
//! Each check is a function from the workspace to problems, in a file of its own with samples it has to catch.

mod crate_docs;
mod layers;
mod leaks;
mod links;
mod modules;
mod paths;
mod purity;
mod size;
mod tokens;
mod vocabulary;

use crate::workspace::Workspace;
use std::fmt;

/// Crates that decide and never act: no clock, no I/O, no randomness, no threads, no waiting.
const PURE: [&str; 6] = ["engine", "workloads", "control", "sim", "generate", "record"];

const CHECKS: [fn(&Workspace) -> Vec<Problem>; 8] = [
    layers::check,
    modules::check,
    purity::check,
    size::check,
    leaks::check,
    links::check,
    crate_docs::check,
    vocabulary::check,
];

#[derive(Debug, PartialEq, Eq)]
struct Problem {
    /// A file, `file:line`, or a package.
    place: String,
    what: String,
}

pub(crate) fn run(workspace: &Workspace) -> Result<(), String> {
    let problems: Vec<Problem> = CHECKS.iter().flat_map(|check| check(workspace)).collect();
    if problems.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Err(format!("{}\n{} problems", lines.join("\n"), problems.len()))
}

/// Private words by file, or each in one file or folder.
pub(crate) fn words(workspace: &Workspace, below: Option<&str>) -> String {
    vocabulary::report(workspace, below)
}

impl Problem {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Dependency, File, Package};
    use std::path::PathBuf;

    /// A workspace of files and of packages with `name` or `name+feature` dependencies.
    pub(super) fn sample(files: &[(&str, &str)], packages: &[(&str, &[&str])]) -> Workspace {
        let file = |&(path, text): &(&str, &str)| File { path: path.to_owned(), text: text.to_owned() };
        let dependency = |text: &&str| {
            let mut parts = text.split('+').map(str::to_owned);
            Dependency { name: parts.next().unwrap_or_default(), features: parts.collect() }
        };
        let package = |&(name, dependencies): &(&str, &[&str])| Package {
            name: name.to_owned(),
            dependencies: dependencies.iter().map(dependency).collect(),
            benches: Vec::new(),
        };
        Workspace {
            root: PathBuf::new(),
            packages: packages.iter().map(package).collect(),
            files: files.iter().map(file).collect(),
        }
    }

    pub(super) fn lines(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn reports_what_every_check_finds() {
        let long = "//! Long.\n".repeat(801);
        let untidy = sample(
            &[("crates/engine/src/lib.rs", "use std::fs;\n"), ("crates/api/src/lib.rs", &long), ("a", "/ho\u{6d}e/me")],
            &[("kai-engine", &["kai-api"]), ("kai-api", &[])],
        );
        let message = run(&untidy).unwrap_err();
        for part in ["kai-api", "std::fs", "801 lines", "machine", "//!", "5 problems"] {
            assert!(message.contains(part), "{part} is missing from:\n{message}");
        }
        assert_eq!(run(&sample(&[("crates/api/src/lib.rs", "//! Fine.\n")], &[("kai-api", &[])])), Ok(()));
    }
}
