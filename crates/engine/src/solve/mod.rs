//! Makes room for a job by moving or evicting others.

pub mod rules;
