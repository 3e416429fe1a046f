//! Reads a cluster and what happens to it from ordinary Kubernetes YAML.
//!
//! Everything is read, completed and checked before anything is simulated: the first thing that is wrong is
//! reported with file, document, object and field, and nothing is applied.

mod admission;
mod document;
mod fields;
mod kinds;
mod plan;
mod scenario;

pub use document::Source;
pub use kinds::{Id, Kind};
pub use plan::{Plan, missing_files, read};

pub(crate) use admission::{COUNT_MAX, DURATION_ANNOTATION, annotation, complete_pod, object_at};
pub(crate) use fields::{Fields, describe};
pub(crate) use kinds::Item;
pub(crate) use plan::ResolvedAction;
pub(crate) use scenario::Scenario;
