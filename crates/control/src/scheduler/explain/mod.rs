//! Why a job is pending, in sentences that its owner can act on.
//!
//! Each reason of the engine becomes a reason as KAI spells it and a message: the obstacle, how much is missing, what
//! would help.

pub(super) mod amounts;
pub(super) mod cache;
mod inter_pod;
mod nodes;
pub(super) mod queue_details;
mod searches;
pub(super) mod volumes;

use std::cell::RefCell;
use std::sync::Arc;

use kai_api::keys::reason;
use kai_engine::ids::{ShapeId, TaskId};
use kai_engine::outcome::{CapacityExceeded, DomainFit, ObstacleCounts, PodSetShortage, Reason};
use kai_engine::units::QueueResource;

use self::amounts::{amount, called, count, number};
use self::cache::RecentCache;
use super::effect::Explanation;
use super::lower::Lowered;
use crate::did_you_mean::closest_match;
use crate::duration;
use crate::objects::field_reader::write_time;
use crate::objects::{PodGroup, TopologyConstraint};
use crate::world::World;

/// KAI's reason for a topology domain that is too small.
const DOMAIN_TOO_SMALL: &str = "Not enough resources for the workload";

/// A job in a queue that holds queues.
const QUEUE_NOT_LEAF: &str = "QueueIsNotLeaf";

/// Explains the reasons of a cycle's outcome.
pub(super) struct Explainer<'a, 'w> {
    world: &'w World,
    lowered: &'a Lowered<'w>,
    /// The most that any one node has, by column.
    largest: Vec<i64>,
    /// Recent sentences about searches for victims.
    searches: RefCell<RecentCache<Vec<searches::Search>, String>>,
    /// Recent sentences about nodes, by shape of the pod.
    nodes: RefCell<RecentCache<(Arc<ObstacleCounts>, ShapeId), String>>,
}

impl<'a, 'w> Explainer<'a, 'w> {
    pub(super) fn new(world: &'w World, lowered: &'a Lowered<'w>) -> Self {
        Self {
            world,
            lowered,
            largest: nodes::largest(&lowered.snapshot),
            searches: RefCell::default(),
            nodes: RefCell::default(),
        }
    }

    /// Explains each reason once; searches for victims come last, in one sentence.
    pub(super) fn reasons(&self, group: &PodGroup, reasons: &[Reason]) -> Vec<Explanation> {
        let mut explanations: Vec<Explanation> = Vec::new();
        let victims = searches::explain(self.lowered, reasons, &mut self.searches.borrow_mut());
        let victims = victims.map(|message| explanation(reason::UNSCHEDULABLE, message));
        for explanation in reasons.iter().filter_map(|reason| self.reason(group, reason)).chain(victims) {
            if !explanations.contains(&explanation) {
                explanations.push(explanation);
            }
        }
        explanations
    }

    fn reason(&self, group: &PodGroup, reason: &Reason) -> Option<Explanation> {
        Some(match reason {
            Reason::QueueMissing => self.queue_missing(&group.queue),
            Reason::QueueNotLeaf { queue } => self.queue_not_leaf(queue.index()),
            Reason::NotReady { short } => explanation(reason::NOT_READY, self.not_ready(group, short)),
            Reason::OverLimit(block) => self.over_limit(block),
            Reason::NonPreemptibleOverQuota(block) => self.over_quota(block),
            Reason::NoRoom { task, placed, wanted, nodes } => {
                let pod = self.lowered.names.tasks[task.index()];
                let object = self.world.pods.get(pod);
                let missing = object.map_or_else(Vec::new, |object| volumes::missing(self.world, object));
                if !missing.is_empty() {
                    let message = format!("Pod {pod} cannot run anywhere yet: {}.", missing.join("; "));
                    return Some(explanation(reason::POD_SCHEDULING_ERRORS, message));
                }
                let mut why = self.obstacles(*task, nodes);
                for advice in object.iter().flat_map(|object| volumes::advice(self.world, object, nodes)) {
                    why = format!("{why} {advice}");
                }
                let set = self.lowered.snapshot.task(*task).pod_set;
                let gang = if *wanted > 1 {
                    let sub_group = self.sub_group(group, set.index());
                    format!("Only {placed} of the {wanted} pods{sub_group} that must start together found room. ")
                } else {
                    String::new()
                };
                explanation(reason::POD_SCHEDULING_ERRORS, format!("{gang}No node takes pod {pod}: {why}"))
            }
            Reason::NoDomain { constraint, wanted, domains } => {
                explanation(DOMAIN_TOO_SMALL, self.no_domain(group, *constraint, *wanted, domains))
            }
            Reason::UnknownTopology { constraint } => {
                explanation(reason::POD_SCHEDULING_ERRORS, self.unknown_topology(group, *constraint))
            }
            Reason::PreemptionDelay { delay, until } => explanation(
                reason::PREEMPTION_DELAY_NOT_ELAPSED,
                format!(
                    "Nothing may be evicted for the job during its preemption delay of {}, which ends at {}.",
                    duration::show(*delay),
                    write_time(*until)
                ),
            ),
            Reason::PlacementRevoked => explanation(
                reason::POD_SCHEDULING_ERRORS,
                "Its placement of this cycle was given to a job with precedence.".to_owned(),
            ),
            Reason::NotReached => explanation(
                reason::POD_SCHEDULING_ERRORS,
                "Not attempted: queueDepthPerAction limits the jobs per queue and cycle. Raise it, or wait.".to_owned(),
            ),
            Reason::NoVictims { .. } => return None,
        })
    }

    fn obstacles(&self, task: TaskId, nodes: &Arc<ObstacleCounts>) -> String {
        let row = self.lowered.snapshot.task(task);
        let make = || nodes::sentence(self.lowered, &self.largest, task, nodes);
        if row.inter_pod.is_some() {
            return make();
        }
        self.nodes.borrow_mut().get_or_compute((Arc::clone(nodes), row.shape), |_| make())
    }

    fn queue_missing(&self, name: &str) -> Explanation {
        let hint = "correct spec.queue of the pod group, or the label kai.scheduler/queue of the workload";
        let message = if name.is_empty() {
            format!("The job names no queue: {hint}.")
        } else if self.world.queues.contains_key(name) {
            let object = format!("queue {name}");
            let flaw = self.lowered.problems.iter().find(|problem| problem.object == object);
            match flaw {
                Some(problem) => format!("Queue {name} cannot be used. {}", problem.explanation.message),
                None => format!("Queue {name} belongs to another node pool: {hint}."),
            }
        } else {
            let known = self.lowered.names.queues.iter().map(|queue| queue.name());
            match closest_match(name, known) {
                Some(other) => {
                    format!("Queue {name} does not exist. Did you mean {other}? Then {hint}; or create queue {name}.")
                }
                None => format!("Queue {name} does not exist. Create it, or {hint}."),
            }
        };
        explanation(reason::QUEUE_DOES_NOT_EXIST, message)
    }

    fn queue_not_leaf(&self, queue: usize) -> Explanation {
        let (names, rows) = (&self.lowered.names.queues, &self.lowered.snapshot.queues);
        let below: Vec<&str> = names
            .iter()
            .zip(rows)
            .filter(|(_, row)| row.parent.is_some_and(|parent| parent.index() == queue))
            .map(|(name, _)| name.name())
            .collect();
        let message = format!(
            "Queue {} has queues below it, and only queues without any hold jobs. Use one of them: {}.",
            names[queue].shown(),
            listed(&below)
        );
        explanation(QUEUE_NOT_LEAF, message)
    }

    fn not_ready(&self, group: &PodGroup, short: &[PodSetShortage]) -> String {
        let parts: Vec<String> = short
            .iter()
            .map(|set| {
                let gated = if set.gated == 0 {
                    String::new()
                } else {
                    format!(", {} held back by scheduling gates", count(set.gated, "of them is", "of them are"))
                };
                let sub_group = self.sub_group(group, set.pod_set.index());
                format!(
                    "{} required{sub_group}, there {} {}{gated}",
                    count(set.required, "pod is", "pods are"),
                    if set.existing == 1 { "is" } else { "are" },
                    set.existing
                )
            })
            .collect();
        if parts.is_empty() {
            return "Too few of its sub-groups have the pods they need.".to_owned();
        }
        format!("Not all pods that must start together are there: {}.", parts.join("; "))
    }

    fn over_limit(&self, block: &CapacityExceeded) -> Explanation {
        let queue = self.lowered.names.queues[block.queue.index()].shown();
        let CapacityExceeded { resource, .. } = *block;
        let message = if block.cap == 0 {
            format!(
                "Queue {queue} may use no {} at all, and the job asks for {}. A limit that is not set is 0: set \
                 spec.resources.{}.limit of the queue, -1 for none.",
                called(resource),
                amount(resource, block.requested()),
                field(resource)
            )
        } else {
            format!(
                "Queue {queue} may use at most {}, it holds {} and the job asks for {} more. Wait for jobs of the queue \
                 to end, or raise its limit.",
                amount(resource, block.cap),
                number(resource, block.allocated),
                number(resource, block.requested())
            )
        };
        explanation(reason::OVER_LIMIT, message)
    }

    fn over_quota(&self, block: &CapacityExceeded) -> Explanation {
        let queue = self.lowered.names.queues[block.queue.index()].shown();
        let CapacityExceeded { resource, .. } = *block;
        let message = format!(
            "Work that cannot be preempted must stay within the quota of its queue. Queue {queue} has a quota of {}, \
             {} are held by such work and the job asks for {} more. A preemptible job may exceed the quota: label the \
             workload kai.scheduler/preemptibility=preemptible, or raise the quota.",
            amount(resource, block.cap),
            number(resource, block.allocated),
            number(resource, block.requested())
        );
        explanation(reason::NON_PREEMPTIBLE_OVER_QUOTA, message)
    }

    fn no_domain(&self, group: &PodGroup, constraint: u32, wanted: u32, domains: &[DomainFit]) -> String {
        let Some(written) = self.constraint(group, constraint) else {
            return "No domain of its topology has room for all pods that must stay together.".to_owned();
        };
        let level = written.required.as_deref().or(written.preferred.as_deref()).unwrap_or("level");
        let pods = count(wanted, "pod", "pods");
        let together = format!("{pods} must stay together in one {level} of topology {}", written.topology);
        let best = domains.iter().filter_map(|domain| Some((domain.fits?, domain))).max_by_key(|(fits, domain)| {
            // Of equal ones the first by name.
            (*fits, std::cmp::Reverse((domain.level, domain.domain)))
        });
        match best {
            Some((fits, domain)) => {
                format!("{together}; the best, {}, has room for {fits}.", self.domain(constraint, domain))
            }
            None if domains.is_empty() => format!("{together}; all of them together have too little room."),
            None => format!("{together}; none of the {} that were looked at has enough room.", domains.len()),
        }
    }

    fn domain(&self, constraint: u32, fit: &DomainFit) -> &str {
        let topology = self.lowered.snapshot.constraints[constraint as usize].topology;
        topology.map_or("", |id| &self.lowered.names.domains[id.index()][fit.level as usize][fit.domain as usize])
    }

    fn unknown_topology(&self, group: &PodGroup, constraint: u32) -> String {
        let Some(written) = self.constraint(group, constraint) else {
            return "It names a topology or level that does not exist.".to_owned();
        };
        let Some(topology) = self.world.topologies.get(&written.topology) else {
            let known = self.world.topologies.keys().map(String::as_str);
            let hint = closest_match(&written.topology, known)
                .map_or_else(String::new, |name| format!(" Did you mean {name}?"));
            return format!("Topology {} does not exist.{hint}", written.topology);
        };
        let named = [("required", &written.required), ("preferred", &written.preferred)];
        let unknown = named.into_iter().find_map(|(kind, level)| {
            level.as_ref().filter(|level| topology.level(level).is_none()).map(|level| (kind, level))
        });
        let known: Vec<&str> = topology.levels.iter().map(|level| level.node_label.as_str()).collect();
        match unknown {
            Some((kind, level)) => {
                format!(
                    "Topology {} has no level {level}, which is {kind}. Its levels: {}.",
                    topology.name,
                    listed(&known)
                )
            }
            None if written.required.is_none() && written.preferred.is_none() => format!(
                "The constraint names topology {}, but no level of it. Its levels: {}.",
                topology.name,
                listed(&known)
            ),
            None => format!(
                "The required level of topology {} is narrower than the preferred one. Swap them. Its levels: {}.",
                topology.name,
                listed(&known)
            ),
        }
    }

    /// ` of sub-group workers`, or nothing where a job has none.
    fn sub_group(&self, group: &PodGroup, pod_set: usize) -> String {
        if group.sub_groups.is_empty() {
            return String::new();
        }
        format!(" of sub-group {}", self.lowered.names.pod_sets[pod_set])
    }

    /// The constraint of a job that has this number, as its owner wrote it.
    fn constraint<'g>(&self, group: &'g PodGroup, number: u32) -> Option<&'g TopologyConstraint> {
        let all = [&group.constraint].into_iter().chain(group.sub_groups.iter().map(|sub_group| &sub_group.constraint));
        all.flatten().find(|written| self.lowered.names.constraints.get(written) == Some(&number))
    }
}

/// How a side of a reclaim stands: what it holds against what it is entitled to.
pub(super) fn standing(resource: QueueResource, allocated: i64, fair_share: i64) -> String {
    format!("{} of a fair share of {}", amount(resource, allocated), number(resource, fair_share))
}

fn field(resource: QueueResource) -> &'static str {
    match resource {
        QueueResource::Cpu => "cpu",
        QueueResource::Memory => "memory",
        QueueResource::Gpu => "gpu",
    }
}

fn explanation(reason: &'static str, message: String) -> Explanation {
    Explanation { reason, message }
}

/// Names with commas; past a handful only how many more.
fn listed(names: &[&str]) -> String {
    const SHOWN_MAX: usize = 5;
    let shown = names.iter().take(SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
