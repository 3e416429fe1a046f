//! Errors as people see them: what is wrong, where, and what to do.

use std::io::Write;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use kai_sim::time::show_span;
use kai_sim::{InputError, SimulationError, Violation};
use kai_workloads::brief;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum CliError {
    /// The input cannot be used.
    Input { problem: String, location: Option<String>, help: Option<String> },
    /// An invariant does not hold: a bug of kai.
    InvariantViolated(Violation),
    /// The same cycle decided differently the second time: a bug of kai.
    NonDeterministic,
    /// The reader of the output went away.
    BrokenPipe,
}

impl CliError {
    pub(crate) fn input(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Input { problem: problem.into(), location: None, help: Some(help.into()) }
    }

    /// Prints to standard error, in colour where that is wanted.
    pub(crate) fn print(&self) {
        let mut out = anstream::stderr().lock();
        let (red, blue) = (AnsiColor::Red.on_default().bold(), AnsiColor::Blue.on_default().bold());
        // Nothing can be done if standard error is closed.
        let _ = match self {
            Self::Input { problem, location, help } => {
                let problem = brief(problem, 800);
                let _ = writeln!(out, "{}: {problem}", paint(red, "error"));
                if let Some(location) = location {
                    let _ = writeln!(out, "  {} {}", paint(blue, "-->"), brief(location, 600));
                }
                help.as_ref().map_or(Ok(()), |help| writeln!(out, "  {}: {}", paint(blue, "help"), brief(help, 500)))
            }
            Self::InvariantViolated(violation) => writeln!(
                out,
                "{}: after {}, this did not hold: {}\n  {} {}\n  {}: this is a bug in kai, not in the input; \
                 the same command and files reproduce it, please report them",
                paint(red, "bug"),
                show_span(violation.at),
                violation.invariant,
                paint(blue, "-->"),
                violation.what,
                paint(blue, "help"),
            ),
            Self::NonDeterministic => writeln!(
                out,
                "{}: the same cycle decided differently the second time\n  {}: this is a bug in kai; the same command \
                 and file reproduce it, please report them",
                paint(red, "bug"),
                paint(blue, "help"),
            ),
            Self::BrokenPipe => Ok(()),
        };
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Input { .. } => ExitCode::from(1),
            // 2 is taken by the command line.
            Self::InvariantViolated(_) | Self::NonDeterministic => ExitCode::from(3),
            Self::BrokenPipe => ExitCode::SUCCESS,
        }
    }
}

/// Prints a warning to standard error.
pub(crate) fn warn(text: &str) {
    let yellow = AnsiColor::Yellow.on_default().bold();
    // Nothing can be done if standard error is closed.
    let _ = writeln!(anstream::stderr().lock(), "{}: {}", paint(yellow, "warning"), brief(text, 1_500));
}

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

impl From<InputError> for CliError {
    fn from(error: InputError) -> Self {
        let location = error.location.to_string();
        Self::Input {
            problem: error.problem,
            location: (!location.is_empty()).then_some(location),
            help: (!error.help.is_empty()).then_some(error.help),
        }
    }
}

impl From<SimulationError> for CliError {
    fn from(error: SimulationError) -> Self {
        match error {
            SimulationError::Input(error) => error.into(),
            SimulationError::Violation(violation) => Self::InvariantViolated(violation),
        }
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::input(format!("cannot write the result: {error}"), "check where the output goes")
    }
}
