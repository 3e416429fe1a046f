//! What the containers of each node really have, by the raw objects at the time of the bind. As with a real kubelet, what
//! was handed out stays handed out until the pod ends, whatever annotations and labels say later:
//!
//! - resources are those of the containers;
//! - a reservation pod holds one GPU, and names it once it knows which;
//! - a pod that shares GPUs holds those that its container reads from its config maps, and of each the part that it was
//!   bound for.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::units::Span;
use serde_json::Value;

use super::raw::{self, Amounts, items, text};
use crate::checkers::Violation;
use crate::cluster::{Change, Store, uid};
use crate::manifest::{Id, Kind};

const GPU: &str = "nvidia.com/gpu";
const RESERVATIONS: &str = "kai-resource-reservation";
/// Millionths.
const WHOLE: i128 = 1_000_000;
/// Parts are written with two digits, rounded: of each pod so many millionths may be missing.
const ROUNDING: i128 = 5_000;
/// A chain of queues that is longer is a cycle.
const QUEUE_LEVELS_MAX: usize = 16;

/// What one pod holds until it ends.
#[derive(Debug)]
struct Held {
    id: Id,
    node: String,
    amounts: Amounts,
    /// Millionths of each shared GPU, by the name of the device.
    shares: BTreeMap<String, i128>,
    /// Millionths of GPUs that count for its queue.
    charged: i128,
    /// The queue of its pod group when it was bound, once that is known.
    queue: Option<String>,
    /// It is being deleted: its node holds it, its queue does not.
    leaving: bool,
}

/// What a pod asked for before it was bound.
#[derive(Debug)]
struct Asked {
    sharing: Value,
    /// Its annotations about GPUs have been changed.
    edited: bool,
}

/// All that containers hold, kept up to date from the log of pods.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    seen: usize,
    held: BTreeMap<String, Held>,
    uids: BTreeMap<Id, String>,
    asked: BTreeMap<String, Asked>,
    /// The GPU of each reservation pod that has named it, by the uid of the pod.
    reserved: BTreeMap<String, (String, String)>,
    /// A scheduler does not know of all binds: another one made them, or its watches lag for too long. From now on limits may
    /// be exceeded.
    pub(super) limits_may_break: bool,
}

impl Holdings {
    /// Reads what has changed, and checks the nodes and queues that pods were added to.
    pub(super) fn check(&mut self, store: &Store, at: Span) -> Result<(), Violation> {
        let end = store.log_end(Kind::Pod);
        let (mut nodes, mut queues) = (BTreeSet::new(), BTreeSet::new());
        for Change { id, value } in store.changes(Kind::Pod, self.seen, end).expect("read before it is compacted") {
            match value.as_deref() {
                Some(pod) => self.on_pod(id, pod, store, (&mut nodes, &mut queues)),
                None => self.on_gone(id),
            }
        }
        self.seen = end;
        let found = nodes.iter().find_map(|node| self.node_problem(node, store));
        let broken = |invariant, what| Err(Violation { invariant, what, at });
        if let Some(what) = found {
            return broken("containers of a node never have more than it has", what);
        }
        let found = queues.iter().filter(|_| !self.limits_may_break).find_map(|queue| self.queue_problem(queue, store));
        found.map_or(Ok(()), |what| broken("no queue is bound above its limit", what))
    }

    fn on_gone(&mut self, id: &Id) {
        let Some(uid) = self.uids.remove(id) else { return };
        self.held.remove(&uid);
        self.asked.remove(&uid);
        self.reserved.remove(&uid);
    }

    fn on_pod(
        &mut self,
        id: &Id,
        pod: &Value,
        store: &Store,
        (nodes, queues): (&mut BTreeSet<String>, &mut BTreeSet<String>),
    ) {
        let own = uid(pod).to_owned();
        if self.uids.get(id).is_some_and(|before| *before != own) {
            self.on_gone(id);
        }
        self.uids.insert(id.clone(), own.clone());
        if matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed")) {
            self.held.remove(&own);
            self.reserved.remove(&own);
            return;
        }
        let sharing = sharing_of(pod);
        let asked = self.asked.entry(own.clone()).or_insert_with(|| Asked { sharing: sharing.clone(), edited: false });
        let Some(node) = text(pod, "/spec/nodeName") else {
            asked.edited |= asked.sharing != sharing;
            return;
        };
        if id.namespace == RESERVATIONS
            && let Some(device) = pod["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"].as_str()
        {
            self.reserved.insert(own.clone(), (node.to_owned(), device.to_owned()));
        }
        if let Some(held) = self.held.get_mut(&own) {
            held.leaving = pod.pointer("/metadata/deletionTimestamp").is_some();
            if held.queue.is_none() {
                held.queue = queue_of(id, pod, store);
                queues.extend(held.queue.clone());
            }
            return;
        }
        asked.edited |= asked.sharing != sharing;
        let held = taken(id, pod, node, asked.edited, store);
        nodes.insert(held.node.clone());
        queues.extend(held.queue.clone());
        self.held.insert(own, held);
    }

    /// What of a node is held more than once.
    fn node_problem(&self, name: &str, store: &Store) -> Option<String> {
        let offered = raw::offered(store.get(&Id::cluster(Kind::Node, name))?);
        let here = || self.held.values().filter(|held| held.node == name);
        let mut sum = Amounts::new();
        let mut shared: BTreeMap<&str, (i128, i128)> = BTreeMap::new();
        for held in here() {
            raw::add(&mut sum, &held.amounts);
            for (device, part) in &held.shares {
                let (parts, pods) = shared.entry(device).or_default();
                (*parts, *pods) = (*parts + part, *pods + 1);
            }
        }
        let reserved: BTreeSet<&str> = {
            let on_node = self.reserved.values().filter(|(node, _)| node == name);
            on_node.map(|(_, device)| device.as_str()).collect()
        };
        // A device whose reservation is gone is still used, and may be handed out again.
        let lost = shared.keys().filter(|device| !reserved.contains(**device)).count() as i128;
        if lost > 0 {
            *sum.entry(GPU.to_owned()).or_default() += lost * 1_000;
        }
        let pods = || here().map(|held| held.id.path()).collect::<Vec<_>>().join(", ");
        for (resource, amount) in &sum {
            let room = offered.get(resource).copied().unwrap_or(0);
            if *amount > room {
                return Some(format!(
                    "{name} has {room} thousandths of {resource}, containers have {amount}: {}",
                    pods()
                ));
            }
        }
        let over = shared.iter().find(|(_, (parts, pods))| *parts > WHOLE + ROUNDING * pods)?;
        Some(format!("GPU {} of {name} is given away as {} millionths: {}", over.0, over.1.0, pods()))
    }

    /// A limit of the queue, or of one above it, that is exceeded.
    fn queue_problem(&self, queue: &str, store: &Store) -> Option<String> {
        chain(queue, store).into_iter().find_map(|name| {
            let limit = store.get(&Id::cluster(Kind::Queue, &name))?.pointer("/spec/resources/gpu/limit")?;
            // The limits of stories are whole numbers.
            let limit = limit.as_i64().filter(|limit| *limit >= 0)?;
            let below = |held: &&Held| {
                held.queue.as_ref().is_some_and(|queue| chain(queue, store).contains(&name))
                    && held.charged > 0
                    && !held.leaving
            };
            let (mut sum, mut pods) = (0, 0);
            for held in self.held.values().filter(below) {
                (sum, pods) = (sum + held.charged, pods + 1);
            }
            let over = sum > i128::from(limit) * WHOLE + ROUNDING * pods;
            over.then(|| format!("queue {name} has {sum} millionths of GPUs, its limit is {limit}"))
        })
    }
}

/// What a pod says about shared GPUs.
fn sharing_of(pod: &Value) -> Value {
    let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    let about = annotations.filter(|(key, _)| key.starts_with("gpu-"));
    Value::Object(about.map(|(key, text)| (key.clone(), text.clone())).collect())
}

/// What a kubelet gives a pod that has just been bound.
fn taken(id: &Id, pod: &Value, node: &str, edited: bool, store: &Store) -> Held {
    let amounts = raw::requested(pod);
    let read = |key: &str| config_value(pod, key, &id.namespace, store);
    let devices = read("NVIDIA_VISIBLE_DEVICES").unwrap_or_default();
    let devices: Vec<&str> = devices.split(',').filter(|device| device.starts_with("GPU-")).collect();
    let bound_for = read("GPU_PORTION").map(|portion| raw::thousandths(&portion.into()) * 1_000);
    let written = (!edited).then(|| part_written(pod, node, store)).flatten();
    let part = written.or(bound_for).unwrap_or(0);
    let whole = amounts.get(GPU).copied().unwrap_or(0) * 1_000;
    let charged = if id.namespace == RESERVATIONS { 0 } else { whole + part * devices.len() as i128 };
    Held {
        id: id.clone(),
        node: node.to_owned(),
        amounts,
        shares: devices.iter().map(|device| ((*device).to_owned(), part)).collect(),
        charged,
        queue: queue_of(id, pod, store),
        leaving: false,
    }
}

/// Millionths of a GPU, by the annotations of the pod.
fn part_written(pod: &Value, node: &str, store: &Store) -> Option<i128> {
    let annotations = &pod["metadata"]["annotations"];
    if let Some(fraction) = annotations.get("gpu-fraction") {
        // The fractions of stories have one digit.
        return Some(raw::thousandths(fraction) * 1_000);
    }
    let mib = raw::thousandths(annotations.get("gpu-memory")?) / 1_000;
    let label = store.get(&Id::cluster(Kind::Node, node))?.pointer("/metadata/labels/nvidia.com~1gpu.memory")?;
    // Memory is handed out in steps of 100 MiB.
    let memory = raw::thousandths(label) / 1_000 / 100 * 100;
    (memory > 0).then(|| mib * WHOLE / memory)
}

/// The value of an environment variable of the pod's containers that comes from a config map.
fn config_value(pod: &Value, key: &str, namespace: &str, store: &Store) -> Option<String> {
    let value = |map: &str, key: &str| {
        let map = store.get(&Id::namespaced(Kind::ConfigMap, namespace, map))?;
        Some(map["data"].get(key)?.as_str()?.to_owned())
    };
    let containers = || items(pod, "/spec/containers").chain(items(pod, "/spec/initContainers"));
    let by_key = |variable: &Value| {
        let source = variable.pointer("/valueFrom/configMapKeyRef")?;
        value(source["name"].as_str()?, source["key"].as_str()?)
    };
    let variables = containers().flat_map(|container| items(container, "/env"));
    let mut direct = variables.filter(|variable| variable["name"] == key).filter_map(by_key);
    let sources = containers().flat_map(|container| items(container, "/envFrom"));
    let mut all = sources.filter_map(|source| value(text(source, "/configMapRef/name")?, key));
    direct.next().or_else(|| all.next())
}

fn queue_of(id: &Id, pod: &Value, store: &Store) -> Option<String> {
    let group = pod["metadata"]["annotations"]["pod-group-name"].as_str()?;
    let group = store.get(&Id::namespaced(Kind::PodGroup, &*id.namespace, group))?;
    Some(text(group, "/spec/queue")?.to_owned())
}

/// The queue and those above it.
fn chain(queue: &str, store: &Store) -> Vec<String> {
    let mut chain = Vec::new();
    let mut next = Some(queue.to_owned());
    while let Some(name) = next.take_if(|_| chain.len() < QUEUE_LEVELS_MAX) {
        let found = store.get(&Id::cluster(Kind::Queue, &name));
        next = found.and_then(|queue| text(queue, "/spec/parentQueue")).map(str::to_owned);
        chain.push(name);
    }
    chain
}
