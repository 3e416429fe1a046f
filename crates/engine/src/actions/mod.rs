//! The actions of a cycle, from least to most disruptive; one file each.

pub mod allocate;
pub mod consolidate;
pub mod making_room;
mod patience;
pub mod preempt;
pub mod reclaim;
pub mod stale;
