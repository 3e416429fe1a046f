//! `conformance DIR…`: runs recorded cases and prints where the product differs.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use conformance::corpus::Recorded;
use conformance::report::Report;
use conformance::run::Options;
use conformance::unchanged::{self, Comparison};
use conformance::{compat_folder, corpus, default_corpus, known, run};
use kai_engine::policy::Repairs;

/// Runs recorded scheduling cases against the engine.
///
/// Prints a line per failure, a table of groups, and `N passed, N failed`. Exits with 1 if a case failed that is
/// not listed in docs/compat, with 2 if the cases cannot be read.
#[derive(Parser)]
struct Args {
    /// Folders or files with cases [default: `$KAI_CONFORMANCE_DIR`, or ../shared/conformance]
    paths: Vec<PathBuf>,
    /// Only cases whose id begins like this
    #[arg(long, value_name = "PREFIX")]
    only: Option<String>,
    /// Only cases of this group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// What to print
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Show the cluster, every task and every reason of the cases that run
    #[arg(long)]
    verbose: bool,
    /// Follow KAI to the letter, accidents included: what still differs is a mistake of ours
    #[arg(long)]
    letter: bool,
    /// Write down what is decided now as what must stay so: tests/conformance/decisions.txt
    #[arg(long, conflicts_with_all = ["only", "group", "letter"])]
    record_decisions: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
    /// The cases that differ from KAI because of each of our repairs
    Repairs,
}

impl Args {
    fn wants(&self, case: &Recorded) -> bool {
        let only = self.only.as_deref().is_none_or(|only| case.key.starts_with(only) || case.id.starts_with(only));
        only && self.group.as_ref().is_none_or(|group| case.group == *group)
    }
}

fn main() -> ExitCode {
    match work(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn work(args: &Args) -> Result<bool, Box<dyn std::error::Error>> {
    let paths = if args.paths.is_empty() { vec![default_corpus()] } else { args.paths.clone() };
    let mut cases = corpus::read(&paths)?;
    let known = known::read(&compat_folder())?;
    cases.retain(|case| args.wants(case));
    if cases.is_empty() {
        return Err("no case matches --only and --group".into());
    }
    let repairs = if args.letter { Repairs::NONE } else { Repairs::ALL };
    let outcomes = run::all(&cases, &known, Options { verbose: args.verbose, repairs });
    let report = Report::new(&outcomes, &known, args.only.is_none());
    match args.output {
        Output::Text => print!("{}", report.text()),
        Output::Repairs => print!("{}", report.repairs()),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report.json())?),
    }
    if args.record_decisions {
        std::fs::write(unchanged::recorded_file(), unchanged::text(&outcomes))?;
    }
    let whole = args.only.is_none() && args.group.is_none() && !args.letter;
    let Comparison { changed, not_compared } =
        if whole { unchanged::compare(&outcomes)? } else { Comparison::default() };
    if !not_compared.is_empty() {
        eprintln!("NOT COMPARED with tests/conformance/decisions.txt, other cases:\n  {}", not_compared.join("\n  "));
    }
    if !changed.is_empty() {
        eprintln!("decided otherwise than in tests/conformance/decisions.txt:\n  {}", changed.join("\n  "));
        eprintln!("help: if that is meant, record them with --record-decisions and review the file");
    }
    Ok(report.is_good() && changed.is_empty())
}
