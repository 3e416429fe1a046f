//! The whole command, through the binary: what it prints, where, and how it ends.
//!
//! `UPDATE_EXPECT=1 cargo test -p kai-cli` rewrites every expectation; review the difference like code.
#![allow(clippy::needless_raw_string_hashes, reason = "expectations are written by a tool")]
#![allow(clippy::needless_pass_by_value, reason = "an expectation is made for one comparison")]

mod bad_input;
mod bad_scenario;
mod examples;
mod help;
mod hostile;
mod invocation;
mod placed_pods;
mod processes;
mod reference;
mod replay;
mod state_of_components;
mod stories;
