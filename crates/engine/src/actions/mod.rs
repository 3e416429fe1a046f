//! The actions of a cycle, from least to most disruptive; one file each.

pub mod allocate;
pub mod consolidate;
mod early_exit;
mod failed_jobs;
pub mod preempt;
pub mod reclaim;
pub mod stale;
pub(crate) mod victim_action;
