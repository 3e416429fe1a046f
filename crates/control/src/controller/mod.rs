//! What controllers have in common.

mod work_queue;

pub(crate) use work_queue::WorkQueue;
