//! A cluster in memory, on a virtual clock.
pub mod fault;
pub mod manifest;
pub mod time;
