//! Sentences of reasons, which owners of jobs can act on: the obstacle, how much is missing, what would help.
//!
//! This is the only place that makes sentences of [`reasons`](super::reasons).

pub(super) mod actions;
pub(super) mod amounts;
pub(super) mod cache;
mod decisions;
mod inter_pod;
mod nodes;
mod problems;
pub(super) mod queue_details;
mod searches;
mod volumes;

use kai_engine::units::QueueResource;

use self::amounts::{amount, called, count, number};
use super::effect::{Explanation, PendingJob};
use super::reasons::{
    DomainRoom, GangPlacement, MissingQueue, PendingReason, PodShortage, QueueBound, QueueRef, TopologyFault,
    TopologyLevel,
};
use crate::duration;
use crate::key::GroupKey;
use crate::objects::field_reader::write_time;

/// What jobs are called in sentences: `namespace/name` of their pod groups, or what the caller says.
#[derive(Clone, Copy, Default)]
pub struct JobNames<'a>(Option<&'a dyn Fn(&GroupKey) -> String>);

impl<'a> JobNames<'a> {
    pub fn by(name: &'a dyn Fn(&GroupKey) -> String) -> Self {
        Self(Some(name))
    }

    fn name(self, job: &GroupKey) -> String {
        self.0.map_or_else(|| job.to_string(), |name| name(job))
    }

    /// Whether jobs are called by their pod groups.
    fn is_default(self) -> bool {
        self.0.is_none()
    }
}

impl std::fmt::Debug for JobNames<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(if self.is_default() { "JobNames(default)" } else { "JobNames(other)" })
    }
}

impl PendingJob {
    /// The reasons in sentences. Made when they are first read.
    pub fn explanations(&self) -> &[Explanation] {
        self.explanations.get_or_init(|| self.explain(JobNames::default()))
    }

    /// The reasons in sentences that call jobs by these names.
    pub fn explain(&self, names: JobNames<'_>) -> Vec<Explanation> {
        let mut explanations: Vec<Explanation> = Vec::new();
        for explanation in self.reasons.iter().map(|reason| reason.explain(names)) {
            if !explanations.contains(&explanation) {
                explanations.push(explanation);
            }
        }
        explanations
    }
}

impl PendingReason {
    /// The reason in a sentence, for people; [`reason`](Self::reason) is for programs.
    pub fn explain(&self, names: JobNames<'_>) -> Explanation {
        Explanation::new(self.reason(), self.message(names))
    }

    fn message(&self, names: JobNames<'_>) -> String {
        match self {
            Self::Pipelined { pipelined, waiting } => {
                let who = if pipelined == waiting {
                    "Its pods".to_owned()
                } else {
                    format!("{pipelined} of its {waiting} waiting pods")
                };
                format!("{who} are pipelined and start when terminating pods release their nodes.")
            }
            Self::NotAttempted => "Not attempted in this cycle.".to_owned(),
            Self::InvalidPodGroup { fault } => problems::sub_groups(fault),
            Self::QueueMissing { queue, cause } => queue_missing(queue, cause),
            Self::NamespaceNotAllowed { namespace, queue, allowed } => namespace_not_allowed(namespace, queue, allowed),
            Self::QueueNotLeaf { queue, children } => queue_not_leaf(queue, children),
            Self::NotReady { short } => not_ready(short),
            Self::OverLimit { limit } => over_limit(limit),
            Self::NonPreemptibleOverQuota { quota } => over_quota(quota),
            Self::MissingObjects { pod, missing } => {
                let missing: Vec<String> = missing.iter().map(volumes::missing).collect();
                format!("Pod {pod} cannot run anywhere yet: {}.", missing.join("; "))
            }
            Self::NoNode { pod, gang, nodes, volumes } => {
                let mut why = nodes.text(nodes::sentence).to_owned();
                for note in volumes {
                    why = format!("{why} {}", volumes::note(note));
                }
                let gang = match gang {
                    Some(GangPlacement { sub_group, placed, wanted }) => format!(
                        "Only {placed} of the {wanted} pods{} that must start together found room. ",
                        of_sub_group(sub_group.as_deref())
                    ),
                    None => String::new(),
                };
                format!("{gang}No node takes pod {pod}: {why}")
            }
            Self::NoDomain { constraint, pods, domains, best } => {
                no_domain(constraint.as_ref(), *pods, *domains, best.as_ref())
            }
            Self::UnknownTopology { fault } => unknown_topology(fault),
            Self::PreemptionDelay { delay, until } => format!(
                "Nothing may be evicted for the job during its preemption delay of {}, which ends at {}.",
                duration::show(*delay),
                write_time(*until)
            ),
            Self::PlacementRevoked => "Its placement of this cycle was given to a job with precedence.".to_owned(),
            Self::NotReached => {
                "Not attempted: queueDepthPerAction limits the jobs per queue and cycle. Raise it, or wait.".to_owned()
            }
            Self::NoVictims { searches } if names.is_default() => {
                searches.text(|searches| searches::message(searches, names)).to_owned()
            }
            Self::NoVictims { searches } => searches::message(searches, names),
        }
    }
}

fn queue_missing(name: &str, cause: &MissingQueue) -> String {
    let hint = "correct spec.queue of the pod group, or the label kai.scheduler/queue of the workload";
    match cause {
        MissingQueue::NotNamed => format!("The job names no queue: {hint}."),
        MissingQueue::Faulty { fault } => format!("Queue {name} cannot be used. {}", problems::queue(fault)),
        MissingQueue::OtherNodePool => format!("Queue {name} belongs to another node pool: {hint}."),
        MissingQueue::Unknown { similar: Some(other) } => {
            format!("Queue {name} does not exist. Did you mean {other}? Then {hint}; or create queue {name}.")
        }
        MissingQueue::Unknown { similar: None } => format!("Queue {name} does not exist. Create it, or {hint}."),
    }
}

/// For admission as well.
pub(crate) fn namespace_not_allowed(namespace: &str, queue: &str, allowed: &str) -> String {
    format!(
        "Namespace {namespace} may not use queue {queue}, which is for {allowed}. Name another queue, or have the \
         administrator of the queue add the namespace to its annotation kai.scheduler/namespaces."
    )
}

fn queue_not_leaf(queue: &QueueRef, children: &[String]) -> String {
    format!(
        "Queue {} has queues below it, and only queues without any hold jobs. Use one of them: {}.",
        queue.shown(),
        listed(children)
    )
}

fn not_ready(short: &[PodShortage]) -> String {
    let parts: Vec<String> = short
        .iter()
        .map(|set| {
            let gated = if set.gated == 0 {
                String::new()
            } else {
                format!(", {} held back by scheduling gates", count(set.gated, "of them is", "of them are"))
            };
            format!(
                "{} required{}, there {} {}{gated}",
                count(set.required, "pod is", "pods are"),
                of_sub_group(set.sub_group.as_deref()),
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

fn over_limit(limit: &QueueBound) -> String {
    let QueueBound { queue, resource, bound, allocated, .. } = limit;
    let (queue, resource) = (queue.shown(), *resource);
    if *bound == 0 {
        format!(
            "Queue {queue} may use no {} at all, and the job asks for {}. A limit that is not set is 0: set \
             spec.resources.{}.limit of the queue, -1 for none.",
            called(resource),
            amount(resource, limit.requested()),
            field(resource)
        )
    } else {
        format!(
            "Queue {queue} may use at most {}, it holds {} and the job asks for {} more. Wait for jobs of the queue \
             to end, or raise its limit.",
            amount(resource, *bound),
            number(resource, *allocated),
            number(resource, limit.requested())
        )
    }
}

fn over_quota(quota: &QueueBound) -> String {
    let QueueBound { queue, resource, bound, allocated, .. } = quota;
    let (queue, resource) = (queue.shown(), *resource);
    format!(
        "Work that cannot be preempted must stay within the quota of its queue. Queue {queue} has a quota of {}, \
         {} are held by such work and the job asks for {} more. A preemptible job may exceed the quota: label the \
         workload kai.scheduler/preemptibility=preemptible, or raise the quota.",
        amount(resource, *bound),
        number(resource, *allocated),
        number(resource, quota.requested())
    )
}

fn no_domain(constraint: Option<&TopologyLevel>, pods: u32, domains: u32, best: Option<&DomainRoom>) -> String {
    let Some(TopologyLevel { topology, level }) = constraint else {
        return "No domain of its topology has room for all pods that must stay together.".to_owned();
    };
    let level = level.as_deref().unwrap_or("level");
    let pods = count(pods, "pod", "pods");
    let together = format!("{pods} must stay together in one {level} of topology {topology}");
    match best {
        Some(DomainRoom { domain, pods }) => format!("{together}; the best, {domain}, has room for {pods}."),
        None if domains == 0 => format!("{together}; all of them together have too little room."),
        None => format!("{together}; none of the {domains} that were looked at has enough room."),
    }
}

fn unknown_topology(fault: &TopologyFault) -> String {
    match fault {
        TopologyFault::Unknown => "It names a topology or level that does not exist.".to_owned(),
        TopologyFault::NoTopology { topology, similar } => {
            let hint = similar.as_ref().map_or_else(String::new, |name| format!(" Did you mean {name}?"));
            format!("Topology {topology} does not exist.{hint}")
        }
        TopologyFault::NoLevel { topology, level, required, levels } => {
            let kind = if *required { "required" } else { "preferred" };
            format!("Topology {topology} has no level {level}, which is {kind}. Its levels: {}.", listed(levels))
        }
        TopologyFault::NoLevelNamed { topology, levels } => {
            format!("The constraint names topology {topology}, but no level of it. Its levels: {}.", listed(levels))
        }
        TopologyFault::LevelsSwapped { topology, levels } => format!(
            "The required level of topology {topology} is narrower than the preferred one. Swap them. Its levels: {}.",
            listed(levels)
        ),
    }
}

/// ` of sub-group workers`, or nothing where a job has none.
fn of_sub_group(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| format!(" of sub-group {name}"))
}

/// How a queue stands: what it holds against what it is entitled to.
fn standing(resource: QueueResource, allocated: i64, fair_share: i64) -> String {
    format!("{} of a fair share of {}", amount(resource, allocated), number(resource, fair_share))
}

fn field(resource: QueueResource) -> &'static str {
    super::reasons::wire::resource::name(resource)
}

/// Names with commas; past a handful only how many more.
fn listed(names: &[String]) -> String {
    const SHOWN_MAX: usize = 5;
    let shown = names.iter().take(SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
