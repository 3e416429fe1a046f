//! NUMA zones of a node, as the topology exporter publishes them, and what of them pods hold.

use serde_json::{Map, Value};

use super::Malformed;
use super::field_reader::FieldReader;
use super::resources::Resources;

/// What matters of a `NodeResourceTopology`; it carries the name of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeResourceTopology {
    pub name: String,
    pub policy: Policy,
    pub scope: Scope,
    /// Zones of type `Node`, in the order of their numbers.
    pub zones: Vec<Zone>,
}

/// Policy of the kubelet's topology manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    #[default]
    None,
    BestEffort,
    Restricted,
    SingleNumaNode,
}

/// What the kubelet aligns as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    Container,
    Pod,
}

/// One zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    pub name: String,
    pub allocatable: Resources,
    pub available: Resources,
}

/// What a pod holds of one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneAmount {
    pub zone: String,
    pub amount: Resources,
}

impl NodeResourceTopology {
    pub fn parse(value: &Value) -> Result<Self, Malformed> {
        let root = FieldReader::root(value);
        let (mut policy, mut scope) = (Policy::None, Scope::Container);
        for attribute in root.field("attributes").items()? {
            let place = attribute.field("value");
            match attribute.field("name").text()? {
                Some("topologyManagerPolicy") => policy = policy_of(&place)?,
                Some("topologyManagerScope") => scope = scope_of(&place)?,
                _ => {}
            }
        }
        let mut zones = Vec::new();
        for place in root.field("zones").items()? {
            if place.field("type").text()? == Some("Node") {
                zones.push(zone(&place)?);
            }
        }
        zones.sort_by_key(|zone| (number(&zone.name), zone.name.clone()));
        Ok(Self { name: root.object_name()?, policy, scope, zones })
    }
}

impl ZoneAmount {
    /// Reads a list of zones and amounts.
    pub(crate) fn read_all(place: &FieldReader<'_>) -> Result<Vec<Self>, Malformed> {
        let read = |item: &FieldReader<'_>| {
            Ok(Self { zone: item.field("zone").text_or_empty()?, amount: Resources::read(&item.field("amount"))? })
        };
        place.items()?.iter().map(read).collect()
    }

    /// Reads the text of an annotation; `None` if it is no such list.
    pub fn parse_all(text: &str) -> Option<Vec<Self>> {
        let value: Value = serde_json::from_str(text).ok()?;
        Self::read_all(&FieldReader::root(&value)).ok()
    }
}

fn policy_of(place: &FieldReader<'_>) -> Result<Policy, Malformed> {
    Ok(match place.text()? {
        None | Some("none") => Policy::None,
        Some("best-effort") => Policy::BestEffort,
        Some("restricted") => Policy::Restricted,
        Some("single-numa-node") => Policy::SingleNumaNode,
        Some(other) => {
            let hint = "use none, best-effort, restricted or single-numa-node";
            return Err(place.invalid(format!("`{other}` is not a policy"), hint));
        }
    })
}

fn scope_of(place: &FieldReader<'_>) -> Result<Scope, Malformed> {
    Ok(match place.text()? {
        None | Some("container") => Scope::Container,
        Some("pod") => Scope::Pod,
        Some(other) => return Err(place.invalid(format!("`{other}` is not a scope"), "use container or pod")),
    })
}

fn zone(place: &FieldReader<'_>) -> Result<Zone, Malformed> {
    // Zones list resources one by one; everywhere else they are keys.
    let (mut allocatable, mut available) = (Map::new(), Map::new());
    for resource in place.field("resources").items()? {
        let name = resource.field("name").text_or_empty()?;
        for (key, list) in [("allocatable", &mut allocatable), ("available", &mut available)] {
            list.extend(resource.field(key).value().map(|amount| (name.clone(), amount.clone())));
        }
    }
    let read = |list: Map<String, Value>| {
        let list = Value::Object(list);
        Resources::read(&FieldReader::root(&list)).map_err(|wrong| {
            let field = format!("{}.resources.{}", place.path(), wrong.field);
            Malformed { field, ..wrong }
        })
    };
    Ok(Zone {
        name: place.field("name").text_or_empty()?,
        allocatable: read(allocatable)?,
        available: read(available)?,
    })
}

/// The number that the name ends with, such as 1 for `node-1`.
fn number(name: &str) -> u64 {
    let digits = name.len() - name.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    name[name.len() - digits..].parse().unwrap_or(u64::MAX)
}

#[cfg(test)]
impl NodeResourceTopology {
    /// An object in which all fields that are read have a value.
    pub(crate) fn full() -> Value {
        use serde_json::json;

        json!({"metadata": {"name": "n"}, "topologyPolicies": ["SingleNUMANodePodLevel"],
            "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"},
                {"name": "topologyManagerScope", "value": "pod"}],
            "zones": [{"name": "node-0", "type": "Node", "resources": [
                {"name": "cpu", "capacity": "9", "allocatable": "8", "available": 1}]}]})
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn zones_are_ordered_by_number_and_attributes_are_read() {
        let zone = |name: &str, cpus: &str| {
            json!({"name": name, "type": "Node", "resources": [
                {"name": "cpu", "capacity": "9", "allocatable": cpus, "available": "1"},
                {"name": "nvidia.com/gpu", "allocatable": 4, "available": 4}]})
        };
        let topology = NodeResourceTopology::parse(&json!({
            "metadata": {"name": "a"},
            "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"},
                           {"name": "topologyManagerScope", "value": "pod"}, {"name": "nodeTopology", "value": "x"}],
            "zones": [zone("node-10", "10"), zone("node-2", "2"), {"name": "core-0", "type": "Core"}],
        }))
        .unwrap();
        assert_eq!((topology.policy, topology.scope), (Policy::Restricted, Scope::Pod));
        let zones: Vec<_> = topology.zones.iter().map(|zone| (&*zone.name, zone.allocatable.cpu_milli)).collect();
        assert_eq!(zones, [("node-2", 2000), ("node-10", 10_000)]);
        assert_eq!(topology.zones[0].allocatable.gpus, 4);
    }

    #[test]
    fn an_unknown_policy_is_explained() {
        let attributes = json!([{"name": "topologyManagerPolicy", "value": "strict"}]);
        let wrong = NodeResourceTopology::parse(&json!({"metadata": {"name": "a"}, "attributes": attributes}));
        assert_eq!(wrong.unwrap_err().to_string(), "attributes[0].value: `strict` is not a policy");
    }
}
