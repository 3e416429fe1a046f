//! What ends a component.

use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum Fault {
    #[error("cannot read kubeconfig {path}: {source}")]
    Kubeconfig { path: PathBuf, source: kube::config::KubeconfigError },
    #[error("no cluster is configured: {0}; set KUBECONFIG or pass --kubeconfig")]
    NoCluster(kube::config::InferConfigError),
    #[error("cannot make a client: {0}")]
    Client(Box<kube::Error>),
    #[error("cannot read objects of kind {kind}: {source}")]
    Unread { kind: String, source: Box<kube::Error> },
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("lost the lease {0}: another replica leads now")]
    LeaseLost(String),
    #[error("cannot learn past usage: {0}")]
    Usage(String),
    #[error("a component failed: {0}")]
    Ended(String),
    #[error("cannot start: {0}")]
    Runtime(std::io::Error),
}
