//! The `kai` command: one binary, one subcommand per task.
//!
//! Reads arguments and files, calls the crates that know, prints what they answer. Decides nothing about scheduling.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what a command is for")]

mod args;
mod complaint;
mod crds;
mod files;
mod generate;
mod live;
mod output;
mod rbac;
mod render;
mod replay;
mod simulate;
mod snapshot;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

/// Objects come and go by the thousand, on all threads: a quarter of the CPU time went into memory with the system's.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let Args { color, command } = Args::parse();
    color.write_global();
    let done = match command {
        Command::Simulate(args) => simulate::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Crds => crds::run(),
        Command::Rbac(args) => rbac::run(&args),
        Command::Scheduler(args) => live::scheduler(&args),
        Command::Binder(args) => live::binder(&args),
        Command::Podgrouper(args) => live::grouper(&args),
        Command::Podgroupcontroller(args) => live::groups(&args),
        Command::Queuecontroller(args) => live::queues(&args),
        Command::Admission(args) => live::admission(&args),
        Command::Nodescaleadjuster(args) => live::node_scale(&args),
        Command::AllInOne(args) => live::all_in_one(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(complaint) => {
            complaint.print();
            complaint.exit_code()
        }
    }
}
