//! Carries bind requests out, a step at a time, each read off what the cluster shows.
//!
//! ```text
//!   request ─▶ shared GPU? ─▶ reservation pod there? ──no──▶ create it, wait
//!                 │ no             │ yes: its device known? ──no──▶ wait, at most the timeout
//!                 │                ▼ yes
//!                 └──────▶ volumes bound? ──no──▶ choose one or ask for one, wait
//!                                  ▼ yes
//!              label, config maps, device claims, bind, status, condition, event
//! ```
//!
//! Stateless between steps: after a crash, binding resumes from the state of the cluster. An
//! effect that fails is reported with [`Binder::failed`], which ends the attempt. What was written for the pod itself
//! stays: the next attempt writes it anew, and a bind whose answer was lost may have been done.

mod assumed;
mod component;
mod controller;
mod node_fit;
mod plan;
mod reservation;
mod rows;
mod volumes;

#[cfg(test)]
mod held_tests;
#[cfg(test)]
mod tests;

pub use crate::calls::BindEffect;
pub use component::COMPONENT;
pub use controller::BinderController;
pub use plan::gpu_group_label_changes;
pub use rows::{PodRow, RequestRow};

use std::collections::{BTreeMap, BTreeSet};

use kai_api::keys::name;
use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use crate::bind_batch;
use crate::controller::Assumed;
use crate::key::{Key, PodKey};
use crate::objects::{Node, PersistentVolume, PersistentVolumeClaim, StorageClass};
use assumed::AssumedPods;

/// How binding is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where reservation pods live.
    pub reservation_namespace: String,
    pub reservation_service_account: String,
    pub reservation_app: String,
    pub reservation_image: String,
    /// Requests and limits of reservation pods beside their GPU.
    pub reservation_resources: BTreeMap<String, String>,
    pub reservation_pod_security: Option<Value>,
    pub reservation_container_security: Option<Value>,
    /// How long a reservation pod may take to find its GPU.
    pub reservation_timeout: Span,
    pub runtime_class: Option<String>,
    /// Where pods that ask an autoscaler for nodes live.
    pub scale_adjust_namespace: String,
    /// GPUs are pretended: reservation pods only sleep.
    pub fake_gpu_nodes: bool,
    /// Devices are named the way the container device interface wants it.
    pub cdi: bool,
    /// Memory limits are passed to HAMi-core.
    pub hami_core: bool,
    /// How long volumes may take.
    pub volume_timeout: Span,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            reservation_namespace: name::RESOURCE_RESERVATION.to_owned(),
            reservation_service_account: name::RESOURCE_RESERVATION.to_owned(),
            reservation_app: name::RESOURCE_RESERVATION.to_owned(),
            reservation_image: String::new(),
            reservation_resources: BTreeMap::new(),
            reservation_pod_security: None,
            reservation_container_security: None,
            reservation_timeout: Span::seconds(40),
            runtime_class: None,
            scale_adjust_namespace: name::SCALE_ADJUST.to_owned(),
            fake_gpu_nodes: false,
            cdi: false,
            hami_core: false,
            volume_timeout: Span::seconds(120),
        }
    }
}

/// What the binder knows of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Binder {
    pub settings: Settings,
    requests: BTreeMap<Key, RequestRow>,
    /// Requests by pod: one that stands alone has its name, but there may be more in batches.
    requests_by_pod: BTreeMap<PodKey, BTreeSet<Key>>,
    pods: BTreeMap<PodKey, PodRow>,
    nodes: BTreeMap<String, Node>,
    /// Pods and requests by node.
    pods_by_node: BTreeMap<String, BTreeSet<PodKey>>,
    requests_by_node: BTreeMap<String, BTreeSet<Key>>,
    /// Requests by shared GPU.
    requests_by_gpu_group: BTreeMap<String, BTreeSet<Key>>,
    volume_claims: BTreeMap<Key, PersistentVolumeClaim>,
    persistent_volumes: BTreeMap<String, PersistentVolume>,
    storage_classes: BTreeMap<String, StorageClass>,
    /// Volumes that were prebound to claims.
    assumed_prebinds: Assumed<String, Key>,
    /// Pods that carry the label of a shared GPU.
    pods_by_gpu_group: BTreeMap<String, BTreeSet<PodKey>>,
    /// Reservations that were created, by shared GPU: pod and node.
    assumed_reservations: Assumed<String, (PodKey, String)>,
    assumed: AssumedPods,
}

/// Calls for a request, and when to reconcile it again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In this order; the first that fails ends the attempt.
    pub effects: Vec<BindEffect>,
    /// At this time even if nothing happens; otherwise when something it waits for changes.
    pub requeue_at: Option<Timestamp>,
    /// What it waits for, for the log.
    pub wait_reason: Option<String>,
}

impl Binder {
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    pub fn apply_request(&mut self, request: &Value) -> Result<Key, String> {
        let row = RequestRow::read(request)?;
        let key = row.bind_request.key.clone();
        self.forget_request(&key);
        self.requests_by_node.entry(row.bind_request.node.clone()).or_default().insert(key.clone());
        self.requests_by_pod.entry(row.bind_request.pod.clone()).or_default().insert(key.clone());
        for group in &row.bind_request.gpu_groups {
            self.requests_by_gpu_group.entry(group.clone()).or_default().insert(key.clone());
        }
        self.requests.insert(key.clone(), row);
        Ok(key)
    }

    /// The shared GPUs it named, to be looked after.
    pub fn delete_request(&mut self, key: &Key) -> Vec<String> {
        self.forget_request(key).map_or_else(Vec::new, |row| row.bind_request.gpu_groups)
    }

    fn forget_request(&mut self, key: &Key) -> Option<RequestRow> {
        let old = self.requests.remove(key)?;
        remove_from_index(&mut self.requests_by_node, &old.bind_request.node, key);
        remove_from_index(&mut self.requests_by_pod, &old.bind_request.pod, key);
        for group in &old.bind_request.gpu_groups {
            remove_from_index(&mut self.requests_by_gpu_group, group, key);
        }
        Some(old)
    }

    /// The shared GPUs whose users changed.
    pub fn apply_pod(&mut self, pod: &Value) -> Result<Vec<String>, String> {
        let mut row = PodRow::read(pod, &self.settings)?;
        if let Some(earlier) = self.pods.get(&row.key) {
            row.keep_held(earlier);
        }
        let mut touched = self.forget_pod(&row.key);
        self.assumed.on_apply(&mut row);
        for group in &row.groups {
            self.pods_by_gpu_group.entry(group.clone()).or_default().insert(row.key.clone());
            if self.assumed_reservations.get(group).is_some_and(|(pod, _)| *pod == row.key) {
                self.assumed_reservations.confirm(group);
            }
            touched.insert(group.clone());
        }
        if let Some(node) = &row.node {
            self.pods_by_node.entry(node.clone()).or_default().insert(row.key.clone());
        }
        self.pods.insert(row.key.clone(), row);
        Ok(touched.into_iter().collect())
    }

    /// The shared GPUs whose users changed.
    pub fn delete_pod(&mut self, key: &PodKey) -> Vec<String> {
        self.assumed.on_delete(key);
        self.forget_pod(key).into_iter().collect()
    }

    fn forget_pod(&mut self, key: &PodKey) -> BTreeSet<String> {
        let Some(old) = self.pods.remove(key) else { return BTreeSet::new() };
        for group in &old.groups {
            remove_from_index(&mut self.pods_by_gpu_group, group, key);
        }
        if let Some(node) = &old.node {
            remove_from_index(&mut self.pods_by_node, node, key);
        }
        old.groups.into_iter().collect()
    }

    pub fn apply_node(&mut self, node: &Value) -> Result<(), String> {
        let node = Node::parse(node).map_err(|malformed| malformed.to_string())?;
        self.nodes.insert(node.name.clone(), node);
        Ok(())
    }

    pub fn delete_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Requests that wait for this pod or shared GPU to change.
    pub fn requests_about(&self, pod: &PodKey, groups: &[String]) -> BTreeSet<Key> {
        let own = self.requests_by_pod.get(pod).into_iter().flatten().filter_map(|key| self.requests.get(key));
        own.chain(groups.iter().flat_map(|group| self.requests_for(group)))
            .filter(|row| row.is_pending())
            .map(|row| row.bind_request.key.clone())
            .collect()
    }

    /// Requests that name a shared GPU.
    fn requests_for(&self, group: &str) -> impl Iterator<Item = &RequestRow> {
        self.requests_by_gpu_group.get(group).into_iter().flatten().filter_map(|key| self.requests.get(key))
    }

    /// All shared GPUs that pods use or reservations hold.
    pub fn groups(&self) -> BTreeSet<String> {
        self.pods_by_gpu_group.keys().chain(self.assumed_reservations.iter().map(|(group, _)| group)).cloned().collect()
    }

    /// Forgets what was assumed and no watch has shown in time.
    fn expire(&mut self, now: Timestamp) {
        self.assumed_prebinds.expire(now);
        self.assumed.expire(now);
    }

    /// Requests of a batch.
    fn requests_in(&self, batch: &Key) -> Vec<Key> {
        bind_batch::requests_in(&self.requests, batch)
    }

    /// Whether nothing is to be done about the request any more: its pod has a node, or is none.
    fn is_settled(&self, request: &Key) -> bool {
        self.requests.get(request).is_none_or(|row| self.pending_bind_pod(row).is_none())
    }

    /// The version in which a request was seen that is not carried out yet.
    fn version(&self, key: &Key) -> Option<&str> {
        self.requests.get(key).filter(|row| row.is_pending()).map(|row| row.version.as_str())
    }

    /// Requests of a namespace not carried out yet.
    fn pending_requests_in(&self, namespace: &str) -> Vec<Key> {
        let there = self.requests.range(Key::new(namespace, "")..).take_while(|(key, _)| key.namespace == namespace);
        there.filter(|(_, row)| row.is_pending()).map(|(key, _)| key.clone()).collect()
    }

    /// Requests not carried out yet.
    pub fn pending_requests(&self) -> impl Iterator<Item = &Key> {
        self.requests.values().filter(|row| row.is_pending()).map(|row| &row.bind_request.key)
    }
}

/// Takes a name out of a set, and the set away with its last name.
fn remove_from_index<K, Q>(sets: &mut BTreeMap<K, BTreeSet<Key>>, of: &Q, key: &Key)
where
    K: Ord + std::borrow::Borrow<Q>,
    Q: Ord + ?Sized,
{
    if let Some(set) = sets.get_mut(of) {
        set.remove(key);
        if set.is_empty() {
            sets.remove(of);
        }
    }
}
