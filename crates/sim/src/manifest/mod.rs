//! Reads a cluster and what happens to it from ordinary Kubernetes YAML.
//!
//! Everything is read, completed and checked before anything is simulated: the first thing that is wrong is
//! reported with file, document, object and field, and nothing is applied.

mod classify;
mod defaults;
mod document;
mod fields;
mod plan;
mod scenario;
mod validate;

pub use crate::kinds::{Id, Kind};
pub use document::Source;
pub use plan::{Plan, missing_files, read};

pub(crate) use classify::Item;
pub(crate) use defaults::complete_pod;
pub(crate) use fields::Fields;
pub(crate) use plan::ResolvedAction;
pub(crate) use scenario::Scenario;
pub(crate) use validate::DURATION_ANNOTATION;
