//! `cargo build --release -p kai-cli -p bench-live && target/release/bench-live`: starts a real API server with simulated
//! nodes and measures how long users wait.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

mod account;
mod measure;
mod ray;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use account::Account;
use measure::{Failed, Report};

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
            let causes = std::iter::successors(Some(&*error), |cause| cause.source());
            let causes: Vec<String> = causes.map(ToString::to_string).collect();
            eprintln!("bench-live: {}", causes.join(": "));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failed> {
    let kai = std::env::current_exe()?.with_file_name("kai");
    if let Some(Command::Ray { clusters, nodes }) = args.command {
        print_ray(&ray::measure(&kai, nodes, clusters, args.apart)?);
        return Ok(());
    }
    let pods = args.pods.unwrap_or(args.nodes as usize * 8);
    print(&measure::measure(&kai, args.nodes, pods, args.apart)?);
    Ok(())
}

fn print(report: &Report) {
    let Report {
        pods,
        bare_binds,
        bare_pods,
        backlog,
        pods_per_second,
        rest,
        unschedulable,
        reclaim,
        bare_bill,
        bill,
        memory,
    } = report;
    println!("| {pods} pods of one GPU | |\n|---|--:|");
    println!("| bare binds | {bare_binds:.0} a second |");
    println!("| created and bound bare | {bare_pods:.0} pods a second |");
    let of = |part: f64, whole: f64| 100.0 * part / whole;
    println!(
        "| waiting when kai starts, bound by kai | {backlog:.0} pods a second, {:.0} % of bare binds |",
        of(*backlog, *bare_binds)
    );
    println!(
        "| created and bound by kai | {pods_per_second:.0} pods a second, {:.0} % of bare |",
        of(*pods_per_second, *bare_pods)
    );
    println!("| all run and all is said about them after | {:.1} s |", rest.as_secs_f64());
    println!("| a gang of 10 is told that there is no room | {:.1} s |", unschedulable.as_secs_f64());
    println!("| one GPU is reclaimed | {:.1} s |", reclaim.as_secs_f64());
    for (part, mib) in memory {
        println!("| memory of {part} | {mib} MiB |");
    }
    print_bills(bare_bill, bill, *pods);
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
    let ray::Report { clusters, bare, created, settled, bound, waiting, bare_bill, bill, memory } = report;
    println!("| {clusters} RayClusters of 8 pods | |\n|---|--:|");
    println!("| pods created and bound bare | {:.1} s |", bare.as_secs_f64());
    println!("| RayClusters and pods created, with kai at work | {:.1} s |", created.as_secs_f64());
    println!("| {bound} bound, {waiting} told why they wait | {:.1} s |", settled.as_secs_f64());
    for (part, mib) in memory {
        println!("| memory of {part} | {mib} MiB |");
    }
    print_bills(bare_bill, bill, clusters * ray::PODS);
}
