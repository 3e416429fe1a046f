//! Queues: what they may hold, which comes first, who may take from whom, and the order of jobs inside them.

pub mod capacity;
pub mod fair_share;
pub mod job_index;
pub mod job_info;
pub mod job_order;
pub mod order;
pub mod reclaim_rules;
