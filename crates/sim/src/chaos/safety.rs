//! Safety: what must hold after every change, whatever faults there are. There are two oracles: the checkers, which count
//! what controllers read of the objects as they are, and `holdings.rs`, which counts what containers really have.

use std::collections::BTreeMap;

use kai_control::key::PodKey;
use kai_control::scheduler::{CycleResult, Settings};
use kai_engine::units::Span;
use serde_json::Value;

use super::holdings::Holdings;
use crate::checkers::{self, CycleObservation, Violation};
use crate::cluster::{Change, Cluster, Performed, uid};
use crate::manifest::{Id, Kind};

/// Checks what has changed since it was last asked.
#[derive(Debug, Default)]
pub(super) struct SafetyMonitor {
    seen: usize,
    /// Where each pod is, and its uid.
    places: BTreeMap<Id, (String, String)>,
    pub(super) holdings: Holdings,
    /// A tenant changes what running pods say about themselves: only what they have counts.
    pub(super) hostile: bool,
}

impl SafetyMonitor {
    pub(super) fn new(hostile: bool) -> Self {
        Self { hostile, ..Self::default() }
    }

    /// Checks what has just changed.
    pub(super) fn check(&mut self, cluster: &Cluster, settings: &Settings, at: Span) -> Result<(), Violation> {
        let end = cluster.store.log_end(Kind::Pod);
        let changes = cluster.store.changes(Kind::Pod, self.seen, end).expect("read before it is compacted");
        let mut performed = Performed::default();
        for Change { id, value } in changes {
            let Some(value) = value.as_deref() else {
                self.places.remove(id);
                continue;
            };
            let Some(node) = value.pointer("/spec/nodeName").and_then(Value::as_str) else { continue };
            let place = (uid(value).to_owned(), node.to_owned());
            match self.places.insert(id.clone(), place.clone()) {
                Some((before, was_on)) if before == place.0 && was_on != node => {
                    let what = format!("{id} was on {was_on} and is on {node}");
                    return Err(Violation { invariant: "no pod is bound twice", what, at });
                }
                Some((before, _)) if before == place.0 => {}
                _ => {
                    performed.bound.insert(PodKey::new(&*id.namespace, &*id.name));
                }
            }
        }
        self.seen = end;
        if !self.hostile {
            let (world, cycle, now) = (cluster.world(), &CycleResult::default(), cluster.now);
            checkers::check_room(&CycleObservation { world, settings, cycle, performed: &performed, now }, at)?;
        }
        self.holdings.check(&cluster.store, at)
    }
}
