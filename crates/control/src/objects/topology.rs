//! Levels of a physical layout, from wide to narrow.

use kai_api::bounds::TOPOLOGY_LEVELS_MAX;
use serde_json::Value;

use super::Malformed;
use super::field_reader::FieldReader;

/// What matters of a `Topology`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    pub name: String,
    pub levels: Vec<Level>,
}

/// A level: the node label whose values are its domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    pub node_label: String,
    pub alias: Option<String>,
}

impl Topology {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let place = root.field("spec").field("levels");
        let items = place.items()?;
        if items.len() > TOPOLOGY_LEVELS_MAX {
            let problem = format!("there are {} levels, and at most {TOPOLOGY_LEVELS_MAX} are taken", items.len());
            return Err(place.invalid(problem, "leave out levels that no constraint names"));
        }
        let mut levels: Vec<Level> = Vec::new();
        for item in items {
            let label = item.field("nodeLabel");
            let node_label = label
                .non_empty_text()?
                .ok_or_else(|| label.invalid("the level names no node label", "add `nodeLabel`"))?;
            if levels.iter().any(|level| level.node_label == node_label) {
                return Err(label.invalid(format!("`{node_label}` is used twice"), "name each node label once"));
            }
            levels.push(Level { node_label, alias: item.field("alias").non_empty_text()? });
        }
        if levels.is_empty() {
            return Err(
                place.invalid("the topology has no levels", "list at least one `nodeLabel`, from wide to narrow")
            );
        }
        Ok(Self { name: root.object_name()?, levels })
    }

    /// The level called `name`, by alias or by node label.
    pub fn level(&self, name: &str) -> Option<usize> {
        self.levels.iter().position(|level| level.alias.as_deref() == Some(name) || level.node_label == name)
    }
}

#[cfg(test)]
impl Topology {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "t"},
        "spec": {"levels": [{"nodeLabel": "a", "alias": "b"}]}})
    }
}
