//! Cluster objects in, effects out: everything of the control plane that is not the engine.
//!
//! ```text
//!   objects ──parse──▶ World ──lower──▶ Snapshot ──engine──▶ Outcome ──decode──▶ effects, reasons
//! ```
//!
//! Never does I/O, reads a clock or draws a random number: `now` is an argument, names are derived. The shell
//! that feeds a [`World`] and performs [`scheduler::Effect`]s may be a cluster or a simulator.

pub mod admission;
pub mod ancestors;
pub mod bind_batch;
pub mod binder;
pub mod calls;
pub mod component;
pub mod controller;
pub mod devices;
pub mod did_you_mean;
mod duration;
pub mod gpu_config_maps;
pub mod grouper;
pub mod key;
pub mod kinds;
pub mod node_scale;
pub mod objects;
pub mod quantity;
pub mod rbac;
pub mod registry;
pub mod resource_sum;
pub mod scheduler;
pub mod status;
pub mod world;

pub use key::Key;
pub use kinds::{Kind, Object, ObjectId};
pub use objects::Malformed;
pub use world::World;
