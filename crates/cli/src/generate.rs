//! `kai generate`: a synthetic cluster in a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use kai_control::scheduler::Usage;
use kai_engine::units::Timestamp;
use kai_generate::cluster::NOW_SECONDS;
use kai_generate::manifests::manifests;
use kai_generate::objects::objects;
use kai_generate::{Cluster, Size, config};
use kai_record::RecordingHeader;
use serde_json::json;

use crate::args::{FileFormat, GenerateArgs};
use crate::error::CliError;

pub(crate) fn run(args: GenerateArgs) -> Result<(), CliError> {
    let GenerateArgs { scenario, nodes, queues, pending, seed, format, output } = args;
    let usual = scenario.size(nodes);
    let size = Size { seed, pending, ..queues.map_or(usual, |queues| Size::with_queues(nodes, queues)) };
    let mut cluster = scenario.cluster(size);
    let format = format.unwrap_or_else(|| FileFormat::of(&output));
    write(&mut cluster, format, &output).map_err(|error| {
        let help = match format {
            FileFormat::Zip if is_stdout(&output) => "archives need a file; use --format yaml for standard output",
            _ => "check that the folder exists and can be written to",
        };
        CliError::input(format!("cannot write {}: {error}", output.display()), help)
    })
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn write(cluster: &mut Cluster, format: FileFormat, path: &Path) -> io::Result<()> {
    match format {
        FileFormat::Zip if is_stdout(path) => Err(io::Error::other("standard output cannot be rewound")),
        FileFormat::Zip => {
            let head = RecordingHeader {
                config: config::file(),
                parameters: config::parameters(),
                discovery: json!({"serverVersion": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}, "resources": []}),
                now: Timestamp(NOW_SECONDS * 1_000_000),
                usage: Usage::default(),
            };
            kai_record::write(File::create(path)?, &head, objects(cluster))
        }
        FileFormat::Yaml if is_stdout(path) => yaml(cluster, io::stdout().lock()),
        FileFormat::Yaml => yaml(cluster, File::create(path)?),
    }
}

fn yaml(cluster: &Cluster, out: impl Write) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    for object in manifests(cluster) {
        out.write_all(b"---\n")?;
        yaml_serde::to_writer(&mut out, &object).map_err(io::Error::other)?;
    }
    out.flush()
}
