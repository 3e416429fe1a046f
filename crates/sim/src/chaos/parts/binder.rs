//! The binder: carries requests out as their steps become possible.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kai_control::binder::{BindEffect, Binder, Plan, Settings};
use kai_control::world::Key;
use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::{Clock, End, Part, Task, key_of};
use crate::cluster::{Call, Refusal, Store};
use crate::manifest::{Id, Kind};

const KINDS: [Kind; 3] = [Kind::BindRequest, Kind::Pod, Kind::Node];

/// How often reservations are looked after even if nothing seems to happen.
const SYNC_PERIOD: Span = Span::seconds(30);

/// Before the rest is written of a bind that is done.
const PAUSE: Span = Span::seconds(1);

pub(in crate::chaos) struct BinderPart {
    binder: Binder,
    /// Requests to look at, and when by the clock.
    due: BTreeMap<Key, Timestamp>,
    /// Requests whose effects are under way; with its uid if these are the last ones.
    busy: BTreeMap<Key, Option<String>>,
    /// Requests that were carried out or given up, by uid: a watch may not show it yet.
    over: BTreeMap<Key, String>,
    /// Attempts that failed, to be taken back.
    failed: Vec<(Key, String)>,
    /// Shared GPUs to look after.
    touched: BTreeSet<String>,
    synced: Option<Timestamp>,
}

impl BinderPart {
    pub(in crate::chaos) fn new() -> Self {
        Self {
            binder: Binder::new(Settings::default()),
            due: BTreeMap::new(),
            busy: BTreeMap::new(),
            over: BTreeMap::new(),
            failed: Vec::new(),
            touched: BTreeSet::new(),
            synced: None,
        }
    }

    fn pod_changed(&mut self, pod: &Key, groups: Vec<String>, now: Timestamp) {
        self.due.extend(self.binder.requests_about(pod, &groups).into_iter().map(|request| (request, now)));
        self.touched.extend(groups);
    }

    fn start_all(&mut self, about: Key, plan: Plan, tasks: &mut Vec<Task>) {
        if let Some(again) = plan.again {
            self.due.insert(about.clone(), again);
        }
        if !plan.effects.is_empty() {
            // What ends an attempt is done as far as it goes.
            let stubborn = plan.effects.iter().any(|effect| matches!(effect, BindEffect::Tell { bound: false, .. }));
            let last = plan.is_last().then(|| self.binder.open_uid(&about).unwrap_or_default().to_owned());
            self.busy.insert(about.clone(), last);
            tasks.push(Task { about, calls: plan.effects.into_iter().map(Call::Bind).collect(), stubborn });
        }
    }
}

impl Part for BinderPart {
    fn kinds(&self) -> &'static [Kind] {
        &KINDS
    }

    fn applied(&mut self, id: &Id, value: &Rc<Value>, clock: Clock) {
        let key = key_of(id);
        match id.kind {
            Kind::BindRequest => {
                if let Ok(key) = self.binder.apply_request(value) {
                    self.due.insert(key, clock.wall);
                }
            }
            Kind::Pod => {
                if let Ok(groups) = self.binder.apply_pod(value) {
                    self.pod_changed(&key, groups, clock.wall);
                }
            }
            _ => {
                let _ = self.binder.apply_node(value);
            }
        }
    }

    fn deleted(&mut self, id: &Id, clock: Clock) {
        let key = key_of(id);
        match id.kind {
            Kind::BindRequest => {
                self.touched.extend(self.binder.delete_request(&key));
                self.due.remove(&key);
                self.over.remove(&key);
            }
            Kind::Pod => {
                let groups = self.binder.delete_pod(&key);
                self.pod_changed(&key, groups, clock.wall);
            }
            _ => self.binder.delete_node(&key.name),
        }
    }

    fn act(&mut self, _: Option<&Store>, clock: Clock) -> Vec<Task> {
        let mut tasks = Vec::new();
        if self.synced.is_none_or(|at| at.plus(SYNC_PERIOD) <= clock.steady) {
            self.synced = Some(clock.steady);
            self.touched.extend(self.binder.groups());
        }
        for group in std::mem::take(&mut self.touched) {
            for effect in self.binder.sync(&group) {
                tasks.push(Task { about: Key::default(), calls: vec![Call::Bind(effect)], stubborn: true });
            }
        }
        for (request, why) in std::mem::take(&mut self.failed) {
            let plan = self.binder.failed(&request, &why, clock.wall);
            self.start_all(request, plan, &mut tasks);
        }
        let ready = |(request, at): (&Key, &Timestamp)| {
            (*at <= clock.wall && !self.busy.contains_key(request)).then(|| request.clone())
        };
        let due: Vec<Key> = self.due.iter().filter_map(ready).collect();
        for request in due {
            self.due.remove(&request);
            if self.over.get(&request).map(String::as_str) == self.binder.open_uid(&request) {
                continue;
            }
            let plan = self.binder.plan(&request, clock.wall);
            self.start_all(request, plan, &mut tasks);
        }
        tasks
    }

    fn finished(&mut self, end: End, clock: Clock) {
        for call in &end.task.calls[..end.done] {
            if let Call::Bind(BindEffect::DeletePod { pod, .. }) = call {
                self.binder.is_gone(pod);
            }
        }
        let request = end.task.about;
        let Some(last) = self.busy.remove(&request) else { return };
        let binds = |call: &Call| matches!(call, Call::Bind(BindEffect::Bind { .. }));
        let bound = end.task.calls[..end.done].iter().any(binds);
        match end.refusal {
            None => self.over.extend(last.map(|uid| (request, uid))),
            Some(_) if bound || end.task.stubborn => {
                self.due.insert(request, clock.wall.plus(PAUSE));
            }
            Some(refusal) => {
                let why = match refusal {
                    Refusal::Failed(why) => why,
                    Refusal::Outrun => "somebody else was faster".to_owned(),
                };
                self.failed.push((request, why));
            }
        }
    }

    fn next(&self, clock: Clock) -> Option<Timestamp> {
        let sync = self.synced.map_or(clock.steady, |at| at.plus(SYNC_PERIOD));
        if !self.failed.is_empty() || !self.touched.is_empty() {
            return Some(clock.steady);
        }
        let idle = self.due.iter().filter(|(request, _)| !self.busy.contains_key(*request));
        let due = idle.map(|(_, at)| clock.steady.plus(at.since(clock.wall))).min();
        Some(due.map_or(sync, |due| due.min(sync)))
    }
}
