//! Every check in the order of cheapness; the first failure ends the run.

use crate::{
    tidy,
    workspace::{Workspace, cargo},
};
use std::{
    env,
    path::PathBuf,
    process::{Command, Stdio},
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Stops after the unit tests.
    Quick,
    Full,
}

/// What a step comes to.
enum Work {
    Cargo(Vec<String>),
    Tidy,
    /// Left out, and why.
    Skip(String),
}

struct Step {
    name: &'static str,
    work: Work,
}

pub(crate) fn run(workspace: &Workspace, extent: Extent) -> Result<(), String> {
    for Step { name, work } in steps(workspace, extent) {
        if let Work::Skip(why) = &work {
            println!("== {name}: SKIPPED, {why}");
            continue;
        }
        println!("== {name}");
        let watch = Watch::start();
        let done = match work {
            Work::Cargo(arguments) => run_cargo(workspace, &arguments),
            Work::Tidy => tidy::run(workspace),
            Work::Skip(_) => Ok(()),
        };
        println!("== {name}: {} after {:.1} s", if done.is_ok() { "ok" } else { "FAILED" }, watch.secs());
        done?;
    }
    Ok(())
}

fn steps(workspace: &Workspace, extent: Extent) -> Vec<Step> {
    let mut steps = vec![
        Step { name: "fmt", work: words("fmt --all --check") },
        Step { name: "tidy", work: Work::Tidy },
        Step { name: "clippy", work: words("clippy --workspace --all-targets -- -D warnings") },
        Step { name: "test", work: words("test --workspace") },
    ];
    if extent == Extent::Full {
        steps.push(Step { name: "conformance", work: conformance(workspace) });
        steps.push(Step { name: "benches", work: benches(workspace) });
        steps.push(Step { name: "deny", work: deny() });
        steps.push(Step { name: "e2e", work: with_go(E2E) });
    }
    steps
}

/// Named for the whole workspace, as in the step before: another selection would compile dependencies anew. Each test
/// starts a cluster of several processes, so one at a time; they tell what they build and start.
const E2E: &str = "test --workspace --test e2e_* -- --ignored --nocapture --test-threads=1";

fn words(command: &str) -> Work {
    Work::Cargo(command.split(' ').map(str::to_owned).collect())
}

/// The corpus is no part of this repository.
fn conformance(workspace: &Workspace) -> Work {
    let beside = || workspace.root.join("../shared/conformance");
    let dir = env::var_os("KAI_CONFORMANCE_DIR").map_or_else(beside, PathBuf::from);
    if !dir.is_dir() {
        return Work::Skip("no corpus; set KAI_CONFORMANCE_DIR".to_owned());
    }
    let mut arguments: Vec<String> = "run --release -p conformance --".split(' ').map(str::to_owned).collect();
    arguments.push(dir.display().to_string());
    Work::Cargo(arguments)
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
        return Work::Skip("no benchmark is defined".to_owned());
    }
    words(&format!("bench {} -- --test", named.join(" ")))
}

fn deny() -> Work {
    let mut probe = Command::new(cargo());
    probe.args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        words("deny check")
    } else {
        Work::Skip("cargo-deny is not installed".to_owned())
    }
}

/// What the cluster of e2e tests consists of is built with Go.
fn with_go(command: &str) -> Work {
    let mut probe = Command::new("go");
    probe.arg("version").stdout(Stdio::null()).stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        words(command)
    } else {
        Work::Skip("go is not installed".to_owned())
    }
}

/// Start of the random inputs of property tests: the same for every run, so that a change is judged by what it changes.
const RNG_SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

fn run_cargo(workspace: &Workspace, arguments: &[String]) -> Result<(), String> {
    let mut command = Command::new(cargo());
    if env::var_os(RNG_SEED.0).is_none() {
        command.env(RNG_SEED.0, RNG_SEED.1);
    }
    let status = command.current_dir(&workspace.root).args(arguments).status();
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
        assert_eq!(names(Extent::Quick), ["fmt", "tidy", "clippy", "test"]);
        assert_eq!(names(Extent::Full), ["fmt", "tidy", "clippy", "test", "conformance", "benches", "deny", "e2e"]);
    }

    #[test]
    fn names_every_benchmark() {
        let Work::Cargo(arguments) = benches(&workspace(&["cycle", "share"])) else { panic!("skipped") };
        assert_eq!(arguments.join(" "), "bench -p kai-engine --bench cycle --bench share -- --test");
    }

    #[test]
    fn says_why_a_step_is_skipped() {
        assert!(matches!(benches(&workspace(&[])), Work::Skip(why) if why.contains("no benchmark")));
    }

    #[test]
    fn a_failing_command_is_named() {
        let arguments = ["test".to_owned(), "--workspace".to_owned()];
        assert_eq!(verdict(true, &arguments), Ok(()));
        assert_eq!(verdict(false, &arguments), Err("failed: cargo test --workspace".to_owned()));
    }
}
