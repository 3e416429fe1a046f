//! Numbers for jobs that are alike in everything but amounts, queue and priority.
//!
//! If such a job failed, an equal one that asks for no less need not be tried.

use std::collections::BTreeMap;

use kai_engine::builder::TaskRow;

use crate::key::Key;
use crate::objects::{
    DeviceConstraint, DeviceRequest, HostPort, NodeTerm, Pod, PodClaim, Toleration, TopologyConstraint,
};
use crate::world::World;

/// A claim of its own counts by its content, a shared one by its name.
type ClaimKey = (Option<String>, Vec<DeviceRequest>, Vec<DeviceConstraint>);

/// Two pods with equal keys are held to the same rules.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PodRulesKey {
    selector: BTreeMap<String, String>,
    affinity: Option<Vec<NodeTerm>>,
    tolerations: Vec<Toleration>,
    class: Option<String>,
    priority: Option<i32>,
    ports: Vec<HostPort>,
    /// What it asks of others and they of it, whatever it is written like.
    inter_pod: Option<u32>,
    claims: Vec<ClaimKey>,
    /// What its volumes and config maps mean for nodes, and what they take.
    volumes: (u32, Option<u32>),
    other: String,
}

/// Numbers of the constraints from a leaf up to the root, and of the pods that still need a place.
type LeafKey = (Vec<u32>, Vec<u32>);

/// Numbers given out so far.
#[derive(Debug, Default)]
pub(super) struct Signatures {
    pods: BTreeMap<PodRulesKey, u32>,
    constraints: BTreeMap<TopologyConstraint, u32>,
    leaves: BTreeMap<LeafKey, u32>,
    jobs: BTreeMap<Vec<u32>, u32>,
}

/// The last pod that was given a number, since pods that follow each other are often alike.
#[derive(Default)]
pub(super) struct LastPodMemo<'w> {
    last: Option<(&'w Pod, Others, u32)>,
}

/// Inter-pod rules and volumes of a pod, see [`PodRulesKey`].
type Others = (Option<u32>, (u32, Option<u32>));

impl LastPodMemo<'_> {
    fn number(&self, pod: &Pod, others: Others) -> Option<u32> {
        let (last, others_last, number) = self.last?;
        (others_last == others && same_rules(last, pod)).then_some(number)
    }
}

/// Whether the pods have equal keys, inter-pod rules and volumes aside; those with claims are not compared.
fn same_rules(left: &Pod, right: &Pod) -> bool {
    left.claims.is_empty()
        && right.claims.is_empty()
        && left.node_selector == right.node_selector
        && left.node_affinity == right.node_affinity
        && left.tolerations == right.tolerations
        && left.priority_class == right.priority_class
        && left.priority == right.priority
        && left.host_ports == right.host_ports
        && left.signature_extra == right.signature_extra
}

impl Signatures {
    /// The number of a pod.
    pub(super) fn pod<'w>(
        &mut self,
        pod: &'w Pod,
        task: &TaskRow,
        rules: u32,
        world: &World,
        last_pod: &mut LastPodMemo<'w>,
    ) -> u32 {
        let others = (task.inter_pod, (rules, task.volumes));
        let known = last_pod.number(pod, others);
        let number = known.unwrap_or_else(|| number(&mut self.pods, pod_key(pod, task, rules, world)));
        last_pod.last = Some((pod, others, number));
        number
    }

    /// The number of a leaf, from its constraint and those above it and from those of its pods that need a place; 0 if
    /// all have one.
    pub(super) fn leaf<'w>(
        &mut self,
        constraints: impl Iterator<Item = Option<&'w TopologyConstraint>>,
        mut pods: Vec<u32>,
    ) -> u32 {
        if pods.is_empty() {
            return 0;
        }
        pods.sort_unstable();
        let constraints = constraints.map(|constraint| constraint.map_or(0, |it| self.constraint(it))).collect();
        number(&mut self.leaves, (constraints, pods))
    }

    fn constraint(&mut self, constraint: &TopologyConstraint) -> u32 {
        let known = self.constraints.get(constraint).copied();
        known.unwrap_or_else(|| number(&mut self.constraints, constraint.clone()))
    }

    /// The number of a job, from those of its leaves.
    pub(super) fn job(&mut self, mut leaves: Vec<u32>) -> u32 {
        leaves.sort_unstable();
        number(&mut self.jobs, leaves)
    }
}

fn pod_key(pod: &Pod, task: &TaskRow, rules: u32, world: &World) -> PodRulesKey {
    PodRulesKey {
        selector: pod.node_selector.clone(),
        affinity: pod.node_affinity.clone(),
        tolerations: pod.tolerations.clone(),
        class: pod.priority_class.clone(),
        priority: pod.priority,
        ports: pod.host_ports.clone(),
        inter_pod: task.inter_pod,
        claims: pod.claims.iter().map(|claim| claim_key(pod, claim, world)).collect(),
        volumes: (rules, task.volumes),
        other: pod.signature_extra.clone(),
    }
}

fn claim_key(pod: &Pod, claim: &PodClaim, world: &World) -> ClaimKey {
    let made = claim.claim.as_ref().and_then(|name| world.resource_claims.get(&Key::new(&*pod.key.namespace, &**name)));
    match made.filter(|_| claim.from_template) {
        Some(made) => (None, made.spec.requests.clone(), made.spec.constraints.clone()),
        None => (claim.claim.clone(), Vec::new(), Vec::new()),
    }
}

/// Numbers start at 1.
fn number<K: Ord>(known: &mut BTreeMap<K, u32>, key: K) -> u32 {
    let next = u32::try_from(known.len() + 1).expect("a snapshot has fewer than 2³² rows");
    *known.entry(key).or_insert(next)
}
