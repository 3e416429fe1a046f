//! Reads a field of a JSON object and remembers where it is, so that an error can name it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp as Instant;
use kai_api::bounds::NAME_LENGTH_MAX;
use kai_engine::units::{Span, Timestamp};
use kai_workloads::brief;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::duration;
use crate::key::NAMESPACE_DEFAULT;

/// A field that cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct Malformed {
    /// Where, such as `spec.containers[0].resources.requests.cpu`.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub hint: String,
}

impl Malformed {
    pub fn new(field: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        let brief = |text: String, most: usize| match brief(&text, most) {
            Cow::Borrowed(_) => text,
            Cow::Owned(short) => short,
        };
        Self { field: brief(field.into(), 300), problem: brief(problem.into(), 500), hint: brief(hint.into(), 500) }
    }
}

/// Longer than any label key.
const KEY_BYTES_MAX: usize = 320;

fn cut(key: &str) -> &str {
    &key[..key.floor_char_boundary(KEY_BYTES_MAX)]
}

/// How a string is called in complaints.
const TEXT: &str = "text";

/// A place in an object: its path and the value there, if any. `null` is no value.
#[derive(Clone)]
pub(crate) struct FieldReader<'a> {
    path: String,
    value: Option<&'a Value>,
}

impl<'a> FieldReader<'a> {
    pub(crate) fn root(value: &'a Value) -> Self {
        Self { path: String::new(), value: Some(value) }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    pub(crate) fn exists(&self) -> bool {
        self.value.is_some()
    }

    /// The place of a key of an object, present or not.
    pub(crate) fn field(&self, full_key: &str) -> Self {
        // Users choose keys of maps, and what is below a long one would repeat it in every path.
        let key = if full_key.len() > KEY_BYTES_MAX { cut(full_key) } else { full_key };
        // Many fields of many objects are read, and few complained about: this is no place for formatting.
        let mut path = String::with_capacity(self.path.len() + key.len() + 2);
        path.push_str(&self.path);
        let (before, after) = match (self.path.is_empty(), key.bytes().any(|byte| matches!(byte, b'.' | b'/'))) {
            (_, true) => ("[", "]"),
            (true, false) => ("", ""),
            (false, false) => (".", ""),
        };
        path.push_str(before);
        path.push_str(key);
        path.push_str(after);
        Self { path, value: self.value.and_then(|value| value.get(full_key)).filter(|value| !value.is_null()) }
    }

    pub(crate) fn invalid(&self, problem: impl Into<String>, hint: impl Into<String>) -> Malformed {
        Malformed::new(self.path.clone(), problem, hint)
    }

    fn expected(&self, what: &str, value: &Value) -> Malformed {
        let hint = match value {
            Value::Bool(_) | Value::Number(_) if what == TEXT => format!("put it in quotes: \"{value}\""),
            _ => format!("write {what} here"),
        };
        self.invalid(format!("expected {what}, found {}", describe(value)), hint)
    }

    pub(crate) fn text(&self) -> Result<Option<&'a str>, Malformed> {
        match self.value {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.expected(TEXT, other)),
        }
    }

    /// Text, or a number or boolean written without quotes.
    pub(crate) fn scalar_text(&self) -> Result<Option<String>, Malformed> {
        match self.value {
            Some(value @ (Value::Bool(_) | Value::Number(_))) => Ok(Some(value.to_string())),
            _ => Ok(self.text()?.map(str::to_owned)),
        }
    }

    /// Text, empty if absent.
    pub(crate) fn text_or_empty(&self) -> Result<String, Malformed> {
        Ok(self.text()?.unwrap_or_default().to_owned())
    }

    /// Text; absent and empty are the same.
    pub(crate) fn non_empty_text(&self) -> Result<Option<String>, Malformed> {
        Ok(self.text()?.filter(|text| !text.is_empty()).map(str::to_owned))
    }

    pub(crate) fn flag(&self) -> Result<Option<bool>, Malformed> {
        match self.value {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.expected("true or false", other)),
        }
    }

    pub(crate) fn integer(&self) -> Result<Option<i64>, Malformed> {
        match self.value {
            None => Ok(None),
            Some(value) => value.as_i64().map(Some).ok_or_else(|| self.expected("a whole number", value)),
        }
    }

    pub(crate) fn int32(&self) -> Result<Option<i32>, Malformed> {
        self.integer()?
            .map(|number| {
                i32::try_from(number)
                    .map_err(|_| self.invalid(format!("{number} is out of range"), "use a smaller number"))
            })
            .transpose()
    }

    /// A count that cannot be negative.
    pub(crate) fn count(&self) -> Result<Option<u32>, Malformed> {
        self.integer()?
            .map(|number| {
                u32::try_from(number)
                    .map_err(|_| self.invalid(format!("{number} is not a count"), "use a whole number from 0 up"))
            })
            .transpose()
    }

    /// The items of a list; none if absent.
    pub(crate) fn items(&self) -> Result<Vec<Self>, Malformed> {
        match self.value {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items
                .iter()
                .enumerate()
                .map(|(index, value)| Self { path: format!("{}[{index}]", self.path), value: Some(value) })
                .collect()),
            Some(other) => Err(self.expected("a list", other)),
        }
    }

    /// The keys of an object with their places; none if absent.
    pub(crate) fn entries(&self) -> Result<Vec<(&'a str, Self)>, Malformed> {
        let Some(map) = self.map()? else { return Ok(Vec::new()) };
        Ok(map.keys().map(|key| (key.as_str(), self.field(key))).collect())
    }

    fn map(&self) -> Result<Option<&'a Map<String, Value>>, Malformed> {
        match self.value {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(self.expected("an object", other)),
        }
    }

    /// Labels or annotations.
    pub(crate) fn string_map(&self) -> Result<BTreeMap<String, String>, Malformed> {
        self.entries()?.into_iter().map(|(key, place)| Ok((key.to_owned(), place.text_or_empty()?))).collect()
    }

    /// A list of texts.
    pub(crate) fn text_list(&self) -> Result<Vec<String>, Malformed> {
        self.items()?.iter().map(Self::text_or_empty).collect()
    }

    /// A time as Kubernetes writes it.
    pub(crate) fn time(&self) -> Result<Option<Timestamp>, Malformed> {
        self.text()?
            .map(|text| {
                parse_time(text).ok_or_else(|| {
                    self.invalid(format!("`{text}` is not a time"), "write RFC 3339, such as 2026-01-31T12:00:00Z")
                })
            })
            .transpose()
    }

    /// A span of time in Go's notation.
    pub(crate) fn span(&self) -> Result<Option<Span>, Malformed> {
        self.text()?
            .map(|text| {
                duration::parse(text).ok_or_else(|| {
                    self.invalid(format!("`{text}` is not a duration"), "write one such as 90s, 5m or 1h30m")
                })
            })
            .transpose()
    }

    /// A number that may have decimals.
    pub(crate) fn number(&self) -> Result<Option<f64>, Malformed> {
        match self.value {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| self.expected("a number", value)),
        }
    }

    /// `metadata.name`, which every object must have.
    pub(crate) fn object_name(&self) -> Result<String, Malformed> {
        let place = self.field("metadata").field("name");
        let name = place.non_empty_text()?;
        place.usable_name(name.ok_or_else(|| place.invalid("the object has no name", "give it a metadata.name"))?)
    }

    /// `metadata.namespace` of a namespaced object.
    pub(crate) fn object_namespace(&self) -> Result<String, Malformed> {
        let place = self.field("metadata").field("namespace");
        place.usable_name(place.non_empty_text()?.unwrap_or_else(|| NAMESPACE_DEFAULT.to_owned()))
    }

    /// Names are repeated in every message about an object. An API server stores none that is refused here.
    fn usable_name(&self, name: String) -> Result<String, Malformed> {
        if name.len() > NAME_LENGTH_MAX {
            let problem = format!("the name has {} characters, and at most {NAME_LENGTH_MAX} are allowed", name.len());
            return Err(self.invalid(problem, "use a shorter name"));
        }
        if name.chars().any(char::is_control) {
            return Err(self
                .invalid(format!("the name `{name}` has control characters"), "use letters, digits, dashes and dots"));
        }
        Ok(name)
    }
}

/// RFC 3339 to engine time.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse::<Instant>().ok().map(|instant| Timestamp(instant.as_microsecond()))
}

/// Engine time to RFC 3339 in UTC, whole seconds as Kubernetes writes them.
pub(crate) fn write_time(time: Timestamp) -> String {
    let seconds = time.0.div_euclid(1_000_000);
    Instant::from_second(seconds).map_or_else(|_| format!("@{seconds}"), |instant| instant.to_string())
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(flag) => format!("`{flag}`"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text `{text}`"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Appends the value with sorted keys, so that equal values have equal texts however they were read.
pub(crate) fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            text.push('{');
            for (key, value) in sorted {
                text.push_str(key);
                text.push(':');
                canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}
