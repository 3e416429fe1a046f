//! The shell around the controllers on a real cluster: watches in, API calls out. Decides nothing.
//!
//! ```text
//!   kube-apiserver ──watch──▶ watch ──▶ in-flight World ──▶ control::scheduler ──▶ effects ──▶ writer ──▶ kube-apiserver
//!                                           ▲                                                    │
//!                                           └──────────── refused: it was not done ──────────────┘
//! ```
//!
//! Each component is a loop that owns what it knows; only writing is done beside it, by a bounded number of tasks.
//! Whatever must be remembered is in the API server: a component may die at any moment and reads all of it again.

mod admission;
mod binder;
mod client;
mod clock;
mod drafts;
mod events;
mod fault;
mod grouper;
mod health;
mod kinds;
mod lease;
mod logs;
mod node_scale;
mod pace;
mod process;
mod raw;
mod scheduler;
mod snapshot;
mod status;
mod watch;
mod writer;

pub use admission::AdmissionOptions;
pub use binder::BinderOptions;
pub use fault::Fault;
pub use grouper::GrouperOptions;
pub use lease::LeaseOptions;
pub use logs::{LogFormat, start_logs};
pub use node_scale::NodeScaleOptions;
pub use process::{Component, Process};
pub use scheduler::{Pack, SchedulerOptions, SnapshotOptions};
pub use snapshot::{Picture, take_picture};
pub use status::{QueueLabel, StatusOptions};

use health::Health;
use pace::Pace;
