//! `kai snapshot`: a cluster in a file, for `kai replay`.

use std::fs::File;

use indicatif::{ProgressBar, ProgressStyle};
use kai_control::scheduler::Usage;
use kai_engine::units::Timestamp;
use kai_generate::config;
use kai_live::{Picture, take_picture};
use kai_record::Head;
use serde_json::json;

use crate::args::SnapshotArgs;
use crate::complaint::Complaint;
use crate::live::read_yaml;

pub(crate) fn run(args: &SnapshotArgs) -> Result<(), Complaint> {
    let config = args.scheduler_conf.as_deref().map_or_else(|| Ok(config::file()), read_yaml)?;
    let progress = ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{msg}").expect("a template"));
    let tell = |kind: &str, count: usize| {
        progress.set_message(format!("{count} {kind}"));
        progress.tick();
    };
    let now = Timestamp(jiff::Timestamp::now().as_microsecond());
    let taken = take_picture(args.kubeconfig.as_deref(), tell);
    progress.finish_and_clear();
    let help = "check that --kubeconfig names the right cluster and that you may list everything in it";
    let Picture { objects, server_version } = taken.map_err(|fault| Complaint::input(fault.to_string(), help))?;
    let count = objects.len();
    let head = Head {
        config,
        parameters: config::parameters(),
        discovery: json!({"serverVersion": server_version, "resources": []}),
        now,
        usage: Usage::default(),
    };
    let written = File::create(&args.output).and_then(|file| kai_record::write(file, &head, objects));
    let path = args.output.display();
    written.map_err(|error| {
        Complaint::input(format!("cannot write {path}: {error}"), "check that the folder exists and can be written to")
    })?;
    anstream::eprintln!("{path}: {count} objects; look at them with `kai replay {path}`");
    Ok(())
}
