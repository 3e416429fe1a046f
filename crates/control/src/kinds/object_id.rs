//! Identities of objects as text, such as `pod group team/train`, and as JSON: group, kind, namespace and name.

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
    /// Other groups may have kinds of the same name. Records before this field name the kind only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
}

impl Serialize for ObjectId {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let Key { namespace, name } = self.key();
        let row = self.kind().row();
        let group = Some(row.group()).filter(|group| !group.is_empty()).map(str::to_owned);
        Written { group, kind: row.name.to_owned(), namespace, name }.serialize(out)
    }
}

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Written { group, kind, namespace, name } = Written::deserialize(from)?;
        let is =
            |known: &&Kind| known.name() == kind && group.as_deref().is_none_or(|group| known.row().group() == group);
        let known = Kind::ALL.iter().find(is);
        let kind = known.ok_or_else(|| {
            let group = group.as_deref().unwrap_or_default();
            de::Error::custom(format!("kind `{kind}` of group `{group}` is not in the table"))
        })?;
        Ok(Self::new(*kind, Key { namespace, name }))
    }
}
