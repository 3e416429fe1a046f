//! When the binder looks at what, and what it has under way: the same on a cluster and in the simulator.
//!
//! A shell shows it what watches show, starts the jobs it names, and tells how they ended. Jobs run side by side, but
//! never two for the same request, and never two that create or delete the same pod: calls may arrive in another order
//! than they were made, and a reservation that is created after it was deleted holds its GPU for nobody.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::{BindEffect, Binder, Plan, Settings};
use crate::bind_batch;
use crate::calendar::Calendar;
use crate::key::{Key, PodKey};

/// Kinds that the binder follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Followed {
    Requests,
    Pods,
    Nodes,
    VolumeClaims,
    Volumes,
    StorageClasses,
}

/// Effects to be performed one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The request it is about, if it is about one.
    pub request: Option<Key>,
    pub effects: Vec<BindEffect>,
    /// Whether to go on after an effect that failed.
    pub stubborn: bool,
}

/// How a job ended.
#[derive(Debug)]
pub struct Ended {
    pub job: Job,
    /// Effects that were performed, or tried by a stubborn one.
    pub done: usize,
    /// Those of them that failed.
    pub refused: BTreeMap<usize, Refusal>,
}

/// Why an effect failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There was no answer: it may have been done all the same.
    Unclear(String),
    Refused(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Unclear(why) | Self::Refused(why)) = self;
        out.write_str(why)
    }
}

impl Ended {
    fn performed(&self) -> impl Iterator<Item = &BindEffect> {
        let tried = self.job.effects.iter().enumerate().take(self.done);
        tried.filter(|(at, _)| !self.refused.contains_key(at)).map(|(_, effect)| effect)
    }
}

/// How often reservations should be looked after even if nothing seems to happen.
pub const SYNC_PERIOD: Span = Span::seconds(30);

/// Before the rest is written of a bind that is done.
const PAUSE: Span = Span::seconds(1);

/// So long a batch is kept after the last of its requests was carried out.
const TIDY: Span = Span::seconds(20);

/// The binder, and what it is about to do.
#[derive(Debug, Default)]
pub struct Agenda {
    binder: Binder,
    /// Batches of requests, and since when all of each is done.
    batches: BTreeMap<Key, Option<Timestamp>>,
    /// When to look at requests.
    calendar: Calendar,
    /// Requests whose attempt was written to have ended, and the version it was about: a watch may not show it yet.
    over: BTreeMap<Key, String>,
    /// How requests ended that could not be told so.
    unwritten: BTreeMap<Key, Vec<BindEffect>>,
    /// Requests that failed and will be tried again: since when, and when. Whatever a watch shows is no reason to hurry.
    resting: BTreeMap<Key, (Timestamp, Timestamp)>,
    /// Attempts that failed, to be taken back.
    failed: Vec<(Key, String)>,
    /// Pods that a job under way creates or deletes.
    moving: BTreeSet<PodKey>,
    /// What waits until nobody moves the pod any more.
    waiting: BTreeMap<PodKey, Waiting>,
    /// Shared GPUs to look after.
    touched: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: BTreeSet<Key>,
    groups: BTreeSet<String>,
}

impl Agenda {
    pub fn new(settings: Settings) -> Self {
        Self { binder: Binder::new(settings), ..Self::default() }
    }

    /// A watch shows an object.
    pub fn see(&mut self, kind: Followed, value: &Value, now: Timestamp) -> Result<(), String> {
        match kind {
            Followed::Requests if bind_batch::is_batch(value) => self.see_batch(value, now)?,
            Followed::Requests => {
                let request = self.binder.apply_request(value)?;
                self.calendar.look_at(request, now);
            }
            Followed::Pods => {
                let groups = self.binder.apply_pod(value)?;
                self.pod_changed(&Key::of(value), groups, now);
            }
            Followed::Nodes => self.binder.apply_node(value)?,
            Followed::Volumes => self.binder.apply_volume(value)?,
            Followed::StorageClasses => self.binder.apply_storage_class(value)?,
            Followed::VolumeClaims => {
                self.binder.apply_volume_claim(value)?;
                for request in self.binder.open_requests_in(&Key::of(value).namespace) {
                    self.calendar.look_at(request, now);
                }
            }
        }
        Ok(())
    }

    /// A watch shows that an object is gone.
    pub fn lose(&mut self, kind: Followed, key: &Key, now: Timestamp) {
        match kind {
            Followed::Requests => {
                if self.batches.remove(key).is_some() {
                    for request in self.binder.requests_in(key) {
                        self.lose(kind, &request, now);
                    }
                }
                self.touched.extend(self.binder.delete_request(key));
                self.calendar.forget(key);
                self.over.remove(key);
                self.unwritten.remove(key);
                self.resting.remove(key);
            }
            Followed::Pods => {
                let groups = self.binder.delete_pod(key);
                self.pod_changed(key, groups, now);
            }
            Followed::Nodes => self.binder.delete_node(&key.name),
            Followed::VolumeClaims => self.binder.delete_volume_claim(key),
            Followed::Volumes => self.binder.delete_volume(&key.name),
            Followed::StorageClasses => self.binder.delete_storage_class(&key.name),
        }
    }

    fn see_batch(&mut self, value: &Value, now: Timestamp) -> Result<(), String> {
        let batch = Key::of(value);
        let mut gone: BTreeSet<Key> = self.binder.requests_in(&batch).into_iter().collect();
        for request in bind_batch::unpack(value) {
            let request = self.binder.apply_request(&request)?;
            if !gone.remove(&request) {
                self.calendar.look_at(request, now);
            }
        }
        for request in gone {
            self.lose(Followed::Requests, &request, now);
        }
        if let Entry::Vacant(new) = self.batches.entry(batch) {
            self.calendar.look_at(new.key().clone(), now.plus(TIDY));
            new.insert(None);
        }
        Ok(())
    }

    /// Removes a batch of which everything is done for a while: others may not have seen yet that it is.
    fn tidy(&mut self, batch: Key, now: Timestamp, jobs: &mut Vec<Job>) {
        let settled = self.binder.requests_in(&batch).iter().all(|request| self.binder.is_settled(request));
        let Some(since) = self.batches.get_mut(&batch) else { return };
        // A clock that was set back begins anew.
        let known = since.filter(|since| settled && *since <= now);
        *since = settled.then(|| known.unwrap_or(now));
        self.calendar.look_at(batch.clone(), now.plus(TIDY));
        if known.is_some_and(|since| now.since(since) >= TIDY) {
            self.start(None, vec![BindEffect::DeleteRequest(batch)], true, jobs);
        }
    }

    /// Requests that are not carried out yet.
    pub fn open(&self) -> usize {
        self.binder.open_requests().count()
    }

    /// Looks after all reservations: none without users, no users without one.
    pub fn look_after_all(&mut self) {
        self.touched.extend(self.binder.groups());
    }

    /// When there will be something to do even if nothing is seen.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.failed.is_empty() || !self.touched.is_empty() {
            return Some(now);
        }
        self.calendar.next()
    }

    /// What to start now. Everything the binder follows must have been listed: a pod that has not been listed yet is not
    /// a missing one.
    pub fn jobs(&mut self, now: Timestamp) -> Vec<Job> {
        let mut jobs = Vec::new();
        for group in std::mem::take(&mut self.touched) {
            for effect in self.binder.sync(&group, now) {
                if let Some(pod) = self.held_up(&effect) {
                    self.waiting.entry(pod).or_default().groups.insert(group.clone());
                    continue;
                }
                self.start(None, vec![effect], true, &mut jobs);
            }
        }
        for (request, why) in std::mem::take(&mut self.failed) {
            let mut plan = self.binder.failed(&request, &why, now);
            // Whoever moves a reservation looks after it.
            plan.effects.retain(|effect| self.held_up(effect).is_none());
            self.resting.extend(plan.again.map(|again| (request.clone(), (now, again))));
            self.start_plan(request, plan, true, &mut jobs);
        }
        while let Some(request) = self.calendar.take(now) {
            if self.batches.contains_key(&request) {
                self.tidy(request, now, &mut jobs);
                continue;
            }
            let seen = self.binder.version(&request);
            if seen.is_some() && self.over.get(&request).map(String::as_str) == seen {
                // Until a watch shows it, what is done would be planned once more.
                continue;
            }
            // A clock that was set back ends the rest.
            if let Some((_, until)) =
                self.resting.remove(&request).filter(|(since, until)| (since..until).contains(&&now))
            {
                self.resting.insert(request.clone(), (now, until));
                self.calendar.look_at(request, until);
                continue;
            }
            let end = self.unwritten.remove(&request);
            if let Some(end) = end.filter(|end| end.iter().find_map(written) == seen) {
                self.start_plan(request, Plan { effects: end, ..Plan::default() }, true, &mut jobs);
                continue;
            }
            let plan = self.binder.plan(&request, now);
            // What it was promised may be gone in a moment.
            let deleted = || self.binder.reservations_for(&request).find(|pod| self.moving.contains(*pod)).cloned();
            if let Some(pod) = plan.effects.iter().find_map(|effect| self.held_up(effect)).or_else(deleted) {
                self.binder.not_bound(&plan.effects);
                self.waiting.entry(pod).or_default().requests.insert(request);
                continue;
            }
            let gives_up = plan.effects.iter().any(|effect| matches!(effect, BindEffect::Tell { bound: false, .. }));
            let again = plan.again.map(|again| again.max(now.plus(Span(1))));
            self.start_plan(request, Plan { again, ..plan }, gives_up, &mut jobs);
        }
        jobs
    }

    /// A job has come to its end.
    pub fn ended(&mut self, ended: Ended, now: Timestamp) {
        for effect in ended.performed() {
            if let BindEffect::DeletePod { pod, uid, .. } = effect {
                self.binder.is_gone(pod, uid);
            }
        }
        let Ended { job: Job { request, mut effects, .. }, done, mut refused } = ended;
        for pod in effects.iter().filter_map(moved) {
            self.moving.remove(&pod);
            let Some(Waiting { requests, groups }) = self.waiting.remove(&pod) else { continue };
            self.touched.extend(groups);
            for request in requests {
                self.calendar.look_at(request, now);
            }
        }
        let Some(request) = request else { return };
        self.calendar.end(&request);
        if let Some(at) = effects.iter().position(|effect| matches!(effect, BindEffect::Bind { .. })) {
            match refused.get(&at) {
                Some(Refusal::Unclear(_)) => self.binder.maybe_bound(&effects, now),
                None if at < done => {}
                _ => self.binder.not_bound(&effects),
            }
        }
        let end = effects.iter().position(|effect| written(effect).is_some());
        if let Some(at) = end.filter(|at| refused.contains_key(at)) {
            // It cannot end otherwise any more. If only the answer was lost, a watch will show it.
            self.unwritten.insert(request.clone(), effects.split_off(at));
            self.calendar.look_at(request, now.plus(PAUSE));
        } else if let Some(at) = end.filter(|at| *at < done) {
            self.over.extend(written(&effects[at]).map(|version| (request, version.to_owned())));
        } else if let Some((at, refusal)) = refused.pop_first() {
            let binds = matches!(effects[at], BindEffect::Bind { .. });
            if binds && matches!(refusal, Refusal::Unclear(_)) {
                // The pod may have its node. As long as that is not clear nobody else may get its room.
                self.calendar.look_at(request, now.plus(PAUSE));
            } else {
                self.failed.push((request, refusal.to_string()));
            }
        }
    }

    fn pod_changed(&mut self, pod: &Key, groups: Vec<String>, now: Timestamp) {
        for request in self.binder.requests_about(pod, &groups) {
            self.calendar.look_at(request, now);
        }
        self.touched.extend(groups);
    }

    /// The pod that the effect would create or delete while a job under way does so.
    fn held_up(&self, effect: &BindEffect) -> Option<PodKey> {
        moved(effect).filter(|pod| self.moving.contains(pod))
    }

    fn start_plan(&mut self, request: Key, plan: Plan, stubborn: bool, jobs: &mut Vec<Job>) {
        if let Some(again) = plan.again {
            self.calendar.look_at(request.clone(), again);
        }
        if plan.effects.is_empty() {
            return;
        }
        self.calendar.begin(request.clone());
        self.start(Some(request), plan.effects, stubborn, jobs);
    }

    fn start(&mut self, request: Option<Key>, effects: Vec<BindEffect>, stubborn: bool, jobs: &mut Vec<Job>) {
        self.moving.extend(effects.iter().filter_map(moved));
        jobs.push(Job { request, effects, stubborn });
    }
}

/// The version of the request that the effect says has ended.
fn written(effect: &BindEffect) -> Option<&str> {
    match effect {
        BindEffect::SetPhase { version, .. } => Some(version),
        _ => None,
    }
}

/// The pod that the effect creates or deletes.
fn moved(effect: &BindEffect) -> Option<PodKey> {
    match effect {
        BindEffect::CreatePod(pod) => Some(Key::of(pod)),
        BindEffect::DeletePod { pod, .. } => Some(pod.clone()),
        _ => None,
    }
}
