//! A declaration of how pods of a workload kind are grouped. The rule reads the declaration from the whole object; here is
//! the kind that it is about.

use kai_api::keys::label;
use serde_json::Value;

use super::Malformed;
use super::field_reader::FieldReader;

/// What matters of a `Karta`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Karta {
    pub name: String,
    /// Of the kind that it describes; empty for the core group.
    pub group: String,
    /// Of the kind that it describes.
    pub version: String,
    /// What it describes.
    pub kind: String,
}

impl Karta {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let labels = root.field("metadata").field("labels");
        Ok(Self {
            name: root.object_name()?,
            group: labels.field(label::KARTA_GROUP).text_or_empty()?,
            version: labels.field(label::KARTA_VERSION).text_or_empty()?,
            kind: labels.field(label::KARTA_KIND).text_or_empty()?,
        })
    }
}

#[cfg(test)]
impl Karta {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        let labels = json!({label::KARTA_GROUP: "x.io", label::KARTA_VERSION: "v1", label::KARTA_KIND: "Graph"});
        json!({"metadata": {"name": "graphs", "labels": labels}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_karta_names_the_kind_that_it_describes() {
        let karta = Karta::parse(&Karta::full()).unwrap();
        let words = [karta.name, karta.group, karta.version, karta.kind];
        assert_eq!(words, ["graphs", "x.io", "v1", "Graph"]);
    }
}
