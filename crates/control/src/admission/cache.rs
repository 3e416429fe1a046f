//! Queues, and the pods and pod groups in them: what the webhooks compare a queue with that is changed or deleted.

use std::sync::Arc;

use kai_engine::units::Timestamp;
use serde_json::Value;

use crate::controller::{Clock, Controller, FieldSelector, Output, Skipped, WatchSpec, WorkResult};
use crate::key::Key;
use crate::kinds::{Kind, Object, ObjectId};
use crate::world::World;

/// Keeps what watches show, and writes nothing.
#[derive(Debug)]
pub struct AdmissionCache {
    scheduler_name: String,
    pub world: World,
}

impl AdmissionCache {
    /// For pods of this scheduler.
    pub fn new(scheduler_name: &str) -> Self {
        Self { scheduler_name: scheduler_name.to_owned(), world: World::default() }
    }
}

impl Controller for AdmissionCache {
    fn watches(&self) -> Vec<WatchSpec> {
        let working = FieldSelector::working(&self.scheduler_name);
        vec![WatchSpec::with(Kind::Pod, working), WatchSpec::all(Kind::PodGroup), WatchSpec::all(Kind::Queue)]
    }

    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, now: Clock) -> Vec<Skipped> {
        match Object::parse_as(kind, object) {
            Ok(object) => {
                self.world.apply(object);
                Vec::new()
            }
            // A malformed object counts as absent: it must not keep the others from being seen.
            Err(malformed) => {
                let key = Key::of(object);
                self.on_delete(kind, &key, now);
                vec![Skipped { hint: malformed.hint.clone(), ..Skipped::new(kind, key, malformed.to_string()) }]
            }
        }
    }

    fn on_delete(&mut self, kind: Kind, key: &Key, _: Clock) {
        self.world.delete(&ObjectId::new(kind, key.clone()));
    }

    fn poll(&mut self, _: Clock) -> Output {
        Output::default()
    }

    fn on_result(&mut self, _: WorkResult, _: Clock) {}

    fn next_poll(&self, _: Clock) -> Option<Timestamp> {
        None
    }

    fn size(&self) -> usize {
        self.world.pods.len() + self.world.pod_groups.len() + self.world.queues.len()
    }
}
