//! Convergence: what must hold once there are no more faults and nothing changes any more. What a hostile tenant has made of
//! its own objects is its own affair; for all other objects it must hold beside that tenant as well.

use std::collections::{BTreeMap, BTreeSet};

use kai_api::keys::{annotation, label, name, reason};
use kai_api::{PodGroupResources, QueueStatus};
use kai_control::World;
use kai_control::admission::validate_pod_group;
use kai_control::gpu_config_maps::{self, VISIBLE_DEVICES};
use kai_control::key::{GroupKey, Key, PodKey};
use kai_control::objects::{BindPhase, Phase, Pod, PodGroup, PriorityClass, Queue};
use kai_control::scheduler::{CycleResult, Effect, Settings, Usage, cycle};
use kai_control::status::pod_group::{self, ClaimedGpus, PodUsage, PodUsageInputs};
use kai_control::status::queue;
use kai_engine::units::Span;
use serde_json::Value;

use super::hostile;
use crate::amounts::{holds_node, is_allocated};
use crate::checkers::{self, CycleObservation, Violation};
use crate::cluster::{Cluster, Performed, Store, pod_id};
use crate::manifest::{Id, Kind};

/// A cluster in which nothing happens any more.
struct ConvergedState<'a> {
    cluster: &'a Cluster,
    world: &'a World,
    settings: &'a Settings,
    /// What a scheduler would do now that sees every object as it is.
    cycle: CycleResult,
}

type Checker = fn(&ConvergedState<'_>) -> Vec<String>;

const CONVERGENCE_CHECKS: [(&str, Checker); 14] = [
    ("pods of other tenants run", probes),
    ("scaling pods stand for pending pods that share a GPU", scaling_pods),
    ("every pod is linked to its group", links),
    ("no bind request is left undone", requests),
    ("shared GPUs are reserved, and only those", reservations),
    ("containers read which GPUs are theirs", wiring),
    ("pod groups are as admission wants them", admitted),
    ("gangs are whole or wait", gangs),
    ("pods on nodes have their volumes", volumes),
    ("pods on nodes have their devices", devices),
    ("claims are reserved for pods that exist", reserved_claims),
    ("no pod is pending that could run", idle),
    ("every pending pod has a reason", explanations),
    ("every status equals what the objects add up to", statuses),
];

/// Checks a cluster in which nothing happens any more.
pub(super) fn check_converged(cluster: &Cluster, settings: &Settings, at: Span) -> Result<(), Violation> {
    let world = cluster.world();
    let cycle = cycle(world, settings, &Usage::default(), cluster.now);
    let rest = ConvergedState { cluster, world, settings, cycle };
    for (invariant, check) in CONVERGENCE_CHECKS {
        let mut found = check(&rest);
        if !found.is_empty() {
            found.truncate(5);
            return Err(Violation { invariant, what: found.join("; "), at });
        }
    }
    Ok(())
}

/// Whether an object is not the hostile tenant's.
fn is_honest(namespace: &str) -> bool {
    namespace != hostile::NAMESPACE
}

/// Pods that have room of their own run, or have run.
fn probes(rest: &ConvergedState<'_>) -> Vec<String> {
    let pods = rest.cluster.store.of_kind(Kind::Pod).filter(|(id, _)| id.namespace == hostile::PROBES);
    pods.filter(|(_, pod)| pod["spec"]["nodeName"].is_null()).map(|(id, _)| format!("{id} does not run")).collect()
}

/// A scaling pod that has not run goes when the pod that it was created for has a node or is deleted.
fn scaling_pods(rest: &ConvergedState<'_>) -> Vec<String> {
    let store = &rest.cluster.store;
    let pods = store.of_kind(Kind::Pod).filter(|(id, _)| id.namespace == name::SCALE_ADJUST);
    let pending = |pod: &Value| {
        let label = |key: &str| pod["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
        let of = Id::namespaced(Kind::Pod, label(label::SHARED_GPU_POD_NAMESPACE), label(label::SHARED_GPU_POD_NAME));
        !is_honest(&of.namespace) || store.get(&of).is_some_and(|pod| pod["spec"]["nodeName"].is_null())
    };
    pods.filter(|(_, pod)| pod["status"]["phase"] != "Succeeded" && !pending(pod))
        .map(|(id, _)| format!("{} stands for no pending pod", id.name))
        .collect()
}

/// What was planned has been written: every pod names its group, and that exists.
fn links(rest: &ConvergedState<'_>) -> Vec<String> {
    let store = &rest.cluster.store;
    let lives = |pod: &Pod| {
        let over = matches!(pod.phase, Phase::Succeeded | Phase::Failed);
        pod.scheduler == rest.settings.scheduler_name
            && !over
            && pod.deletion.is_none()
            && is_honest(&pod.key.namespace)
    };
    let mut wrong = Vec::new();
    // As stored: the `World` links some pods by itself.
    for (id, value) in store.of_kind(Kind::Pod).filter(|(_, value)| Pod::parse(value).is_ok_and(|pod| lives(&pod))) {
        match value["metadata"]["annotations"][annotation::POD_GROUP_NAME].as_str() {
            None => wrong.push(format!("{id} has no link")),
            Some(group) if store.get(&Id::namespaced(Kind::PodGroup, &*id.namespace, group)).is_none() => {
                wrong.push(format!("{id} is linked to {group}, which does not exist"));
            }
            Some(_) => {}
        }
    }
    wrong
}

/// Every request has been carried out, for the pod it was made for.
fn requests(rest: &ConvergedState<'_>) -> Vec<String> {
    let undone =
        rest.world.bind_requests.values().filter(|request| is_honest(&request.key.namespace)).filter(|request| {
            let pod = rest.world.pods.get(&request.pod);
            let there = pod.is_some_and(|pod| request.is_for(pod) && pod.node.as_ref() == Some(&request.node));
            !there || request.phase != BindPhase::Succeeded
        });
    undone.map(|request| format!("{} to {} is {:?}", request.key, request.node, request.phase)).collect()
}

/// Every shared GPU has one reservation on its node, and every reservation has users.
fn reservations(rest: &ConvergedState<'_>) -> Vec<String> {
    let mut used: BTreeSet<(&str, &str)> = BTreeSet::new();
    // Whatever its labels name now.
    let hostile = rest.cluster.store.of_kind(Kind::Pod).any(|(id, _)| !is_honest(&id.namespace));
    let mut reserved: BTreeMap<(&str, &str), Vec<&PodKey>> = BTreeMap::new();
    for pod in rest.world.pods.values().filter(|pod| holds_node(pod)) {
        let Some(node) = pod.node.as_deref() else { continue };
        for group in pod.gpu_groups() {
            if pod.key.namespace == name::RESOURCE_RESERVATION {
                reserved.entry((node, group)).or_default().push(&pod.key);
            } else if is_honest(&pod.key.namespace) {
                used.insert((node, group));
            }
        }
    }
    let mut wrong = Vec::new();
    for (device, pods) in &reserved {
        if !used.contains(device) && !hostile {
            wrong.push(format!("{} reserves GPU {} of {} without users", pods[0], device.1, device.0));
        }
        if pods.len() > 1 {
            wrong.push(format!("GPU {} of {} is reserved {} times", device.1, device.0, pods.len()));
        }
    }
    let bare = used.iter().filter(|device| !reserved.contains_key(*device));
    wrong.extend(bare.map(|(node, group)| format!("GPU {group} of {node} is shared without a reservation")));
    wrong
}

/// Pods that share GPUs were prepared by admission, and read from their config maps the GPUs that were reserved.
fn wiring(rest: &ConvergedState<'_>) -> Vec<String> {
    let store = &rest.cluster.store;
    let mut wrong = Vec::new();
    let users = rest.world.pods.values().filter(|pod| pod.scheduler == rest.settings.scheduler_name && holds_node(pod));
    for pod in users.filter(|pod| !pod.gpu_groups().is_empty() && is_honest(&pod.key.namespace)) {
        let Some(value) = store.get(&pod_id(&pod.key)) else { continue };
        let Some(maps) = gpu_config_maps::target(value).ok().and_then(|target| gpu_config_maps::maps(value, target))
        else {
            wrong.push(format!("{} was not prepared", pod.key));
            continue;
        };
        let map = |name: &str| store.get(&Id::namespaced(Kind::ConfigMap, &*pod.key.namespace, name));
        let (Some(capabilities), Some(env)) = (map(&maps.capabilities), map(&maps.env)) else {
            wrong.push(format!("{} cannot start for want of config maps", pod.key));
            continue;
        };
        let read = [capabilities, env].into_iter().filter_map(|map| map["data"][VISIBLE_DEVICES].as_str());
        let read: BTreeSet<&str> = read.flat_map(|devices| devices.split(',')).collect();
        let reserved: BTreeSet<&str> =
            pod.gpu_groups().into_iter().filter_map(|group| reserved_device(store, group)).collect();
        if read != reserved {
            wrong.push(format!("{} reads {read:?}, reserved is {reserved:?}", pod.key));
        }
    }
    wrong
}

/// The device that the reservation of a shared GPU has found.
fn reserved_device<'s>(store: &'s Store, group: &str) -> Option<&'s str> {
    let mut pods = store.of_kind(Kind::Pod).filter(|(id, _)| id.namespace == name::RESOURCE_RESERVATION);
    let (_, pod) = pods.find(|(_, pod)| pod["metadata"]["labels"][label::GPU_GROUP] == group)?;
    pod["metadata"]["annotations"][annotation::RESERVED_GPU].as_str()
}

/// None is stored that would be refused.
fn admitted(rest: &ConvergedState<'_>) -> Vec<String> {
    let groups = rest.cluster.store.of_kind(Kind::PodGroup).filter(|(id, _)| is_honest(&id.namespace));
    let judged = groups.map(|(id, group)| (id, validate_pod_group(group, true)));
    judged.filter(|(_, answer)| !answer.allowed()).map(|(id, answer)| format!("{id}: {}", answer.message())).collect()
}

/// A gang has its minimum, those that have done their work included, or nothing.
fn gangs(rest: &ConvergedState<'_>) -> Vec<String> {
    let mut strength: BTreeMap<GroupKey, (u32, u32)> = BTreeMap::new();
    for pod in rest.world.pods.values() {
        let Some(group) = pod.group() else { continue };
        let (running, all) = strength.entry(group).or_default();
        *running += u32::from(is_allocated(pod));
        *all += u32::from(is_allocated(pod) || pod.phase == Phase::Succeeded);
    }
    let minimum = |group: &PodGroup| group.min_member.unwrap_or(1);
    let plain = |group: &&PodGroup| group.sub_groups.is_empty() && is_honest(&group.key.namespace);
    let torn = rest.world.pod_groups.values().filter(plain).filter_map(|group| {
        let (running, all) = strength.get(&group.key).copied()?;
        (running > 0 && all < minimum(group)).then_some((group, running))
    });
    torn.map(|(group, running)| format!("{} runs {running} of {} pods", group.key, minimum(group))).collect()
}

/// Every claim of a pod on a node is bound to a volume that the node reaches.
fn volumes(rest: &ConvergedState<'_>) -> Vec<String> {
    let world = rest.world;
    let mut wrong = Vec::new();
    for pod in world.pods.values().filter(|pod| holds_node(pod)) {
        let Some(node) = pod.node.as_ref().and_then(|name| world.nodes.get(name)) else { continue };
        for name in pod.prerequisites.iter().flat_map(|prerequisites| prerequisites.all_claims()) {
            let claim = world.volume_claims.get(&Key::new(&*pod.key.namespace, name)).filter(|claim| claim.bound);
            let volume = claim.and_then(|claim| world.volumes.get(claim.volume.as_ref()?));
            match volume {
                None => wrong.push(format!("{} is on {}, but its claim {name} has no volume", pod.key, node.name)),
                Some(volume) if !volume.reaches(&node.name, &node.labels) => {
                    wrong.push(format!("{} cannot reach volume {} from {}", pod.key, volume.name, node.name));
                }
                Some(_) => {}
            }
        }
    }
    wrong
}

/// The claims of pods on nodes have devices, and no device is in two claims.
fn devices(rest: &ConvergedState<'_>) -> Vec<String> {
    let on_nodes = rest.world.pods.values().filter(|pod| holds_node(pod));
    let performed = Performed { bound: on_nodes.map(|pod| pod.key.clone()).collect(), ..Performed::default() };
    let (world, settings, cycle, now) = (rest.world, rest.settings, &rest.cycle, rest.cluster.now);
    checkers::claimed_devices(&CycleObservation { world, settings, cycle, performed: &performed, now })
}

/// Devices return once the pods that used them are gone.
fn reserved_claims(rest: &ConvergedState<'_>) -> Vec<String> {
    let pods = rest.cluster.store.of_kind(Kind::Pod);
    let uids: BTreeSet<&str> = pods.filter_map(|(_, pod)| pod["metadata"]["uid"].as_str()).collect();
    let claims = rest.world.resource_claims.values();
    let reserved = claims.flat_map(|claim| claim.reserved_for.iter().map(move |(pod, uid)| (claim, pod, uid)));
    let gone = reserved.filter(|(_, _, uid)| !uids.contains(uid.as_str()));
    gone.map(|(claim, pod, _)| format!("claim {} is reserved for pod {pod}, which does not exist", claim.key)).collect()
}

/// A scheduler that saw everything as it is would change nothing.
fn idle(rest: &ConvergedState<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for effect in &rest.cycle.effects {
        match effect {
            Effect::Bind { pod, node, .. } if is_honest(&pod.namespace) => {
                wrong.push(format!("{pod} could run on {node}"));
            }
            Effect::Evict { pod, why, .. } if is_honest(&pod.namespace) => {
                wrong.push(format!("{pod} should go: {why}"));
            }
            _ => {}
        }
    }
    if rest.cluster.store.of_kind(Kind::Pod).any(|(id, _)| !is_honest(&id.namespace)) {
        // What is free beside pods whose annotations do not hold is not to be read from them.
        return wrong;
    }
    let performed = Performed::default();
    let (world, settings, cycle) = (rest.world, rest.settings, &rest.cycle);
    wrong.extend(checkers::work_conservation(&CycleObservation {
        world,
        settings,
        cycle,
        performed: &performed,
        now: rest.cluster.now,
    }));
    wrong
}

/// A pending pod has its reason in a condition of its own or of its group.
fn explanations(rest: &ConvergedState<'_>) -> Vec<String> {
    let waits = |pod: &&Pod| {
        pod.node.is_none() && pod.phase == Phase::Pending && !pod.gated && pod.scheduler == rest.settings.scheduler_name
    };
    // For gangs that lack pods there is only an event.
    let unready = |group: &GroupKey| {
        let reasons = rest.cycle.pending.iter().filter(|job| job.job == *group).flat_map(|job| &job.reasons);
        reasons.into_iter().any(|reason| reason.reason() == reason::NOT_READY)
    };
    let has_reason = |pod: &Pod| {
        if pod.group().is_some_and(|group| unready(&group)) {
            return true;
        }
        let group = pod.group().and_then(|group| rest.world.pod_groups.get(&group));
        pod.unschedulable_message.is_some() || group.is_some_and(|group| !group.conditions.is_empty())
    };
    let unexplained =
        rest.world.pods.values().filter(waits).filter(|pod| !has_reason(pod) && is_honest(&pod.key.namespace));
    let mut wrong: Vec<String> = unexplained.map(|pod| format!("{} is pending without a reason", pod.key)).collect();
    let runs = |group: &PodGroup| {
        let mut own = rest.world.pods.values().filter(|pod| pod.group().as_ref() == Some(&group.key));
        own.all(|pod| pod.node.is_some())
    };
    let honest = rest.world.pod_groups.values().filter(|group| is_honest(&group.key.namespace));
    let stale = honest.filter(|group| !group.conditions.is_empty() && runs(group));
    wrong.extend(stale.map(|group| format!("{} runs, but still has a pending condition", group.key)));
    wrong
}

/// Statuses are what the objects add up to. A pod that cannot be read counts as it was before: beside it only the groups of
/// others are known.
fn statuses(rest: &ConvergedState<'_>) -> Vec<String> {
    let store = &rest.cluster.store;
    let mut wanted = Statuses::of(store);
    if wanted.some_unreadable {
        wanted.groups.retain(|key, _| is_honest(&key.namespace));
        wanted.queues.clear();
    }
    let mut wrong = Vec::new();
    for (key, resources) in &wanted.groups {
        let group = store.get(&Id::namespaced(Kind::PodGroup, &*key.namespace, &*key.name));
        let stored = group.map(stored_resources).unwrap_or_default();
        if stored != *resources {
            wrong.push(format!("status of pod group {key} is {stored:?}, expected {resources:?}"));
        }
    }
    for (queue, status) in &wanted.queues {
        let stored = store.get(&Id::cluster(Kind::Queue, queue)).map(stored_status).unwrap_or_default();
        if stored != *status {
            wrong.push(format!("status of queue {queue} is {stored:?}, expected {status:?}"));
        }
    }
    wrong
}

/// What every status should be.
struct Statuses {
    groups: BTreeMap<GroupKey, PodGroupResources>,
    queues: BTreeMap<String, QueueStatus>,
    some_unreadable: bool,
}

impl Statuses {
    fn of(store: &Store) -> Self {
        let of_kind = |kind: Kind| store.of_kind(kind);
        let labels = |node: &Value| -> BTreeMap<String, String> {
            let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
            labels.filter_map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned()))).collect()
        };
        let inputs = PodUsageInputs {
            labels: of_kind(Kind::Node).map(|(id, node)| (id.name.clone(), labels(node))).collect(),
            claims: of_kind(Kind::ResourceClaim)
                .filter_map(|(_, claim)| Some((Key::of(claim), ClaimedGpus::read(claim).ok()?)))
                .collect(),
        };
        let mut uses: BTreeMap<GroupKey, Vec<PodUsage>> = BTreeMap::new();
        let mut some_unreadable = false;
        for (_, pod) in of_kind(Kind::Pod) {
            match PodUsage::read(pod, &inputs) {
                Ok(Some(found)) => uses.entry(found.group.clone()).or_default().push(found),
                Ok(None) => {}
                Err(_) => some_unreadable = true,
            }
        }
        let classes: BTreeMap<String, PriorityClass> = of_kind(Kind::PriorityClass)
            .filter_map(|(id, class)| Some((id.name.clone(), PriorityClass::parse(class).ok()?)))
            .collect();
        let parsed: Vec<PodGroup> =
            of_kind(Kind::PodGroup).filter_map(|(_, group)| PodGroup::parse(group).ok()).collect();
        let groups: BTreeMap<GroupKey, PodGroupResources> = parsed
            .iter()
            .map(|group| {
                let pods = uses.get(&group.key).into_iter().flatten();
                (group.key.clone(), pod_group::resources(group, pods, &classes))
            })
            .collect();
        let found: BTreeMap<String, Queue> =
            of_kind(Kind::Queue).filter_map(|(id, queue)| Some((id.name.clone(), Queue::parse(queue).ok()?))).collect();
        let charged = parsed.iter().map(|group| (group.queue.as_str(), &groups[&group.key]));
        let queues = queue::statuses(&found, charged);
        Self { groups, queues, some_unreadable }
    }
}

/// What is written of a status; nothing counts as zero.
fn stored_resources(group: &Value) -> PodGroupResources {
    serde_json::from_value(group["status"]["resourcesStatus"].clone()).unwrap_or_default()
}

fn stored_status(queue: &Value) -> QueueStatus {
    serde_json::from_value(queue["status"].clone()).unwrap_or_default()
}
