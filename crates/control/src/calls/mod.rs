//! API calls of each component, as data. Components decide on them; [`crate::controller`] carries them to the executor.

mod bind;
mod group;
mod schedule;

pub use bind::BindEffect;
pub use group::{GroupEffect, Link, PlannedWrite};
pub use schedule::{Event, InvolvedObject, Write};
