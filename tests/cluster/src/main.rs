//! `cargo xtask cluster`: starts, shows and ends clusters to play with.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what a command is for")]
#![allow(clippy::doc_markdown, reason = "doc comments are printed as help, where backticks would show")]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use test_cluster::status::{self, Status};
use test_cluster::{Cluster, Error, MonitoringPrograms, Operator, Options, Programs, Progress, State, cache_dir, down};

/// A real Kubernetes control plane with simulated GPU nodes, on this machine.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask cluster", bin_name = "cargo xtask cluster")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster, and build its programs first if that was never done
    Up {
        #[command(flatten)]
        which: Which,
        /// How many nodes
        #[arg(long, default_value_t = 4, value_name = "NUMBER")]
        nodes: u32,
        /// How many GPUs each node has
        #[arg(long, default_value_t = 8, value_name = "NUMBER")]
        gpus: u32,
        /// Operators to start in it, separated by commas; each is built the first time it is asked for
        #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES")]
        operators: Vec<Operator>,
    },
    /// Stop a cluster and remove its files
    Down {
        #[command(flatten)]
        which: Which,
    },
    /// List clusters and their health
    Status {
        /// Only this one
        #[arg(long)]
        name: Option<String>,
        /// Folder of clusters; by default `clusters` in the cache
        #[arg(long)]
        dir: Option<PathBuf>,
        /// How to print
        #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
        output: Format,
    },
    /// Only build the programs, those of all operators and Prometheus included
    Build,
}

#[derive(Args, Debug)]
struct Which {
    /// Clusters of different names run side by side
    #[arg(long, default_value = "kai")]
    name: String,
    /// Folder of clusters; by default `clusters` in the cache
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    #[default]
    Table,
    Json,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("error: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Up { which: Which { name, dir }, nodes, gpus, operators } => {
            let progress = Progress::start(&name);
            let cluster = Cluster::start(&Options { base: base(dir)?, name, nodes, gpus, operators }, &progress)?;
            print!("{}", status::table(&[Status::of(cluster.state())]));
            println!("  {} is a kubectl of this version", cluster.state().kubectl.display());
            cluster.detach();
        }
        Command::Down { which: Which { name, dir } } => {
            let found = down(&base(dir)?, &name)?;
            println!("{name}: {}", if found { "ended" } else { "no such cluster, nothing to do" });
        }
        Command::Status { name, dir, output } => {
            let mut states = State::read_all(&base(dir)?)?;
            states.retain(|state| name.as_ref().is_none_or(|name| *name == state.name));
            let statuses: Vec<Status> = states.iter().map(Status::of).collect();
            match output {
                Format::Table => print!("{}", status::table(&statuses)),
                Format::Json => println!("{}", status::json(&statuses)),
            }
        }
        Command::Build => {
            let progress = Progress::start("build");
            let programs = Programs::find_or_build(&progress)?;
            for operator in Operator::ALL {
                operator.build(&programs, &progress)?;
            }
            MonitoringPrograms::find_or_build(&progress)?;
            println!("all programs are built");
        }
    }
    Ok(())
}

fn base(dir: Option<PathBuf>) -> Result<PathBuf, Error> {
    dir.map_or_else(|| Ok(cache_dir()?.join("clusters")), Ok)
}
