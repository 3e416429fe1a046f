//! Why a pod could not be grouped: which object, which field, what is wrong with it.

use serde_json::Value;
use thiserror::Error;

use crate::brief::brief;
use crate::object_ref::ObjectRef;

/// A few sentences: more than any message of ours has without text of users.
const MESSAGE_CHARS_MAX: usize = 800;

/// The pod gets no group until `field` of `object` is corrected, or the object it names appears.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", brief(&format!("{object}: {field} {fault}"), MESSAGE_CHARS_MAX))]
pub struct GroupError {
    /// Boxed, as the next one: errors travel through every rule and should stay small.
    pub object: Box<ObjectRef>,
    pub field: String,
    pub fault: Fault,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    #[error("is missing")]
    Missing,
    #[error("must be {expected}, but is {found}")]
    Malformed { expected: String, found: String },
    #[error("repeats kind {kind}, which is declared already")]
    DeclaredTwice { kind: String },
    /// The caller may know that the object was not fetched yet, and fetch it.
    #[error("refers to {0}, which does not exist")]
    NotFound(Box<ObjectRef>),
}

/// Names a JSON value in an error, without pouring whole objects into an event.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => quoted(text),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Long enough for any sane value, short enough for an event.
const SHOWN_CHARS_MAX: usize = 64;

pub(crate) fn quoted(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    let rest = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{rest}")
}
