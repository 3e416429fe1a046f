//! Checks and chores of this repository: `cargo xtask tidy`, `cargo xtask ci [--quick|--all]`, `cargo xtask cluster`,
//! `cargo xtask golden`, `cargo xtask bench-churn`, `cargo xtask bench-upstream`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for terminals")]

mod ci;
mod deny;
mod tidy;
mod upstream;
mod workspace;

use std::{
    env,
    process::{Command, ExitCode},
};
use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask <command>

  tidy           check layers, module cycles, purity, file sizes, leaks, links, words and crate docs
    [--words [PATH]]  count private words by file, or list those of one file or folder
  ci             run what guards every commit, cheapest first
    [--quick]      only fmt, tidy, clippy and tests: without conformance, benchmarks, licences and e2e tests
    [--all]        run the long suites, too: many seeds and cases, side by side with NVIDIA KAI
  deny           check licences and sources of dependencies; installs cargo-deny where it is missing
  cluster        start, show or stop a real cluster with simulated nodes; see `cluster --help`
  golden         play scenarios with KAI's own programs and with kai, and compare; see `golden --help`
  bench-churn    play the same jobs with NVIDIA KAI and with kai, and count evictions; see `bench-churn --help`
  bench-upstream measure cycles of kai beside those of NVIDIA's KAI; needs Go and Linux
    [--nodes 100,500,1000] [--scenario NAME,…] [--runs 3] [--cpu-timeout CPU-SECONDS]";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["tidy"] => Workspace::load().and_then(|workspace| tidy::run(&workspace)),
        ["tidy", "--words", below @ ..] => {
            Workspace::load().map(|workspace| println!("{}", tidy::words(&workspace, below.first().copied())))
        }
        ["ci"] => Workspace::load().and_then(|workspace| ci::run(&workspace, ci::Extent::Commit)),
        ["ci", "--quick"] => Workspace::load().and_then(|workspace| ci::run(&workspace, ci::Extent::Quick)),
        ["ci", "--all"] => Workspace::load().and_then(|workspace| ci::run(&workspace, ci::Extent::All)),
        ["deny"] => Workspace::load().and_then(|workspace| deny::run(&workspace.root)),
        ["cluster", arguments @ ..] => run("test-cluster", arguments),
        ["golden", arguments @ ..] => build("kai-cli").and_then(|()| run("golden", arguments)),
        ["bench-churn", arguments @ ..] => {
            cargo(&["build", "--quiet", "--release", "--package", "kai-cli"]).and_then(|()| {
                cargo(&[&["run", "--quiet", "--release", "--package", "bench-churn", "--"], arguments].concat())
            })
        }
        ["bench-upstream", options @ ..] => Workspace::load().and_then(|workspace| upstream::run(&workspace, options)),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            if !message.is_empty() {
                eprintln!("{message}");
            }
            ExitCode::FAILURE
        }
    }
}

/// A program of its own, so that these checks need not be compiled with all it depends on.
fn run(package: &str, arguments: &[&str]) -> Result<(), String> {
    cargo(&[&["run", "--quiet", "--package", package, "--"], arguments].concat())
}

fn build(package: &str) -> Result<(), String> {
    cargo(&["build", "--quiet", "--package", package])
}

fn cargo(arguments: &[&str]) -> Result<(), String> {
    let status =
        Command::new(workspace::cargo()).args(arguments).status().map_err(|error| format!("cargo: {error}"))?;
    // It has printed itself what is wrong.
    if status.success() { Ok(()) } else { Err(String::new()) }
}
