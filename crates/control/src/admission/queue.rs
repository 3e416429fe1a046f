//! Queues: resources are required, parents must exist, no queue is its own ancestor, and none in use can be deleted.

use std::collections::BTreeSet;

use kai_api::bounds::QUEUE_LEVELS_MAX;
use kai_engine::units::Ceiling;
use serde_json::Value;

use super::AdmissionResult;
use crate::ancestors::with_ancestors;
use crate::did_you_mean::closest_match;
use crate::key::GroupKey;
use crate::objects::{Phase, Pod, Queue};
use crate::world::World;

/// Whether the queue may enter or change. `check_quota` also compares quotas of parent and children.
pub fn validate_queue(queue: &Value, world: &World, check_quota: bool) -> AdmissionResult {
    if queue["spec"]["resources"].is_null() {
        let why = "resources must be specified";
        return AdmissionResult { denials: vec![why.to_owned()], warnings: vec![why.to_owned()] };
    }
    let queue = match Queue::parse(queue) {
        Ok(queue) => queue,
        Err(malformed) => return malformed.into(),
    };
    let Some(parent) = &queue.parent else { return quota_warnings(&queue, world, check_quota) };
    if *parent == queue.name {
        return AdmissionResult::deny(format!(
            "queue {}: spec.parentQueue names the queue itself; name another queue, or remove it for a top queue",
            queue.name
        ));
    }
    if !world.queues.contains_key(parent) {
        let guess = closest_match(parent, world.queues.keys().map(String::as_str))
            .map_or_else(String::new, |name| format!(" (did you mean {name}?)"));
        return AdmissionResult::deny(format!(
            "queue {}: its parent {parent} does not exist{guess}; create the parent first, or correct \
             spec.parentQueue",
            queue.name
        ));
    }
    if let Some(cycle) = find_cycle(&queue, world) {
        return AdmissionResult::deny(format!(
            "queue {}: its parents form a circle, {}; name a parent that is not below this queue",
            queue.name,
            shown_cycle(&cycle)
        ));
    }
    let levels = levels(&queue, world);
    if levels > QUEUE_LEVELS_MAX {
        return AdmissionResult::deny(format!(
            "queue {}: it would be on level {levels} of its tree, and at most {QUEUE_LEVELS_MAX} levels are taken; name a \
             spec.parentQueue that is nearer to the top",
            queue.name
        ));
    }
    quota_warnings(&queue, world, check_quota)
}

/// The queue and all above it. What is below it is not counted: the scheduler tells of queues that are too deep.
fn levels(queue: &Queue, world: &World) -> usize {
    let parent = |name: &str| {
        let queue = if name == queue.name { queue } else { world.queues.get(name)? };
        queue.parent.as_deref()
    };
    with_ancestors(&queue.name, parent).len()
}

/// Whether the queue may be deleted.
pub fn delete_queue(name: &str, world: &World) -> AdmissionResult {
    let children: Vec<&str> = world
        .queues
        .values()
        .filter(|queue| queue.parent.as_deref() == Some(name))
        .map(|queue| queue.name.as_str())
        .collect();
    if !children.is_empty() {
        return AdmissionResult::deny(format!(
            "cannot delete queue {name}: it has child queues {}; delete or move them first",
            listed(&children)
        ));
    }
    let active = |pod: &&Pod| pod.node.is_some() && matches!(pod.phase, Phase::Pending | Phase::Running);
    let running: BTreeSet<GroupKey> = world.pods.values().filter(active).filter_map(Pod::group).collect();
    let busy: Vec<String> = world
        .pod_groups
        .values()
        .filter(|group| group.queue == name && running.contains(&group.key))
        .map(|group| group.key.to_string())
        .collect();
    if busy.is_empty() {
        return AdmissionResult::allow();
    }
    AdmissionResult::deny(format!(
        "cannot delete queue {name}: its workloads {} are running; delete them or move them to another queue first",
        listed(&busy)
    ))
}

/// The first ones, and how many more there are.
fn listed<N: AsRef<str>>(names: &[N]) -> String {
    let shown: Vec<&str> = names.iter().take(5).map(AsRef::as_ref).collect();
    let more = names.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// The path from the queue up to itself, if there is one. A cycle elsewhere above it is not this queue's fault.
fn find_cycle<'w>(queue: &'w Queue, world: &'w World) -> Option<Vec<&'w str>> {
    let parent = |name: &str| {
        let queue = if name == queue.name { queue } else { world.queues.get(name)? };
        queue.parent.as_deref()
    };
    let mut path = with_ancestors(&queue.name, parent);
    if path.last().and_then(|top| parent(top)) != Some(queue.name.as_str()) {
        return None;
    }
    path.push(&queue.name);
    Some(path)
}

fn shown_cycle(cycle: &[&str]) -> String {
    match cycle {
        [first, second, .., last] if cycle.len() > 8 => {
            format!("{first} < {second} < and {} more < {last}", cycle.len() - 3)
        }
        _ => cycle.join(" < "),
    }
}

const RESOURCES: [&str; 3] = ["cpu", "memory", "gpu"];

fn quota_warnings(queue: &Queue, world: &World, wanted: bool) -> AdmissionResult {
    let mut warnings = Vec::new();
    if wanted {
        let with_change = |name: &str| if name == queue.name { Some(queue) } else { world.queues.get(name) };
        if let Some(parent) = queue.parent.as_deref().and_then(with_change) {
            warnings.extend(family_warnings(parent, queue, world));
        }
        warnings.extend(family_warnings(queue, queue, world));
    }
    AdmissionResult { denials: Vec::new(), warnings }
}

fn exceeds(quota: Ceiling, own: i64) -> bool {
    match quota {
        Ceiling::Unlimited => true,
        Ceiling::At(amount) => amount > own,
    }
}

/// Quotas of a parent's children, held against its own; `changed` stands for its stored version.
fn family_warnings(parent: &Queue, changed: &Queue, world: &World) -> Vec<String> {
    let stored = world.queues.values().filter(|queue| queue.name != changed.name);
    let children: Vec<&Queue> = stored
        .chain(std::iter::once(changed))
        .filter(|queue| queue.parent.as_deref() == Some(parent.name.as_str()))
        .collect();
    let mut warnings = Vec::new();
    for (index, resource) in RESOURCES.iter().enumerate() {
        let Ceiling::At(own) = parent.amounts()[index].quota else { continue };
        let mut sum = Some(0_i64);
        for child in &children {
            let quota = child.amounts()[index].quota;
            if exceeds(quota, own) && (child.name == changed.name || parent.name == changed.name) {
                warnings.push(format!(
                    "queue {}: its {resource} quota is larger than that of its parent {}",
                    child.name, parent.name
                ));
            }
            sum = match quota {
                Ceiling::At(amount) => sum.map(|sum| sum.saturating_add(amount)),
                Ceiling::Unlimited => None,
            };
        }
        if sum.is_none_or(|sum| sum > own) {
            warnings.push(format!("the {resource} quotas of the children of queue {} exceed its own", parent.name));
        }
    }
    warnings
}
