//! Objects as JSON: finding, making and describing places in them.

use serde_json::{Map, Value};

/// The object below a key, made if need be; `None` if something else stands there.
pub(crate) fn object_at<'a>(value: &'a mut Value, keys: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut here = value;
    for key in keys {
        let entry = here.as_object_mut()?.entry(*key).or_insert(Value::Null);
        if entry.is_null() {
            *entry = Value::Object(Map::new());
        }
        here = entry;
    }
    here.as_object_mut()
}

/// The text of an annotation.
pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// A value in words, for error messages.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(flag) => format!("`{flag}`"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text `{text}`"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "keys and values".to_owned(),
    }
}
