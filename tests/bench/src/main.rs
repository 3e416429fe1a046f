//! `bench table`: what a cycle costs, scenario by scenario and size by size.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::io;
use std::process::ExitCode;

use bench::measure::{self, Outcome};
use bench::steady;
use bench::table::{self, Row};
use clap::{Parser, Subcommand};
use kai_generate::{SCENARIOS, Scenario, Size};

/// Measures scheduling cycles over synthetic clusters.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Prints Markdown tables of all scenarios and sizes; progress goes to stderr
    Table {
        /// Numbers of nodes
        #[arg(long, value_delimiter = ',', default_values_t = [100, 500, 1000, 5000])]
        nodes: Vec<usize>,
        /// Only these scenarios
        #[arg(long, value_delimiter = ',', value_parser = scenario)]
        scenario: Vec<&'static Scenario>,
        /// Clusters of each kind and size, which differ in chance only
        #[arg(long, default_value_t = 1)]
        seeds: u64,
    },
    /// Measures one scenario and size in this process and prints the result as JSON; also for profilers
    Measure {
        #[arg(value_parser = scenario)]
        scenario: &'static Scenario,
        nodes: usize,
        /// Jobs that wait, or pods in an empty cluster, if not the scenario's own number
        #[arg(long)]
        pending: Option<usize>,
        /// Start of every random sequence
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Cycles to run at least
        #[arg(long, default_value_t = 0)]
        runs: u32,
    },
    /// Prints what one more pod and one more node cost in memory: snapshot and cycle together
    Memory,
    /// Runs cycle after cycle over the objects of a cluster of which little changes
    Steady {
        /// Numbers of nodes
        #[arg(long, value_delimiter = ',', default_values_t = [1000, 10_000])]
        nodes: Vec<usize>,
        /// What the cluster is like
        #[arg(long, default_value = "saturated", value_parser = scenario)]
        scenario: &'static Scenario,
    },
    /// Lists the scenarios
    List,
}

fn scenario(name: &str) -> Result<&'static Scenario, String> {
    let names = || SCENARIOS.iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ");
    Scenario::named(name).ok_or_else(|| format!("no such scenario; there are {}", names()))
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> io::Result<()> {
    match command {
        Command::Table { nodes, scenario, seeds } => {
            let all = SCENARIOS.iter();
            let chosen: Vec<&'static Scenario> = if scenario.is_empty() { all.collect() } else { scenario };
            print_table(&nodes, &chosen, seeds)
        }
        Command::Measure { scenario, nodes, pending, seed, runs } => {
            let sample = measure::here(scenario, Size { pending, seed, ..scenario.size(nodes) }, runs);
            println!("{}", serde_json::to_string(&sample)?);
            Ok(())
        }
        Command::Memory => print_memory(),
        Command::Steady { nodes, scenario } => {
            print_steady(&nodes, scenario);
            Ok(())
        }
        Command::List => {
            for scenario in &SCENARIOS {
                println!("{:<20}{}", scenario.name, scenario.about);
            }
            Ok(())
        }
    }
}

fn print_table(sizes: &[usize], scenarios: &[&'static Scenario], seeds: u64) -> io::Result<()> {
    let mut rows = Vec::new();
    for scenario in scenarios {
        for nodes in sizes {
            let outcome = measure::several(scenario, scenario.size(*nodes), seeds)?;
            eprintln!("{} {nodes}: {}", scenario.name, in_short(&outcome));
            let too_long = outcome == Outcome::TooLong;
            rows.push(Row { scenario: scenario.name, nodes: *nodes, outcome });
            if too_long {
                // What does not end at this size ends even less at a larger one.
                break;
            }
        }
    }
    print!("{}", table::markdown(&rows));
    Ok(())
}

fn print_steady(sizes: &[usize], scenario: &Scenario) {
    println!("| nodes | pods | before the cycle | CPU ms | lowering | engine | words | effects | waiting jobs |");
    println!("|--:|--:|---|--:|--:|--:|--:|--:|--:|");
    for nodes in sizes {
        let mut cluster = scenario.cluster(scenario.size(*nodes));
        for pace in steady::paces(&mut cluster) {
            println!(
                "| {nodes} | {} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {} | {} |",
                cluster.pods(),
                pace.what,
                pace.ms.iter().sum::<f64>(),
                pace.ms[0],
                pace.ms[1],
                pace.ms[2],
                pace.effects,
                pace.waiting
            );
        }
    }
}

/// Clusters that differ in one number only, large enough for what is fixed to vanish.
fn print_memory() -> io::Result<()> {
    const NODES: usize = 2000;
    const PODS: usize = 10_000;
    let scenario = scenario("mixed").map_err(io::Error::other)?;
    let bytes = |nodes: usize, pods: usize| match measure::apart(
        scenario,
        Size { pending: Some(pods), ..scenario.size(nodes) },
    )? {
        Outcome::Done(sample) => Ok(sample.work_bytes as f64),
        other => Err(io::Error::other(in_short(&other))),
    };
    let (small, more_pods, more_nodes) = (bytes(NODES, PODS)?, bytes(NODES, 2 * PODS)?, bytes(2 * NODES, PODS)?);
    println!(
        "{:.0} bytes a pod, {:.0} bytes a node",
        (more_pods - small) / PODS as f64,
        (more_nodes - small) / NODES as f64
    );
    Ok(())
}

fn in_short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(sample) => format!("{:.2} ms, {}, {} wait", sample.best_ms, sample.count, sample.count.waiting),
        Outcome::TooLong => format!("stopped after {} s of CPU time", measure::CYCLE_MAX.as_secs()),
        Outcome::Failed(how) => format!("failed: {how}"),
    }
}
