//! Errors as people see them: what is wrong, where, and what to do.

use std::io::Write;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use kai_sim::time::show_span;
use kai_sim::{Fault, Stop, Violation};

/// Something to say on standard error before leaving.
#[derive(Debug)]
pub(crate) enum Complaint {
    /// The input cannot be used.
    Input { problem: String, place: Option<String>, help: Option<String> },
    /// Something that must hold did not; ours to repair.
    Bug(Violation),
    /// The same cycle decided differently; ours to repair.
    Unsteady,
    /// The reader of our output went away.
    BrokenPipe,
}

impl Complaint {
    pub(crate) fn input(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Input { problem: problem.into(), place: None, help: Some(help.into()) }
    }

    /// Prints to standard error, in colour where that is wanted.
    pub(crate) fn print(&self) {
        let mut out = anstream::stderr().lock();
        let (red, blue) = (AnsiColor::Red.on_default().bold(), AnsiColor::Blue.on_default().bold());
        // Nothing can be done if standard error is closed.
        let _ = match self {
            Self::Input { problem, place, help } => {
                let _ = writeln!(out, "{}: {problem}", paint(red, "error"));
                if let Some(place) = place {
                    let _ = writeln!(out, "  {} {place}", paint(blue, "-->"));
                }
                help.as_ref().map_or(Ok(()), |help| writeln!(out, "  {}: {help}", paint(blue, "help")))
            }
            Self::Bug(violation) => writeln!(
                out,
                "{}: after {}, this did not hold: {}\n  {} {}\n  {}: this is a bug in kai, not in the input; \
                 the same command and files reproduce it, please report them",
                paint(red, "bug"),
                show_span(violation.at),
                violation.truth,
                paint(blue, "-->"),
                violation.what,
                paint(blue, "help"),
            ),
            Self::Unsteady => writeln!(
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
            Self::Bug(_) | Self::Unsteady => ExitCode::from(3),
            Self::BrokenPipe => ExitCode::SUCCESS,
        }
    }
}

/// Says something on standard error that does not stop anything.
pub(crate) fn warn(text: &str) {
    let yellow = AnsiColor::Yellow.on_default().bold();
    // Nothing can be done if standard error is closed.
    let _ = writeln!(anstream::stderr().lock(), "{}: {text}", paint(yellow, "warning"));
}

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

impl From<Fault> for Complaint {
    fn from(fault: Fault) -> Self {
        let place = fault.place.to_string();
        Self::Input {
            problem: fault.problem,
            place: (!place.is_empty()).then_some(place),
            help: (!fault.help.is_empty()).then_some(fault.help),
        }
    }
}

impl From<Stop> for Complaint {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Fault(fault) => fault.into(),
            Stop::Violation(violation) => Self::Bug(violation),
        }
    }
}

impl From<std::io::Error> for Complaint {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::input(format!("cannot write the result: {error}"), "check where the output goes")
    }
}
