//! `cargo xtask bench-churn`: four busy minutes on a real API server, once with NVIDIA KAI's programs and once with `kai`,
//! and who loses work in them.
//!
//! ```text
//!   jobs.csv ──▶ workload ──▶ play ── on a cluster with NVIDIA KAI ──▶ tally ──┐
//!                               ├──── on a cluster with kai ─────────▶ tally ──┼▶ table
//!                               └──── in kai simulate ───────────────▶ tally ──┘
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

mod play;
mod tally;
mod workload;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use play::{Round, Side, WINDOW};
use tally::Tally;

type Failed = Box<dyn Error + Send + Sync>;

/// Plays the same jobs with NVIDIA KAI and with kai on a real API server, and counts evictions and lost work
#[derive(Parser)]
#[command(name = "cargo xtask bench-churn", bin_name = "cargo xtask bench-churn")]
struct Args {
    /// Nodes of 8 GPUs
    #[arg(long, default_value_t = 100)]
    nodes: u32,
    /// Rounds of each side, one after the other; counts are added up
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only these sides
    #[arg(long, value_delimiter = ',', default_values = ["upstream", "kai", "simulate"])]
    only: Vec<Who>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Who {
    Upstream,
    Kai,
    Simulate,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failed> {
    let kai = env::current_exe()?.with_file_name("kai");
    let base = env::temp_dir().join("kai-bench-churn");
    let jobs = workload::jobs();
    let (mut upstream, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        // Right after each other: the speed of a machine changes.
        for (who, side, rounds) in [(Who::Upstream, Side::Upstream, &mut upstream), (Who::Kai, Side::Kai, &mut ours)] {
            if args.only.contains(&who) {
                rounds.push(play::live(side, &kai, args.nodes, &jobs, base.clone())?);
            }
        }
    }
    println!(
        "| {} jobs on {} nodes, after {} s | rounds | finished | evicted | jobs evicted | lost GPU s | CPU s |",
        jobs.len(),
        args.nodes,
        WINDOW.as_secs()
    );
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for (name, rounds) in [("NVIDIA KAI", &upstream), ("kai", &ours)] {
        if !rounds.is_empty() {
            row(name, rounds);
        }
    }
    if args.only.contains(&Who::Simulate) {
        let tally = play::simulated(&kai, args.nodes, &jobs, &base.join("simulate"))?;
        println!("| kai simulate | 1 | {} |", numbers(&tally));
    }
    let [theirs, ours] = [&upstream, &ours].map(|rounds| rounds.iter().map(|round| round.tally).sum::<Tally>());
    if theirs != Tally::default() && ours != Tally::default() {
        let of_theirs = |ours: f64, theirs: f64| format!("{:.2}", ours / theirs.max(1.0));
        println!(
            "| kai ÷ NVIDIA KAI | | {} | {} | {} | {} | |",
            of_theirs(ours.finished as f64, theirs.finished as f64),
            of_theirs(ours.evicted as f64, theirs.evicted as f64),
            of_theirs(ours.jobs_evicted as f64, theirs.jobs_evicted as f64),
            of_theirs(ours.lost_gpu_seconds, theirs.lost_gpu_seconds),
        );
    }
    Ok(())
}

fn row(name: &str, rounds: &[Round]) {
    let tally = rounds.iter().map(|round| round.tally).sum();
    let cpu: Duration = rounds.iter().map(|round| round.cpu).sum();
    println!("| {name} | {} | {} | {:.1} |", rounds.len(), numbers(&tally), cpu.as_secs_f64());
}

fn numbers(tally: &Tally) -> String {
    let Tally { finished, evicted, jobs_evicted, lost_gpu_seconds } = tally;
    format!("{finished} | {evicted} | {jobs_evicted} | {lost_gpu_seconds:.0}")
}
