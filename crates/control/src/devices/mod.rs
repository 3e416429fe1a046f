//! Dynamic resource allocation: devices of resource slices and claims of pods, as numbers for the engine and back.
//!
//! ```text
//!   slices ──▶ pools ──▶ devices ─┐
//!   classes, claims ──▶ selectors ┴─▶ sets of matching devices ──▶ engine ──▶ picks ──▶ allocation results
//! ```
//!
//! Each distinct expression is evaluated once per device. A cluster without claims skips all of this.

mod allocation;
mod cel;
mod cel_budget;
mod claims;
mod faults;
mod inventory;

pub use allocation::{ClaimedDevices, ExtendedDevices};
pub use claims::{ClaimRef, ClaimSource, ClaimTranslator, Consumed, Consumer, Extended};
pub use faults::{ClaimFault, Origin};
pub use inventory::{Inventory, NodeView, SelectorError};
