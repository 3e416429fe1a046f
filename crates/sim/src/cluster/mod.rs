//! A small Kubernetes: an API server, the controllers that make pods, kubelets that run them, nodes that fail.
//!
//! ```text
//!   steps ──▶ store ──▶ controllers ──▶ pods ──▶ grouper ──▶ pod groups
//!               ▲                                               │
//!               └── kubelets ◀── effects ◀── scheduler cycle ◀──┘
//! ```
//!
//! Every part acts on the store and notes what it did in the journal; nothing here decides about placement.

mod api;
mod claims;
mod controllers;
mod effects;
mod event_queue;
mod grouping;
mod kubelet;
mod operators;
mod steps;
mod storage;
mod store;
mod users;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};

use kai_control::World;
use kai_engine::units::{Span, Timestamp};
use rand_pcg::Pcg32;
use serde_json::Value;

pub(crate) use effects::{Performed, pod_id};
pub(crate) use event_queue::{Due, EventQueue, next_tick};
pub(crate) use store::{Change, Store, uid};
pub(crate) use users::Review;
use webhooks::Webhooks;

use crate::journal::{Event, Journal};
use crate::manifest::{Id, Kind, Plan, Scenario};

/// Everything that changes in a simulation.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) store: Store,
    pub(crate) events: EventQueue,
    pub(crate) journal: Journal,
    pub(crate) now: Timestamp,
    scenario: Scenario,
    /// Controllers whose pods or wishes changed.
    to_reconcile: BTreeSet<Id>,
    /// Pods without a pod group yet.
    to_group: BTreeSet<Id>,
    /// Pods that wait for claims to be made from templates.
    to_claim: BTreeSet<Id>,
    /// Pods that cannot be grouped, and why.
    ungrouped: BTreeMap<Id, String>,
    /// How many pods a controller has made, by its uid: the number of its next one.
    next_ordinal: BTreeMap<String, u32>,
    /// Nodes that are down, and since when.
    down: BTreeMap<String, Timestamp>,
    /// Names of pods that are still taken, and the controllers that wait for them.
    waiting_for_name: BTreeMap<Id, Id>,
    /// Pods that were taken from a controller and not yet replaced, by its uid.
    replacements_due: BTreeMap<String, u32>,
    grouper: kai_workloads::Settings,
    /// How many changes of the store were about scaling pods: these come and go as long as a pod has no node.
    pub(crate) scaling_pod_changes: u64,
    /// Our admission.
    pub(crate) webhooks: Webhooks,
    /// Pods are grouped by a controller outside, from a watch.
    pub(crate) external_grouper: bool,
    /// For start-up jitter.
    rng: Pcg32,
}

impl Cluster {
    /// An empty cluster at time `now`.
    pub(crate) fn new(plan: &Plan, grouper: kai_workloads::Settings, seed: u64, now: Timestamp) -> Self {
        Self {
            store: Store::default(),
            events: EventQueue::new(),
            journal: Journal::new(now),
            now,
            scenario: plan.scenario.clone(),
            to_reconcile: BTreeSet::new(),
            to_group: BTreeSet::new(),
            to_claim: BTreeSet::new(),
            ungrouped: BTreeMap::new(),
            next_ordinal: BTreeMap::new(),
            down: BTreeMap::new(),
            waiting_for_name: BTreeMap::new(),
            replacements_due: BTreeMap::new(),
            scaling_pod_changes: 0,
            webhooks: Webhooks::new(&grouper.scheduler_name),
            grouper,
            external_grouper: false,
            // Any odd stream will do; the seed alone distinguishes runs.
            rng: Pcg32::new(seed, 1),
        }
    }

    pub(crate) fn world(&self) -> &World {
        self.store.world()
    }

    /// Lets controllers and grouper act until none of them has anything left to do.
    pub(crate) fn run_controllers(&mut self) {
        let mut blocked = BTreeSet::new();
        while let Some(id) = self.to_reconcile.pop_first() {
            if self.blocked_by_webhook(&id) {
                blocked.insert(id);
            } else {
                self.reconcile(&id);
            }
        }
        self.to_reconcile = blocked;
        self.make_claims();
        if self.external_grouper {
            self.to_group.clear();
        }
        while let Some(id) = self.to_group.pop_first() {
            self.group(&id);
        }
        self.bind_claims();
    }

    /// Adds an object, if admission allows it, and enqueues its controllers.
    fn create(&mut self, id: Id, value: Value) {
        let subject = id.clone();
        if let Err(why) = self.try_create(id, value) {
            self.note(Event::Warn, &subject, None, format!("refused: {why}"));
        }
    }

    /// The same, with the reason if admission denies it.
    fn try_create(&mut self, id: Id, value: Value) -> Result<(), String> {
        let value = self.admit(&id, value)?;
        self.store.create(id.clone(), value, self.now);
        self.enqueue_owners(&id);
        if id.kind == Kind::Pod {
            self.to_claim.insert(id.clone());
            self.to_group.insert(id);
        }
        Ok(())
    }

    /// Enqueues an object and its controllers to be reconciled.
    fn enqueue_owners(&mut self, id: &Id) {
        if id.kind.makes_pods() {
            self.to_reconcile.insert(id.clone());
        }
        let above = self.controllers_of(id);
        self.to_reconcile.extend(above);
    }

    /// All controllers above an object, nearest first.
    fn controllers_of(&self, id: &Id) -> Vec<Id> {
        let mut above = Vec::new();
        let mut here = self.controller_of(id);
        while let Some(owner) = here {
            here = self.controller_of(&owner);
            above.push(owner);
        }
        above
    }

    /// The controller that made an object, if there is one.
    fn controller_of(&self, id: &Id) -> Option<Id> {
        let value = self.store.get(id)?;
        let owners = value.pointer("/metadata/ownerReferences")?.as_array()?;
        owners.iter().find_map(|owner| {
            let text = |key: &str| owner.get(key).and_then(Value::as_str);
            let api_version = text("apiVersion").unwrap_or_default();
            let owner_id = Id::referred(api_version, text("kind")?, &id.namespace, text("name")?);
            let same = self.store.get(&owner_id).map(uid) == owner.get("uid")?.as_str();
            same.then_some(owner_id)
        })
    }

    /// Removes an object at once, and what it owns the way that takes.
    fn remove(&mut self, id: &Id) {
        let controllers = self.controllers_of(id);
        let Some(value) = self.store.remove(id) else { return };
        self.to_reconcile.remove(id);
        self.to_group.remove(id);
        self.to_claim.remove(id);
        self.leave_claims(id, &value);
        self.release(id, &value);
        self.ungrouped.remove(id);
        self.next_ordinal.remove(uid(&value));
        self.replacements_due.remove(uid(&value));
        self.to_reconcile.extend(controllers);
        self.to_reconcile.extend(self.waiting_for_name.remove(id));
        let owned: Vec<Id> = self.store.owned_by(uid(&value)).cloned().collect();
        for dependent in owned {
            if dependent.kind == Kind::Pod {
                self.stop_pod(&dependent);
            } else {
                self.remove(&dependent);
            }
        }
    }

    fn note(&mut self, event: Event, subject: &Id, node: Option<&str>, why: impl Into<String>) {
        self.journal.add(self.now, event, subject, node, why.into());
    }

    fn after(&self, span: Span) -> Timestamp {
        self.now.plus(span)
    }
}
