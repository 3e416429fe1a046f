//! Every check in the order of cheapness; the first failure ends the run. What each step took is listed at the end.

use crate::{
    deny, tidy,
    workspace::{Workspace, cargo},
};
use std::{
    env, fmt,
    path::PathBuf,
    process::{Command, Stdio},
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Stops after the unit tests.
    Quick,
    /// What guards every commit.
    Commit,
    /// The long suites, too.
    All,
}

/// What a step comes to.
enum Work {
    Cargo { arguments: Vec<String>, env: &'static [(&'static str, &'static str)] },
    Tidy,
    Deny,
    Advisories,
    Skip(Skip),
}

/// Why a step is left out.
#[derive(Debug, PartialEq, Eq)]
enum Skip {
    /// It needs something that no checkout has.
    Absent(String),
    /// It needs something that can be installed; a failure where `CI` is set.
    Missing(String),
}

struct Step {
    name: &'static str,
    work: Work,
}

/// A row of the table at the end.
struct Row {
    name: &'static str,
    outcome: Outcome,
    secs: f64,
}

enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
    NotRun,
}

/// A suite that only `--all` runs, because of how long it takes.
struct Suite {
    name: &'static str,
    command: &'static str,
    env: &'static [(&'static str, &'static str)],
    needs_go: bool,
}

/// Commands name the whole workspace, as those of a commit do: another selection would compile dependencies anew.
const LONG: [Suite; 3] = [
    Suite {
        name: "many seeds",
        command: "test --workspace --test seeds --test chaos",
        env: &[("KAI_SEEDS", "20000")],
        needs_go: false,
    },
    Suite {
        name: "many cases",
        command: "test --workspace --test engine --test any_json -- properties:: every_rule_survives so_does_the_whole",
        env: &[("PROPTEST_CASES", "5000"), RNG_SEED_LONG],
        needs_go: false,
    },
    Suite { name: "golden", command: "xtask golden", env: &[], needs_go: true },
];

pub(crate) fn run(workspace: &Workspace, extent: Extent) -> Result<(), String> {
    let strict = env::var_os("CI").is_some_and(|value| value == "true");
    let mut rows: Vec<Row> = Vec::new();
    for Step { name, work } in steps(workspace, extent) {
        if rows.iter().any(|row| matches!(row.outcome, Outcome::Failed(_))) {
            rows.push(Row { name, outcome: Outcome::NotRun, secs: 0.0 });
            continue;
        }
        println!("== {name}");
        let watch = Watch::start();
        let outcome = perform(workspace, work, strict);
        let row = Row { name, outcome, secs: watch.secs() };
        println!("== {name}: {} after {:.1} s", row.outcome, row.secs);
        rows.push(row);
    }
    println!("\n{}", table(&rows));
    let failed = rows.into_iter().find_map(|row| match row.outcome {
        Outcome::Failed(why) => Some(why),
        _ => None,
    });
    failed.map_or(Ok(()), Err)
}

fn perform(workspace: &Workspace, work: Work, strict: bool) -> Outcome {
    let done = match work {
        Work::Cargo { arguments, env } => run_cargo(workspace, &arguments, env),
        Work::Tidy => tidy::run(workspace),
        Work::Deny => deny::run(&workspace.root),
        Work::Advisories => match deny::advisories(&workspace.root) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => return Skip::Absent(why).outcome(strict),
            Err(why) => Err(why),
        },
        Work::Skip(skip) => return skip.outcome(strict),
    };
    done.map_or_else(Outcome::Failed, |()| Outcome::Passed)
}

impl Skip {
    fn outcome(self, strict: bool) -> Outcome {
        match self {
            Self::Missing(why) if strict => {
                Outcome::Failed(format!("{why}, and CI=true allows no step to be left out"))
            }
            Self::Absent(why) | Self::Missing(why) => Outcome::Skipped(why),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => write!(out, "ok"),
            Self::Failed(_) => write!(out, "FAILED"),
            Self::Skipped(why) => write!(out, "SKIPPED, {why}"),
            Self::NotRun => write!(out, "not run"),
        }
    }
}

fn table(rows: &[Row]) -> String {
    let total: f64 = rows.iter().map(|row| row.secs).sum();
    let line = |row: &Row| format!("{:12} {:>8.1} s  {}", row.name, row.secs, row.outcome);
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.push(format!("{:12} {total:>8.1} s", "total"));
    lines.join("\n")
}

fn steps(workspace: &Workspace, extent: Extent) -> Vec<Step> {
    let mut steps = vec![
        Step { name: "fmt", work: command("fmt --all --check") },
        Step { name: "tidy", work: Work::Tidy },
        Step { name: "clippy", work: command("clippy --workspace --all-targets -- -D warnings") },
        Step { name: "test", work: command("test --workspace") },
    ];
    if extent == Extent::Quick {
        return steps;
    }
    steps.push(Step { name: "conformance", work: conformance(workspace) });
    steps.push(Step { name: "benches", work: benches(workspace) });
    steps.push(Step { name: "deny", work: Work::Deny });
    steps.push(Step { name: "advisories", work: Work::Advisories });
    steps.push(Step { name: "e2e", work: with_go(command(E2E)) });
    if extent == Extent::All {
        steps.extend(LONG.iter().map(|&Suite { name, command, env, needs_go }| {
            let work = Work::Cargo { arguments: split(command), env };
            Step { name, work: if needs_go { with_go(work) } else { work } }
        }));
    }
    steps
}

/// Named for the whole workspace, as in the step before: another selection would compile dependencies anew. Each test
/// starts a cluster of several processes, so one at a time; they print what they build and start.
const E2E: &str = "test --workspace --test e2e_* -- --ignored --nocapture --test-threads=1";

fn command(line: &str) -> Work {
    Work::Cargo { arguments: split(line), env: &[] }
}

fn split(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// The corpus is no part of this repository.
fn conformance(workspace: &Workspace) -> Work {
    let beside = || workspace.root.join("../shared/conformance");
    let dir = env::var_os("KAI_CONFORMANCE_DIR").map_or_else(beside, PathBuf::from);
    if !dir.is_dir() {
        let why = "NOTHING IS COMPARED WITH KAI'S OWN TESTS: no corpus; set KAI_CONFORMANCE_DIR";
        return Work::Skip(Skip::Absent(why.to_owned()));
    }
    let mut arguments = split("run --release -p conformance --");
    arguments.push(dir.display().to_string());
    Work::Cargo { arguments, env: &[] }
}

/// Runs each benchmark once, to see that it still works. Names the targets, since libraries have another harness, and
/// the packages, since nothing else is needed optimised.
fn benches(workspace: &Workspace) -> Work {
    let measuring = workspace.packages.iter().filter(|package| !package.benches.is_empty());
    let named = measuring.flat_map(|package| {
        let targets = package.benches.iter().map(|bench| ("--bench", bench));
        [("-p", &package.name)].into_iter().chain(targets)
    });
    let named: Vec<&str> = named.flat_map(|(flag, name)| [flag, name.as_str()]).collect();
    if named.is_empty() {
        return Work::Skip(Skip::Missing("no benchmark is defined".to_owned()));
    }
    command(&format!("bench {} -- --test", named.join(" ")))
}

/// The oldest Go that builds the programs of test clusters.
const GO_MIN: (u32, u32) = (1, 25);

/// The programs of test clusters are built with Go.
fn with_go(work: Work) -> Work {
    let probe = Command::new("go").arg("version").stdin(Stdio::null()).output();
    let text = probe.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    match go_version(&text) {
        Some(version) if version >= GO_MIN => work,
        Some((major, minor)) => {
            let (least_major, least_minor) = GO_MIN;
            let why = format!("go is {major}.{minor}, and {least_major}.{least_minor} or later is needed");
            Work::Skip(Skip::Missing(why))
        }
        None => Work::Skip(Skip::Missing("go is not installed".to_owned())),
    }
}

/// Major and minor version, from a line like `go version go1.25.3 linux/amd64`.
fn go_version(text: &str) -> Option<(u32, u32)> {
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("go1."))?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((1, digits.parse().ok()?))
}

/// Start of the random inputs of property tests: the same for every run, so that a change is judged by what it changes.
const RNG_SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");
/// Another one, since the first inputs of the usual start are tried by every run.
const RNG_SEED_LONG: (&str, &str) = (RNG_SEED.0, "2");

fn run_cargo(workspace: &Workspace, arguments: &[String], settings: &[(&str, &str)]) -> Result<(), String> {
    let mut cargo = Command::new(cargo());
    for (name, value) in [&[RNG_SEED], settings].concat() {
        if env::var_os(name).is_none() {
            cargo.env(name, value);
        }
    }
    let status = cargo.current_dir(&workspace.root).args(arguments).status();
    let status = status.map_err(|error| format!("cargo: {error}"))?;
    verdict(status.success(), arguments)
}

fn verdict(success: bool, arguments: &[String]) -> Result<(), String> {
    if success { Ok(()) } else { Err(format!("failed: cargo {}", arguments.join(" "))) }
}

#[expect(clippy::disallowed_types, reason = "how long a step took is for people to see")]
struct Watch(std::time::Instant);

#[expect(clippy::disallowed_types, reason = "how long a step took is for people to see")]
impl Watch {
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn secs(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn workspace(benches: &[&str]) -> Workspace {
        let benches = benches.iter().map(|&name| name.to_owned()).collect();
        let package = Package { name: "kai-engine".to_owned(), dependencies: Vec::new(), benches };
        Workspace { root: PathBuf::from("nowhere"), packages: vec![package], files: Vec::new() }
    }

    fn names(extent: Extent) -> Vec<&'static str> {
        steps(&workspace(&[]), extent).iter().map(|step| step.name).collect()
    }

    #[test]
    fn runs_the_cheapest_first() {
        let quick = ["fmt", "tidy", "clippy", "test"];
        let commit = ["conformance", "benches", "deny", "advisories", "e2e"];
        let all = ["many seeds", "many cases", "golden"];
        assert_eq!(names(Extent::Quick), quick);
        assert_eq!(names(Extent::Commit), [&quick[..], &commit].concat());
        assert_eq!(names(Extent::All), [&quick[..], &commit, &all].concat());
    }

    #[test]
    fn names_every_benchmark() {
        let Work::Cargo { arguments, .. } = benches(&workspace(&["cycle", "share"])) else { panic!("skipped") };
        assert_eq!(arguments.join(" "), "bench -p kai-engine --bench cycle --bench share -- --test");
    }

    #[test]
    fn a_step_is_left_out_for_a_reason_and_in_ci_for_a_good_one() {
        let Work::Skip(skip) = benches(&workspace(&[])) else { panic!("not skipped") };
        assert_eq!(skip, Skip::Missing("no benchmark is defined".to_owned()));
        assert!(matches!(Skip::Missing("x".to_owned()).outcome(false), Outcome::Skipped(why) if why == "x"));
        assert!(
            matches!(Skip::Missing("x".to_owned()).outcome(true), Outcome::Failed(why) if why.starts_with("x, and"))
        );
        assert!(matches!(Skip::Absent("x".to_owned()).outcome(true), Outcome::Skipped(why) if why == "x"));
    }

    #[test]
    fn go_is_asked_for_its_version() {
        assert_eq!(go_version("go version go1.25.3 linux/amd64"), Some((1, 25)));
        assert_eq!(go_version("go version go1.26rc1 darwin/arm64"), Some((1, 26)));
        assert_eq!(go_version(""), None);
        assert!(go_version("go version go1.24.9 linux/amd64").is_some_and(|version| version < GO_MIN));
    }

    #[test]
    fn the_table_has_every_step_and_what_it_took() {
        let rows = [
            Row { name: "fmt", outcome: Outcome::Passed, secs: 1.24 },
            Row { name: "conformance", outcome: Outcome::Skipped("no corpus".to_owned()), secs: 0.0 },
            Row { name: "test", outcome: Outcome::Failed("failed: cargo test".to_owned()), secs: 100.0 },
            Row { name: "e2e", outcome: Outcome::NotRun, secs: 0.0 },
        ];
        let lines = [
            "fmt               1.2 s  ok",
            "conformance       0.0 s  SKIPPED, no corpus",
            "test            100.0 s  FAILED",
            "e2e               0.0 s  not run",
            "total           101.2 s",
        ];
        assert_eq!(table(&rows), lines.join("\n"));
    }

    #[test]
    fn a_failing_command_is_named() {
        let arguments = ["test".to_owned(), "--workspace".to_owned()];
        assert_eq!(verdict(true, &arguments), Ok(()));
        assert_eq!(verdict(false, &arguments), Err("failed: cargo test --workspace".to_owned()));
    }
}
