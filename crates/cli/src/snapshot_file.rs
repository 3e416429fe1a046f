//! Snapshots of clusters as files that `kai replay` reads.

use std::io::{self, Cursor, Seek, Write};
use std::sync::Arc;

use kai_control::scheduler::{Settings, Usage};
use kai_engine::units::Timestamp;
use kai_generate::config;
use kai_live::{ClusterSnapshot, SnapshotEncoder};
use kai_record::RecordingHeader;
use serde_json::{Value, json};

/// What a snapshot holds beside the objects.
pub(crate) struct SnapshotMeta {
    pub(crate) config: Value,
    pub(crate) parameters: Value,
    pub(crate) usage: Usage,
    pub(crate) now: Timestamp,
}

pub(crate) fn write(out: impl Write + Seek, snapshot: ClusterSnapshot, meta: SnapshotMeta) -> io::Result<()> {
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
