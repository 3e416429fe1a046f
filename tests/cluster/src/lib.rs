//! A real Kubernetes control plane with simulated GPU nodes, as plain processes on loopback.
//!
//! ```text
//!   programs   etcd, kube-apiserver, kube-controller-manager, kubectl, kwok: built once, kept by version
//!      │
//!      ▼
//!   Cluster::start   credentials → etcd → API server → controllers → custom resources → nodes → kubelets played by kwok
//!      │             → operators that were asked for: KubeRay, Kubeflow's, JobSet, LeaderWorkerSet
//!      │
//!      ├── start_upstream_kai, start_program: what is under test
//!      ├── start_kube_state_metrics, start_prometheus: what measures it
//!      ├── dropped: everything ends, the folder goes (a panicking test keeps it, for the logs)
//!      └── detach: lives on; what runs is written in its folder, for `status` and `down`
//! ```
//!
//! No container, no image, no root, nothing that listens beyond 127.0.0.1. The process that starts a cluster may die at any
//! moment: a guard process then ends what was started.

mod cluster;
mod control_plane;
mod credentials;
mod error;
mod kubectl;
mod manifests;
mod operators;
mod orphan_reaper;
mod ports;
mod process;
mod programs;
mod progress;
mod prometheus;
mod state;
pub mod status;
mod upstream_kai;

pub use cluster::{Cluster, Options, down};
pub use error::Error;
pub use kubectl::Kubectl;
pub use operators::Operator;
pub use programs::{MonitoringPrograms, Programs};
pub use progress::Progress;
pub use state::State;

use std::env;
use std::path::PathBuf;

/// Where built programs and clusters are kept: `KAI_CACHE_DIR`, or `kai` in the user's cache folder.
pub fn cache_dir() -> Result<PathBuf, Error> {
    let path = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    path("KAI_CACHE_DIR")
        .or_else(|| path("XDG_CACHE_HOME").map(|cache| cache.join("kai")))
        .or_else(|| path("HOME").map(|home| home.join(".cache/kai")))
        .ok_or(Error::NoCache)
}
