//! Numbers for jobs that are alike in everything but amounts, queue and priority.
//!
//! If such a job failed, an equal one that asks for no less need not be tried.

use std::collections::BTreeMap;

use kai_engine::builder::TaskRow;

use super::roster::Member;
use super::status::is_placed;
use crate::objects::{
    DeviceConstraint, DeviceRequest, HostPort, NodeTerm, Pod, PodClaim, Toleration, TopologyConstraint,
};
use crate::world::{Key, World};

/// Two pods with equal keys are held to the same rules.
/// A claim of its own counts by its content, a shared one by its name.
type ClaimKey = (Option<String>, Vec<DeviceRequest>, Vec<DeviceConstraint>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PodKey {
    selector: BTreeMap<String, String>,
    affinity: Option<Vec<NodeTerm>>,
    tolerations: Vec<Toleration>,
    class: Option<String>,
    priority: Option<i32>,
    ports: Vec<HostPort>,
    /// What it asks of others and they of it, whatever it is written like.
    bond: Option<u32>,
    claims: Vec<ClaimKey>,
    /// What its volumes and config maps mean for nodes, and what they take.
    volumes: (u32, Option<u32>),
    other: String,
}

/// Constraints from a leaf up to the root, and the numbers of the pods that still need a place.
type LeafKey = (Vec<Option<TopologyConstraint>>, Vec<u32>);

/// Numbers given out so far.
#[derive(Debug, Default)]
pub(super) struct Signatures {
    pods: BTreeMap<PodKey, u32>,
    leaves: BTreeMap<LeafKey, u32>,
    jobs: BTreeMap<Vec<u32>, u32>,
}

impl Signatures {
    /// The number of a leaf; 0 if all its pods have a place.
    pub(super) fn leaf(
        &mut self,
        constraints: Vec<Option<&TopologyConstraint>>,
        members: &[Member<'_>],
        tasks: &[TaskRow],
        rules: &[u32],
        world: &World,
    ) -> u32 {
        let mut pods: Vec<u32> = members
            .iter()
            .zip(tasks)
            .zip(rules)
            .filter(|((member, _), _)| !is_placed(member.status))
            .map(|((member, task), rules)| number(&mut self.pods, pod_key(member.pod, task, *rules, world)))
            .collect();
        if pods.is_empty() {
            return 0;
        }
        pods.sort_unstable();
        let constraints = constraints.into_iter().map(Option::<&TopologyConstraint>::cloned).collect();
        number(&mut self.leaves, (constraints, pods))
    }

    /// The number of a job, from those of its leaves.
    pub(super) fn job(&mut self, mut leaves: Vec<u32>) -> u32 {
        leaves.sort_unstable();
        number(&mut self.jobs, leaves)
    }
}

fn pod_key(pod: &Pod, task: &TaskRow, rules: u32, world: &World) -> PodKey {
    PodKey {
        selector: pod.node_selector.clone(),
        affinity: pod.node_affinity.clone(),
        tolerations: pod.tolerations.clone(),
        class: pod.priority_class.clone(),
        priority: pod.priority,
        ports: pod.host_ports.clone(),
        bond: task.bond,
        claims: pod.claims.iter().map(|claim| claim_key(pod, claim, world)).collect(),
        volumes: (rules, task.volumes),
        other: pod.other_rules.clone(),
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
