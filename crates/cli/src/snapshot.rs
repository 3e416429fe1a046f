//! `kai snapshot`: a cluster in a file, for `kai replay`.

use std::fs::File;

use indicatif::{ProgressBar, ProgressStyle};
use kai_control::scheduler::Usage;
use kai_engine::units::Timestamp;
use kai_generate::config;
use kai_live::{SnapshotProgress, take_snapshot};

use crate::args::SnapshotArgs;
use crate::error::CliError;
use crate::files::read_yaml;
use crate::snapshot_file::{SnapshotMeta, write};

pub(crate) fn run(args: &SnapshotArgs) -> Result<(), CliError> {
    let config = args.scheduler_conf.as_deref().map_or_else(|| Ok(config::file()), read_yaml)?;
    let progress = ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{msg}").expect("a template"));
    let on_progress = |reached: SnapshotProgress<'_>| {
        match reached {
            SnapshotProgress::Listed { kind, count } => progress.set_message(format!("{count} {kind}")),
            SnapshotProgress::Retrying { kind, delay, error } => {
                progress.suspend(|| {
                    let seconds = delay.as_secs_f64();
                    anstream::eprintln!("cannot list {kind}, retrying in {seconds:.1} s: {error}");
                });
            }
        }
        progress.tick();
    };
    let now = Timestamp(jiff::Timestamp::now().as_microsecond());
    let taken = take_snapshot(args.kubeconfig.as_deref(), on_progress);
    progress.finish_and_clear();
    let help = "check that --kubeconfig names the right cluster and that you may list everything in it";
    let snapshot = taken.map_err(|error| CliError::input(error.to_string(), help))?;
    let count = snapshot.objects.len();
    let parameters = config::parameters();
    let written = File::create(&args.output)
        .and_then(|file| write(file, snapshot, SnapshotMeta { config, parameters, usage: Usage::default(), now }));
    let path = args.output.display();
    written.map_err(|error| {
        CliError::input(format!("cannot write {path}: {error}"), "check that the folder exists and can be written to")
    })?;
    anstream::eprintln!("{path}: {count} objects; try `kai replay {path}`");
    Ok(())
}
