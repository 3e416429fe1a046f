//! Names for priorities.

use std::collections::BTreeMap;

use kai_api::keys::priority;
use serde_json::Value;

use super::Malformed;
use super::field_reader::FieldReader;

/// What matters of a `PriorityClass`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityClass {
    pub name: String,
    pub value: i32,
    pub global_default: bool,
}

impl PriorityClass {
    /// Priority of pods and groups that name no class, or one that does not exist.
    pub(crate) fn global_default_value(classes: &BTreeMap<String, Self>) -> i32 {
        // Of several global defaults Kubernetes takes the lowest.
        let defaults = classes.values().filter(|class| class.global_default);
        defaults.map(|class| class.value).min().unwrap_or(priority::DEFAULT)
    }

    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let place = root.field("value");
        Ok(Self {
            name: root.object_name()?,
            value: place
                .int32()?
                .ok_or_else(|| place.invalid("the priority class has no value", "add `value`, a whole number"))?,
            global_default: root.field("globalDefault").flag()?.unwrap_or(false),
        })
    }
}

#[cfg(test)]
impl PriorityClass {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "c"}, "value": 5, "globalDefault": true})
    }
}
