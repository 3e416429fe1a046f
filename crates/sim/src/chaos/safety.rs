//! Safety: what must hold after every change, whatever faults there are.

use std::collections::BTreeMap;

use kai_control::key::PodKey;
use kai_control::scheduler::{CycleResult, Settings};
use kai_engine::units::Span;
use serde_json::Value;

use crate::checkers::{self, CycleObservation, Violation};
use crate::cluster::{Change, Cluster, Performed, uid};
use crate::manifest::Kind;

/// Checks what has changed since it was last asked.
#[derive(Debug, Default)]
pub(super) struct SafetyMonitor {
    seen: usize,
    /// Where each pod is, by its uid.
    places: BTreeMap<String, String>,
}

impl SafetyMonitor {
    /// Checks what has just changed.
    pub(super) fn check(&mut self, cluster: &Cluster, settings: &Settings, at: Span) -> Result<(), Violation> {
        let log = cluster.store.log(Kind::Pod);
        let mut performed = Performed::default();
        for Change { id, value } in &log[self.seen..] {
            let Some(value) = value else { continue };
            let Some(node) = value.pointer("/spec/nodeName").and_then(Value::as_str) else { continue };
            match self.places.insert(uid(value).to_owned(), node.to_owned()) {
                None => {
                    performed.bound.insert(PodKey::new(&*id.namespace, &*id.name));
                }
                Some(before) if before != node => {
                    let what = format!("{id} was on {before} and is on {node}");
                    return Err(Violation { invariant: "no pod is bound twice", what, at });
                }
                Some(_) => {}
            }
        }
        self.seen = log.len();
        let (world, cycle) = (cluster.world(), &CycleResult::default());
        checkers::check_room(&CycleObservation { world, settings, cycle, performed: &performed, now: cluster.now }, at)
    }
}
