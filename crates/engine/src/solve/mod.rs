//! Makes room for a job by moving or evicting others: who may lose pods, which of them to try together, and whether
//! the rules accept what that leads to.

pub mod ahead;
pub mod filters;
pub mod index;
pub mod losses;
pub mod min_runtime;
pub mod players;
pub mod rules;
pub mod scenario;
pub mod search;
pub mod spare;
pub mod victims;
