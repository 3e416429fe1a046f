//! Queues: capacity, fair shares, reclaim rules, and the order of queues and of jobs inside them.

pub mod capacity;
pub mod fair_share;
pub(crate) mod job_index;
pub(crate) mod job_info;
pub(crate) mod job_order;
pub mod order;
pub mod reclaim_rules;
