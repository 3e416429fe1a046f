//! Nodes: which of them a pod may use, and which is best.

pub mod claims;
pub(crate) mod explain;
pub mod filter;
pub(crate) mod finder;
pub(crate) mod free_bounds;
pub(crate) mod inter_pod;
pub mod numa;
pub(crate) mod resources;
pub(crate) mod score;
pub mod topology;
mod tournament;
pub mod volumes;
