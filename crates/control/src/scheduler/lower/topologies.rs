//! Domain trees and the constraints that name them.

use std::collections::BTreeMap;

use kai_engine::builder::Builder;
use kai_engine::ids::TopologyId;
use kai_engine::snapshot::{Constraint, LevelRef, Topology as Tree};

use super::nodes::Facts;
use super::{Names, nodes};
use crate::objects::{Topology, TopologyConstraint};
use crate::world::World;

/// Topologies by name.
pub(super) struct Topologies<'w> {
    known: BTreeMap<&'w str, (TopologyId, &'w Topology)>,
}

impl<'w> Topologies<'w> {
    pub(super) fn add(
        world: &'w World,
        nodes: &nodes::ShardNodes<'w>,
        builder: &mut Builder,
        names: &mut Names<'w>,
    ) -> Self {
        let mut known = BTreeMap::new();
        for topology in world.topologies.values() {
            let (tree, domains) = tree(topology, nodes);
            known.insert(topology.name.as_str(), (builder.topology(tree), topology));
            names.domains.push(domains);
        }
        Self { known }
    }

    /// The same without making the trees again.
    pub(super) fn known(world: &'w World) -> Self {
        let named = world.topologies.values().enumerate();
        let entry =
            |(index, topology): (usize, &'w Topology)| (topology.name.as_str(), (TopologyId::at(index), topology));
        Self { known: named.map(entry).collect() }
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
        names.constraints.insert(constraint, number);
        Some(number)
    }
}

/// For each level, the names of its domains.
pub(crate) type DomainNames = Vec<Vec<String>>;

/// The domains of a node, from the widest to the narrowest.
fn path<'w>(topology: &Topology, facts: &Facts<'w>) -> Option<Vec<&'w str>> {
    topology.levels.iter().map(|level| facts.node.labels.get(&level.node_label).map(String::as_str)).collect()
}

/// A node belongs to the tree if it has the labels of all levels. A domain is known by the values down to it.
fn tree(topology: &Topology, nodes: &nodes::ShardNodes<'_>) -> (Tree, DomainNames) {
    let paths = nodes.list.iter().map(|facts| path(topology, facts)).enumerate();
    let mut sorted: Vec<(Vec<&str>, usize)> = paths.filter_map(|(node, path)| Some((path?, node))).collect();
    sorted.sort_unstable();
    let (mut levels, mut names) = (Vec::new(), Vec::new());
    for depth in 1..=topology.levels.len() {
        let mut level = vec![None; nodes.list.len()];
        let domains = sorted.chunk_by(|left, right| left.0[..depth] == right.0[..depth]);
        let mut names_here = Vec::new();
        for (domain, number) in domains.zip(0..) {
            names_here.push(domain[0].0[..depth].join("/"));
            for (_, node) in domain {
                level[*node] = Some(number);
            }
        }
        levels.push(level);
        names.push(names_here);
    }
    (Tree { levels }, names)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Object;
    use crate::objects::Node;
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
        let (tree, names) = tree(&topology, &nodes::select(&world, &Settings::default()));
        assert_eq!(tree.levels[0], [Some(1), Some(0), None, Some(0)]);
        assert_eq!(tree.levels[1], [Some(2), Some(1), None, Some(0)]);
        assert_eq!(names, [vec!["a", "b"], vec!["a/0", "a/1", "b/1"]]);
    }
}
