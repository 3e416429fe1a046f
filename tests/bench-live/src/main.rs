//! `cargo build --release -p kai-cli -p bench-live && target/release/bench-live`: starts a real API server with simulated
//! nodes and measures how long users wait.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

mod cost;
mod measure;
mod ray;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use cost::Cost;
use measure::{Bench, Failed, Full, Report};

/// Starts a real API server with simulated nodes and measures how long users wait
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Nodes of 8 GPUs
    #[arg(long, default_value_t = 500)]
    nodes: u32,
    /// Run each component in a process of its own instead of all in one
    #[arg(long, alias = "apart", global = true)]
    separate_processes: bool,
    /// Pods of one GPU; by default as many as there are GPUs
    #[arg(long)]
    pods: Option<usize>,
    /// How often to measure; the median counts
    #[arg(long, global = true, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

#[derive(Subcommand)]
enum Command {
    /// Measures until many Ray clusters of 8 pods, created at once, are bound or marked unschedulable
    Ray {
        /// How many
        #[arg(long, default_value_t = 1000)]
        clusters: usize,
        /// Nodes of 8 GPUs
        #[arg(long, default_value_t = 500)]
        nodes: u32,
    },
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error: &(dyn Error + 'static) = &*error;
            let causes = std::iter::successors(Some(error), |cause| (**cause).source());
            let causes: Vec<String> = causes.map(ToString::to_string).collect();
            eprintln!("bench-live: {}", causes.join(": "));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failed> {
    let kai = std::env::current_exe()?.with_file_name("kai");
    if let Some(Command::Ray { clusters, nodes }) = args.command {
        print_ray(&ray::measure(&kai, nodes, clusters, args.separate_processes, args.rounds)?);
        return Ok(());
    }
    let pods = args.pods.unwrap_or(args.nodes as usize * 8);
    let bench =
        Bench { kai: &kai, nodes: args.nodes, pods, separate_processes: args.separate_processes, rounds: args.rounds };
    print(&bench.run()?);
    Ok(())
}

fn print(report: &Report) {
    let Report { pods, rounds, full: Full { rest, unschedulable, reclaim, memory }, baseline_cost, cost } = report;
    println!("| {pods} pods of one GPU, a second | median | rounds |\n|---|--:|---|");
    row("baseline binds", rounds, |round| round.baseline_binds);
    row("waiting when kai starts, bound with kai", rounds, |round| round.backlog);
    row("% of baseline binds", rounds, |round| 100.0 * round.backlog / round.baseline_binds);
    row("created and bound, baseline", rounds, |round| round.baseline);
    row("created and bound with kai", rounds, |round| round.with_kai);
    row("% of baseline", rounds, |round| 100.0 * round.with_kai / round.baseline);
    println!("\n| on the full cluster | |\n|---|--:|");
    println!("| all pods run and their status is written after | {:.1} s |", rest.as_secs_f64());
    println!("| a gang of 10 is marked unschedulable after | {:.1} s |", unschedulable.as_secs_f64());
    println!("| one GPU is reclaimed after | {:.1} s |", reclaim.as_secs_f64());
    for (component, mib) in memory {
        println!("| memory of {component} | {mib} MiB |");
    }
    print_costs(baseline_cost, cost, *pods);
}

/// What was measured in all rounds, and in the middle one.
fn row<R>(what: &str, rounds: &[R], number: impl Fn(&R) -> f64) {
    let numbers: Vec<f64> = rounds.iter().map(number).collect();
    let mut sorted = numbers.clone();
    sorted.sort_by(f64::total_cmp);
    let all: Vec<String> = numbers.iter().map(|number| format!("{number:.0}")).collect();
    println!("| {what} | {:.0} | {} |", sorted[sorted.len() / 2], all.join(", "));
}

fn print_costs(baseline: &Cost, cost: &Cost, pods: usize) {
    println!("\n| CPU s | baseline | by kai |\n|---|--:|--:|");
    for (process, time) in &cost.cpu {
        let baseline = baseline.cpu.iter().find(|(name, _)| name == process).map(|(_, time)| *time);
        println!("| {process} | {:.1} | {:.1} |", baseline.unwrap_or_default().as_secs_f64(), time.as_secs_f64());
    }
    println!("| all together | {:.1} | {:.1} |", baseline.cpu_seconds(), cost.cpu_seconds());
    println!("\n| calls a pod | baseline | by kai |\n|---|--:|--:|");
    for (call, count) in cost.calls.iter().filter(|(_, count)| **count * 100 >= pods as u64) {
        let a_pod = |count: u64| count as f64 / pods as f64;
        let baseline = baseline.calls.get(call).copied().unwrap_or(0);
        println!("| {call} | {:.2} | {:.2} |", a_pod(baseline), a_pod(*count));
    }
}

fn print_ray(report: &ray::Report) {
    let ray::Report { clusters, rounds, baseline_cost, cost, memory } = report;
    println!("| {clusters} RayClusters of 8 pods, seconds | median | rounds |\n|---|--:|---|");
    row("all bound or marked unschedulable, baseline", rounds, |round| round.baseline.as_secs_f64());
    row("created while kai runs", rounds, |round| round.created.as_secs_f64());
    row("all bound or marked unschedulable, with kai", rounds, |round| round.with_kai.as_secs_f64());
    row("% of baseline", rounds, |round| 100.0 * round.baseline.as_secs_f64() / round.with_kai.as_secs_f64());
    row("RayClusters bound", rounds, |round| round.bound as f64);
    for (component, mib) in memory {
        println!("| MiB of {component} at most | {mib} | |");
    }
    print_costs(baseline_cost, cost, clusters * ray::PODS);
}
