//! The scheduler's view of the cluster: the informer cache with assumptions on top. What was sent to the API server and
//! not yet observed on a watch counts as done, so that no cycle does it twice.
//!
//! ```text
//!   watch: applied ──────────────▶ on_apply ───────┐
//!   watch: deleted ──────────────▶ on_delete ──────┤
//!   a cycle's effect, sent ──────▶ assume ─────────┼──▶ World: what was observed, with assumptions on top
//!   the API server rejected it ──▶ forget ─────────┤
//!   no watch event for too long ─▶ expire ─────────┤
//!   the grouper plans a write ───▶ assume_planned ─┘
//! ```
//!
//! An assumption ends when the watch confirms it, when its write was rejected, or when it expires. Then the watch is right.

mod planned;
mod status_updates;

use kai_engine::units::{Span, Timestamp};
use serde_json::{Value, json};

use crate::controller::Assumed;
use crate::key::{GroupKey, Key, PodKey};
use crate::kinds::Object;
use crate::kinds::ObjectId;
use crate::objects::{BindPhase, BindRequest, ClaimAllocation, Pod, PodGroup, Resources, ZoneAmount};
use crate::scheduler::{Assumption, ClaimedDevices, Effect, NumaZone};
use crate::world::World;
use planned::PlannedWrites;
use status_updates::InFlightStatus;

/// Objects as watches show them, with assumptions on top.
#[derive(Clone, Debug, Default)]
pub struct SchedulerCache {
    world: World,
    /// By pod; the request has the same name.
    binds: Assumed<Key, Bind>,
    /// Uid of the pod, and when it should be gone.
    evictions: Assumed<PodKey, (String, Timestamp)>,
    /// Uid of the pod and its node.
    nominations: Assumed<PodKey, (String, Option<String>)>,
    group_timestamps: Assumed<GroupKey, GroupTimestamps>,
    statuses: InFlightStatus,
    planned: PlannedWrites,
}

#[derive(Clone, Debug)]
struct Bind {
    request: BindRequest,
    /// An earlier request of the same name that has failed, while it is still there.
    failed: Option<BindRequest>,
}

/// Times that the scheduler stores on a pod group, as annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupTimestamps {
    last_start: Option<Timestamp>,
    stale_since: Option<Timestamp>,
    last_eviction: Option<Timestamp>,
}

/// How long a write counts before a watch shows it. A bind that was done all the same is then rejected the second time.
const TTL: Span = Span::seconds(30);

/// Of status updates and timestamp patches, which are sent after binds and evictions.
const STATUS_TTL: Span = Span::seconds(120);

/// Grace period that most pods have; assumed until the watch shows the real one.
const DEFAULT_GRACE_PERIOD: Span = Span::seconds(30);

impl SchedulerCache {
    pub fn world(&self) -> &World {
        &self.world
    }

    /// For a scheduler that lowers incrementally: it takes the change log.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// True if no bind, eviction, nomination or timestamp patch awaits its watch event. Planned groups do not count; the
    /// grouper retries those.
    pub fn is_empty(&self) -> bool {
        self.binds.is_empty()
            && self.evictions.is_empty()
            && self.nominations.is_empty()
            && self.group_timestamps.is_empty()
    }

    /// Whether a bind or an eviction awaits its watch event.
    pub fn has_moves_in_flight(&self) -> bool {
        !self.binds.is_empty() || !self.evictions.is_empty()
    }

    /// A watch shows an object: ends or overlays what is assumed of it.
    pub fn on_apply(&mut self, mut object: Object) {
        match &mut object {
            Object::BindRequest(request) if request.batch.is_some() => {
                for held in request.batch.iter().flatten() {
                    self.confirm_bind(held);
                }
            }
            Object::BindRequest(request) => {
                if let Some(assumed) = self.binds.get_mut(&request.key)
                    && request.given_up()
                {
                    assumed.failed = Some((**request).clone());
                    return;
                }
                self.binds.confirm(&request.key);
            }
            Object::Pod(pod) => {
                self.overlay_pod(pod);
                self.overlay_nomination(pod);
                self.overlay_planned_link(pod);
                self.overlay_pod_status(pod);
            }
            Object::PodGroup(group) => {
                self.overlay_planned_group(group);
                self.overlay_group(group);
                self.overlay_group_status(group);
            }
            _ => {}
        }
        self.world.apply(object);
    }

    /// Whether the last version of an object counts on while a watch shows one that cannot be read. Not of a pod that waits,
    /// unless it is about to be bound.
    pub fn keeps_last(&self, which: &ObjectId, object: &Value) -> bool {
        let ObjectId::Pod(key) = which else { return self.world.contains(which) };
        let uid = object["metadata"]["uid"].as_str();
        let known = self.world.pods.get(key).filter(|pod| uid == Some(pod.uid.as_str()));
        known.is_some_and(|pod| {
            let mut requests = self.world.bind_requests.values();
            pod.node.is_some()
                || requests.any(|request| request.pod == *key && !request.given_up() && request.is_for(pod))
        })
    }

    /// A watch shows that an object is gone.
    pub fn on_delete(&mut self, which: &ObjectId) {
        match which {
            ObjectId::Pod(key) => {
                self.drop_planned_of(key);
                self.evictions.confirm(key);
                self.nominations.forget(key);
                self.statuses.pods.forget(key);
                if self.binds.forget(key).is_some() {
                    self.world.delete(&ObjectId::BindRequest(key.clone()));
                }
            }
            ObjectId::PodGroup(key) if self.ignores_delete(key) => return,
            ObjectId::PodGroup(key) => {
                self.group_timestamps.forget(key);
                self.statuses.groups.forget(key);
            }
            _ => {}
        }
        if let ObjectId::BindRequest(key) = which
            && let Some(assumed) = self.binds.get_mut(key)
        {
            // That was the earlier one: the assumed one has yet to appear.
            assumed.failed = None;
            return;
        }
        self.world.delete(which);
    }

    /// An effect is being sent.
    pub fn assume(&mut self, effect: &Effect, now: Timestamp) {
        match effect {
            Effect::Bind { pod, node, gpu_groups, extras, .. } => {
                let request = BindRequest {
                    key: pod.clone(),
                    pod: pod.clone(),
                    pod_uid: self.world.pods.get(pod).map(|pod| pod.uid.clone()),
                    node: node.clone(),
                    gpu_groups: gpu_groups.iter().map(|group| group.name.clone()).collect(),
                    numa_zones: extras.numa_zones.iter().filter_map(assumed_zone).collect(),
                    claims: extras.claims.iter().filter_map(assumed_devices).collect(),
                    phase: BindPhase::Pending,
                    ..BindRequest::default()
                };
                let failed = self.world.bind_requests.get(pod).filter(|request| request.given_up()).cloned();
                self.world.apply(Object::BindRequest(Box::new(request.clone())));
                self.binds.assume_for(pod.clone(), Bind { request, failed }, now, TTL);
            }
            Effect::Evict { pod, .. } => {
                let Some(mut known) = self.world.pods.get(pod).cloned() else { return };
                let due = *known.deletion.get_or_insert(now.plus(DEFAULT_GRACE_PERIOD));
                self.evictions.assume_for(pod.clone(), (known.uid.clone(), due), now, TTL);
                self.world.apply(Object::Pod(Box::new(known)));
            }
            Effect::SetGroupTimestamps { job, last_start, stale_since, last_eviction } => {
                let times = GroupTimestamps {
                    last_start: *last_start,
                    stale_since: *stale_since,
                    last_eviction: *last_eviction,
                };
                if self.planned.is_planned_only(job) {
                    // Its patch is sent once the group is created, and the TTL starts then.
                    self.group_timestamps.assume(job.clone(), times);
                } else {
                    self.group_timestamps.assume_for(job.clone(), times, now, STATUS_TTL);
                }
                if let Some(mut group) = self.world.pod_groups.get(job).cloned() {
                    times.write(&mut group);
                    self.world.apply(Object::PodGroup(Box::new(group)));
                }
            }
            Effect::Nominate { pod, node } => {
                let Some(mut known) = self.world.pods.get(pod).cloned() else { return };
                known.nominated_node.clone_from(node);
                self.nominations.assume_for(pod.clone(), (known.uid.clone(), node.clone()), now, TTL);
                self.world.apply(Object::Pod(Box::new(known)));
            }
            // A request that has failed counts for nothing, there or not.
            Effect::DeleteBindRequest { .. } | Effect::Pipeline { .. } | Effect::MarkPod { .. } => {}
        }
    }

    /// The write was rejected: what the watch shows counts again.
    pub fn forget(&mut self, asked: &Assumption) {
        match asked {
            Assumption::Bind(pod) => self.drop_bind(pod),
            Assumption::Eviction(pod) => self.drop_eviction(pod),
            // Keep the assumed value. The next watch event replaces it, and the next cycle writes it again if it still
            // differs.
            Assumption::Nomination(pod) => {
                self.nominations.forget(pod);
            }
            Assumption::GroupTimestamps(group) => {
                self.group_timestamps.forget(group);
            }
            Assumption::PodCondition(pod) => self.forget_pod_status(pod),
            Assumption::GroupConditions(group) => self.forget_group_status(group),
        }
    }

    /// Forgets assumptions whose watch event has not come within their TTL.
    pub fn expire(&mut self, now: Timestamp) {
        for (pod, bind) in self.binds.expire(now) {
            self.undo_bind(&pod, bind);
        }
        for (pod, _) in self.evictions.expire(now) {
            self.undo_eviction(&pod);
        }
        self.nominations.expire(now);
        self.group_timestamps.expire(now);
        self.expire_status(now);
    }

    /// The watch shows a batch with the request that was assumed: ends the assumption.
    fn confirm_bind(&mut self, request: &BindRequest) {
        let ours =
            |Bind { request: assumed, .. }: &Bind| assumed.pod_uid == request.pod_uid && assumed.node == request.node;
        if self.binds.get(&request.pod).is_some_and(ours) {
            self.drop_bind(&request.pod);
        }
    }

    fn overlay_pod(&mut self, pod: &mut Pod) {
        let key = pod.key.clone();
        if let Some(Bind { request, .. }) = self.binds.get(&key) {
            let another = request.pod_uid.as_ref().is_some_and(|uid| *uid != pod.uid);
            if another || pod.node.is_some() {
                self.drop_bind(&key);
            }
        }
        if let Some((uid, due)) = self.evictions.get(&key) {
            if *uid != pod.uid || pod.deletion.is_some() {
                self.evictions.confirm(&key);
            } else {
                pod.deletion = Some(*due);
            }
        }
    }

    fn overlay_nomination(&mut self, pod: &mut Pod) {
        let Some((uid, node)) = self.nominations.get(&pod.key) else { return };
        if *uid != pod.uid || pod.node.is_some() || pod.nominated_node == *node {
            self.nominations.confirm(&pod.key);
        } else {
            pod.nominated_node.clone_from(node);
        }
    }

    fn overlay_group(&mut self, group: &mut PodGroup) {
        let Some(times) = self.group_timestamps.get(&group.key) else { return };
        if times.matches(group) {
            self.group_timestamps.confirm(&group.key);
        } else {
            times.write(group);
        }
    }

    fn drop_bind(&mut self, pod: &PodKey) {
        if let Some(bind) = self.binds.forget(pod) {
            self.undo_bind(pod, bind);
        }
    }

    /// An assumption is there only while no watch has shown the request: what the world has is the assumption.
    fn undo_bind(&mut self, pod: &PodKey, bind: Bind) {
        self.world.delete(&ObjectId::BindRequest(pod.clone()));
        if let Some(failed) = bind.failed {
            self.world.apply(Object::BindRequest(Box::new(failed)));
        }
    }

    fn drop_eviction(&mut self, pod: &PodKey) {
        if self.evictions.forget(pod).is_some() {
            self.undo_eviction(pod);
        }
    }

    /// Likewise: a deletion that was observed has ended the assumption.
    fn undo_eviction(&mut self, pod: &PodKey) {
        if let Some(mut known) = self.world.pods.get(pod).cloned() {
            known.deletion = None;
            self.world.apply(Object::Pod(Box::new(known)));
        }
    }
}

impl GroupTimestamps {
    fn write(self, group: &mut PodGroup) {
        group.last_start = self.last_start;
        group.stale_since = self.stale_since;
        group.last_eviction = self.last_eviction;
    }

    /// Times are stored in whole seconds.
    fn matches(self, group: &PodGroup) -> bool {
        let second = |time: Option<Timestamp>| time.map(|time| time.0.div_euclid(1_000_000));
        second(self.last_start) == second(group.last_start)
            && second(self.stale_since) == second(group.stale_since)
            && second(self.last_eviction) == second(group.last_eviction)
    }
}

/// What a pod will hold of a zone, as its bind request will say.
fn assumed_zone(zone: &NumaZone) -> Option<ZoneAmount> {
    let amount = Resources::parse(&json!(zone.amount)).ok()?;
    Some(ZoneAmount { zone: zone.zone.clone(), amount })
}

/// The devices of a claim, as its bind request will say.
fn assumed_devices(devices: &ClaimedDevices) -> Option<(String, ClaimAllocation)> {
    Some((devices.name.clone(), ClaimAllocation::parse(&devices.allocation).ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kai_engine::policy::Action;

    use super::*;
    use crate::scheduler::reasons::{BindReason, EvictionReason, StaleBindRequest};
    use crate::scheduler::{Received, ResourceType};

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn object(value: &Value) -> Object {
        Object::parse(value).unwrap().unwrap()
    }

    fn pod(uid: &str, node: Option<&str>, deletion: Option<&str>) -> Object {
        let metadata = json!({"namespace": "n", "name": "p", "uid": uid, "deletionTimestamp": deletion});
        object(&json!({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}}))
    }

    fn request(node: &str) -> Object {
        let metadata = json!({"namespace": "n", "name": "p"});
        object(&json!({"kind": "BindRequest", "metadata": metadata, "spec": {"selectedNode": node}}))
    }

    fn failed_request(node: &str) -> Object {
        let (metadata, status) = (json!({"namespace": "n", "name": "p"}), json!({"phase": "Failed"}));
        object(&json!({"kind": "BindRequest", "metadata": metadata, "spec": {"selectedNode": node}, "status": status}))
    }

    fn batch(node: &str) -> Object {
        let entry = json!({"uid": "u1", "spec": {"podName": "p", "selectedNode": node}}).to_string();
        let (labels, entries) =
            (json!({"kai.scheduler/bind-batch": "1"}), json!({"bind-batch.kai.scheduler/0": entry}));
        let metadata = json!({"namespace": "n", "name": "batch", "labels": labels, "annotations": entries});
        object(&json!({"kind": "BindRequest", "metadata": metadata}))
    }

    fn key() -> Key {
        Key::new("n", "p")
    }

    fn bind(node: &str) -> Effect {
        Effect::Bind {
            pod: key(),
            job: Key::new("n", "g"),
            node: node.to_owned(),
            received: Received { kind: ResourceType::Regular, devices: 1, portion: 1_000_000 },
            gpu_groups: Vec::new(),
            extras: crate::scheduler::BindExtras::default(),
            why: BindReason::default(),
        }
    }

    fn evict() -> Effect {
        Effect::Evict {
            pod: key(),
            job: Key::new("n", "g"),
            node: None,
            action: Action::Reclaim,
            preemptor: None,
            gang_size: 1,
            why: EvictionReason::Other { preemptor: None },
        }
    }

    fn with_pod() -> SchedulerCache {
        let mut known = SchedulerCache::default();
        known.on_apply(pod("u1", None, None));
        known
    }

    fn bound_to(known: &SchedulerCache) -> Option<&str> {
        known.world().bind_requests.get(&key()).map(|request| request.node.as_str())
    }

    fn leaving(known: &SchedulerCache) -> bool {
        known.world().pods[&key()].deletion.is_some()
    }

    #[test]
    fn a_bind_counts_at_once_until_the_watch_shows_it() {
        let mut known = with_pod();
        known.assume(&bind("a"), NOW);
        assert_eq!(bound_to(&known), Some("a"));
        known.on_apply(request("a"));
        assert!(known.is_empty());
        known.on_delete(&ObjectId::BindRequest(key()));
        assert_eq!(bound_to(&known), None, "the watch has shown it come and go");
    }

    #[test]
    fn devices_and_zones_of_a_bind_count_at_once() {
        let mut known = with_pod();
        let mut effect = bind("a");
        let device = json!({"request": "gpu", "driver": "d", "pool": "p", "device": "gpu-0"});
        let allocation = json!({"devices": {"results": [device]}});
        if let Effect::Bind { extras, .. } = &mut effect {
            let claim = Key::new("n", "p-gpu");
            extras.claims.push(ClaimedDevices { name: "gpu".to_owned(), claim, allocation: allocation.clone() });
            let amount = BTreeMap::from([("nvidia.com/gpu".to_owned(), "1".to_owned())]);
            extras.numa_zones.push(NumaZone { zone: "node-0".to_owned(), amount });
        }
        known.assume(&effect, NOW);
        let stored = json!({"kind": "BindRequest", "metadata": {"namespace": "n", "name": "p"}, "spec": {
            "predictedNUMAZones": [{"zone": "node-0", "amount": {"nvidia.com/gpu": "1"}}],
            "resourceClaimAllocations": [{"name": "gpu", "allocation": allocation}],
        }});
        let Object::BindRequest(stored) = object(&stored) else { panic!("it is a bind request") };
        let assumed = &known.world().bind_requests[&key()];
        assert_eq!((&assumed.claims, &assumed.numa_zones), (&stored.claims, &stored.numa_zones));
        assert_eq!((assumed.claims.len(), assumed.numa_zones.len()), (1, 1));
    }

    #[test]
    fn a_bind_that_is_asked_for_in_a_batch_counts_once() {
        let mut known = with_pod();
        known.assume(&bind("a"), NOW);
        known.on_apply(batch("b"));
        assert!(!known.is_empty(), "that is of another scheduler");
        known.on_apply(batch("a"));
        assert!(known.is_empty());
        assert_eq!(known.world().bind_requests.len(), 1);
        known.on_delete(&ObjectId::BindRequest(Key::new("n", "batch")));
        assert!(known.world().bind_requests.is_empty());
    }

    #[test]
    fn a_relist_from_before_the_bind_does_not_undo_it() {
        let mut known = with_pod();
        known.assume(&bind("a"), NOW);
        known.on_delete(&ObjectId::BindRequest(key()));
        assert_eq!(bound_to(&known), Some("a"));
        known.on_apply(pod("u1", None, None));
        assert_eq!(bound_to(&known), Some("a"));
    }

    #[test]
    fn the_end_of_an_earlier_request_of_the_same_name_does_not_undo_it() {
        let mut known = with_pod();
        known.on_apply(failed_request("old"));
        known.assume(&Effect::DeleteBindRequest { request: key(), why: StaleBindRequest::EarlierPod }, NOW);
        known.assume(&bind("new"), NOW);
        known.on_apply(failed_request("old"));
        assert_eq!(bound_to(&known), Some("new"), "the old one does not confirm the new one");
        known.on_delete(&ObjectId::BindRequest(key()));
        assert_eq!(bound_to(&known), Some("new"));
        known.on_apply(request("new"));
        assert!(known.is_empty());
    }

    #[test]
    fn a_failed_request_that_could_not_be_replaced_is_still_there() {
        let mut known = with_pod();
        known.on_apply(failed_request("old"));
        known.assume(&bind("new"), NOW);
        known.forget(&Assumption::Bind(key()));
        assert_eq!(bound_to(&known), Some("old"), "so that the next cycle deletes it again");
    }

    #[test]
    fn a_rejected_or_expired_bind_does_not_count() {
        let mut known = with_pod();
        known.assume(&bind("a"), NOW);
        known.forget(&Assumption::Bind(key()));
        assert_eq!(bound_to(&known), None);
        known.assume(&bind("a"), NOW);
        known.expire(NOW.plus(Span(TTL.0 - 1)));
        assert_eq!(bound_to(&known), Some("a"));
        known.expire(NOW.plus(TTL));
        assert_eq!(bound_to(&known), None);
    }

    #[test]
    fn a_late_rejection_does_not_undo_what_the_watch_shows() {
        let mut known = with_pod();
        known.assume(&bind("a"), NOW);
        known.on_apply(request("a"));
        known.forget(&Assumption::Bind(key()));
        assert_eq!(bound_to(&known), Some("a"));
    }

    #[test]
    fn a_bound_deleted_or_replaced_pod_ends_the_bind() {
        for event in [pod("u1", Some("a"), None), pod("u2", None, None)] {
            let mut known = with_pod();
            known.assume(&bind("a"), NOW);
            known.on_apply(event);
            assert!(known.is_empty());
            assert_eq!(bound_to(&known), None);
        }
        let mut known = with_pod();
        known.assume(&bind("a"), NOW);
        known.on_delete(&ObjectId::Pod(key()));
        assert!(known.is_empty());
    }

    #[test]
    fn an_evicted_pod_is_terminating_at_once() {
        let mut known = with_pod();
        known.assume(&evict(), NOW);
        assert!(leaving(&known));
        known.on_apply(pod("u1", Some("a"), None));
        assert!(leaving(&known));
        known.on_apply(pod("u1", Some("a"), Some("1970-01-01T00:16:00Z")));
        assert!(known.is_empty());
        assert!(leaving(&known));
    }

    #[test]
    fn a_rejected_eviction_is_forgotten() {
        let mut known = with_pod();
        known.assume(&evict(), NOW);
        known.forget(&Assumption::Eviction(key()));
        assert!(!leaving(&known));
        known.assume(&evict(), NOW);
        known.on_apply(pod("u2", None, None));
        assert!(!leaving(&known), "a new pod of the same name was never evicted");
    }

    #[test]
    fn a_nomination_counts_until_the_watch_shows_it() {
        let nominated = |known: &SchedulerCache| known.world().pods[&key()].nominated_node.clone();
        let mut known = with_pod();
        known.assume(&Effect::Nominate { pod: key(), node: Some("a".to_owned()) }, NOW);
        known.on_apply(pod("u1", None, None));
        assert_eq!(nominated(&known).as_deref(), Some("a"));
        known.on_apply(pod("u2", None, None));
        assert_eq!(nominated(&known), None, "a new pod of the same name was never nominated");
        assert!(known.is_empty());
    }

    #[test]
    fn timestamps_of_a_group_count_until_the_watch_shows_them() {
        let group = |annotations: Value| {
            let metadata = json!({"namespace": "n", "name": "g", "annotations": annotations});
            object(&json!({"kind": "PodGroup", "metadata": metadata, "spec": {"queue": "q"}}))
        };
        let mut known = SchedulerCache::default();
        known.on_apply(group(json!({})));
        let since = Timestamp(960_400_000);
        let job = Key::new("n", "g");
        let note = Effect::SetGroupTimestamps {
            job: job.clone(),
            last_start: None,
            stale_since: Some(since),
            last_eviction: None,
        };
        known.assume(&note, NOW);
        known.on_apply(group(json!({})));
        assert_eq!(known.world().pod_groups[&job].stale_since, Some(since));
        known.on_apply(group(json!({"kai.scheduler/stale-podgroup-timestamp": "1970-01-01T00:16:00Z"})));
        assert!(known.is_empty());
        assert_eq!(known.world().pod_groups[&job].stale_since, Some(Timestamp(960_000_000)));
    }
}
