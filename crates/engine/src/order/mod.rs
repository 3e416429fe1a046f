//! Orders: queues among siblings, jobs inside a queue, and the tree that combines both.

pub mod jobs;
pub mod queues;
pub mod tree;
