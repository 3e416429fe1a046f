//! Nodes: which of them a pod may use, and which is best.

pub mod claims;
pub(crate) mod explain;
pub mod filter;
pub mod finder;
pub(crate) mod free_bounds;
pub mod inter_pod;
pub mod numa;
pub mod resources;
pub(crate) mod score;
pub mod topology;
mod tournament;
pub mod volumes;
