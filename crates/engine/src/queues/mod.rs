//! Queues: capacity, fair shares, reclaim rules, and the order of queues and of jobs inside them.

pub mod capacity;
pub mod fair_share;
pub mod job_index;
pub mod job_info;
pub mod job_order;
pub mod order;
pub mod reclaim_rules;
