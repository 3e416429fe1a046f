//! Identities of objects as text, such as `pod group team/train`, and as JSON: kind, namespace and name.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Kind, ObjectId};
use crate::key::Key;

impl fmt::Display for ObjectId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut after_small = false;
        for letter in self.kind().name().chars() {
            if letter.is_ascii_uppercase() && after_small {
                out.write_str(" ")?;
            }
            after_small = letter.is_ascii_lowercase();
            write!(out, "{}", letter.to_ascii_lowercase())?;
        }
        let Key { namespace, name } = self.key();
        if namespace.is_empty() { write!(out, " {name}") } else { write!(out, " {namespace}/{name}") }
    }
}

#[derive(Serialize, Deserialize)]
struct Written {
    kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
}

impl Serialize for ObjectId {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let Key { namespace, name } = self.key();
        Written { kind: self.kind().name().to_owned(), namespace, name }.serialize(out)
    }
}

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Written { kind, namespace, name } = Written::deserialize(from)?;
        let known = Kind::ALL.iter().find(|known| known.name() == kind);
        let kind = known.ok_or_else(|| de::Error::custom(format!("`{kind}` is not a kind of the table")))?;
        Ok(Self::new(*kind, Key { namespace, name }))
    }
}
