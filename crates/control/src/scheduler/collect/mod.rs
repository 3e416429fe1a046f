//! From the engine's reasons to those with names.

mod nodes;
mod searches;
mod volumes;

use std::cell::RefCell;
use std::sync::Arc;

use kai_engine::ids::{QueueId, ShapeId, TaskId};
use kai_engine::outcome::{CapacityExceeded, DomainFit, ObstacleCounts, PodSetShortage, Reason};

use super::lower::Lowered;
use super::pod_volumes;
use super::reasons::{
    DomainRoom, GangPlacement, MissingQueue, NodeObstacles, PendingReason, PodShortage, ProblemReason, QueueBound,
    QueueRef, SearchResult, Shared, TopologyFault, TopologyLevel,
};
use super::recent_cache::RecentCache;
use crate::did_you_mean::closest_match;
use crate::kinds::ObjectId;
use crate::objects::{PodGroup, TopologyConstraint};
use crate::world::World;

/// Names what the reasons of a cycle's outcome are about. Equal searches and equal obstacles of nodes are shared, as far as
/// jobs that have them come soon after each other.
pub(super) struct Collector<'a, 'w> {
    world: &'w World,
    lowered: &'a Lowered<'w>,
    /// The most that any one node has, by column.
    largest: Vec<i64>,
    searches: RefCell<RecentCache<Vec<searches::Search>, Shared<Vec<SearchResult>>>>,
    /// By shape of the pod.
    nodes: RefCell<NodeObstacleCache>,
}

type NodeObstacleCache = RecentCache<(Arc<ObstacleCounts>, ShapeId), Shared<NodeObstacles>>;

impl<'a, 'w> Collector<'a, 'w> {
    pub(super) fn new(world: &'w World, lowered: &'a Lowered<'w>) -> Self {
        Self {
            world,
            lowered,
            largest: nodes::largest(&lowered.snapshot),
            searches: RefCell::default(),
            nodes: RefCell::default(),
        }
    }

    /// Each reason once; all searches for victims are one reason, which comes last.
    pub(super) fn reasons(&self, group: &PodGroup, reasons: &[Reason]) -> Vec<PendingReason> {
        let mut named: Vec<PendingReason> = Vec::new();
        let searches = searches::collect(self.lowered, reasons, &mut self.searches.borrow_mut());
        let searches = searches.map(|searches| PendingReason::NoVictims { searches });
        for reason in reasons.iter().filter_map(|reason| self.reason(group, reason)).chain(searches) {
            if !named.contains(&reason) {
                named.push(reason);
            }
        }
        named
    }

    fn reason(&self, group: &PodGroup, reason: &Reason) -> Option<PendingReason> {
        Some(match reason {
            Reason::QueueMissing => {
                PendingReason::QueueMissing { queue: group.queue.clone(), cause: self.missing_queue(&group.queue) }
            }
            Reason::QueueNotLeaf { queue } => {
                PendingReason::QueueNotLeaf { queue: queue_ref(self.lowered, *queue), children: self.children(*queue) }
            }
            Reason::NotReady { short } => {
                PendingReason::NotReady { short: short.iter().map(|set| self.shortage(group, set)).collect() }
            }
            Reason::OverLimit(block) => PendingReason::OverLimit { limit: bound(self.lowered, block) },
            Reason::NonPreemptibleOverQuota(block) => {
                PendingReason::NonPreemptibleOverQuota { quota: bound(self.lowered, block) }
            }
            Reason::NoRoom { task, placed, wanted, nodes } => self.no_node(group, *task, (*placed, *wanted), nodes),
            Reason::NoDomain { constraint, wanted, domains } => self.no_domain(group, *constraint, *wanted, domains),
            Reason::UnknownTopology { constraint } => {
                PendingReason::UnknownTopology { fault: self.topology_fault(group, *constraint) }
            }
            Reason::PreemptionDelay { delay, until } => PendingReason::PreemptionDelay { delay: *delay, until: *until },
            Reason::PlacementRevoked => PendingReason::PlacementRevoked,
            Reason::NotReached => PendingReason::NotReached,
            Reason::NoVictims { .. } => return None,
        })
    }

    fn no_node(
        &self,
        group: &PodGroup,
        task: TaskId,
        (placed, wanted): (u32, u32),
        nodes: &Arc<ObstacleCounts>,
    ) -> PendingReason {
        let pod = self.lowered.names.tasks[task.index()];
        let object = self.world.pods.get(pod);
        let missing = object.map_or_else(Vec::new, |object| pod_volumes::missing(self.world, object));
        if !missing.is_empty() {
            return PendingReason::MissingObjects { pod: pod.clone(), missing };
        }
        let set = self.lowered.snapshot.task(task).pod_set;
        PendingReason::NoNode {
            pod: pod.clone(),
            gang: (wanted > 1).then(|| GangPlacement { sub_group: self.sub_group(group, set.index()), placed, wanted }),
            nodes: self.obstacles(task, nodes),
            volumes: object.map_or_else(Vec::new, |object| volumes::notes(self.world, object, nodes)),
        }
    }

    fn obstacles(&self, task: TaskId, nodes: &Arc<ObstacleCounts>) -> Shared<NodeObstacles> {
        let row = self.lowered.snapshot.task(task);
        let make = || Shared::new(nodes::collect(self.lowered, &self.largest, task, nodes));
        if row.inter_pod.is_some() {
            return make();
        }
        self.nodes.borrow_mut().get_or_compute((Arc::clone(nodes), row.shape), |_| make())
    }

    fn missing_queue(&self, name: &str) -> MissingQueue {
        if name.is_empty() {
            return MissingQueue::NotNamed;
        }
        if self.world.queues.contains_key(name) {
            let object = ObjectId::Queue(name.to_owned());
            let fault = self.lowered.problems.iter().find_map(|problem| match &problem.reason {
                ProblemReason::Queue { fault } if problem.object == object => Some(fault.clone()),
                _ => None,
            });
            return fault.map_or(MissingQueue::OtherNodePool, |fault| MissingQueue::Faulty { fault });
        }
        let known = self.lowered.names.queues.iter().map(|queue| queue.name());
        MissingQueue::Unknown { similar: closest_match(name, known).map(str::to_owned) }
    }

    fn children(&self, queue: QueueId) -> Vec<String> {
        let (names, rows) = (&self.lowered.names.queues, &self.lowered.snapshot.queues);
        let below = names.iter().zip(rows).filter(|(_, row)| row.parent == Some(queue));
        below.map(|(name, _)| name.name().to_owned()).collect()
    }

    fn shortage(&self, group: &PodGroup, set: &PodSetShortage) -> PodShortage {
        PodShortage {
            sub_group: self.sub_group(group, set.pod_set.index()),
            required: set.required,
            existing: set.existing,
            gated: set.gated,
        }
    }

    fn no_domain(&self, group: &PodGroup, constraint: u32, pods: u32, domains: &[DomainFit]) -> PendingReason {
        let best = domains.iter().filter_map(|domain| Some((domain.fits?, domain))).max_by_key(|(fits, domain)| {
            // Of equal ones the first by name.
            (*fits, std::cmp::Reverse((domain.level, domain.domain)))
        });
        PendingReason::NoDomain {
            constraint: self.constraint(group, constraint).map(|written| TopologyLevel {
                topology: written.topology.clone(),
                level: written.required.clone().or_else(|| written.preferred.clone()),
            }),
            pods,
            domains: u32::try_from(domains.len()).unwrap_or(u32::MAX),
            best: best
                .map(|(fits, domain)| DomainRoom { domain: self.domain(constraint, domain).to_owned(), pods: fits }),
        }
    }

    fn domain(&self, constraint: u32, fit: &DomainFit) -> &str {
        let topology = self.lowered.snapshot.constraints[constraint as usize].topology;
        topology.map_or("", |id| &self.lowered.names.domains[id.index()][fit.level as usize][fit.domain as usize])
    }

    fn topology_fault(&self, group: &PodGroup, constraint: u32) -> TopologyFault {
        let Some(written) = self.constraint(group, constraint) else { return TopologyFault::Unknown };
        let topology = written.topology.clone();
        let Some(known) = self.world.topologies.get(&topology) else {
            let names = self.world.topologies.keys().map(String::as_str);
            let similar = closest_match(&topology, names).map(str::to_owned);
            return TopologyFault::NoTopology { topology, similar };
        };
        let named = [(true, &written.required), (false, &written.preferred)];
        let unknown = named.into_iter().find_map(|(required, level)| {
            level.as_ref().filter(|level| known.level(level).is_none()).map(|level| (required, level.clone()))
        });
        let levels = known.levels.iter().map(|level| level.node_label.clone()).collect();
        match unknown {
            Some((required, level)) => TopologyFault::NoLevel { topology, level, required, levels },
            None if written.required.is_none() && written.preferred.is_none() => {
                TopologyFault::NoLevelNamed { topology, levels }
            }
            None => TopologyFault::LevelsSwapped { topology, levels },
        }
    }

    /// The sub-group of a pod set, where a job has some.
    fn sub_group(&self, group: &PodGroup, pod_set: usize) -> Option<String> {
        (!group.sub_groups.is_empty()).then(|| self.lowered.names.pod_sets[pod_set].to_owned())
    }

    /// The constraint of a job that has this number, as its owner wrote it.
    fn constraint<'g>(&self, group: &'g PodGroup, number: u32) -> Option<&'g TopologyConstraint> {
        let all = [&group.constraint].into_iter().chain(group.sub_groups.iter().map(|sub_group| &sub_group.constraint));
        all.flatten().find(|written| self.lowered.names.constraints.get(written) == Some(&number))
    }
}

pub(super) fn queue_ref(lowered: &Lowered<'_>, queue: QueueId) -> QueueRef {
    let queue = lowered.names.queues[queue.index()];
    let (name, shown) = (queue.name(), queue.shown());
    QueueRef { name: name.to_owned(), display_name: (shown != name).then(|| shown.to_owned()) }
}

fn bound(lowered: &Lowered<'_>, block: &CapacityExceeded) -> QueueBound {
    let CapacityExceeded { queue, resource, cap, allocated, request } = *block;
    QueueBound { queue: queue_ref(lowered, queue), resource, bound: cap, allocated, request }
}
