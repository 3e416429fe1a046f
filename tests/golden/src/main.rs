//! `cargo xtask golden`: plays the same scenarios with KAI's own programs and with ours, each on a real cluster with
//! simulated nodes, and compares what users can see.
//!
//! ```text
//!   scenarios/*.yaml ──▶ play ── on a cluster with KAI ──▶ sight ──┐
//!                          └──── on a cluster with ours ─▶ sight ──┴▶ compare ──▶ known ──▶ docs/compat/golden.md
//! ```
//!
//! Sights hold no message texts, no times and no generated names. A difference that `known.yaml` does not explain is
//! named, and the command fails.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]
#![allow(clippy::doc_markdown, reason = "doc comments are printed as help, where backticks would show")]

mod compare;
mod known;
mod ours;
mod play;
mod redaction;
mod report;
mod scenario;
mod sight;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use clap::Parser;
use test_cluster::{Cluster, Operator, Options, Progress, cache_dir};

use crate::compare::{Difference, compare};
use crate::known::Known;
use crate::scenario::Scenario;
use crate::sight::Sight;

type Failed = Box<dyn Error>;

/// Plays the same scenarios with KAI's own programs and with ours, and compares what users can see
#[derive(Parser)]
#[command(name = "cargo xtask golden", bin_name = "cargo xtask golden")]
struct Arguments {
    /// Only these, separated by commas; docs/compat/golden.md is then left as it is
    #[arg(long, value_delimiter = ',', value_name = "SCENARIOS")]
    only: Vec<String>,
    /// Keep what was seen in this folder, a file for each scenario and side
    #[arg(long, value_name = "FOLDER")]
    sights: Option<PathBuf>,
    /// Play nothing, and compare what was kept in this folder before
    #[arg(long, value_name = "FOLDER", conflicts_with = "sights")]
    from: Option<PathBuf>,
}

/// Nodes and GPUs of each, which the scenarios count on.
const NODES: u32 = 2;
const GPUS: u32 = 4;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything that differs is explained.
fn run(arguments: &Arguments) -> Result<bool, Failed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scenarios = scenario::read_all(&folder.join("scenarios"), &arguments.only)?;
    let known = Known::read(&folder.join("known.yaml"))?;
    let [theirs, ours] = match &arguments.from {
        Some(folder) => [kept(folder, "kai", &scenarios)?, kept(folder, "ours", &scenarios)?],
        None => play_both(&scenarios, &fs::read_to_string(folder.join("before.yaml"))?)?,
    };
    if let Some(folder) = &arguments.sights {
        keep(folder, "kai", &scenarios, &theirs)?;
        keep(folder, "ours", &scenarios, &ours)?;
    }

    let mut differences: Vec<Difference> = Vec::new();
    for ((scenario, theirs), ours) in scenarios.iter().zip(&theirs).zip(&ours) {
        differences.extend(compare(&scenario.name, theirs, ours));
    }
    let explained = known.explain(differences);
    for difference in &explained.unexplained {
        eprintln!("unexplained: {difference}");
    }
    if !explained.unexplained.is_empty() {
        eprintln!(
            "{} differences are not explained: mend them, or say in tests/golden/known.yaml why they are right",
            explained.unexplained.len()
        );
        return Ok(false);
    }
    if arguments.only.is_empty() {
        for pattern in explained.unused() {
            eprintln!("no longer different: {pattern:?}; remove it from tests/golden/known.yaml");
        }
        let document = folder.join("../../docs/compat/golden.md");
        fs::write(&document, report::markdown(&scenarios, &ours, &explained))?;
        println!("all differences are explained in docs/compat/golden.md");
    } else {
        println!("all differences are explained in tests/golden/known.yaml");
    }
    Ok(true)
}

/// What is seen with KAI's programs, and with ours.
fn play_both(scenarios: &[Scenario], before: &str) -> Result<[Vec<Sight>; 2], Failed> {
    let kai = env::current_exe()?.with_file_name("kai");
    let theirs =
        on_cluster("golden-kai", scenarios, before, |cluster, progress| Ok(cluster.start_upstream_kai(progress)?))?;
    let ours = on_cluster("golden-ours", scenarios, before, |cluster, _| ours::start(cluster, &kai))?;
    Ok([theirs, ours])
}

/// What is seen in each scenario on a fresh cluster.
fn on_cluster(
    name: &str,
    scenarios: &[Scenario],
    before: &str,
    start: impl FnOnce(&mut Cluster, &Progress) -> Result<(), Failed>,
) -> Result<Vec<Sight>, Failed> {
    let progress = Progress::start(name);
    let base = cache_dir()?.join("clusters");
    let operators = Operator::ALL.to_vec();
    let options = Options { name: name.to_owned(), base, nodes: NODES, gpus: GPUS, operators };
    let mut cluster = Cluster::start(&options, &progress)?;
    cluster.kubectl().apply(before)?;
    start(&mut cluster, &progress)?;
    let played = play::all(&mut cluster, scenarios, &progress);
    if played.is_err() {
        // Its logs are worth more than its silence.
        eprintln!("what {name} did is in {}", cluster.state().kubeconfig.with_file_name("*.log").display());
        cluster.end_with_logs();
    }
    played
}

fn keep(folder: &Path, side: &str, scenarios: &[Scenario], sights: &[Sight]) -> Result<(), Failed> {
    let folder = folder.join(side);
    fs::create_dir_all(&folder)?;
    for (scenario, sight) in scenarios.iter().zip(sights) {
        fs::write(folder.join(format!("{}.yaml", scenario.name)), yaml_serde::to_string(sight)?)?;
    }
    Ok(())
}

fn kept(folder: &Path, side: &str, scenarios: &[Scenario]) -> Result<Vec<Sight>, Failed> {
    let read = |scenario: &Scenario| {
        let path = folder.join(side).join(format!("{}.yaml", scenario.name));
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(yaml_serde::from_str(&text)?)
    };
    scenarios.iter().map(read).collect()
}
