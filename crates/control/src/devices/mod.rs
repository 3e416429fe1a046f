//! Dynamic resource allocation: devices of resource slices and claims of pods, as numbers for the engine and back.
//!
//! ```text
//!   slices ──▶ pools ──▶ devices ─┐
//!   classes, claims ──▶ selectors ┴─▶ sets of matching devices ──▶ engine ──▶ picks ──▶ allocation results
//! ```
//!
//! Each distinct expression is evaluated once per device. Whoever has no claims pays for none of this.

mod cel;
mod claims;
mod inventory;

pub use claims::{ClaimBook, ClaimRef, Consumed, Consumer, Extended, Written};
pub use inventory::{ClaimFault, Inventory, NodeView, Origin, SelectorError};
