//! Logs to standard error.

use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text {
        color: bool,
    },
    /// One JSON object a line.
    Json,
}

/// Logs to standard error from here on; `RUST_LOG` overrides the level.
pub fn start_logs(format: LogFormat, level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(format!("{level},kube=warn")));
    // A log line that cannot be written, because a disk is full or a pipe closed, is lost. By default it would be reported
    // to standard error, too, which panics there.
    let logs =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    // The first caller wins; in tests there may be several.
    let _ = match format {
        LogFormat::Text { color } => logs.with_ansi(color).try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
}
