//! Synthetic clusters of any size, and what one cycle over them costs.
//!
//! [`snapshot`] makes numeric snapshots of the clusters of `kai-generate`; [`count`] says what a cycle decided and [`check`]
//! whether it may; [`measure`] runs cycles in a process of their own and [`table`] sets the results beside what KAI
//! needs for the same work. [`steady`] runs cycle after cycle over objects. Start reading at [`measure::here`].

pub mod budget;
pub mod check;
pub mod count;
pub mod kai;
pub mod measure;
pub mod snapshot;
pub mod steady;
pub mod table;
