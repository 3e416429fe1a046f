//! Names for priorities.

use serde_json::Value;

use super::Malformed;
use super::reader::Reader;

/// What matters of a `PriorityClass`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityClass {
    pub name: String,
    pub value: i32,
    pub global_default: bool,
}

impl PriorityClass {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = Reader::root(value);
        let place = root.field("value");
        Ok(Self {
            name: root.object_name()?,
            value: place
                .int32()?
                .ok_or_else(|| place.wrong("the priority class has no value", "add `value`, a whole number"))?,
            global_default: root.field("globalDefault").flag()?.unwrap_or(false),
        })
    }
}
