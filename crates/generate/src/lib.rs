//! Synthetic clusters of any size: nodes, queues, jobs that run and jobs that wait.
//!
//! A [`Scenario`] fills a [`Cluster`] of a given [`Size`]; equal arguments give equal clusters. [`objects`] writes it
//! down as Kubernetes objects, with the fields that real ones have, [`manifests`] for a simulator, and [`config`] says how
//! the scheduler is set up.
//! Start reading at [`SCENARIOS`].

pub mod cluster;
pub mod config;
pub mod manifests;
pub mod objects;
mod scenarios;
mod size;

pub use cluster::Cluster;
pub use scenarios::{SCENARIOS, Scenario};
pub use size::Size;
