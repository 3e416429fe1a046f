//! The search for victims: which jobs may lose pods for another, which of them to try together, and whether the rules
//! accept what that leads to.

pub(crate) mod disruption;
pub(crate) mod filters;
pub(crate) mod loss_bound;
pub(crate) mod min_runtime;
mod pruning;
mod queue_backlog;
mod reprieve;
mod scenario;
pub(crate) mod search;
mod simulate;
mod simulation_order;
pub(crate) mod victim_scope;
pub(crate) mod victims;
