//! `kai snapshot`: a cluster in a file, for `kai replay`.

use std::fs::File;
use std::io::{self, Cursor, Seek, Write};
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use kai_control::scheduler::{Settings, Usage};
use kai_engine::units::Timestamp;
use kai_generate::config;
use kai_live::{ClusterSnapshot, SnapshotEncoder, SnapshotProgress, take_snapshot};
use kai_record::RecordingHeader;
use serde_json::{Value, json};

use crate::args::SnapshotArgs;
use crate::error::CliError;
use crate::files::read_yaml;

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

/// What a snapshot holds beside the objects.
struct SnapshotMeta {
    config: Value,
    parameters: Value,
    usage: Usage,
    now: Timestamp,
}

fn write(out: impl Write + Seek, snapshot: ClusterSnapshot, meta: SnapshotMeta) -> io::Result<()> {
    let SnapshotMeta { config, parameters, usage, now } = meta;
    let discovery = json!({"serverVersion": snapshot.server_version, "resources": []});
    kai_record::write(out, &RecordingHeader { config, parameters, discovery, now, usage }, snapshot.objects)
}

/// Writes snapshots of a cluster whose scheduler has this configuration file and these settings.
pub(crate) fn snapshot_encoder(file: Value, settings: &Settings) -> Arc<SnapshotEncoder> {
    let config = if file.is_null() { config::file() } else { file };
    let mut parameters = config::parameters();
    parameters["schedulerName"] = json!(settings.scheduler_name);
    parameters["partitionParams"] = json!({
        "NodePoolLabelKey": settings.node_pool_label_key,
        "NodePoolLabelValue": settings.node_pool_value.as_deref().unwrap_or_default(),
    });
    Arc::new(move |snapshot, usage| {
        let mut file = Cursor::new(Vec::new());
        let now = Timestamp(jiff::Timestamp::now().as_microsecond());
        write(
            &mut file,
            snapshot,
            SnapshotMeta { config: config.clone(), parameters: parameters.clone(), usage, now },
        )?;
        Ok(file.into_inner())
    })
}
