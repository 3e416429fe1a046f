//! Runs the controllers of `kai-control` against an API server: watches in, API calls out. Decides nothing.
//!
//! ```text
//!   kube-apiserver ──watch──▶ watch ──▶ controller of control ──▶ writes ──▶ api_writer ──▶ kube-apiserver
//!                                           ▲                                    │
//!                                           └──── failed: decided again ─────────┘
//! ```
//!
//! Each component is a loop that owns its state; only the calls run beside it, in a bounded number of tasks. All lasting
//! state is in the API server: a component may crash at any moment and reads everything again.

mod admission;
mod api_calls;
mod api_error;
mod api_metrics;
mod api_resource;
mod api_writer;
mod client;
mod clock;
mod controller_loop;
mod controllers;
mod deadline;
mod events;
mod fatal_error;
mod health;
mod http_server;
mod leader_election;
mod logs;
mod planned_channel;
mod process;
mod rate_limit;
mod retry;
mod scheduler;
mod snapshot;
mod status_controllers;
mod stripped_object;
#[cfg(test)]
mod test_server;
mod watch;
mod write_fence;
mod write_priority;

pub use admission::AdmissionOptions;
pub use controllers::ControllerOptions;
pub use fatal_error::FatalError;
pub use leader_election::LeaderElectionOptions;
pub use logs::{LogFormat, start_logs};
pub use process::{Component, Process};
pub use scheduler::{SchedulerOptions, SnapshotEncoder, SnapshotOptions};
pub use snapshot::{ClusterSnapshot, SnapshotProgress, take_snapshot};
pub use status_controllers::{QueueLabel, QueueStatusOptions};

use api_writer::ApiLimits;
use health::Health;
