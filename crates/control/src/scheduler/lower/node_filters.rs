//! Rules about nodes that hold whatever else runs there, one node set per distinct set of rules.
//!
//! A node counts for the first rule it fails, in the order in which KAI's filters ask.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;
use kai_engine::builder::Builder;
use kai_engine::ids::NodeFilterId;
use kai_engine::snapshot::{NodeFilter, NodeRule};

use super::nodes::{Facts, Mig, ShardNodes};
use super::volumes::{Needs, Refusals};
use crate::objects::{GpuSharing, NodeTerm, Pod, Request, Toleration};

/// What a request is about, as far as rules care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Cpu,
    WholeGpu,
    /// GPUs through resource claims alone.
    Claimed,
    Fraction,
    GpuMemory,
    Mig,
    LegacyMig,
}

impl Kind {
    fn of(request: &Request, claim: ClaimRule) -> Self {
        match request.sharing {
            _ if request.legacy_mig => Self::LegacyMig,
            Some(GpuSharing::Fraction { .. }) => Self::Fraction,
            Some(GpuSharing::Memory { .. }) => Self::GpuMemory,
            None if request.is_mig() => Self::Mig,
            None if request.resources.gpus > 0 => Self::WholeGpu,
            None if claim.needs_gpu => Self::Claimed,
            None => Self::Cpu,
        }
    }
}

/// Pods with equal keys may run on the same nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NodeFilterKey<'w> {
    kind: Kind,
    selector: &'w BTreeMap<String, String>,
    affinity: Option<&'w [NodeTerm]>,
    tolerations: &'w [Toleration],
    claim: ClaimRule,
    /// Number of the rules that its volumes make.
    volumes: u32,
}

/// What a pod's resource claims mean for nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClaimRule {
    /// One of them asks for GPUs.
    pub(super) needs_gpu: bool,
    /// One of them cannot be used anywhere, for the reason of this number.
    pub(super) fault: Option<u32>,
}

/// Node filters of all pods so far, kept as long as no node changes. They are numbered in the order in which they were met.
#[derive(Debug, Default)]
pub(super) struct NodeFilterTable {
    /// In order of keys.
    known: Vec<(OwnKey, u32)>,
    pub(super) rows: Vec<NodeFilter>,
}

/// A [`NodeFilterKey`] that outlives its pod.
#[derive(Debug)]
struct OwnKey {
    kind: Kind,
    selector: BTreeMap<String, String>,
    affinity: Option<Vec<NodeTerm>>,
    tolerations: Vec<Toleration>,
    claim: ClaimRule,
    volumes: u32,
}

impl OwnKey {
    fn of(key: &NodeFilterKey<'_>) -> Self {
        Self {
            kind: key.kind,
            selector: key.selector.clone(),
            affinity: key.affinity.map(<[NodeTerm]>::to_vec),
            tolerations: key.tolerations.to_vec(),
            claim: key.claim,
            volumes: key.volumes,
        }
    }

    fn borrowed(&self) -> NodeFilterKey<'_> {
        NodeFilterKey {
            kind: self.kind,
            selector: &self.selector,
            affinity: self.affinity.as_deref(),
            tolerations: &self.tolerations,
            claim: self.claim,
            volumes: self.volumes,
        }
    }
}

/// Node filters of a snapshot.
pub(super) struct NodeFilters<'t, 'w> {
    table: &'t mut NodeFilterTable,
    /// The last one: neighbouring pods are often alike.
    last: Option<(NodeFilterKey<'w>, NodeFilterId)>,
    /// Ids by number in the table.
    ids: Vec<Option<NodeFilterId>>,
    /// Numbers in the table by id.
    pub(super) numbers: Vec<u32>,
    /// Nodes that still hold pods of the retired MIG mechanism.
    legacy_mig_nodes: FixedBitSet,
    /// Only nodes labelled for the kind of pod are used.
    restricted: bool,
}

impl<'t, 'w> NodeFilters<'t, 'w> {
    pub(super) fn new(table: &'t mut NodeFilterTable, legacy_mig_nodes: FixedBitSet, restricted: bool) -> Self {
        Self { table, last: None, ids: Vec::new(), numbers: Vec::new(), legacy_mig_nodes, restricted }
    }

    pub(super) fn id(
        &mut self,
        pod: &'w Pod,
        claim: ClaimRule,
        volumes: &Needs,
        nodes: &ShardNodes<'_>,
        builder: &mut Builder,
    ) -> NodeFilterId {
        let key = NodeFilterKey {
            kind: Kind::of(&pod.request, claim),
            selector: &pod.node_selector,
            affinity: pod.node_affinity.as_deref(),
            tolerations: &pod.tolerations,
            claim,
            volumes: volumes.number,
        };
        if let Some((last, id)) = self.last
            && last == key
        {
            return id;
        }
        let number = match self.table.known.binary_search_by(|(known, _)| known.borrowed().cmp(&key)) {
            Ok(at) => self.table.known[at].1,
            Err(at) => {
                let filter = self.classify_nodes(&key, &volumes.rules, nodes);
                let number = u32::try_from(self.table.rows.len()).expect("node filters are few");
                self.table.rows.push(filter);
                self.table.known.insert(at, (OwnKey::of(&key), number));
                number
            }
        };
        let index = number as usize;
        self.ids.resize(self.ids.len().max(index + 1), None);
        let id = *self.ids[index].get_or_insert_with(|| {
            self.numbers.push(number);
            builder.add_node_filter(self.table.rows[index].clone())
        });
        self.last = Some((key, id));
        id
    }

    /// Sorts all nodes by the first rule they fail.
    fn classify_nodes(&self, key: &NodeFilterKey<'_>, volumes: &Refusals, nodes: &ShardNodes<'_>) -> NodeFilter {
        let count = nodes.list.len();
        let mut feasible = FixedBitSet::with_capacity(count);
        let mut excluded: BTreeMap<NodeRule, FixedBitSet> = BTreeMap::new();
        for (index, facts) in nodes.list.iter().enumerate() {
            let volume_rule = volumes.iter().find(|(_, refused)| refused.contains(index)).map(|(rule, _)| *rule);
            match self.first_failed(key, volume_rule, facts, self.legacy_mig_nodes.contains(index)) {
                None => feasible.insert(index),
                Some(rule) => {
                    excluded.entry(rule).or_insert_with(|| FixedBitSet::with_capacity(count)).insert(index);
                }
            }
        }
        NodeFilter { feasible, excluded: excluded.into_iter().collect() }
    }

    fn first_failed(
        &self,
        key: &NodeFilterKey<'_>,
        volume_rule: Option<NodeRule>,
        facts: &Facts<'_>,
        legacy_mig: bool,
    ) -> Option<NodeRule> {
        let fault = key.claim.fault.map(NodeRule::Claim);
        fault
            .or(volume_rule.filter(|rule| *rule == NodeRule::Prerequisite))
            .or_else(|| gpu_kind(key.kind, facts, legacy_mig))
            .or(facts.unfit)
            .or_else(|| (!tolerated(key.tolerations, facts)).then_some(NodeRule::Taint))
            .or_else(|| (!wanted(key.selector, key.affinity, facts)).then_some(NodeRule::Affinity))
            .or(volume_rule)
            .or_else(|| self.wrong_worker(key.kind, facts))
    }

    fn wrong_worker(&self, kind: Kind, facts: &Facts<'_>) -> Option<NodeRule> {
        if !self.restricted {
            None
        } else if kind == Kind::Cpu {
            (!facts.cpu_worker).then_some(NodeRule::NotCpuWorker)
        } else {
            (!facts.gpu_worker).then_some(NodeRule::NotGpuWorker)
        }
    }
}

fn gpu_kind(kind: Kind, facts: &Facts<'_>, legacy_mig: bool) -> Option<NodeRule> {
    match (kind, facts.mig) {
        (Kind::LegacyMig, _) => Some(NodeRule::LegacyMig),
        (Kind::Mig, Mig::Off) => Some(NodeRule::MigOnly),
        (Kind::Mig, _) if legacy_mig => Some(NodeRule::LegacyMigNeighbour),
        (Kind::Mig | Kind::Fraction | Kind::GpuMemory, Mig::Single) => Some(NodeRule::MigSingle),
        (Kind::Fraction | Kind::GpuMemory, _) if facts.claimed_gpus > 0 => Some(NodeRule::SharingUnsupported),
        // A plain request is served through a claim only where a device class allows it.
        (Kind::WholeGpu, _) if facts.claimed_gpus > 0 && facts.node.allocatable.gpus == 0 && !facts.gpus_backed => {
            Some(NodeRule::ClaimsOnly)
        }
        (Kind::WholeGpu | Kind::Claimed | Kind::Fraction | Kind::GpuMemory, Mig::Mixed) => Some(NodeRule::MigMixed),
        (Kind::GpuMemory, _) if facts.device_memory.is_none() => Some(NodeRule::DeviceMemoryUnknown),
        _ => None,
    }
}

/// Whether the tolerations cover all taints that keep pods away.
pub(super) fn tolerated(tolerations: &[Toleration], facts: &Facts<'_>) -> bool {
    let mut taints = facts.node.taints.iter().filter(|taint| taint.repels());
    taints.all(|taint| tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

/// Whether node selector and required affinity choose the node.
pub(super) fn wanted(selector: &BTreeMap<String, String>, affinity: Option<&[NodeTerm]>, facts: &Facts<'_>) -> bool {
    let labels = &facts.node.labels;
    selector.iter().all(|(name, value)| labels.get(name) == Some(value))
        && affinity.is_none_or(|terms| terms.iter().any(|term| term.holds(&facts.node.name, labels)))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::Object;
    use crate::objects::Node;
    use crate::scheduler::lower::nodes;
    use crate::scheduler::settings::Settings;
    use crate::world::World;

    /// Nodes that differ in one thing each.
    fn zoo() -> World {
        let mut world = World::default();
        let mig = json!({"nvidia.com/mig-1g.5gb": 7});
        for (name, labels, spec, status) in [
            ("cordoned", json!({}), json!({"unschedulable": true}), json!({})),
            ("cpu-only", json!({"node-role.kubernetes.io/cpu-worker": ""}), json!({}), json!({})),
            ("down", json!({}), json!({}), json!({"conditions": [{"type": "Ready", "status": "Unknown"}]})),
            ("full-disk", json!({}), json!({}), json!({"conditions": [{"type": "DiskPressure", "status": "True"}]})),
            ("gpu", json!({"nvidia.com/gpu.memory": "40000", "zone": "a"}), json!({}), json!({})),
            ("mig-mixed", json!({"nvidia.com/mig.strategy": "mixed"}), json!({}), json!({"allocatable": mig})),
            ("mig-single", json!({"nvidia.com/mig.strategy": "single"}), json!({}), json!({"allocatable": mig})),
            ("tainted", json!({}), json!({"taints": [{"key": "a", "effect": "NoExecute"}]}), json!({})),
            ("warned", json!({}), json!({"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}), json!({})),
        ] {
            let node = json!({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status});
            world.apply(Object::Node(Box::new(Node::parse(&node).unwrap())));
        }
        world
    }

    fn check(annotations: &Value, spec: &Value, restricted: bool, want: &Expect) {
        let (world, mut settings) = (zoo(), Settings::default());
        settings.cpu_worker_label_key = "node-role.kubernetes.io/cpu-worker".to_owned();
        let nodes = nodes::select(&world, &settings);
        let pod = json!({"metadata": {"name": "p", "annotations": annotations}, "spec": spec});
        let pod = Pod::parse(&pod).unwrap();
        let mut table = NodeFilterTable::default();
        let node_filters = NodeFilters::new(&mut table, FixedBitSet::with_capacity(nodes.list.len()), restricted);
        let claim = ClaimRule::default();
        let key = NodeFilterKey {
            kind: Kind::of(&pod.request, claim),
            selector: &pod.node_selector,
            affinity: pod.node_affinity.as_deref(),
            tolerations: &pod.tolerations,
            claim,
            volumes: 0,
        };
        let filter = node_filters.classify_nodes(&key, &Refusals::new(), &nodes);
        let list = |set: &FixedBitSet| -> String {
            set.ones().map(|index| nodes.list[index].node.name.as_str()).collect::<Vec<_>>().join(" ")
        };
        let mut lines = vec![format!("feasible: {}", list(&filter.feasible))];
        lines.extend(filter.excluded.iter().map(|(rule, set)| format!("{rule:?}: {}", list(set))));
        want.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn conditions_and_taints_keep_every_pod_away() {
        check(
            &json!({}),
            &json!({}),
            false,
            &expect![[r"
                feasible: cpu-only gpu mig-mixed mig-single warned
                Cordoned: cordoned
                NotReady: down
                DiskPressure: full-disk
                Taint: tainted"]],
        );
    }

    #[test]
    fn selectors_and_affinity_narrow_what_is_left() {
        check(
            &json!({}),
            &json!({"nodeSelector": {"zone": "a"}, "tolerations": [{"operator": "Exists"}]}),
            false,
            &expect![[r"
                feasible: gpu
                Cordoned: cordoned
                NotReady: down
                DiskPressure: full-disk
                Affinity: cpu-only mig-mixed mig-single tainted warned"]],
        );
        let required = json!({"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu"]}]},
        ]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        check(
            &json!({}),
            &json!({"affinity": affinity, "nodeSelector": {"zone": "a"}}),
            false,
            &expect![[r"
                feasible: gpu
                Cordoned: cordoned
                NotReady: down
                DiskPressure: full-disk
                Taint: tainted
                Affinity: cpu-only mig-mixed mig-single warned"]],
        );
    }

    #[test]
    fn shared_gpus_need_known_memory_and_no_mig() {
        check(
            &json!({"gpu-memory": "4000"}),
            &json!({}),
            false,
            &expect![[r"
                feasible: gpu
                MigSingle: mig-single
                MigMixed: mig-mixed
                DeviceMemoryUnknown: cordoned cpu-only down full-disk tainted warned"]],
        );
    }

    #[test]
    fn mig_pods_go_to_mig_nodes() {
        let containers = json!([{"resources": {"requests": {"nvidia.com/mig-1g.5gb": 1}}}]);
        check(
            &json!({}),
            &json!({"containers": containers}),
            false,
            &expect![[r"
                feasible: mig-mixed
                MigOnly: cordoned cpu-only down full-disk gpu tainted warned
                MigSingle: mig-single"]],
        );
    }

    #[test]
    fn restriction_asks_for_the_worker_label() {
        check(
            &json!({}),
            &json!({"tolerations": [{"operator": "Exists"}]}),
            true,
            &expect![[r"
                feasible: cpu-only
                Cordoned: cordoned
                NotReady: down
                DiskPressure: full-disk
                NotCpuWorker: gpu mig-mixed mig-single tainted warned"]],
        );
    }
}
