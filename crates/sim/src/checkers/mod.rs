//! Invariants, checked after every event while the shipped scheduler runs. One file, one invariant.
//!
//! A violation is a bug of kai, never of the input: manifests may well over-commit a node by pinning pods to it, so a
//! checker evaluates what the scheduler itself has just done.

mod across_cycles;
mod anti_affinity;
mod claims;
mod devices;
mod effects;
mod eviction_purpose;
mod gangs;
mod limits;
mod min_runtime;
mod namespaces;
mod nodes;
mod numa;
mod preemptibility;
mod queue_totals;
mod quotas;
#[cfg(test)]
mod tests;
mod volumes;
mod work_conservation;

use std::collections::{BTreeMap, BTreeSet};

use kai_api::bounds::QUEUE_LEVELS_MAX;
use kai_control::World;
use kai_control::key::{GroupKey, PodKey};
use kai_control::objects::{Pod, PodGroup};
use kai_control::scheduler::{CycleResult, Effect, Settings};
use kai_engine::policy::Action;
use kai_engine::units::{ResourceQuantities, Span, Timestamp};
use thiserror::Error;

use crate::amounts::{charged, is_allocated};
use crate::cluster::Performed;

pub(crate) use across_cycles::{ClusterView, CycleHistory};
pub(crate) use claims::check as claimed_devices;
pub(crate) use work_conservation::check as work_conservation;

/// The input of a checker: the cluster after an event, and what the scheduler did in it.
pub(crate) struct CycleObservation<'a> {
    pub(crate) world: &'a World,
    pub(crate) settings: &'a Settings,
    pub(crate) cycle: &'a CycleResult,
    pub(crate) performed: &'a Performed,
    pub(crate) now: Timestamp,
}

/// A pod that lost its place to make room for others.
struct Eviction<'a> {
    pod: &'a PodKey,
    job: &'a GroupKey,
    action: Action,
    preemptor: Option<&'a GroupKey>,
}

/// Finds what is wrong, in words.
type Checker = fn(&CycleObservation<'_>) -> Vec<String>;

const CHECKERS: [(&str, Checker); 16] = [
    ("queue totals agree with the pods", queue_totals::check),
    ("no GPU is over-committed", devices::check),
    ("effects can be performed", effects::check),
    ("gangs start and stay whole", gangs::check),
    ("no workload waits beside free capacity", work_conservation::check),
    ("no queue exceeds its limit", limits::check),
    ("anti-affinity is respected", anti_affinity::check),
    ("no node is over-committed", nodes::check),
    ("evictions have a preemptor", eviction_purpose::check),
    ("non-preemptible workloads stay within quota", quotas::check),
    ("non-preemptible workloads are not evicted", preemptibility::check),
    ("pods have their volumes", volumes::check),
    ("pods have their devices", claims::check),
    ("no NUMA zone is over-committed", numa::check),
    ("minimum runtimes are respected", min_runtime::check),
    ("queues take pods of their namespaces only", namespaces::check),
];

/// A broken invariant. This is a bug: the same command reproduces it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{invariant}: {what}")]
pub struct Violation {
    /// What should hold.
    pub invariant: &'static str,
    /// What was found instead.
    pub what: String,
    /// When, since the start.
    pub at: Span,
}

/// Runs every checker; the first violation ends the run.
pub(crate) fn check(observation: &CycleObservation<'_>, at: Span) -> Result<(), Violation> {
    run_checkers(&CHECKERS, observation, at)
}

fn run_checkers(
    checkers: &[(&'static str, Checker)],
    observation: &CycleObservation<'_>,
    at: Span,
) -> Result<(), Violation> {
    for (invariant, checker) in checkers {
        let mut found = checker(observation);
        if !found.is_empty() {
            // The first few are enough to start looking.
            found.truncate(5);
            return Err(Violation { invariant, what: found.join("; "), at });
        }
    }
    Ok(())
}

/// Runs only the checkers of capacity, which must hold whatever went wrong.
pub(crate) fn check_room(observation: &CycleObservation<'_>, at: Span) -> Result<(), Violation> {
    run_checkers(
        &[("no GPU is over-committed", devices::check), ("no node is over-committed", nodes::check)],
        observation,
        at,
    )
}

impl<'a> CycleObservation<'a> {
    /// Pods that the cycle bound, as they are now.
    fn bound_pods(&self) -> impl Iterator<Item = &'a Pod> {
        self.performed.bound.iter().filter_map(|key| self.world.pods.get(key))
    }

    /// Evictions that make room; a stale gang leaves for its own sake.
    fn evictions(&self) -> impl Iterator<Item = Eviction<'a>> {
        self.cycle.effects.iter().filter_map(|effect| match effect {
            Effect::Evict { action: Action::EvictStale, .. } => None,
            Effect::Evict { pod, job, action, preemptor, .. } => {
                Some(Eviction { pod, job, action: *action, preemptor: preemptor.as_ref() })
            }
            _ => None,
        })
    }

    fn group_of(&self, pod: &Pod) -> Option<&'a PodGroup> {
        self.world.pod_groups.get(&pod.group()?)
    }

    /// Whether the object belongs to the shard that is simulated.
    fn in_shard(&self, labels: &BTreeMap<String, String>) -> bool {
        let key = &self.settings.node_pool_label_key;
        key.is_empty() || labels.get(key) == self.settings.node_pool_value.as_ref()
    }

    /// Whether the pod counts for its queue: it holds a node of this shard.
    fn counts(&self, pod: &Pod) -> bool {
        let node = pod.node.as_ref().and_then(|node| self.world.nodes.get(node));
        is_allocated(pod) && node.is_some_and(|node| self.in_shard(&node.labels))
    }

    /// The queue and all above it; nothing if one of them does not exist or the scheduler leaves it out.
    fn chain(&self, queue: &str) -> Vec<&'a str> {
        let mut chain: Vec<&str> = Vec::new();
        let mut next = Some(queue);
        while let Some(name) = next {
            let Some((name, found)) = self.world.queues.get_key_value(name) else { return Vec::new() };
            if chain.len() == QUEUE_LEVELS_MAX {
                return Vec::new();
            }
            chain.push(name);
            next = found.parent.as_deref();
        }
        chain
    }

    /// What each queue holds, its children included, over the pods of groups that `count`.
    pub(crate) fn allocated(&self, count: impl Fn(&PodGroup) -> bool) -> BTreeMap<&'a str, ResourceQuantities> {
        let mut sums: BTreeMap<&str, ResourceQuantities> = BTreeMap::new();
        for pod in self.world.pods.values().filter(|pod| self.counts(pod)) {
            let Some(group) = self.group_of(pod).filter(|group| count(group)) else { continue };
            for queue in self.chain(&group.queue) {
                *sums.entry(queue).or_default() += charged(pod, self.world);
            }
        }
        sums
    }

    /// Whether a group may be moved and evicted, and may exceed quotas.
    fn preemptible(&self, group: &PodGroup) -> bool {
        // Below this priority work is preemptible unless it says otherwise; groups of no known class have 50.
        const NON_PREEMPTIBLE_FROM: i32 = 100;
        const UNKNOWN: i32 = 50;
        group.preemptible.unwrap_or_else(|| {
            let classes = &self.world.priority_classes;
            let named = group.priority_class.as_ref().and_then(|name| classes.get(name));
            let class = named.or_else(|| classes.values().find(|class| class.global_default));
            class.map_or(UNKNOWN, |class| class.value) < NON_PREEMPTIBLE_FROM
        })
    }

    /// Queues with a newly bound pod below them, and what those pods ask for.
    fn newly_charged(&self, count: impl Fn(&PodGroup) -> bool) -> BTreeMap<&'a str, ResourceQuantities> {
        let mut sums: BTreeMap<&str, ResourceQuantities> = BTreeMap::new();
        for pod in self.bound_pods() {
            let Some(group) = self.group_of(pod).filter(|group| count(group)) else { continue };
            for queue in self.chain(&group.queue) {
                *sums.entry(queue).or_default() += charged(pod, self.world);
            }
        }
        sums
    }

    /// Nodes that got a pod in this cycle.
    fn nodes_bound_to(&self) -> BTreeSet<&'a str> {
        self.bound_pods().filter_map(|pod| pod.node.as_deref()).collect()
    }
}
