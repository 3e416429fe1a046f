//! Errors that end a component, and with it the process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum FatalError {
    #[error("cannot read kubeconfig {path}: {source}")]
    Kubeconfig { path: PathBuf, source: kube::config::KubeconfigError },
    #[error("no cluster is configured: {0}; set KUBECONFIG or pass --kubeconfig")]
    NoCluster(kube::config::InferConfigError),
    #[error("cannot connect to the API server: {0}")]
    Client(Box<kube::Error>),
    #[error("cannot list objects of kind {kind}: {source}")]
    List { kind: String, source: Box<kube::Error> },
    #[error("cannot listen on {address}: {source}")]
    Bind { address: SocketAddr, source: std::io::Error },
    #[error("leader lease {lease} was taken by {holder}")]
    LeaseTaken { lease: String, holder: String },
    #[error("could not renew leader lease {lease} within {} s", within.as_secs_f64())]
    LeaseNotRenewed { lease: String, within: Duration },
    #[error("usage-based fairness needs Prometheus: {0}")]
    UsageSource(String),
    #[error("a component failed: {0}")]
    ComponentPanicked(String),
    #[error("cannot start: {0}")]
    Runtime(std::io::Error),
}
