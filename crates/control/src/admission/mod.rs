//! What may enter the cluster, and what is added on the way in: one file per kind; what the API server is told about
//! whom to ask (`registration.rs`), and when the certificate is renewed (`certificate.rs`).
//!
//! Pure functions of the object, the one it replaces and the [`World`](crate::World). Whoever speaks HTTPS turns an
//! [`Answer`] into an admission response. Refusals begin with KAI's words, so that whoever looks for them finds them,
//! and end with what to do.

pub mod certificate;
mod pod;
mod pod_group;
mod queue;
mod registration;
mod topology;

#[cfg(test)]
mod tests;

pub use pod::{PodRules, mutate_pod, shares_gpu, validate_pod};
pub use pod_group::validate_pod_group;
pub use queue::{delete_queue, validate_queue};
pub use registration::{Reach, configurations};
pub use topology::validate_topology;

use crate::objects::Malformed;

/// What is said about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Why it must not enter; nothing if it may.
    pub refusals: Vec<String>,
    /// What its author should know.
    pub warnings: Vec<String>,
}

impl Answer {
    pub fn welcome() -> Self {
        Self::default()
    }

    pub fn refuse(why: impl Into<String>) -> Self {
        Self { refusals: vec![why.into()], warnings: Vec::new() }
    }

    pub fn allowed(&self) -> bool {
        self.refusals.is_empty()
    }

    /// Of a change: what was wrong before is told, not refused. Otherwise nobody could remove the finalizer of an object
    /// that came in while nobody was asked.
    #[must_use]
    pub fn compared_with(self, before: &Self) -> Self {
        if self.allowed() || !self.refusals.iter().all(|why| before.refusals.contains(why)) {
            return self;
        }
        Self { refusals: Vec::new(), warnings: [self.refusals, self.warnings].concat() }
    }

    /// All refusals, a line each.
    pub fn message(&self) -> String {
        self.refusals.join("\n")
    }
}

impl From<Malformed> for Answer {
    fn from(malformed: Malformed) -> Self {
        Self::refuse(format!("{malformed}; {}", malformed.hint))
    }
}
