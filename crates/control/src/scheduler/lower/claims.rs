//! Resource claims of pods, and the devices that they may be given.

use std::collections::BTreeMap;

use kai_api::keys::resource;
use kai_engine::builder::Builder;

use super::nodes::ShardNodes;
use super::pod_partition::{JobPod, PodPartition};
use super::status;
use crate::devices::{
    ClaimFault, ClaimRef, ClaimSource, ClaimTranslator, Consumed, Consumer, Extended, Inventory, NodeView,
};
use crate::key::{Key, PodKey};
use crate::objects::{Pod, Resources};
use crate::scheduler::settings::Settings;
use crate::world::World;

/// Claims as numbers, and what the numbers stand for.
pub(crate) struct Devices<'w> {
    pub(crate) inventory: Inventory<'w>,
    /// By claim.
    pub(crate) sources: Vec<ClaimSource<'w>>,
    /// Why pods cannot be scheduled, by the number that their node filter carries.
    pub(crate) faults: Vec<ClaimFault>,
    consumed: BTreeMap<&'w PodKey, Consumed>,
}

impl std::fmt::Debug for Devices<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Devices of {} pods", self.consumed.len())
    }
}

/// The devices of the cluster; `None` if there are none and no pod claims any.
pub(super) fn inventory<'w>(
    world: &'w World,
    nodes: &ShardNodes<'w>,
    partition: &PodPartition<'w>,
) -> Option<Inventory<'w>> {
    if world.resource_slices.is_empty() && world.resource_claims.is_empty() && !partition.features.resource_claims {
        return None;
    }
    let view = |facts: &super::nodes::Facts<'w>| NodeView { name: &facts.node.name, labels: &facts.node.labels };
    let nodes = nodes.list.iter().map(view).collect();
    Some(Inventory::new(world.device_classes.values(), world.resource_slices.values(), nodes))
}

/// Adds the claims of all pods.
pub(super) fn add<'w>(
    world: &'w World,
    settings: &Settings,
    nodes: &ShardNodes<'w>,
    partition: &PodPartition<'w>,
    mut inventory: Inventory<'w>,
    builder: &mut Builder,
) -> Devices<'w> {
    let made: BTreeMap<Key, Key> = world
        .resource_claims
        .values()
        .filter(|claim| claim.extended)
        .filter_map(|claim| Some((Key::new(&*claim.key.namespace, claim.owner.clone()?), claim.key.clone())))
        .collect();
    let offers = |name: &str, node: usize| {
        let allocatable = &nodes.list[node].node.allocatable;
        if name == resource::NVIDIA_GPU {
            allocatable.gpus > 0
        } else {
            allocatable.scalars.get(name).is_some_and(|amount| *amount > 0)
        }
    };
    let backed = inventory.backs_anything();
    let extended = |pod: &'w Pod| {
        let alone = [(pod.request.resources.clone(), true)];
        let containers: &[(Resources, bool)] =
            if pod.request.containers.is_empty() { &alone } else { &pod.request.containers };
        Extended::of(containers, &inventory, offers, made.get(&pod.key).cloned())
    };
    let mut keys = Vec::new();
    let mut consumers = Vec::new();
    for job in &partition.jobs {
        for member in job.leaves.iter().flatten() {
            let extended = if backed { extended(member.pod) } else { None };
            if !member.pod.claims.is_empty() || extended.is_some() {
                keys.push(&member.pod.key);
                consumers.push(consumer(member, &job.group.queue, extended));
            }
        }
    }
    let mut translator = ClaimTranslator::new(&mut inventory, &world.resource_claims, &settings.queue_label_key);
    let consumed = translator.add(consumers);
    let sources = translator.sources;
    builder.claims(inventory.columns());
    let mut faults: Vec<ClaimFault> = consumed.iter().filter_map(|consumed| consumed.fault.clone()).collect();
    faults.sort();
    faults.dedup();
    Devices { inventory, sources, faults, consumed: keys.into_iter().zip(consumed).collect() }
}

fn consumer<'w>(member: &JobPod<'w>, queue: &'w str, extended: Option<Extended>) -> Consumer<'w> {
    let pod = member.pod;
    let refs = pod.claims.iter().map(|claim| ClaimRef {
        name: &claim.name,
        claim: claim.claim.as_deref(),
        own: claim.from_template,
    });
    Consumer {
        namespace: &pod.key.namespace,
        uid: &pod.uid,
        queue,
        refs: refs.collect(),
        placed: member.node.is_some() && status::holds_room(member.status),
        decided: member.request.map_or(&[][..], |request| &request.claims),
        extended,
    }
}

impl Devices<'_> {
    /// What claims mean for a pod, if it has any.
    pub(super) fn of(&self, pod: &PodKey) -> Option<&Consumed> {
        self.consumed.get(pod)
    }

    /// The number of what keeps a pod from being scheduled.
    pub(super) fn fault(&self, consumed: &Consumed) -> Option<u32> {
        let fault = consumed.fault.as_ref()?;
        self.faults.binary_search(fault).ok().map(|index| index as u32)
    }
}
