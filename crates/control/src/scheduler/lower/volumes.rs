//! Where a pod's volumes can be, and what they take.
//!
//! Claims that are bound tie a pod to the nodes that reach their volumes. Claims that wait for their pod need a volume that
//! is free, or a place to make one. What pods take from each other, such as the last free volume of a node, is counted by
//! the engine. Semantics are kube-scheduler's, which does not count free space, however.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use kai_engine::builder::Builder;
use kai_engine::snapshot::{NodeRule, VolumeNeed};

use super::nodes;
use crate::objects::{
    LabelSelector, NodeTerm, PersistentVolume, PersistentVolumeClaim, Pod, Prerequisites, StorageClass, VolumeMode,
};
use crate::scheduler::pod_volumes::{ZONE_LABELS, claims, missing, volume_of, waits_for, zones_of};
use crate::world::World;

/// Rules that volumes make about nodes: for each rule the nodes that fail it.
pub(super) type Refusals = Vec<(NodeRule, FixedBitSet)>;

/// Distinct rules of all pods so far, kept as long as no node changes.
#[derive(Debug, Default)]
pub(super) struct RuleTable {
    numbers: BTreeMap<Refusals, u32>,
}

/// What a pod's volumes and config maps ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct Needs {
    /// Its rules about nodes, and the number of these.
    pub(super) rules: Refusals,
    pub(super) number: u32,
    /// What its volumes take.
    pub(super) taken: Option<u32>,
}

/// A claim that waits for its pod, as far as nodes care.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClaimRequirements<'w> {
    class: &'w str,
    bytes: Option<i64>,
    access_modes: &'w BTreeSet<String>,
    mode: VolumeMode,
    selector: Option<&'w LabelSelector>,
    selected_node: Option<&'w str>,
    /// The volume that is kept for it.
    kept: Option<&'w str>,
}

/// What decides from where a volume can be reached.
type ReachKey<'w> = (Option<&'w [NodeTerm]>, Vec<(&'static str, &'w str)>);

/// Everything about storage that was worked out so far.
pub(super) struct Volumes<'a, 'w> {
    world: &'w World,
    nodes: &'a nodes::ShardNodes<'w>,
    table: &'a mut RuleTable,
    by_prerequisites: BTreeMap<(&'w str, &'w Prerequisites), Needs>,
    by_volume: BTreeMap<ReachKey<'w>, Refusals>,
    by_requirements: BTreeMap<ClaimRequirements<'w>, (Refusals, Vec<(u32, i64)>)>,
    /// Drivers, unless no node limits their volumes.
    drivers: BTreeMap<&'w str, Option<u32>>,
    attached: BTreeMap<Attached<'w>, u32>,
    /// Kinds of storage, by class and the volumes that they are made of.
    kinds: BTreeMap<(&'w str, Vec<&'w str>), u32>,
    /// Names of drivers and of the classes of kinds, by number.
    pub(super) driver_names: Vec<&'w str>,
    pub(super) kind_names: Vec<&'w str>,
}

/// A volume that is attached to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Attached<'w> {
    /// Driver, and what it calls the volume.
    Volume(&'w str, &'w str),
    /// Namespace and name of a claim whose volume does not exist yet.
    Claim(&'w str, &'w str),
}

impl<'a, 'w> Volumes<'a, 'w> {
    pub(super) fn new(world: &'w World, nodes: &'a nodes::ShardNodes<'w>, table: &'a mut RuleTable) -> Self {
        Self {
            world,
            nodes,
            table,
            by_prerequisites: BTreeMap::new(),
            by_volume: BTreeMap::new(),
            by_requirements: BTreeMap::new(),
            drivers: BTreeMap::new(),
            attached: BTreeMap::new(),
            kinds: BTreeMap::new(),
            driver_names: Vec::new(),
            kind_names: Vec::new(),
        }
    }

    /// What the pod needs. Pods of a gang usually mount the same.
    pub(super) fn of(&mut self, pod: &'w Pod, builder: &mut Builder) -> Needs {
        let Some(prerequisites) = pod.prerequisites.as_deref() else { return Needs::default() };
        let key = (pod.key.namespace.as_str(), prerequisites);
        if let Some(known) = self.by_prerequisites.get(&key) {
            return known.clone();
        }
        let needs = self.compute(pod, builder);
        self.by_prerequisites.insert(key, needs.clone());
        needs
    }

    fn compute(&mut self, pod: &'w Pod, builder: &mut Builder) -> Needs {
        let mut rules: Refusals = Vec::new();
        if !missing(self.world, pod).is_empty() {
            let mut all = FixedBitSet::with_capacity(self.nodes.list.len());
            all.insert_range(..);
            rules.push((NodeRule::Prerequisite, all));
        }
        let mut need = VolumeNeed::default();
        let mut stored: BTreeMap<u32, i64> = BTreeMap::new();
        for claim in claims(self.world, pod) {
            let attached = if let Some(volume) = volume_of(self.world, claim) {
                rules.extend(self.reach(volume));
                volume.csi.as_ref().map(|(driver, name)| (Attached::Volume(driver, name), driver.as_str()))
            } else if let Some(class) = waits_for(self.world, claim) {
                let (refused, takes) = self.available(claim, class, builder);
                rules.extend(refused);
                for (kind, amount) in takes {
                    let sum = stored.entry(kind).or_default();
                    *sum = sum.saturating_add(amount);
                }
                Some((Attached::Claim(&claim.key.namespace, &claim.key.name), class.provisioner.as_str()))
            } else {
                None
            };
            if let Some((volume, driver)) = attached
                && let Some(driver) = self.driver(driver, builder)
            {
                need.attached.push(*self.attached.entry(volume).or_insert_with(|| builder.volume(driver)));
            }
        }
        need.storage_needs = stored.into_iter().collect();
        Needs { number: self.number(&rules), rules, taken: builder.volume_need(need) }
    }

    /// 0 is no rule.
    fn number(&mut self, rules: &Refusals) -> u32 {
        if rules.is_empty() {
            return 0;
        }
        let next = u32::try_from(self.table.numbers.len() + 1).expect("distinct rules are fewer than pods");
        *self.table.numbers.entry(rules.clone()).or_insert(next)
    }

    fn refused(&self, rule: NodeRule, accepts: impl Fn(&nodes::Facts<'_>) -> bool) -> Option<(NodeRule, FixedBitSet)> {
        let mut set = FixedBitSet::with_capacity(self.nodes.list.len());
        let refused = self.nodes.list.iter().enumerate().filter(|(_, facts)| !accepts(facts));
        set.extend(refused.map(|(index, _)| index));
        (!set.is_clear()).then_some((rule, set))
    }

    /// Nodes that do not reach a volume.
    fn reach(&mut self, volume: &'w PersistentVolume) -> Refusals {
        let key: ReachKey<'w> = (volume.nodes.as_deref(), zones_of(&volume.labels).collect());
        if let Some(known) = self.by_volume.get(&key) {
            return known.clone();
        }
        let far = self.refused(NodeRule::VolumeUnreachable, |facts| reaches(volume, facts));
        let elsewhere = self.refused(NodeRule::VolumeZone, |facts| in_zones(&key.1, &facts.node.labels));
        let refusals: Refusals = far.into_iter().chain(elsewhere).collect();
        self.by_volume.insert(key, refusals.clone());
        refusals
    }

    /// Nodes on which a claim that waits for its pod finds no volume and gets none made, and what it takes elsewhere.
    fn available(
        &mut self,
        claim: &'w PersistentVolumeClaim,
        class: &'w StorageClass,
        builder: &mut Builder,
    ) -> (Refusals, Vec<(u32, i64)>) {
        let kept = self.world.volumes.values().find(|volume| volume.is_prebound_to(claim) && volume.can_bind_to(claim));
        let required = ClaimRequirements {
            class: &class.name,
            bytes: claim.bytes,
            access_modes: &claim.access_modes,
            mode: claim.mode,
            selector: claim.selector.as_ref(),
            selected_node: claim.selected_node.as_deref(),
            kept: kept.map(|volume| volume.name.as_str()),
        };
        if let Some(known) = self.by_requirements.get(&required) {
            return known.clone();
        }
        // A volume is being made for a claim with a node, so that none that is there will do.
        let ready: Vec<&PersistentVolume> = match kept {
            _ if required.selected_node.is_some() => Vec::new(),
            Some(kept) => vec![kept],
            None => self.world.volumes.values().filter(|volume| volume.can_bind_to(claim)).collect(),
        };
        let found = |facts: &nodes::Facts<'_>| ready.iter().any(|volume| reaches(volume, facts));
        let made = |facts: &nodes::Facts<'_>| {
            let here = required.selected_node.is_none_or(|node| node == facts.node.name);
            here && class.can_provision_on(&facts.node.labels)
        };
        let room = |facts: &nodes::Facts<'_>| has_room(self.world, claim, class, &facts.node.labels);
        let nowhere = self.refused(NodeRule::NoVolume, |facts| found(facts) || made(facts));
        let full = self.refused(NodeRule::StorageFull, |facts| found(facts) || !made(facts) || room(facts));
        let refusals: Refusals = nowhere.into_iter().chain(full).collect();
        let takes = if kept.is_some() { Vec::new() } else { self.takes(claim, class, &ready, builder) };
        self.by_requirements.insert(required, (refusals.clone(), takes.clone()));
        (refusals, takes)
    }

    /// From what the claim takes, where that has an end.
    fn takes(
        &mut self,
        claim: &PersistentVolumeClaim,
        class: &'w StorageClass,
        ready: &[&'w PersistentVolume],
        builder: &mut Builder,
    ) -> Vec<(u32, i64)> {
        let all = self.world.volumes.values();
        let all: Vec<&PersistentVolume> = all.filter(|volume| volume.class == class.name && is_free(volume)).collect();
        if !class.provisions() {
            // Claims that are smaller or equal compete for the same volumes.
            let mut kinds: Vec<u32> =
                [all.as_slice(), ready].iter().map(|volumes| self.static_volumes(class, volumes, builder)).collect();
            kinds.dedup();
            return kinds.into_iter().map(|kind| (kind, 1)).collect();
        }
        // Where volumes are ready as well, how many of them will be taken is not known.
        match claim.bytes.filter(|_| all.is_empty() && reports_capacity(self.world, class)) {
            Some(bytes) => vec![(self.reported_capacity(class, builder), bytes)],
            None => Vec::new(),
        }
    }

    /// Volumes that are ready: counted by the nodes that reach them, unless some nodes reach several groups of them.
    fn static_volumes(
        &mut self,
        class: &'w StorageClass,
        volumes: &[&'w PersistentVolume],
        builder: &mut Builder,
    ) -> u32 {
        let key = (class.name.as_str(), volumes.iter().map(|volume| volume.name.as_str()).collect());
        if let Some(known) = self.kinds.get(&key) {
            return *known;
        }
        let count = self.nodes.list.len();
        let reach = |volume: &PersistentVolume| {
            let mut set = FixedBitSet::with_capacity(count);
            let nodes = self.nodes.list.iter().enumerate();
            set.extend(nodes.filter(|(_, facts)| reaches(volume, facts)).map(|(index, _)| index));
            set
        };
        let mut groups: BTreeMap<FixedBitSet, i64> = BTreeMap::new();
        for volume in volumes {
            *groups.entry(reach(volume)).or_default() += 1;
        }
        let reached: usize = groups.keys().map(|set| set.count_ones(..)).sum();
        let apart = reached == (0..count).filter(|node| groups.keys().any(|set| set.contains(*node))).count();
        let mut stores = vec![None; count];
        if apart {
            for (set, number) in &groups {
                let store = builder.add_storage_pool(*number);
                set.ones().for_each(|node| stores[node] = Some(store));
            }
        } else {
            stores.fill(Some(builder.add_storage_pool(volumes.len() as i64)));
        }
        self.kind(key, stores, builder)
    }

    /// Capacity reported by the driver; unknown if several `CSIStorageCapacity` objects apply.
    fn reported_capacity(&mut self, class: &'w StorageClass, builder: &mut Builder) -> u32 {
        let key = (class.name.as_str(), Vec::new());
        if let Some(known) = self.kinds.get(&key) {
            return *known;
        }
        let mut made = BTreeMap::new();
        let mut stores = Vec::new();
        for facts in &self.nodes.list {
            let all = self.world.storage_capacities.values();
            let mut capacities = all.filter(|capacity| capacity.concerns(&class.name, &facts.node.labels));
            let only = capacities.next().filter(|_| capacities.next().is_none());
            let store = only.and_then(|capacity| Some((&capacity.key, capacity.bytes?)));
            stores.push(store.map(|(key, bytes)| *made.entry(key).or_insert_with(|| builder.add_storage_pool(bytes))));
        }
        self.kind(key, stores, builder)
    }

    fn kind(&mut self, key: (&'w str, Vec<&'w str>), stores: Vec<Option<u32>>, builder: &mut Builder) -> u32 {
        self.kind_names.push(key.0);
        let kind = builder.add_storage_class(stores);
        self.kinds.insert(key, kind);
        kind
    }

    /// The driver, if some node limits its volumes.
    fn driver(&mut self, name: &'w str, builder: &mut Builder) -> Option<u32> {
        if let Some(known) = self.drivers.get(name) {
            return *known;
        }
        let limit = |facts: &nodes::Facts<'_>| self.world.csi_nodes.get(&facts.node.name)?.limits.get(name).copied();
        let limits: Vec<Option<u32>> = self.nodes.list.iter().map(limit).collect();
        let driver = limits.iter().any(Option::is_some).then(|| builder.volume_driver(limits));
        self.driver_names.extend(driver.map(|_| name));
        self.drivers.insert(name, driver);
        driver
    }
}

fn is_free(volume: &PersistentVolume) -> bool {
    volume.available && volume.claim.is_none() && !volume.deleting
}

fn reaches(volume: &PersistentVolume, facts: &nodes::Facts<'_>) -> bool {
    volume.reaches(&facts.node.name, &facts.node.labels)
}

/// A node without any such label may be in every zone. A volume may be in several zones at once.
fn in_zones(zones: &[(&str, &str)], labels: &BTreeMap<String, String>) -> bool {
    zones_of(labels).next().is_none()
        || zones.iter().all(|(label, values)| {
            let today = ZONE_LABELS[..2].iter().position(|old| old == label).map(|index| ZONE_LABELS[index + 2]);
            let found = labels.get(*label).or_else(|| labels.get(today?));
            found.is_some_and(|found| values.split("__").any(|value| value == found))
        })
}

fn reports_capacity(world: &World, class: &StorageClass) -> bool {
    world.csi_drivers.get(&class.provisioner).is_some_and(|driver| driver.reports_capacity)
}

/// Whether the driver has the space, as far as it reports any.
fn has_room(
    world: &World,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    labels: &BTreeMap<String, String>,
) -> bool {
    let Some(bytes) = claim.bytes.filter(|_| reports_capacity(world, class)) else { return true };
    let enough = |largest: i64| largest >= bytes;
    let mut capacities = world.storage_capacities.values();
    capacities.any(|capacity| capacity.concerns(&class.name, labels) && capacity.largest.is_some_and(enough))
}
