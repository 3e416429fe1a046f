//! What a task says about nodes, whatever else runs there -> node sets.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use kai_control::devices::Consumed;
use kai_engine::builder::Builder;
use kai_engine::ids::NodeFilterId;
use kai_engine::snapshot::{NodeFilter, NodeRule};

use super::super::case::{Case, Kind, LabelRule, Node, Task};
use super::super::state::State;
use super::nodes::{Mig, has_dra_gpus, memory_known, mig};
use crate::verdict::Fault;

/// Everything about a task that decides on nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: Kind,
    legacy_mig: bool,
    affinity: Vec<LabelRule>,
    /// A claim cannot be used anywhere.
    faulty_claim: bool,
}

/// Facts of a node that rules ask for.
struct Facts<'a> {
    node: &'a Node,
    mig: Mig,
    holds_legacy_mig: bool,
    memory_known: bool,
    dra_gpus: bool,
}

/// Classes of a case, one per distinct key.
pub(super) struct Classes<'a> {
    nodes: Vec<Facts<'a>>,
    /// Whether placement rules are on at all.
    filters: bool,
    known: BTreeMap<Key, NodeFilterId>,
}

impl<'a> Classes<'a> {
    pub(super) fn new(case: &'a Case, state: &State, nodes: &[&'a Node]) -> Self {
        let legacy: BTreeSet<&str> = case
            .tasks()
            .filter(|(_, task)| task.legacy_mig && state.get(&task.uid).status.is_used())
            .filter_map(|(_, task)| state.get(&task.uid).node.as_deref())
            .collect();
        let facts = |node: &&'a Node| Facts {
            node,
            mig: mig(node),
            holds_legacy_mig: legacy.contains(node.name.as_str()),
            memory_known: memory_known(node),
            dra_gpus: has_dra_gpus(case, node),
        };
        Self {
            nodes: nodes.iter().map(facts).collect(),
            filters: case.plugin("predicates").is_some(),
            known: BTreeMap::new(),
        }
    }

    pub(super) fn of(
        &mut self,
        builder: &mut Builder,
        task: &Task,
        claimed: Option<&Consumed>,
    ) -> Result<NodeFilterId, Fault> {
        let key = Key {
            kind: task.request.kind,
            legacy_mig: task.legacy_mig,
            affinity: task.required_node_affinity.clone(),
            faulty_claim: claimed.is_some_and(|claimed| claimed.fault.is_some()),
        };
        if let Some(id) = self.known.get(&key) {
            return Ok(*id);
        }
        let id =
            if self.filters { builder.add_node_filter(self.class(&key)?) } else { builder.add_node_filter_of_all() };
        self.known.insert(key, id);
        Ok(id)
    }

    fn class(&self, key: &Key) -> Result<NodeFilter, Fault> {
        let mut feasible = FixedBitSet::with_capacity(self.nodes.len());
        let mut excluded: BTreeMap<NodeRule, FixedBitSet> = BTreeMap::new();
        for (index, facts) in self.nodes.iter().enumerate() {
            match first_refusal(key, facts)? {
                None => feasible.insert(index),
                Some(rule) => {
                    let set = excluded.entry(rule).or_insert_with(|| FixedBitSet::with_capacity(self.nodes.len()));
                    set.insert(index);
                }
            }
        }
        Ok(NodeFilter { feasible, excluded: excluded.into_iter().collect() })
    }
}

/// The first rule that refuses the node, in the order in which the scheduler asks.
fn first_refusal(key: &Key, facts: &Facts<'_>) -> Result<Option<NodeRule>, Fault> {
    if let Some(rule) = resource_type(key, facts) {
        return Ok(Some(rule));
    }
    if key.kind == Kind::GpuMemory && !facts.memory_known {
        return Ok(Some(NodeRule::DeviceMemoryUnknown));
    }
    for rule in &key.affinity {
        if !matches(rule, &facts.node.labels)? {
            return Ok(Some(NodeRule::Affinity));
        }
    }
    Ok(None)
}

fn resource_type(key: &Key, facts: &Facts<'_>) -> Option<NodeRule> {
    if key.faulty_claim {
        return Some(NodeRule::Claim(0));
    }
    if key.legacy_mig {
        return Some(NodeRule::LegacyMig);
    }
    // A pod without GPUs may run beside any of them.
    match (key.kind, facts.mig) {
        (Kind::Gpu, _) if facts.dra_gpus && facts.node.allocatable.gpus == 0 => Some(NodeRule::ClaimsOnly),
        (Kind::Fraction | Kind::GpuMemory, _) if facts.dra_gpus => Some(NodeRule::SharingUnsupported),
        (Kind::Mig, Mig::Off) => Some(NodeRule::MigOnly),
        (Kind::Mig, _) if facts.holds_legacy_mig => Some(NodeRule::LegacyMigNeighbour),
        (Kind::Fraction | Kind::GpuMemory | Kind::Mig, Mig::Single) => Some(NodeRule::MigSingle),
        (Kind::Gpu | Kind::Dra | Kind::Fraction | Kind::GpuMemory, Mig::Mixed) => Some(NodeRule::MigMixed),
        _ => None,
    }
}

/// A Kubernetes node selector requirement.
fn matches(rule: &LabelRule, labels: &BTreeMap<String, String>) -> Result<bool, Fault> {
    let label = labels.get(&rule.key);
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
    let compare = |decide: fn(&i64, &i64) -> bool| match (number(label), number(rule.values.first())) {
        (Some(label), Some(bound)) => decide(&label, &bound),
        _ => false,
    };
    Ok(match rule.op.as_str() {
        "In" => label.is_some_and(|label| rule.values.contains(label)),
        "NotIn" => label.is_none_or(|label| !rule.values.contains(label)),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        other => return Err(Fault(format!("node affinity operator {other} is not known"))),
    })
}
