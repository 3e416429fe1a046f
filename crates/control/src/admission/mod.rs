//! What may enter the cluster, and what is added on the way in: one file per kind; what the API server is told about
//! whom to ask (`registration.rs`), and when the certificate is renewed (`rotation.rs`).
//!
//! Pure functions of the object, the one it replaces and the [`World`](crate::World). Whoever speaks HTTPS turns an
//! [`AdmissionResult`] into an admission response. Refusals begin with KAI's words, so that whoever looks for them
//! finds them, and end with what to do.

mod cache;
mod component;
mod pod;
mod pod_group;
mod queue;
mod registration;
pub mod rotation;
mod topology;

#[cfg(test)]
mod tests;

pub use cache::AdmissionCache;
pub use component::COMPONENT;
pub use pod::{PodRules, mutate_pod, shares_gpu, validate_pod};
pub use pod_group::validate_pod_group;
pub use queue::{delete_queue, validate_queue};
pub use registration::{WebhookEndpoint, configurations};
pub use topology::validate_topology;

use crate::objects::Malformed;

/// What is said about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionResult {
    /// Why it must not enter; nothing if it may.
    pub denials: Vec<String>,
    /// What its author should know.
    pub warnings: Vec<String>,
}

impl AdmissionResult {
    pub fn allow() -> Self {
        Self::default()
    }

    pub fn deny(why: impl Into<String>) -> Self {
        Self { denials: vec![why.into()], warnings: Vec::new() }
    }

    pub fn allowed(&self) -> bool {
        self.denials.is_empty()
    }

    /// Of a change: what was wrong before is told, not refused. Otherwise nobody could remove the finalizer of an object
    /// that came in while nobody was asked.
    #[must_use]
    pub fn tolerating_existing(self, before: &Self) -> Self {
        if self.allowed() || !self.denials.iter().all(|why| before.denials.contains(why)) {
            return self;
        }
        Self { denials: Vec::new(), warnings: [self.denials, self.warnings].concat() }
    }

    /// All denials, a line each.
    pub fn message(&self) -> String {
        self.denials.join("\n")
    }
}

impl From<Malformed> for AdmissionResult {
    fn from(malformed: Malformed) -> Self {
        Self::deny(format!("{malformed}; {}", malformed.hint))
    }
}
