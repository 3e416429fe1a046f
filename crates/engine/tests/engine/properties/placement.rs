//! Invariants of placements: nothing is over-committed, rules are obeyed, gangs are whole, room is used.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::ids::{GroupId, JobId, NodeId, PodSetId, TaskId};
use kai_engine::outcome::{Assignment, DeviceRef};
use kai_engine::snapshot::{GPUS, GpuAsk, LevelRef, Member, Shape, Status};
use kai_engine::units::GPU;

use super::outcome_view::{CheckResult, OutcomeView, ensure};

/// Waiting pods are bound or pipelined, pods that hold one are evicted, and only evicted ones get another.
pub(super) fn decisions_make_sense(after: &OutcomeView<'_>) -> CheckResult {
    for task in after.tasks() {
        let (name, status) = (after.name(task), after.status(task));
        let waits = status == Status::Pending;
        ensure!(after.bound(task).is_none() || waits, "{name} is bound but is {status:?}");
        ensure!(
            after.pipelined(task).is_none() || waits || after.is_evicted(task),
            "{name} is pipelined but holds a place"
        );
        ensure!(after.bound(task).is_none() || after.pipelined(task).is_none(), "{name} is bound and pipelined");
        let holds = after.ran(task) && after.snapshot.task(task).node.is_some();
        ensure!(!after.is_evicted(task) || holds, "{name} is evicted but is {status:?}");
    }
    Ok(())
}

/// No node or device holds more than it has: not now, with all that is bound beside all that still leaves, and not
/// later, when these are gone and pipelined pods are bound.
pub(super) fn nothing_is_over_committed(after: &OutcomeView<'_>) -> CheckResult {
    let there_now = |task: TaskId| {
        let still = matches!(after.status(task), Status::Releasing | Status::StuckInReleasing) || after.ran(task);
        after.bound(task).cloned().or_else(|| after.place_before(task).filter(|_| still))
    };
    let there_later = |task: TaskId| {
        let stuck = after.status(task) == Status::StuckInReleasing;
        after.place_after(task).or_else(|| after.place_before(task).filter(|_| stuck))
    };
    fits(after, "now", false, &there_now)?;
    fits(after, "later", true, &there_later)
}

fn fits(
    after: &OutcomeView<'_>,
    when: &str,
    others_left: bool,
    place: &dyn Fn(TaskId) -> Option<Assignment>,
) -> CheckResult {
    let snapshot = after.snapshot;
    for node in snapshot.nodes.ids() {
        let mut used = snapshot.row(&snapshot.nodes.unmanaged_used, node).to_vec();
        if others_left {
            let leaving = snapshot.row(&snapshot.nodes.unmanaged_releasing, node);
            used.iter_mut().zip(leaving).for_each(|(used, leaving)| *used -= leaving);
        }
        let mut devices: BTreeMap<DeviceRef, i64> = BTreeMap::new();
        for (task, place) in after.tasks().filter_map(|task| Some((task, place(task)?))) {
            if place.node != node {
                continue;
            }
            let shape = snapshot.shape(snapshot.task(task).shape);
            used.iter_mut().zip(&shape.need).for_each(|(used, need)| *used += need);
            let distinct: BTreeSet<_> = place.devices.iter().copied().collect();
            let wanted = shape.gpu.shared_devices().unwrap_or(0) as usize;
            ensure!(distinct.len() == wanted, "{} has {distinct:?} of {wanted} GPUs", after.name(task));
            for device in distinct {
                *devices.entry(device).or_insert(0) += device_memory(after, shape, node);
            }
        }
        used[GPUS] += devices.len() as i64 * GPU;
        let name = &after.world.names.nodes[node.index()];
        for (device, taken) in devices {
            let memory = after.device_memory(node);
            ensure!(taken <= memory, "{when}, {taken} of {memory} MiB are taken on {device:?} of {name}");
        }
        for (column, (used, all)) in used.iter().zip(snapshot.row(&snapshot.nodes.allocatable, node)).enumerate() {
            let resource = &after.world.names.columns[column];
            ensure!(used <= all, "{when}, {used} of {all} {resource} are taken on {name}");
        }
    }
    Ok(())
}

fn device_memory(after: &OutcomeView<'_>, shape: &Shape, node: NodeId) -> i64 {
    match shape.gpu {
        GpuAsk::Fraction { portion, .. } => (portion as f64 / GPU as f64 * after.device_memory(node) as f64) as i64,
        GpuAsk::Memory { mib, .. } => mib,
        GpuAsk::None | GpuAsk::Whole | GpuAsk::Mig => 0,
    }
}

/// Pods are placed only where their rules admit them and their host ports are free, leavers included.
pub(super) fn rules_and_ports_are_obeyed(after: &OutcomeView<'_>) -> CheckResult {
    let snapshot = after.snapshot;
    let ports = |task: TaskId| snapshot.task(task).ports.map_or(&[][..], |set| &snapshot.port_sets[set as usize]);
    let is_there = |task: TaskId, node: NodeId| {
        let before = after.place_before(task).is_some_and(|place| place.node == node);
        before || after.placed(task).is_some_and(|place| place.node == node)
    };
    for (task, place) in after.tasks().filter_map(|task| Some((task, after.placed(task)?))) {
        let class = &snapshot.node_filters[snapshot.task(task).node_filter.index()];
        let (name, node) = (after.name(task), &after.world.names.nodes[place.node.index()]);
        ensure!(class.feasible.contains(place.node.index()), "{name} may not run on {node}");
        for other in after.tasks().filter(|other| *other != task && is_there(*other, place.node)) {
            let collide = ports(task)
                .iter()
                .any(|port| ports(other).iter().any(|held| snapshot.port_conflicts[port.index()].contains(held)));
            ensure!(!collide, "{name} and {} want the same port of {node}", after.name(other));
        }
    }
    Ok(())
}

/// A pod that runs when the next cycle begins; one that only moves runs until then.
fn runs(after: &OutcomeView<'_>, task: TaskId) -> bool {
    after.runs_now(task) || after.is_evicted(task) && after.pipelined(task).is_some()
}

/// A job of which something is bound runs with all it needs, and so does every sub-group with a bound pod; where
/// a pod is pipelined, it will.
pub(super) fn gangs_start_whole(after: &OutcomeView<'_>) -> CheckResult {
    let sets = (0..after.snapshot.pod_sets.len()).map(|index| Member::PodSet(PodSetId::at(index)));
    let groups = (0..after.snapshot.groups.len()).map(|index| Member::Group(GroupId::at(index)));
    for member in sets.chain(groups) {
        member_is_whole(after, member, &|task| after.bound(task).is_some(), &|task| runs(after, task))?;
        member_is_whole(after, member, &|task| after.pipelined(task).is_some(), &|task| after.runs_later(task))?;
    }
    Ok(())
}

/// A member of which a pod was chosen has all the pods it needs.
fn member_is_whole(
    after: &OutcomeView<'_>,
    member: Member,
    chosen: &dyn Fn(TaskId) -> bool,
    keeps_place: &dyn Fn(TaskId) -> bool,
) -> CheckResult {
    let whole = !has_any(after, member, chosen) || after.is_met(member, keeps_place);
    ensure!(whole, "{member:?} gets a pod but lacks others");
    Ok(())
}

fn has_any(after: &OutcomeView<'_>, member: Member, test: &dyn Fn(TaskId) -> bool) -> bool {
    match member {
        Member::PodSet(set) => after.count(set, test) > 0,
        Member::Group(_) => after.members(member).iter().any(|inner| has_any(after, *inner, test)),
    }
}

/// A pod set that must stay in one domain, and did, does so afterwards. The bounds of a job of one pod set are bounds
/// of that pod set; those of groups of several hold for what is placed together, which the outcome does not tell.
pub(super) fn required_domains_hold(after: &OutcomeView<'_>) -> CheckResult {
    let snapshot = after.snapshot;
    for (index, set) in snapshot.pod_sets.iter().enumerate() {
        let job = snapshot.job(set.job);
        let groups = if job.pod_sets.len() == 1 { &snapshot.groups[job.groups.indices()] } else { &[] };
        for constraint in groups.iter().map(|group| group.constraint).chain([set.constraint]).flatten() {
            let required = snapshot.constraints[constraint as usize].required;
            let Some(LevelRef::At(level)) = required else { continue };
            let domain = |place: Assignment| snapshot.topologies[0].levels[level as usize][place.node.index()];
            let tasks = || set.tasks.indices().map(TaskId::at);
            let ran = tasks().filter(|task| after.ran(*task));
            let before: BTreeSet<_> = ran.filter_map(|task| after.place_before(task)).map(domain).collect();
            let later: BTreeSet<_> = tasks().filter_map(|task| after.place_after(task)).map(domain).collect();
            let name = &after.world.names.pod_sets[index];
            let was_whole = before.len() <= 1 && !before.contains(&None);
            ensure!(!was_whole || later.len() <= 1, "{name} is spread over {later:?}");
        }
    }
    Ok(())
}

/// A job says when it started exactly if it went from nothing running to something running.
pub(super) fn starts_are_noted(after: &OutcomeView<'_>) -> CheckResult {
    for job in after.snapshot.job_ids() {
        let row = after.snapshot.job(job);
        let note = after.outcome.job_timestamps.iter().find(|note| note.job == job);
        let tasks = || after.snapshot.job_tasks(job);
        let ran = tasks().any(|task| after.ran(task) && after.snapshot.task(task).node.is_some());
        let starts = !ran && tasks().any(|task| after.bound(task).is_some());
        let expected = if starts { Some(crate::support::NOW) } else { row.last_start };
        let last_start = note.map_or(row.last_start, |note| note.last_start);
        ensure!(last_start == expected, "{} started at {last_start:?}, not {expected:?}", after.job_name(job));
    }
    Ok(())
}

/// Every job with a pod that could be scheduled but was not has a reason.
pub(super) fn waiting_jobs_have_a_reason(after: &OutcomeView<'_>) -> CheckResult {
    for job in after.snapshot.job_ids() {
        let waits = |task: TaskId| after.status(task) == Status::Pending && after.placed(task).is_none();
        if after.snapshot.job_tasks(job).any(waits) {
            let verdict = after.outcome.verdicts.iter().find(|verdict| verdict.job == job);
            let reasons = verdict.map_or(0, |verdict| verdict.reasons.len());
            ensure!(reasons > 0, "{} waits for no reason", after.job_name(job));
        }
    }
    Ok(())
}

/// When only free room is given away, no job of one pod waits while a node has room for it, now or later.
pub(super) fn room_is_used(after: &OutcomeView<'_>) -> CheckResult {
    for job in after.snapshot.job_ids() {
        if let Some(task) = single_waiting_pod(after, job)
            && let Some(node) = after.snapshot.nodes.ids().find(|node| could_take(after, job, task, *node))
        {
            return Err(format!("{} waits, but {} has room", after.name(task), after.world.names.nodes[node.index()]));
        }
    }
    Ok(())
}

/// The pod of a job of one plain pod that waits, in a queue that may hold jobs.
fn single_waiting_pod(after: &OutcomeView<'_>, job: JobId) -> Option<TaskId> {
    let snapshot = after.snapshot;
    let row = snapshot.job(job);
    let is_leaf = snapshot.queues.iter().all(|other| other.parent != row.queue);
    let ([set], [root]) = (&snapshot.pod_sets[row.pod_sets.indices()], &snapshot.groups[row.groups.indices()]) else {
        return None;
    };
    let [task] = snapshot.job_tasks(job).collect::<Vec<_>>()[..] else { return None };
    let pod = snapshot.task(task);
    let is_plain = pod.ports.is_none()
        && pod.inter_pod.is_none()
        && root.constraint.is_none()
        && set.constraint.is_none()
        && snapshot.shape(pod.shape).gpu.shared_devices().is_none();
    let waits = pod.status == Status::Pending && after.placed(task).is_none();
    (row.queue.is_some() && is_leaf && set.min <= 1 && is_plain && waits).then_some(task)
}

fn could_take(after: &OutcomeView<'_>, job: JobId, task: TaskId, node: NodeId) -> bool {
    let snapshot = after.snapshot;
    let row = snapshot.task(task);
    if !snapshot.node_filters[row.node_filter.index()].feasible.contains(node.index()) {
        return false;
    }
    // As if it were pipelined there.
    let place = |other: TaskId| {
        let stuck = after.status(other) == Status::StuckInReleasing;
        let own =
            (other == task).then(|| Assignment { node, devices: Vec::new(), zones: Vec::new(), grants: Vec::new() });
        own.or_else(|| after.place_after(other)).or_else(|| after.place_before(other).filter(|_| stuck))
    };
    fits(after, "later", true, &place).is_ok() && super::queues::may_grow(after, job, after.cost(task, node))
}
