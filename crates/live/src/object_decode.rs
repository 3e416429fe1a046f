//! Objects of the API server as those of the controllers.

use kai_control::{Key, Object};
use serde_json::Value;

/// A malformed object counts as absent: it must not keep the others from being seen.
pub(crate) fn parse_or_warn(value: &Value) -> Option<Object> {
    match Object::parse(value) {
        Ok(object) => object,
        Err(malformed) => {
            let (kind, key) = (value["kind"].as_str(), Key::of(value));
            tracing::warn!(kind, %key, problem = %malformed, hint = malformed.hint, "object skipped");
            None
        }
    }
}
