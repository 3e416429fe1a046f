//! Synthetic clusters of any size, and what one cycle over them costs.
//!
//! [`scenarios`] makes numeric snapshots, equal for equal arguments; [`count`] says what a cycle decided and [`check`]
//! whether it may; [`measure`] runs cycles in a process of their own and [`table`] sets the results beside what KAI
//! needs for the same work. Start reading at [`scenarios::SCENARIOS`].

pub mod budget;
pub mod check;
pub mod cluster;
pub mod count;
pub mod kai;
pub mod measure;
pub mod meter;
pub mod scenarios;
pub mod size;
pub mod table;
