//! The binder's controller: cache, work queue and work in flight.
//!
//! Work items run side by side, but never two for the same request, and never two that create or delete the same pod:
//! calls may arrive in another order than they were made, and a reservation that is created after it was deleted holds
//! its GPU without users.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kai_engine::units::{Span, Timestamp};
use serde_json::Value;

use super::{BindEffect, Binder, Plan, Settings};
use crate::bind_batch;
use crate::controller::{
    ApiCall, Assumed, CallError, Clock, Controller, OnError, Output, Skipped, WatchSpec, WorkItem, WorkKey, WorkQueue,
    WorkResult, WritePriority,
};
use crate::key::{Key, PodKey};
use crate::kinds::Kind;

/// Calls of the binder before they are put among those of others.
pub(super) type Work = WorkItem<BindEffect>;

/// How often all shared GPUs are checked even if nothing changes.
const RESYNC_PERIOD: Span = Span::seconds(30);

/// Before a call is made again whose outcome is final, or unknown.
const CALL_RETRY_DELAY: Span = Span::seconds(1);

/// How long a batch is kept after the last of its requests was carried out.
const BATCH_RETENTION: Span = Span::seconds(20);

/// The binder as a [`Controller`].
#[derive(Debug, Default)]
pub struct BinderController {
    binder: Binder,
    /// Batches of requests, and since when all requests of each are done.
    batches: BTreeMap<Key, Option<Timestamp>>,
    /// When to reconcile requests.
    queue: WorkQueue,
    /// Requests with a final status written, by the resourceVersion it was based on. While the cache still has that
    /// version, the request is not planned again.
    finished_versions: Assumed<Key, String>,
    /// Calls from the final status on of requests for which it could not be written.
    unwritten_status: BTreeMap<Key, Vec<BindEffect>>,
    /// Backoff of requests: failed at, retry at. Watch events do not shorten it.
    backing_off: BTreeMap<Key, (Timestamp, Timestamp)>,
    /// Attempts that failed, to be written as such.
    failed_attempts: Vec<(Key, String)>,
    /// Pods that work in flight creates or deletes.
    pods_in_flight: BTreeSet<PodKey>,
    /// What waits until no work in flight creates or deletes the pod.
    blocked_on_pod: BTreeMap<PodKey, Blocked>,
    /// Shared GPUs to check.
    dirty_gpu_groups: BTreeSet<String>,
    /// When all shared GPUs were last checked, by the steady clock.
    resynced: Option<Timestamp>,
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

    pub(super) fn apply(&mut self, kind: Kind, value: &Value, now: Timestamp) -> Result<(), String> {
        match kind {
            Kind::BindRequest if bind_batch::is_batch(value) => self.apply_batch(value, now)?,
            Kind::BindRequest => {
                let request = self.binder.apply_request(value)?;
                self.queue.schedule_at(request, now);
            }
            Kind::Pod => {
                let groups = self.binder.apply_pod(value)?;
                self.pod_changed(&Key::of(value), groups, now);
            }
            Kind::Node => self.binder.apply_node(value)?,
            Kind::PersistentVolume => self.binder.apply_volume(value)?,
            Kind::StorageClass => self.binder.apply_storage_class(value)?,
            Kind::PersistentVolumeClaim => {
                self.binder.apply_volume_claim(value)?;
                for request in self.binder.pending_requests_in(&Key::of(value).namespace) {
                    self.queue.schedule_at(request, now);
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, kind: Kind, key: &Key, now: Timestamp) {
        match kind {
            Kind::BindRequest => {
                if self.batches.remove(key).is_some() {
                    for request in self.binder.requests_in(key) {
                        self.delete(kind, &request, now);
                    }
                }
                self.dirty_gpu_groups.extend(self.binder.delete_request(key));
                self.queue.remove(key);
                self.finished_versions.forget(key);
                self.unwritten_status.remove(key);
                self.backing_off.remove(key);
            }
            Kind::Pod => {
                let groups = self.binder.delete_pod(key);
                self.pod_changed(key, groups, now);
            }
            Kind::Node => self.binder.delete_node(&key.name),
            Kind::PersistentVolumeClaim => self.binder.delete_volume_claim(key),
            Kind::PersistentVolume => self.binder.delete_volume(&key.name),
            Kind::StorageClass => self.binder.delete_storage_class(&key.name),
            _ => {}
        }
    }

    fn apply_batch(&mut self, value: &Value, now: Timestamp) -> Result<(), String> {
        let batch = Key::of(value);
        let mut gone: BTreeSet<Key> = self.binder.requests_in(&batch).into_iter().collect();
        for request in bind_batch::unpack(value) {
            let request = self.binder.apply_request(&request)?;
            if !gone.remove(&request) {
                self.queue.schedule_at(request, now);
            }
        }
        for request in gone {
            self.delete(Kind::BindRequest, &request, now);
        }
        if let Entry::Vacant(new) = self.batches.entry(batch) {
            self.queue.schedule_at(new.key().clone(), now.plus(BATCH_RETENTION));
            new.insert(None);
        }
        Ok(())
    }

    /// Removes a batch a while after the last of its requests was carried out: other watches may be late.
    fn collect_batch(&mut self, batch: Key, now: Timestamp, work: &mut Vec<Work>) {
        let settled = self.binder.requests_in(&batch).iter().all(|request| self.binder.is_settled(request));
        let Some(since) = self.batches.get_mut(&batch) else { return };
        // A clock that was set back begins anew.
        let known = since.filter(|since| settled && *since <= now);
        *since = settled.then(|| known.unwrap_or(now));
        self.queue.schedule_at(batch.clone(), now.plus(BATCH_RETENTION));
        if known.is_some_and(|since| now.since(since) >= BATCH_RETENTION) {
            self.start(WorkKey::CleanUp, vec![BindEffect::DeleteRequest(batch)], OnError::Continue, work);
        }
    }

    /// Requests that are not carried out yet.
    pub(super) fn pending_count(&self) -> usize {
        self.binder.pending_requests().count()
    }

    /// Checks all shared GPUs: no reservation without users, no users without a reservation.
    pub(super) fn resync(&mut self) {
        self.dirty_gpu_groups.extend(self.binder.groups());
    }

    /// When there will be something to do even if nothing changes.
    fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.failed_attempts.is_empty() || !self.dirty_gpu_groups.is_empty() {
            return Some(now);
        }
        self.queue.next_due()
    }

    pub(super) fn work(&mut self, now: Timestamp) -> Vec<Work> {
        self.binder.expire(now);
        let mut work = Vec::new();
        for group in std::mem::take(&mut self.dirty_gpu_groups) {
            for effect in self.binder.sync_gpu_group(&group, now) {
                if let Some(pod) = self.blocked_by(&effect) {
                    self.blocked_on_pod.entry(pod).or_default().groups.insert(group.clone());
                    continue;
                }
                self.start(WorkKey::CleanUp, vec![effect], OnError::Continue, &mut work);
            }
        }
        for (request, why) in std::mem::take(&mut self.failed_attempts) {
            let mut plan = self.binder.failed(&request, &why, now);
            // The work item that creates or deletes a reservation sees to it.
            plan.effects.retain(|effect| self.blocked_by(effect).is_none());
            self.backing_off.extend(plan.requeue_at.map(|again| (request.clone(), (now, again))));
            self.start_plan(request, plan, OnError::Continue, &mut work);
        }
        while let Some(request) = self.queue.pop_due(now) {
            if self.batches.contains_key(&request) {
                self.collect_batch(request, now, &mut work);
                continue;
            }
            let seen = self.binder.version(&request);
            if seen.is_some() && self.finished_versions.get(&request).map(String::as_str) == seen {
                // Until a watch shows that it is done, it would be planned once more.
                continue;
            }
            // A clock that was set back ends the backoff.
            if let Some((_, until)) =
                self.backing_off.remove(&request).filter(|(since, until)| (since..until).contains(&&now))
            {
                self.backing_off.insert(request.clone(), (now, until));
                self.queue.schedule_at(request, until);
                continue;
            }
            let end = self.unwritten_status.remove(&request);
            if let Some(end) = end.filter(|end| end.iter().find_map(finishes_version) == seen) {
                self.start_plan(request, Plan { effects: end, ..Plan::default() }, OnError::Continue, &mut work);
                continue;
            }
            let plan = self.binder.plan(&request, now);
            // A reservation that is being deleted is as good as gone.
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
            let on_error = if gives_up { OnError::Continue } else { OnError::Stop };
            self.start_plan(request, Plan { requeue_at: again, ..plan }, on_error, &mut work);
        }
        work
    }

    pub(super) fn finished(&mut self, result: WorkResult<BindEffect>, now: Timestamp) {
        for effect in result.performed() {
            if let BindEffect::DeletePod { pod, uid, .. } = effect {
                self.binder.assume_deleted(pod, uid);
            }
        }
        let WorkResult { item: WorkItem { key, calls: mut effects, .. }, completed, mut errors, .. } = result;
        for pod in effects.iter().filter_map(pod_written_by) {
            self.pods_in_flight.remove(&pod);
            let Some(Blocked { requests, groups }) = self.blocked_on_pod.remove(&pod) else { continue };
            self.dirty_gpu_groups.extend(groups);
            for request in requests {
                self.queue.schedule_at(request, now);
            }
        }
        let WorkKey::BindRequest(request) = key else { return };
        self.queue.done(&request);
        if let Some(at) = effects.iter().position(|effect| matches!(effect, BindEffect::Bind { .. })) {
            match errors.get(&at) {
                Some(CallError::Unknown(_)) => self.binder.mark_bind_unknown(&effects, now),
                None if at < completed => {}
                _ => self.binder.forget_bind(&effects),
            }
        }
        let end = effects.iter().position(|effect| finishes_version(effect).is_some());
        if let Some(at) = end.filter(|at| errors.contains_key(at)) {
            // The outcome is final; only its status write failed. If just the reply was lost, the watch will confirm it.
            self.unwritten_status.insert(request.clone(), effects.split_off(at));
            self.queue.schedule_at(request, now.plus(CALL_RETRY_DELAY));
        } else if let Some(at) = end.filter(|at| *at < completed) {
            if let Some(version) = finishes_version(&effects[at]) {
                self.finished_versions.assume(request, version.to_owned());
            }
        } else if let Some((at, error)) = errors.pop_first() {
            let binds = matches!(effects[at], BindEffect::Bind { .. });
            if binds && matches!(error, CallError::Unknown(_)) {
                // The pod may have its node. Until a watch shows it, its room is kept.
                self.queue.schedule_at(request, now.plus(CALL_RETRY_DELAY));
            } else {
                self.failed_attempts.push((request, error.to_string()));
            }
        }
    }

    fn pod_changed(&mut self, pod: &Key, groups: Vec<String>, now: Timestamp) {
        for request in self.binder.requests_about(pod, &groups) {
            self.queue.schedule_at(request, now);
        }
        self.dirty_gpu_groups.extend(groups);
    }

    /// The pod that the effect would create or delete while work in flight does so.
    fn blocked_by(&self, effect: &BindEffect) -> Option<PodKey> {
        pod_written_by(effect).filter(|pod| self.pods_in_flight.contains(pod))
    }

    fn start_plan(&mut self, request: Key, plan: Plan, on_error: OnError, work: &mut Vec<Work>) {
        if let Some(again) = plan.requeue_at {
            self.queue.schedule_at(request.clone(), again);
        }
        if plan.effects.is_empty() {
            return;
        }
        self.queue.start(request.clone());
        self.start(WorkKey::BindRequest(request), plan.effects, on_error, work);
    }

    fn start(&mut self, key: WorkKey, effects: Vec<BindEffect>, on_error: OnError, work: &mut Vec<Work>) {
        self.pods_in_flight.extend(effects.iter().filter_map(pod_written_by));
        let bind = effects.iter().position(|effect| matches!(effect, BindEffect::Bind { .. }));
        // Pods that wait do not wait for what is left to write about this one.
        let report = || effects.iter().position(|effect| matches!(effect, BindEffect::ReportResult { .. }));
        let tail = bind.map(|at| at + 1).or_else(report).map(|at| (at, WritePriority::Status));
        work.push(WorkItem { on_error, tail, ..WorkItem::new(key, effects) });
    }
}

impl Controller for BinderController {
    fn watches(&self) -> Vec<WatchSpec> {
        let kinds = [
            Kind::BindRequest,
            Kind::Pod,
            Kind::Node,
            Kind::PersistentVolumeClaim,
            Kind::PersistentVolume,
            Kind::StorageClass,
        ];
        kinds.map(WatchSpec::all).into()
    }

    fn on_apply(&mut self, kind: Kind, object: &Arc<Value>, now: Clock) -> Vec<Skipped> {
        let done = self.apply(kind, object, now.wall);
        done.err().map(|problem| Skipped::new(kind, kind.key_of(object), problem)).into_iter().collect()
    }

    fn on_delete(&mut self, kind: Kind, key: &Key, now: Clock) {
        self.delete(kind, key, now.wall);
    }

    fn poll(&mut self, now: Clock) -> Output {
        if self.resynced.is_none_or(|at| at.plus(RESYNC_PERIOD) <= now.steady) {
            self.resynced = Some(now.steady);
            self.resync();
        }
        let work = self.work(now.wall).into_iter().map(|item| item.map_calls(ApiCall::Bind)).collect();
        Output { work, ..Output::default() }
    }

    fn on_result(&mut self, result: WorkResult, now: Clock) {
        let effect = |call| match call {
            ApiCall::Bind(effect) => effect,
            other => unreachable!("the binder does not call {other}"),
        };
        self.finished(result.map_calls(effect), now.wall);
    }

    fn next_poll(&self, now: Clock) -> Option<Timestamp> {
        let resync = self.resynced.map_or(now.steady, |at| at.plus(RESYNC_PERIOD));
        let due = self.next_due(now.wall).map(|at| now.steady_at(at));
        Some(due.map_or(resync, |due| due.min(resync)))
    }

    fn size(&self) -> usize {
        self.pending_count()
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
