//! Errors, with what to do about them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error as ThisError;

#[derive(Debug, ThisError)]
pub enum Error {
    #[error("no folder for built programs is known: set KAI_CACHE_DIR")]
    NoCache,
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("credentials: {0}")]
    Keys(#[from] rcgen::Error),
    #[error("no randomness for the admin token: {0}")]
    Random(getrandom::Error),
    #[error("{path} is not the state of a cluster: {source}\nremove its folder if nothing of it runs any more")]
    State { path: PathBuf, source: serde_json::Error },
    #[error("{name} cannot be used as a name: use lower-case letters, digits and dashes")]
    BadName { name: String },
    #[error("cluster {name} exists already: `cargo xtask cluster down --name {name}` ends it, or use another --name")]
    Exists { name: String },
    #[error("cluster {name} is being started, ended or used by another process: wait for it, or use another --name")]
    Busy { name: String },
    #[error("KUBEBUILDER_ASSETS is {assets}, but there is no {program} in it: put it there, or unset the variable")]
    NoAsset { assets: PathBuf, program: &'static str },
    #[error("go is needed to build {what}, and cannot be run: {source}\ninstall Go 1.25 or later")]
    NoGo { what: String, source: io::Error },
    #[error("building {what} failed ({status}); the end of {log}:\n{tail}")]
    Build { what: String, status: ExitStatus, log: PathBuf, tail: String },
    #[error("{process} ended ({status}) while {during}; the end of {log}:\n{tail}")]
    Died { process: &'static str, status: String, during: String, log: PathBuf, tail: String },
    #[error("{what} took longer than {} s; the end of {log}:\n{tail}", after.as_secs())]
    Late { what: String, after: Duration, log: PathBuf, tail: String },
    #[error("kubectl {arguments}: {message}")]
    Kubectl { arguments: String, message: String },
}

impl Error {
    /// For `map_err`: what was being done to which file.
    pub(crate) fn io(verb: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let what = format!("cannot {verb} {}", path.display());
        move |source| Self::Io { what, source }
    }

    /// Another process took a port after it was chosen and before it was used.
    pub(crate) fn is_port_taken(&self) -> bool {
        matches!(self, Self::Died { tail, .. } if tail.contains("address already in use"))
    }
}
