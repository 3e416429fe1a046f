//! The `kai` command: one binary, one subcommand per task.
//!
//! Reads arguments and files, calls the other crates, prints their results. Decides nothing about scheduling.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what a command is for")]

mod args;
mod check_config;
mod components;
mod crds;
mod error;
mod files;
mod generate;
mod output;
mod rbac;
mod render;
mod replay;
mod simulate;
mod snapshot;
mod snapshot_file;
mod values;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

/// Thousands of objects are allocated and freed on all threads: with the system's allocator that was a quarter of the CPU
/// time.
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
        Command::CheckConfig(args) => return check_config::run(&args),
        Command::Crds => crds::run(),
        Command::Rbac(args) => rbac::run(&args),
        Command::Component(command) => components::run(&command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.print();
            error.exit_code()
        }
    }
}
