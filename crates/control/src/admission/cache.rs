//! Queues and namespaces, and the pods and pod groups in them: what the webhooks compare a queue with that is changed or
//! deleted, and of which they ask whether one may use the other.

use std::sync::Arc;

use kai_engine::units::Timestamp;
use serde_json::Value;

use crate::controller::{Clock, Controller, FieldSelector, LeftOut, Output, Skipped, WatchSpec, WorkResult};
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
        let all = [Kind::PodGroup, Kind::Queue, Kind::Namespace].map(WatchSpec::all);
        [WatchSpec::with(Kind::Pod, working)].into_iter().chain(all).collect()
    }

    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, _: Clock) -> Vec<Skipped> {
        match Object::parse_as(kind, object) {
            Ok(object) => {
                self.world.apply(object);
                Vec::new()
            }
            // A malformed object counts as it was before, or as absent: it must not keep the others from being seen.
            Err(malformed) => {
                let key = Key::of(object);
                let known = self.world.contains(&ObjectId::new(kind, key.clone()));
                vec![Skipped::malformed(if known { LeftOut::Change } else { LeftOut::Object }, kind, key, &malformed)]
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
