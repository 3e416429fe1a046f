//! Nodes of the shard, and what follows from each of them alone.

use kai_engine::ids::NodeId;
use kai_engine::snapshot::NodeRule;

use super::in_shard;
use super::name_index::NameIndex;
use crate::devices::Inventory;
use crate::objects::{Node, PRESSURES};
use crate::scheduler::settings::Settings;
use crate::world::World;
use kai_api::keys::{node_label, resource};

/// Nodes in name order, which is the order of their ids.
pub(super) struct ShardNodes<'w> {
    pub(super) list: Vec<Facts<'w>>,
    lookup: NameIndex<'w>,
}

impl<'w> ShardNodes<'w> {
    fn new(list: Vec<Facts<'w>>) -> Self {
        let lookup = NameIndex::new(list.iter().map(|facts| facts.node.name.as_str()).collect());
        Self { list, lookup }
    }

    /// Notes the GPUs that nodes give out through resource claims.
    pub(super) fn count_devices(&mut self, inventory: &Inventory<'_>) {
        for (index, facts) in self.list.iter_mut().enumerate() {
            facts.traits.claimed_gpus = inventory.gpus(NodeId::at(index));
            facts.traits.gpus_backed = inventory.backs(resource::NVIDIA_GPU);
        }
    }

    pub(super) fn id(&self, name: &str) -> Option<NodeId> {
        self.lookup.find(name).map(NodeId::at)
    }

    /// What holds as long as no node changes: for each node of the world, its traits if it is selected.
    pub(super) fn traits(&self, world: &World) -> Vec<Option<Traits>> {
        let mut selected = self.list.iter().peekable();
        let traits = |node: &Node| selected.next_if(|facts| facts.node.name == node.name).map(|facts| facts.traits);
        world.nodes.values().map(traits).collect()
    }

    /// The same nodes again.
    pub(super) fn from_cached(world: &'w World, traits: &[Option<Traits>]) -> Self {
        let nodes = world.nodes.values().zip(traits);
        Self::new(nodes.filter_map(|(node, traits)| Some(Facts { node, traits: (*traits)? })).collect())
    }
}

/// A node with what rules about it need.
pub(super) struct Facts<'w> {
    pub(super) node: &'w Node,
    traits: Traits,
}

impl std::ops::Deref for Facts<'_> {
    type Target = Traits;
    fn deref(&self) -> &Traits {
        &self.traits
    }
}

/// What follows from a node alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    /// MiB of each GPU; `None` if the node does not say.
    pub(super) device_memory: Option<i64>,
    pub(super) mig: Mig,
    /// The first condition that keeps every pod away.
    pub(super) unfit: Option<NodeRule>,
    pub(super) cpu_worker: bool,
    pub(super) gpu_worker: bool,
    /// GPUs that it gives out through resource claims.
    pub(super) claimed_gpus: u32,
    /// Whether a plain request for GPUs can be served through a claim.
    pub(super) gpus_backed: bool,
}

/// How the GPUs of a node are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mig {
    Off,
    /// Split, without a strategy that restricts which pods may use them.
    Any,
    Single,
    Mixed,
}

pub(super) fn select<'w>(world: &'w World, settings: &Settings) -> ShardNodes<'w> {
    let list = world
        .nodes
        .values()
        .filter(|node| in_shard(&node.labels, settings))
        .map(|node| facts(node, settings))
        .filter(|facts| !settings.restrict_node_scheduling || facts.cpu_worker || facts.gpu_worker)
        .collect();
    ShardNodes::new(list)
}

fn facts<'w>(node: &'w Node, settings: &Settings) -> Facts<'w> {
    let traits = Traits {
        device_memory: node.device_memory(),
        mig: mig(node, &settings.mig_worker_label_key),
        unfit: unfit(node),
        cpu_worker: node.labels.contains_key(&settings.cpu_worker_label_key),
        gpu_worker: node.labels.contains_key(&settings.gpu_worker_label_key),
        claimed_gpus: 0,
        gpus_backed: false,
    };
    Facts { node, traits }
}

fn mig(node: &Node, enabled_key: &str) -> Mig {
    let enabled = match node.labels.get(enabled_key) {
        Some(text) => matches!(text.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => node.allocatable.scalars.keys().any(|name| name.starts_with(resource::MIG_PREFIX)),
    };
    if !enabled {
        return Mig::Off;
    }
    match node.labels.get(node_label::MIG_STRATEGY).map(String::as_str) {
        Some("single") => Mig::Single,
        Some("mixed") => Mig::Mixed,
        _ => Mig::Any,
    }
}

fn unfit(node: &Node) -> Option<NodeRule> {
    if node.unschedulable {
        return Some(NodeRule::Cordoned);
    }
    if !node.condition_is("Ready", "True") {
        return Some(NodeRule::NotReady);
    }
    let rules = [NodeRule::MemoryPressure, NodeRule::DiskPressure, NodeRule::PidPressure, NodeRule::NetworkUnavailable];
    PRESSURES.iter().zip(rules).find(|(kind, _)| !node.condition_is(kind, "False")).map(|(_, rule)| rule)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(labels: &Value, allocatable: &Value) -> Node {
        Node::parse(&json!({"metadata": {"name": "a", "labels": labels}, "status": {"allocatable": allocatable}}))
            .unwrap()
    }

    #[test]
    fn device_memory_is_read_in_mib_or_bytes() {
        let memory = |text: &str| node(&json!({"nvidia.com/gpu.memory": text}), &json!({})).device_memory();
        assert_eq!(memory("81559"), Some(81_500));
        assert_eq!(memory("85520809984"), Some(81_500));
        assert_eq!(memory("plenty"), None);
    }

    #[test]
    fn mig_follows_the_label_then_the_resources() {
        let key = node_label::MIG_ENABLED;
        let profile = json!({"nvidia.com/mig-1g.5gb": 1});
        assert_eq!(mig(&node(&json!({}), &json!({})), key), Mig::Off);
        assert_eq!(mig(&node(&json!({}), &profile), key), Mig::Any);
        assert_eq!(mig(&node(&json!({"nvidia.com/mig.strategy": "mixed"}), &profile), key), Mig::Mixed);
        assert_eq!(mig(&node(&json!({ key: "false" }), &profile), key), Mig::Off);
        assert_eq!(
            mig(&node(&json!({ key: "true", "nvidia.com/mig.strategy": "single" }), &json!({})), key),
            Mig::Single
        );
    }
}
