//! `kai snapshot`: a cluster in a file, for `kai replay`.

use std::fs::File;
use std::io::{self, Cursor, Seek, Write};
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use kai_control::scheduler::{Settings, Usage};
use kai_engine::units::Timestamp;
use kai_generate::config;
use kai_live::{ClusterSnapshot, SnapshotEncoder, take_snapshot};
use kai_record::Head;
use serde_json::{Value, json};

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
    let taken = take_snapshot(args.kubeconfig.as_deref(), tell);
    progress.finish_and_clear();
    let help = "check that --kubeconfig names the right cluster and that you may list everything in it";
    let picture = taken.map_err(|fault| Complaint::input(fault.to_string(), help))?;
    let count = picture.objects.len();
    let parameters = config::parameters();
    let written = File::create(&args.output)
        .and_then(|file| write(file, picture, Told { config, parameters, usage: Usage::default(), now }));
    let path = args.output.display();
    written.map_err(|error| {
        Complaint::input(format!("cannot write {path}: {error}"), "check that the folder exists and can be written to")
    })?;
    anstream::eprintln!("{path}: {count} objects; look at them with `kai replay {path}`");
    Ok(())
}

/// What is to be told beside the objects.
struct Told {
    config: Value,
    parameters: Value,
    usage: Usage,
    now: Timestamp,
}

fn write(out: impl Write + Seek, picture: ClusterSnapshot, told: Told) -> io::Result<()> {
    let Told { config, parameters, usage, now } = told;
    let discovery = json!({"serverVersion": picture.server_version, "resources": []});
    kai_record::write(out, &Head { config, parameters, discovery, now, usage }, picture.objects)
}

/// How a scheduler with this configuration file and these settings makes snapshots of its cluster.
pub(crate) fn packer(file: Value, settings: &Settings) -> Arc<SnapshotEncoder> {
    let config = if file.is_null() { config::file() } else { file };
    let mut parameters = config::parameters();
    parameters["schedulerName"] = json!(settings.scheduler_name);
    parameters["partitionParams"] = json!({
        "NodePoolLabelKey": settings.node_pool_label_key,
        "NodePoolLabelValue": settings.node_pool_value.as_deref().unwrap_or_default(),
    });
    Arc::new(move |picture, usage| {
        let mut file = Cursor::new(Vec::new());
        let now = Timestamp(jiff::Timestamp::now().as_microsecond());
        write(&mut file, picture, Told { config: config.clone(), parameters: parameters.clone(), usage, now })?;
        Ok(file.into_inner())
    })
}
