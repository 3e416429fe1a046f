//! Strict reading of our own documents: an unknown key is an error with a suggestion, never ignored.

use kai_engine::units::Span;
use serde_json::{Map, Value};

use crate::fault::{Fault, Place, suggest};
use crate::time::parse_span;

/// An object with known keys at a known place.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    place: &'a Place,
    path: String,
}

impl<'a> Fields<'a> {
    /// Opens an object; refuses keys that are not in `known`.
    pub(crate) fn open(value: &'a Value, place: &'a Place, path: &str, known: &[&str]) -> Result<Self, Fault> {
        let Value::Object(map) = value else {
            return Err(Fault::new(
                place.field(path),
                format!("expected keys and values, found {}", describe(value)),
                format!("understood here: {}", known.join(", ")),
            ));
        };
        let fields = Self { map, place, path: path.to_owned() };
        for key in map.keys() {
            if !known.contains(&key.as_str()) {
                return Err(Fault::new(fields.at(key), format!("unknown key `{key}`"), suggest(key, known)));
            }
        }
        Ok(fields)
    }

    /// The place of a key.
    pub(crate) fn at(&self, key: &str) -> Place {
        self.place.field(self.path_of(key))
    }

    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The place of the object itself.
    pub(crate) fn here(&self) -> Place {
        self.place.field(self.path.clone())
    }

    /// The value of a key; `null` is no value.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &str, wanted: &str, value: &Value) -> Fault {
        Fault::new(
            self.at(key),
            format!("expected {wanted}, found {}", describe(value)),
            format!("write {wanted} here"),
        )
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, Fault> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "text", other)),
        }
    }

    pub(crate) fn required_text(&self, key: &str) -> Result<&'a str, Fault> {
        self.text(key)?.ok_or_else(|| self.missing(key))
    }

    /// The complaint that a key must be there.
    pub(crate) fn missing(&self, key: &str) -> Fault {
        Fault::new(self.here(), format!("`{key}` is missing"), format!("add `{key}:` here"))
    }

    pub(crate) fn count(&self, key: &str) -> Result<Option<u32>, Fault> {
        self.get(key)
            .map(|value| {
                let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
                count.ok_or_else(|| self.wrong(key, "a whole number from 0 up", value))
            })
            .transpose()
    }

    pub(crate) fn span(&self, key: &str) -> Result<Option<Span>, Fault> {
        const WANTED: &str = "a span of time such as 10s, 5m or 1h30m";
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => match parse_span(text) {
                Some(span) => Ok(Some(span)),
                None => Err(self.wrong(key, WANTED, &Value::String(text.clone()))),
            },
            Some(Value::Number(number)) if number.as_i64() == Some(0) => Ok(Some(Span(0))),
            Some(other) => Err(self.wrong(key, WANTED, other)),
        }
    }

    /// The items of a list; none if the key is absent.
    pub(crate) fn list(&self, key: &str) -> Result<&'a [Value], Fault> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(self.wrong(key, "a list", other)),
        }
    }

    /// One text or a list of texts.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<&'a str>, Fault> {
        let one = |value: &'a Value| match value {
            Value::String(text) if !text.is_empty() => Ok(text.as_str()),
            other => Err(self.wrong(key, "text or a list of texts", other)),
        };
        match self.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items.iter().map(one).collect(),
            Some(value) => Ok(vec![one(value)?]),
        }
    }
}

/// A value in words, for complaints.
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
