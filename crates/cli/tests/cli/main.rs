//! The whole command, through the binary: what it prints, where, and how it ends.
//!
//! `UPDATE_EXPECT=1 cargo test -p kai-cli` rewrites every expectation; review the difference like code.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tests may talk")]

mod bad_input;
mod bad_scenario;
mod examples;
mod help;
mod invocation;
mod stories;
