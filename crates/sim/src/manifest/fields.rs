//! Strict reading of our own documents: an unknown key is an error with a suggestion, never ignored.

use kai_engine::units::Span;
use serde_json::{Map, Value};

use crate::input_error::{InputError, SourceLocation, suggest};
use crate::json::describe;
use crate::time::parse_span;

/// An object with known keys at a known location.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    location: &'a SourceLocation,
    path: String,
}

impl<'a> Fields<'a> {
    /// Opens an object; refuses keys that are not in `known`.
    pub(crate) fn open(
        value: &'a Value,
        location: &'a SourceLocation,
        path: &str,
        known: &[&str],
    ) -> Result<Self, InputError> {
        let Value::Object(map) = value else {
            return Err(InputError::new(
                location.field(path),
                format!("expected keys and values, found {}", describe(value)),
                format!("understood here: {}", known.join(", ")),
            ));
        };
        let fields = Self { map, location, path: path.to_owned() };
        for key in map.keys() {
            if !known.contains(&key.as_str()) {
                return Err(InputError::new(fields.at(key), format!("unknown key `{key}`"), suggest(key, known)));
            }
        }
        Ok(fields)
    }

    /// The location of a key.
    pub(crate) fn at(&self, key: &str) -> SourceLocation {
        self.location.field(self.path_of(key))
    }

    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The location of the object itself.
    pub(crate) fn here(&self) -> SourceLocation {
        self.location.field(self.path.clone())
    }

    /// The value of a key; `null` is no value.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &str, wanted: &str, value: &Value) -> InputError {
        InputError::new(
            self.at(key),
            format!("expected {wanted}, found {}", describe(value)),
            format!("write {wanted} here"),
        )
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, InputError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "text", other)),
        }
    }

    pub(crate) fn required_text(&self, key: &str) -> Result<&'a str, InputError> {
        self.text(key)?.ok_or_else(|| self.missing(key))
    }

    /// The complaint that a key must be there.
    pub(crate) fn missing(&self, key: &str) -> InputError {
        InputError::new(self.here(), format!("`{key}` is missing"), format!("add `{key}:` here"))
    }

    pub(crate) fn count(&self, key: &str) -> Result<Option<u32>, InputError> {
        self.get(key)
            .map(|value| {
                let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
                count.ok_or_else(|| self.wrong(key, "a whole number from 0 up", value))
            })
            .transpose()
    }

    pub(crate) fn span(&self, key: &str) -> Result<Option<Span>, InputError> {
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
    pub(crate) fn list(&self, key: &str) -> Result<&'a [Value], InputError> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(self.wrong(key, "a list", other)),
        }
    }

    /// One text or a list of texts.
    pub(crate) fn texts(&self, key: &str) -> Result<Vec<&'a str>, InputError> {
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
