//! The rules: one file per workload kind, each with its tests. `TABLE` says which kind uses which.

pub mod aml_job;
pub mod cron_job;
pub mod deployment;
pub mod grove;
pub mod job;
pub mod job_set;
pub mod karta;
pub mod knative;
pub mod kubeflow;
pub mod leader_worker_set;
pub mod plain;
pub mod pod;
pub mod ray;
pub mod runai_job;
pub mod spot_request;
pub mod wrapper;

/// A workload cut finer than this is a mistake, and would not fit into one object anyway.
pub(crate) const SEGMENTS_MAX: i32 = 10_000;
