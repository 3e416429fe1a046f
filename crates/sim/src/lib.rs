//! A cluster in memory, on a virtual clock, run by the scheduler as shipped.
//!
//! ```text
//!   text ──manifest──▶ Plan ──simulate──▶ Report
//!                               │
//!               store · controllers · kubelets · grouper · scheduler cycle
//!                               └── checkers after every event
//! ```
//!
//! Pure: files come in as text, time is virtual, chance comes from a seed. Same input, same report, byte for byte;
//! an hour in the cluster takes milliseconds, because nothing waits for the time in between.

mod amounts;
mod chaos;
mod checkers;
mod cluster;
pub mod input_error;
mod journal;
mod json;
mod kinds;
pub mod manifest;
mod operators;
pub mod report;
mod run;
mod settings;
pub mod time;
mod usage_sampler;

pub use chaos::{ChaosStats, Disturbance, Trace, run_for, run_with_faults};
pub use checkers::Violation;
pub use input_error::InputError;
pub use journal::Event;
pub use kai_engine::units::Span;
pub use manifest::{Plan, Source};
pub use report::Report;
pub use run::{Options, Progress, SimulationError, simulate};
