//! `kai simulate`.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kai_sim::time::show_span;
use kai_sim::{Options, Progress, manifest, simulate};

use crate::args::SimulateArgs;
use crate::error::{self, CliError};
use crate::{files, output, render};

pub(crate) fn run(args: SimulateArgs) -> Result<(), CliError> {
    let SimulateArgs { paths, output, until, seed } = args;
    let sources = files::read_all(&paths)?;
    let plan = manifest::read(&sources)?;
    let options = Options { until: until.map(|span| kai_sim::Span(span.0)), seed };
    let bar = Bar::new();
    let report = simulate(&plan, options, &mut |progress| bar.show(progress));
    bar.finish();
    let report = report?;
    for warning in &report.warnings {
        error::warn(warning);
    }
    output::print(&report, output, render::report)
}

/// A progress bar on standard error, for those who wait in front of a terminal.
struct Bar {
    bar: ProgressBar,
}

/// Most runs end at once; a bar that flashes up would only disturb.
const PROGRESS_DELAY: Duration = Duration::from_millis(500);

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{bar:30} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Self { bar }
    }

    fn show(&self, progress: Progress) {
        if self.bar.is_hidden() {
            if self.bar.elapsed() < PROGRESS_DELAY || !io::stderr().is_terminal() {
                return;
            }
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        }
        self.bar.set_length(progress.until.0.max(1) as u64);
        self.bar.set_position(progress.at.0 as u64);
        self.bar.set_message(format!("{} of virtual time, {} cycles", show_span(progress.at), progress.cycles));
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
