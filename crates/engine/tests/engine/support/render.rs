//! Writes what a cycle decided, one line each, with the names of the test.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use kai_engine::ids::{NodeId, QueueId, TaskId};
use kai_engine::outcome::InterPodObstacle;
use kai_engine::outcome::{
    Assignment, CapacityExceeded, Decision, DeviceRef, JobTimestamps, NodeObstacle, Nomination, ObstacleCounts,
    Outcome, PodSetShortage, Reason, ReclaimSide, SearchStop,
};
use kai_engine::units::{QueueResource, ResourceQuantities, Timestamp};

use super::build::{NOW, Names, World};
use super::settings::action_word;
use super::write::decimal;

/// Decisions in order, then why jobs wait.
pub(crate) fn outcome(world: &World, outcome: &Outcome) -> String {
    let mut devices = Devices::default();
    let decisions = outcome.decisions.iter().map(|decision| self::decision(world, &mut devices, decision));
    let mut lines: Vec<String> = decisions.collect();
    for verdict in &outcome.verdicts {
        let job = &world.names.jobs[verdict.job.index()];
        if verdict.reasons.is_empty() {
            lines.push(format!("waits {job}"));
        }
        lines.extend(verdict.reasons.iter().map(|reason| format!("waits {job}: {}", self::reason(world, reason))));
    }
    lines.join("\n")
}

/// Why pods are evicted: how many together, and for reclaim what both sides held of their shares, in GPUs.
pub(crate) fn causes(world: &World, outcome: &Outcome) -> String {
    let side = |side: &ReclaimSide| {
        let gpus = |amount: ResourceQuantities| decimal(amount.get(QueueResource::Gpu));
        let queue = queue_name(&world.names, side.queue);
        format!("{queue} holds {} of {}", gpus(side.allocated), gpus(side.fair_share))
    };
    let cause = |decision: &Decision| {
        let Decision::Evict { task, cause } = decision else { return None };
        let sides = cause.reclaim_sides.map(|(theirs, ours)| format!(", {}, {}", side(&theirs), side(&ours)));
        Some(format!("{}: {} together{}", world.names.pods[task.index()], cause.gang_size, sides.unwrap_or_default()))
    };
    outcome.decisions.iter().filter_map(cause).collect::<Vec<_>>().join("\n")
}

/// What each queue is entitled to, in GPUs.
pub(crate) fn shares(world: &World, outcome: &Outcome) -> String {
    let share = |(name, row): (&String, &kai_engine::outcome::QueueState)| {
        format!("{name} {}", decimal(row.fair_share.get(QueueResource::Gpu)))
    };
    world.names.queues.iter().zip(&outcome.queue_states).map(share).collect::<Vec<_>>().join("\n")
}

/// Times that the caller must store.
pub(crate) fn notes(world: &World, outcome: &Outcome) -> String {
    let note = |note: &JobTimestamps| {
        let time = |time: Option<Timestamp>| time.map_or("-".to_owned(), ago);
        let JobTimestamps { job, last_start, stale_since, last_eviction } = note;
        let name = &world.names.jobs[job.index()];
        format!("{name} started {} stale {} evicted {}", time(*last_start), time(*stale_since), time(*last_eviction))
    };
    outcome.job_timestamps.iter().map(note).collect::<Vec<_>>().join("\n")
}

/// Nominations that the caller must store.
pub(crate) fn nominations(world: &World, outcome: &Outcome) -> String {
    let nomination = |nomination: &Nomination| {
        let node = nomination.node.map_or("no node", |node| &world.names.nodes[node.index()]);
        format!("{} nominated to {node}", world.names.pods[nomination.task.index()])
    };
    outcome.nominations.iter().map(nomination).collect::<Vec<_>>().join("\n")
}

fn ago(time: Timestamp) -> String {
    match NOW.since(time).0 / 1_000_000 {
        0 => "now".to_owned(),
        seconds => format!("{seconds}s ago"),
    }
}

/// Numbers of GPUs opened in this cycle: the next free ones on their node, in order of use.
#[derive(Default)]
struct Devices {
    fresh: BTreeMap<u32, (NodeId, u32)>,
}

impl Devices {
    fn number(&mut self, names: &Names, node: NodeId, device: DeviceRef) -> u32 {
        let id = match device {
            DeviceRef::Existing(device) => return names.devices[device.index()].1,
            DeviceRef::Fresh(id) => id,
        };
        if let Some((_, number)) = self.fresh.get(&id) {
            return *number;
        }
        let taken = |number: &u32| names.devices.iter().chain(self.fresh.values()).any(|one| *one == (node, *number));
        let number = (0..1000).find(|number| !taken(number)).expect("a test has few GPUs");
        self.fresh.insert(id, (node, number));
        number
    }

    fn place(&mut self, names: &Names, place: &Assignment) -> String {
        let mut text = names.nodes[place.node.index()].clone();
        for device in &place.devices {
            write!(text, " gpu#{}", self.number(names, place.node, *device)).expect("strings take everything");
        }
        text
    }
}

fn decision(world: &World, devices: &mut Devices, decision: &Decision) -> String {
    let names = &world.names;
    let pod = |task: &TaskId| &names.pods[task.index()];
    match decision {
        Decision::Bind { task, assignment } => format!("bind {} {}", pod(task), devices.place(names, assignment)),
        Decision::Pipeline { task, assignment } => {
            format!("pipeline {} {}", pod(task), devices.place(names, assignment))
        }
        Decision::Evict { task, cause } => {
            let action = action_word(cause.action);
            match cause.preemptor {
                Some(job) => format!("evict {} for {} ({action})", pod(task), names.jobs[job.index()]),
                None => format!("evict {} ({action})", pod(task)),
            }
        }
    }
}

fn reason(world: &World, reason: &Reason) -> String {
    let names = &world.names;
    match reason {
        Reason::PlacementRevoked => "placement revoked".to_owned(),
        Reason::NotReached => "not reached".to_owned(),
        Reason::QueueMissing => "no such queue".to_owned(),
        Reason::QueueNotLeaf { queue } => format!("{} has children", queue_name(names, *queue)),
        Reason::NotReady { short } => {
            let short = short.iter().map(|short| shortage(names, short));
            format!("not ready, {}", short.collect::<Vec<_>>().join(", "))
        }
        Reason::OverLimit(at) => format!("over limit, {}", block(names, at)),
        Reason::NonPreemptibleOverQuota(at) => format!("non-preemptible over quota, {}", block(names, at)),
        Reason::NoRoom { task, placed, wanted, nodes } => {
            let pod = &names.pods[task.index()];
            format!("no room for {pod} ({placed} of {wanted} placed), {}", obstacles(names, nodes))
        }
        Reason::NoDomain { constraint, wanted, domains } => {
            let constraint = &world.snapshot.constraints[*constraint as usize];
            let fit = |fit: &kai_engine::outcome::DomainFit| {
                let name = &names.domains[fit.level as usize][fit.domain as usize];
                format!("{name} takes {}", fit.fits.map_or("too little".to_owned(), |fits| fits.to_string()))
            };
            let fits: Vec<_> = domains.iter().map(fit).collect();
            let why = if fits.is_empty() { "all together are too small".to_owned() } else { fits.join(", ") };
            format!("no domain for {wanted} pods ({:?}), {why}", constraint.required)
        }
        Reason::UnknownTopology { .. } => "unknown topology or level".to_owned(),
        Reason::PreemptionDelay { delay, until } => {
            let left = until.since(NOW).0 / 1_000_000;
            format!("evicts no pod for {left} of {}s", delay.0 / 1_000_000)
        }
        // How many scenarios it took to learn that is left to the search.
        Reason::NoVictims { action, stop, placed, wanted, .. } => {
            format!("{} {} ({placed} of {wanted} placed)", action_word(*action), search_stop(names, *stop))
        }
    }
}

fn search_stop(names: &Names, stop: SearchStop) -> String {
    match stop {
        SearchStop::Ineligible(_) => "ineligible".to_owned(),
        SearchStop::NoCandidates => "has no candidates".to_owned(),
        SearchStop::Exhausted => "exhausted".to_owned(),
        SearchStop::HeadOfLineBlocked(job) => format!("blocked by {}", names.jobs[job.index()]),
        SearchStop::Budget => "out of steps".to_owned(),
        SearchStop::NoEasierThan(job) => format!("no easier than {}", names.jobs[job.index()]),
        SearchStop::NoGenerator => "has no generator".to_owned(),
    }
}

fn queue_name(names: &Names, queue: QueueId) -> &str {
    &names.queues[queue.index()]
}

fn shortage(names: &Names, short: &PodSetShortage) -> String {
    let PodSetShortage { pod_set, required, existing, gated } = short;
    format!("{} has {existing} of {required} pods, {gated} gated", names.pod_sets[pod_set.index()])
}

fn block(names: &Names, at: &CapacityExceeded) -> String {
    let amount = |amount: i64| amount_of(at.resource, amount);
    let (CapacityExceeded { queue, cap, allocated, .. }, requested) = (at, at.requested());
    let (held, bound, asked) = (amount(*allocated), amount(*cap), amount(requested));
    format!("{} holds {held} of {bound} {}, asked {asked}", queue_name(names, *queue), unit(at.resource))
}

fn amount_of(resource: QueueResource, amount: i64) -> String {
    match resource {
        QueueResource::Cpu | QueueResource::Memory => amount.to_string(),
        QueueResource::Gpu => decimal(amount),
    }
}

fn unit(resource: QueueResource) -> &'static str {
    match resource {
        QueueResource::Cpu => "milli-cores",
        QueueResource::Memory => "bytes",
        QueueResource::Gpu => "GPU",
    }
}

fn obstacles(names: &Names, nodes: &ObstacleCounts) -> String {
    let line = |(obstacle, count): &(NodeObstacle, u32)| format!("{count} × {}", self::obstacle(names, *obstacle));
    nodes.counts.iter().map(line).collect::<Vec<_>>().join(", ")
}

fn obstacle(names: &Names, obstacle: NodeObstacle) -> String {
    match obstacle {
        NodeObstacle::Short { column, least } => {
            let amount: &dyn Display = if column == 2 { &decimal(least) } else { &least };
            format!("{amount} {} short", names.columns[column as usize])
        }
        NodeObstacle::DeviceTooSmall { largest } => format!("GPU of {largest} MiB too small"),
        NodeObstacle::DeviceMemory => "no GPU with room".to_owned(),
        NodeObstacle::Rule(rule) => format!("{rule:?}"),
        NodeObstacle::Queue(queue, resource) => format!("{} full of {}", queue_name(names, queue), unit(resource)),
        NodeObstacle::PodSlots => "no pod slot".to_owned(),
        NodeObstacle::Volumes(overfull) => format!("{overfull:?}"),
        NodeObstacle::Ports => "port taken".to_owned(),
        NodeObstacle::InterPod(obstacle) => match obstacle {
            InterPodObstacle::NoMatchingPod(matcher) => format!("no matching pod {}", names.matchers[matcher.index()]),
            InterPodObstacle::AntiAffinity(matcher) => format!("anti-affinity to {}", names.matchers[matcher.index()]),
            InterPodObstacle::ExistingAntiAffinity(matcher) => {
                format!("anti-affinity of {}", names.matchers[matcher.index()])
            }
            InterPodObstacle::Skew(matcher) => format!("skew of {}", names.matchers[matcher.index()]),
            InterPodObstacle::NoDomain(matcher) => format!("no domain for {}", names.matchers[matcher.index()]),
        },
        NodeObstacle::OutsideDomain => "outside domain".to_owned(),
        NodeObstacle::Numa => "NUMA zones".to_owned(),
        NodeObstacle::Claim(refusal) => format!("{refusal:?}"),
    }
}
