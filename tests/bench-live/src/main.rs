//! `cargo build --release -p kai-cli -p bench-live && target/release/bench-live`: starts a real API server with simulated
//! nodes and measures how long users wait.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

mod account;
mod measure;
mod ray;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use account::Account;
use measure::{Bench, Failed, Full, Report};

/// Starts a real API server with simulated nodes and measures how long users wait
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Nodes of 8 GPUs
    #[arg(long, default_value_t = 500)]
    nodes: u32,
    /// Run every part in a process of its own instead of all in one
    #[arg(long, global = true)]
    apart: bool,
    /// Pods of one GPU; by default as many as there are GPUs
    #[arg(long)]
    pods: Option<usize>,
    /// How often to measure; the median counts
    #[arg(long, global = true, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

#[derive(Subcommand)]
enum Command {
    /// Measures until many Ray clusters of 8 pods, created at once, are bound or told why they wait
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
        print_ray(&ray::measure(&kai, nodes, clusters, args.apart, args.rounds)?);
        return Ok(());
    }
    let pods = args.pods.unwrap_or(args.nodes as usize * 8);
    let bench = Bench { kai: &kai, nodes: args.nodes, pods, apart: args.apart, rounds: args.rounds };
    print(&bench.run()?);
    Ok(())
}

fn print(report: &Report) {
    let Report { pods, rounds, full: Full { rest, unschedulable, reclaim, memory }, bare_bill, bill } = report;
    println!("| {pods} pods of one GPU, a second | median | rounds |\n|---|--:|---|");
    row("bare binds", rounds, |round| round.bare_binds);
    row("waiting when kai starts, bound by kai", rounds, |round| round.backlog);
    row("% of bare binds", rounds, |round| 100.0 * round.backlog / round.bare_binds);
    row("created and bound bare", rounds, |round| round.bare);
    row("created and bound by kai", rounds, |round| round.ours);
    row("% of bare", rounds, |round| 100.0 * round.ours / round.bare);
    println!("\n| on the full cluster | |\n|---|--:|");
    println!("| all run and all is said about them after | {:.1} s |", rest.as_secs_f64());
    println!("| a gang of 10 is told that there is no room | {:.1} s |", unschedulable.as_secs_f64());
    println!("| one GPU is reclaimed | {:.1} s |", reclaim.as_secs_f64());
    for (part, mib) in memory {
        println!("| memory of {part} | {mib} MiB |");
    }
    print_bills(bare_bill, bill, *pods);
}

/// What was measured in all rounds, and in the middle one.
fn row<R>(what: &str, rounds: &[R], number: impl Fn(&R) -> f64) {
    let numbers: Vec<f64> = rounds.iter().map(number).collect();
    let mut sorted = numbers.clone();
    sorted.sort_by(f64::total_cmp);
    let all: Vec<String> = numbers.iter().map(|number| format!("{number:.0}")).collect();
    println!("| {what} | {:.0} | {} |", sorted[sorted.len() / 2], all.join(", "));
}

fn print_bills(bare: &Account, bill: &Account, pods: usize) {
    println!("\n| CPU s | bare | by kai |\n|---|--:|--:|");
    for (process, time) in &bill.cpu {
        let bare = bare.cpu.iter().find(|(name, _)| name == process).map(|(_, time)| *time);
        println!("| {process} | {:.1} | {:.1} |", bare.unwrap_or_default().as_secs_f64(), time.as_secs_f64());
    }
    println!("| all together | {:.1} | {:.1} |", bare.cpu_seconds(), bill.cpu_seconds());
    println!("\n| calls a pod | bare | by kai |\n|---|--:|--:|");
    for (call, count) in bill.calls.iter().filter(|(_, count)| **count * 100 >= pods as u64) {
        let a_pod = |count: u64| count as f64 / pods as f64;
        let bare = bare.calls.get(call).copied().unwrap_or(0);
        println!("| {call} | {:.2} | {:.2} |", a_pod(bare), a_pod(*count));
    }
}

fn print_ray(report: &ray::Report) {
    let ray::Report { clusters, rounds, bare_bill, bill, memory } = report;
    println!("| {clusters} RayClusters of 8 pods, seconds | median | rounds |\n|---|--:|---|");
    row("bound or told bare", rounds, |round| round.bare.as_secs_f64());
    row("created with kai at work", rounds, |round| round.created.as_secs_f64());
    row("bound or told why they wait by kai", rounds, |round| round.ours.as_secs_f64());
    row("% of bare", rounds, |round| 100.0 * round.bare.as_secs_f64() / round.ours.as_secs_f64());
    row("RayClusters bound", rounds, |round| round.bound as f64);
    for (part, mib) in memory {
        println!("| MiB of {part} at most | {mib} | |");
    }
    print_bills(bare_bill, bill, clusters * ray::PODS);
}
