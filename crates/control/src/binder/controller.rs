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
use crate::controller::WorkQueue;
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
pub const RESYNC_PERIOD: Span = Span::seconds(30);

/// Before the rest is written of a bind that is done.
const CALL_RETRY_DELAY: Span = Span::seconds(1);

/// So long a batch is kept after the last of its requests was carried out.
const BATCH_RETENTION: Span = Span::seconds(20);

/// The binder, and what it is about to do.
#[derive(Debug, Default)]
pub struct BinderController {
    binder: Binder,
    /// Batches of requests, and since when all of each is done.
    batches: BTreeMap<Key, Option<Timestamp>>,
    /// When to look at requests.
    queue: WorkQueue,
    /// Requests whose attempt was written to have ended, and the version it was about: a watch may not show it yet.
    finished_versions: BTreeMap<Key, String>,
    /// How requests ended that could not be told so.
    unwritten_status: BTreeMap<Key, Vec<BindEffect>>,
    /// Requests that failed and will be tried requeue_at: since when, and when. Whatever a watch shows is no reason to hurry.
    backing_off: BTreeMap<Key, (Timestamp, Timestamp)>,
    /// Attempts that failed, to be taken back.
    failed_attempts: Vec<(Key, String)>,
    /// Pods that a job under way creates or deletes.
    pods_in_flight: BTreeSet<PodKey>,
    /// What waits until nobody moves the pod any more.
    blocked_on_pod: BTreeMap<PodKey, Blocked>,
    /// Shared GPUs to look after.
    dirty_gpu_groups: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Blocked {
    requests: BTreeSet<Key>,
    groups: BTreeSet<String>,
}

impl BinderController {
    pub fn new(settings: Settings) -> Self {
        Self { binder: Binder::new(settings), ..Self::default() }
    }

    /// A watch shows an object.
    pub fn see(&mut self, kind: Followed, value: &Value, now: Timestamp) -> Result<(), String> {
        match kind {
            Followed::Requests if bind_batch::is_batch(value) => self.see_batch(value, now)?,
            Followed::Requests => {
                let request = self.binder.apply_request(value)?;
                self.queue.schedule_at(request, now);
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
                for request in self.binder.pending_requests_in(&Key::of(value).namespace) {
                    self.queue.schedule_at(request, now);
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
                self.dirty_gpu_groups.extend(self.binder.delete_request(key));
                self.queue.remove(key);
                self.finished_versions.remove(key);
                self.unwritten_status.remove(key);
                self.backing_off.remove(key);
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
                self.queue.schedule_at(request, now);
            }
        }
        for request in gone {
            self.lose(Followed::Requests, &request, now);
        }
        if let Entry::Vacant(new) = self.batches.entry(batch) {
            self.queue.schedule_at(new.key().clone(), now.plus(BATCH_RETENTION));
            new.insert(None);
        }
        Ok(())
    }

    /// Removes a batch of which everything is done for a while: others may not have seen yet that it is.
    fn collect_batch(&mut self, batch: Key, now: Timestamp, jobs: &mut Vec<Job>) {
        let settled = self.binder.requests_in(&batch).iter().all(|request| self.binder.is_settled(request));
        let Some(since) = self.batches.get_mut(&batch) else { return };
        // A clock that was set back begins anew.
        let known = since.filter(|since| settled && *since <= now);
        *since = settled.then(|| known.unwrap_or(now));
        self.queue.schedule_at(batch.clone(), now.plus(BATCH_RETENTION));
        if known.is_some_and(|since| now.since(since) >= BATCH_RETENTION) {
            self.start(None, vec![BindEffect::DeleteRequest(batch)], true, jobs);
        }
    }

    /// Requests that are not carried out yet.
    pub fn pending_count(&self) -> usize {
        self.binder.pending_requests().count()
    }

    /// Looks after all reservations: none without users, no users without one.
    pub fn resync(&mut self) {
        self.dirty_gpu_groups.extend(self.binder.groups());
    }

    /// When there will be something to do even if nothing is seen.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.failed_attempts.is_empty() || !self.dirty_gpu_groups.is_empty() {
            return Some(now);
        }
        self.queue.next_due()
    }

    /// What to start now. Everything the binder follows must have been listed: a pod that has not been listed yet is not
    /// a missing one.
    pub fn jobs(&mut self, now: Timestamp) -> Vec<Job> {
        let mut jobs = Vec::new();
        for group in std::mem::take(&mut self.dirty_gpu_groups) {
            for effect in self.binder.sync_gpu_group(&group, now) {
                if let Some(pod) = self.blocked_by(&effect) {
                    self.blocked_on_pod.entry(pod).or_default().groups.insert(group.clone());
                    continue;
                }
                self.start(None, vec![effect], true, &mut jobs);
            }
        }
        for (request, why) in std::mem::take(&mut self.failed_attempts) {
            let mut plan = self.binder.failed(&request, &why, now);
            // Whoever moves a reservation looks after it.
            plan.effects.retain(|effect| self.blocked_by(effect).is_none());
            self.backing_off.extend(plan.requeue_at.map(|again| (request.clone(), (now, again))));
            self.start_plan(request, plan, true, &mut jobs);
        }
        while let Some(request) = self.queue.pop_due(now) {
            if self.batches.contains_key(&request) {
                self.collect_batch(request, now, &mut jobs);
                continue;
            }
            let seen = self.binder.version(&request);
            if seen.is_some() && self.finished_versions.get(&request).map(String::as_str) == seen {
                // Until a watch shows it, what is done would be planned once more.
                continue;
            }
            // A clock that was set back ends the rest.
            if let Some((_, until)) =
                self.backing_off.remove(&request).filter(|(since, until)| (since..until).contains(&&now))
            {
                self.backing_off.insert(request.clone(), (now, until));
                self.queue.schedule_at(request, until);
                continue;
            }
            let end = self.unwritten_status.remove(&request);
            if let Some(end) = end.filter(|end| end.iter().find_map(finishes_version) == seen) {
                self.start_plan(request, Plan { effects: end, ..Plan::default() }, true, &mut jobs);
                continue;
            }
            let plan = self.binder.plan(&request, now);
            // What it was promised may be gone in a moment.
            let deleted =
                || self.binder.reservations_for(&request).find(|pod| self.pods_in_flight.contains(*pod)).cloned();
            if let Some(pod) = plan.effects.iter().find_map(|effect| self.blocked_by(effect)).or_else(deleted) {
                self.binder.forget_bind(&plan.effects);
                self.blocked_on_pod.entry(pod).or_default().requests.insert(request);
                continue;
            }
            let gives_up =
                plan.effects.iter().any(|effect| matches!(effect, BindEffect::ReportResult { bound: false, .. }));
            let again = plan.requeue_at.map(|again| again.max(now.plus(Span(1))));
            self.start_plan(request, Plan { requeue_at: again, ..plan }, gives_up, &mut jobs);
        }
        jobs
    }

    /// A job has come to its end.
    pub fn ended(&mut self, ended: Ended, now: Timestamp) {
        for effect in ended.performed() {
            if let BindEffect::DeletePod { pod, uid, .. } = effect {
                self.binder.assume_deleted(pod, uid);
            }
        }
        let Ended { job: Job { request, mut effects, .. }, done, mut refused } = ended;
        for pod in effects.iter().filter_map(pod_written_by) {
            self.pods_in_flight.remove(&pod);
            let Some(Blocked { requests, groups }) = self.blocked_on_pod.remove(&pod) else { continue };
            self.dirty_gpu_groups.extend(groups);
            for request in requests {
                self.queue.schedule_at(request, now);
            }
        }
        let Some(request) = request else { return };
        self.queue.done(&request);
        if let Some(at) = effects.iter().position(|effect| matches!(effect, BindEffect::Bind { .. })) {
            match refused.get(&at) {
                Some(Refusal::Unclear(_)) => self.binder.mark_bind_unknown(&effects, now),
                None if at < done => {}
                _ => self.binder.forget_bind(&effects),
            }
        }
        let end = effects.iter().position(|effect| finishes_version(effect).is_some());
        if let Some(at) = end.filter(|at| refused.contains_key(at)) {
            // It cannot end otherwise any more. If only the answer was lost, a watch will show it.
            self.unwritten_status.insert(request.clone(), effects.split_off(at));
            self.queue.schedule_at(request, now.plus(CALL_RETRY_DELAY));
        } else if let Some(at) = end.filter(|at| *at < done) {
            self.finished_versions.extend(finishes_version(&effects[at]).map(|version| (request, version.to_owned())));
        } else if let Some((at, refusal)) = refused.pop_first() {
            let binds = matches!(effects[at], BindEffect::Bind { .. });
            if binds && matches!(refusal, Refusal::Unclear(_)) {
                // The pod may have its node. As long as that is not clear nobody else may get its room.
                self.queue.schedule_at(request, now.plus(CALL_RETRY_DELAY));
            } else {
                self.failed_attempts.push((request, refusal.to_string()));
            }
        }
    }

    fn pod_changed(&mut self, pod: &Key, groups: Vec<String>, now: Timestamp) {
        for request in self.binder.requests_about(pod, &groups) {
            self.queue.schedule_at(request, now);
        }
        self.dirty_gpu_groups.extend(groups);
    }

    /// The pod that the effect would create or delete while a job under way does so.
    fn blocked_by(&self, effect: &BindEffect) -> Option<PodKey> {
        pod_written_by(effect).filter(|pod| self.pods_in_flight.contains(pod))
    }

    fn start_plan(&mut self, request: Key, plan: Plan, stubborn: bool, jobs: &mut Vec<Job>) {
        if let Some(again) = plan.requeue_at {
            self.queue.schedule_at(request.clone(), again);
        }
        if plan.effects.is_empty() {
            return;
        }
        self.queue.start(request.clone());
        self.start(Some(request), plan.effects, stubborn, jobs);
    }

    fn start(&mut self, request: Option<Key>, effects: Vec<BindEffect>, stubborn: bool, jobs: &mut Vec<Job>) {
        self.pods_in_flight.extend(effects.iter().filter_map(pod_written_by));
        jobs.push(Job { request, effects, stubborn });
    }
}

/// The version of the request that the effect says has ended.
fn finishes_version(effect: &BindEffect) -> Option<&str> {
    match effect {
        BindEffect::SetPhase { version, .. } => Some(version),
        _ => None,
    }
}

/// The pod that the effect creates or deletes.
fn pod_written_by(effect: &BindEffect) -> Option<PodKey> {
    match effect {
        BindEffect::CreatePod(pod) => Some(Key::of(pod)),
        BindEffect::DeletePod { pod, .. } => Some(pod.clone()),
        _ => None,
    }
}
