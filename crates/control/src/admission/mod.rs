//! Validation and mutation of objects by webhooks: one file per kind; webhook configurations (`registration.rs`) and
//! renewal of the certificate (`rotation.rs`).
//!
//! Pure functions of the object, the one it replaces and the [`World`](crate::World). The HTTPS server turns an
//! [`AdmissionResult`] into an admission response. Denials begin with KAI's text, so that a search for it finds them, and
//! end with what to do.

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

use kai_workloads::brief;

use crate::objects::Malformed;

/// Characters of a denial, which may repeat what users wrote.
const DENIAL_CHARS_MAX: usize = 1_000;

/// Denials and warnings of one object. Thousands of them help no reader.
const TEXTS_MAX: usize = 8;

/// The result for one object.
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
        Self { denials: vec![brief(&why.into(), DENIAL_CHARS_MAX).into_owned()], warnings: Vec::new() }
    }

    /// The first messages, each in short.
    fn bounded(self) -> Self {
        let some = |texts: Vec<String>| {
            let more = texts.len().saturating_sub(TEXTS_MAX);
            let mut some: Vec<String> =
                texts.iter().take(TEXTS_MAX).map(|text| brief(text, 200).into_owned()).collect();
            if more > 0 {
                some.push(format!("and {more} more like these"));
            }
            some
        };
        Self { denials: some(self.denials), warnings: some(self.warnings) }
    }

    pub fn allowed(&self) -> bool {
        self.denials.is_empty()
    }

    /// On update, violations that the old object already had become warnings. Otherwise a finalizer could not be removed
    /// from an invalid object that was created while the webhook was down.
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
