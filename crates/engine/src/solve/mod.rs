//! Makes room for a job by moving or evicting others: who may lose pods, which of them to try together, and whether
//! the rules accept what that leads to.

pub mod filters;
pub mod index;
pub mod loss_bound;
pub mod min_runtime;
pub mod queue_backlog;
pub mod reprieve;
pub mod rules;
pub mod scenario;
pub mod search;
pub mod simulation_order;
pub mod victims;
