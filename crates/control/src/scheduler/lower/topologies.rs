//! Domain trees and the constraints that name them.

use std::collections::BTreeMap;

use kai_engine::builder::Builder;
use kai_engine::ids::TopologyId;
use kai_engine::snapshot::{Constraint, LevelRef, Topology as Tree};

use super::{Names, nodes};
use crate::objects::{Topology, TopologyConstraint};
use crate::world::World;

/// Topologies by name.
pub(super) struct Topologies<'w> {
    known: BTreeMap<&'w str, (TopologyId, &'w Topology)>,
}

impl<'w> Topologies<'w> {
    pub(super) fn add(world: &'w World, nodes: &nodes::Selected<'_>, builder: &mut Builder) -> Self {
        let row =
            |topology: &'w Topology| (topology.name.as_str(), (builder.topology(tree(topology, nodes)), topology));
        Self { known: world.topologies.values().map(row).collect() }
    }

    /// The number of a constraint. Levels are named by alias or by node label.
    pub(super) fn constraint(
        &self,
        constraint: Option<&'w TopologyConstraint>,
        builder: &mut Builder,
        names: &mut Names<'w>,
    ) -> Option<u32> {
        let constraint = constraint?;
        let known = self.known.get(constraint.topology.as_str());
        let level = |name: &Option<String>| {
            let name = name.as_ref()?;
            let found = known.and_then(|(_, topology)| topology.level(name));
            Some(found.map_or(LevelRef::Unknown, |at| LevelRef::At(u32::try_from(at).expect("levels are few"))))
        };
        let number = builder.constraint(Constraint {
            topology: known.map(|(id, _)| *id),
            required: level(&constraint.required),
            preferred: level(&constraint.preferred),
        });
        if number as usize == names.constraints.len() {
            names.constraints.push(constraint);
        }
        Some(number)
    }
}

/// A node belongs to the tree if it has the labels of all levels. A domain is known by the values down to it.
fn tree(topology: &Topology, nodes: &nodes::Selected<'_>) -> Tree {
    let paths: Vec<Option<Vec<&str>>> = nodes
        .list
        .iter()
        .map(|facts| {
            topology.levels.iter().map(|level| facts.node.labels.get(&level.node_label).map(String::as_str)).collect()
        })
        .collect();
    let levels = (1..=topology.levels.len())
        .map(|depth| {
            let mut domains: BTreeMap<&[&str], u32> = BTreeMap::new();
            for path in paths.iter().flatten() {
                domains.insert(&path[..depth], 0);
            }
            for (id, number) in domains.values_mut().zip(0..) {
                *id = number;
            }
            paths.iter().map(|path| path.as_ref().map(|path| domains[&path[..depth]])).collect()
        })
        .collect();
    Tree { levels }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::{Node, Object};
    use crate::scheduler::settings::Settings;

    #[test]
    fn domains_follow_their_names_and_nest() {
        let mut world = World::default();
        for (name, labels) in [
            ("n1", json!({"zone": "b", "rack": "1"})),
            ("n2", json!({"zone": "a", "rack": "1"})),
            ("n3", json!({"zone": "a"})),
            ("n4", json!({"zone": "a", "rack": "0"})),
        ] {
            let node = Node::parse(&json!({"metadata": {"name": name, "labels": labels}})).unwrap();
            world.apply(Object::Node(Box::new(node)));
        }
        let levels = json!([{"nodeLabel": "zone"}, {"nodeLabel": "rack"}]);
        let topology = Topology::parse(&json!({"metadata": {"name": "dc"}, "spec": {"levels": levels}})).unwrap();
        let tree = tree(&topology, &nodes::select(&world, &Settings::default()));
        assert_eq!(tree.levels[0], [Some(1), Some(0), None, Some(0)]);
        assert_eq!(tree.levels[1], [Some(2), Some(1), None, Some(0)]);
    }
}
