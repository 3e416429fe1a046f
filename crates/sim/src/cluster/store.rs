//! An API server in memory: objects as JSON by kind and name, and the same objects as the control plane sees them.
//!
//! Objects get what an API server gives them (uid, creation time, a version that grows with each write), so that
//! whatever runs on top cannot tell the difference. Deleting pods takes time and is the kubelet's business; here
//! an object is there or it is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kai_control::key::Key;
use kai_control::kinds::ObjectId;
use kai_control::{Object, World};
use kai_engine::units::Timestamp;
use serde_json::{Value, json};

use crate::json::object_at;
use crate::manifest::{Id, Kind};

/// The objects of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Store {
    objects: BTreeMap<Id, Value>,
    /// Objects by the uid of their owners.
    owned: BTreeMap<String, BTreeSet<Id>>,
    world: World,
    /// Counts writes; also the source of uids.
    version: u64,
    /// Everything that changed, for watches; not kept without watches.
    log: Option<BTreeMap<Kind, Log>>,
    /// What controllers cannot read is stored as well, as on a cluster.
    accepts_malformed: bool,
}

/// Changes of a kind.
#[derive(Debug, Default)]
struct Log {
    /// How many changes were compacted, as etcd does with old versions.
    compacted: usize,
    changes: Vec<Change>,
}

/// An object was written, or is gone.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) id: Id,
    pub(crate) value: Option<Arc<Value>>,
}

impl Store {
    /// The objects as the control plane keeps them.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Grows with every change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// From now on every change is kept for watches.
    pub(crate) fn keep_log(&mut self) {
        self.log.get_or_insert_default();
    }

    /// How many changes of a kind there have been since there are watches.
    pub(crate) fn log_end(&self, kind: Kind) -> usize {
        self.log.as_ref().and_then(|log| log.get(&kind)).map_or(0, |log| log.compacted + log.changes.len())
    }

    /// Changes of a kind from a place in the log to another. `None` if the first of them is compacted: a watch that has
    /// come no further has to list again.
    pub(crate) fn changes(&self, kind: Kind, from: usize, to: usize) -> Option<&[Change]> {
        let Some(log) = self.log.as_ref().and_then(|log| log.get(&kind)) else { return Some(&[]) };
        let from = from.checked_sub(log.compacted)?;
        let to = to.saturating_sub(log.compacted).min(log.changes.len());
        Some(log.changes.get(from..to).unwrap_or_default())
    }

    /// Forgets all changes, and keeps the objects.
    pub(crate) fn compact(&mut self) {
        for log in self.log.iter_mut().flat_map(BTreeMap::values_mut) {
            log.compacted += log.changes.len();
            log.changes = Vec::new();
        }
    }

    /// From now on an object that controllers cannot read counts in [`Store::world`] as it does for them: a pod as absent,
    /// anything else as it was before.
    pub(crate) fn accept_malformed(&mut self) {
        self.accepts_malformed = true;
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&Id, &Value)> {
        self.objects.iter()
    }

    pub(crate) fn get(&self, id: &Id) -> Option<&Value> {
        self.objects.get(id)
    }

    /// All objects of a kind, by namespace and name.
    pub(crate) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&Id, &Value)> {
        self.objects.range(Id::cluster(kind, "")..).take_while(move |(id, _)| id.kind == kind)
    }

    /// Objects that name this uid as an owner, by kind and name.
    pub(crate) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Id> {
        self.owned.get(uid).into_iter().flatten()
    }

    /// Adds an object that is not there yet.
    pub(crate) fn create(&mut self, id: Id, mut value: Value, now: Timestamp) {
        assert!(!self.objects.contains_key(&id), "{id} is created twice");
        self.version += 1;
        // Short and in order of creation: uids show up in the names of pod groups, which people read here.
        let uid = format!("{:04}", self.version);
        if let Some(metadata) = object_at(&mut value, &["metadata"]) {
            if id.kind != Kind::Declared {
                metadata.insert("name".to_owned(), json!(id.name));
            }
            if id.kind.namespaced() {
                metadata.insert("namespace".to_owned(), json!(id.namespace));
            }
            metadata.entry("uid").or_insert_with(|| json!(uid));
            metadata.entry("creationTimestamp").or_insert_with(|| json!(write_time(now)));
        }
        if let Some(object) = value.as_object_mut().filter(|_| id.kind != Kind::Declared) {
            object.insert("apiVersion".to_owned(), json!(id.kind.api_version()));
            object.insert("kind".to_owned(), json!(id.kind.name()));
        }
        for owner in owner_uids(&value) {
            self.owned.entry(owner).or_default().insert(id.clone());
        }
        self.keep(id, value);
    }

    /// Changes an object in place; nothing happens if it is gone.
    pub(crate) fn change(&mut self, id: &Id, edit: impl FnOnce(&mut Value)) {
        let Some(mut value) = self.objects.remove(id) else { return };
        self.version += 1;
        for owner in owner_uids(&value) {
            self.forget_owner(&owner, id);
        }
        edit(&mut value);
        for owner in owner_uids(&value) {
            self.owned.entry(owner).or_default().insert(id.clone());
        }
        self.keep(id.clone(), value);
    }

    /// Takes an object out.
    pub(crate) fn remove(&mut self, id: &Id) -> Option<Value> {
        let value = self.objects.remove(id)?;
        self.version += 1;
        for owner in owner_uids(&value) {
            self.forget_owner(&owner, id);
        }
        if let Some(which) = reference(id) {
            self.world.delete(&which);
        }
        if let Some(log) = &mut self.log {
            log.entry(id.kind).or_default().changes.push(Change { id: id.clone(), value: None });
        }
        Some(value)
    }

    fn keep(&mut self, id: Id, mut value: Value) {
        if let Some(metadata) = object_at(&mut value, &["metadata"]) {
            metadata.insert("resourceVersion".to_owned(), json!(self.version.to_string()));
        }
        match (Object::parse(&value), reference(&id)) {
            (Ok(Some(object)), _) => self.world.apply(object),
            (Err(_), Some(which)) if self.accepts_malformed && id.kind == Kind::Pod => drop(self.world.delete(&which)),
            (Err(malformed), _) if !self.accepts_malformed => {
                panic!("{id} was checked when read and only changed in known ways: {malformed}")
            }
            _ => {}
        }
        if let Some(log) = &mut self.log {
            let change = Change { id: id.clone(), value: Some(Arc::new(value.clone())) };
            log.entry(id.kind).or_default().changes.push(change);
        }
        self.objects.insert(id, value);
    }

    fn forget_owner(&mut self, owner: &str, id: &Id) {
        if let Some(owned) = self.owned.get_mut(owner) {
            owned.remove(id);
            if owned.is_empty() {
                self.owned.remove(owner);
            }
        }
    }
}

fn owner_uids(value: &Value) -> Vec<String> {
    let owners = value.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    owners.filter_map(|owner| owner.get("uid")?.as_str().map(str::to_owned)).collect()
}

/// The name of an object in the control plane's tables, if it keeps the kind.
pub(crate) fn reference(id: &Id) -> Option<ObjectId> {
    id.kind.watched().map(|kind| ObjectId::new(kind, Key::new(&*id.namespace, &*id.name)))
}

/// The uid of a stored object.
pub(crate) fn uid(value: &Value) -> &str {
    value.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

/// RFC 3339 in UTC, whole seconds as an API server writes them.
pub(crate) fn write_time(time: Timestamp) -> String {
    let instant = jiff::Timestamp::from_second(time.0.div_euclid(1_000_000));
    instant.expect("virtual time stays within a few centuries of today").to_string()
}
