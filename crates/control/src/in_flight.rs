//! What was asked of the API server and has not come back on a watch yet: counted as done, so that no cycle does it
//! twice.
//!
//! ```text
//!   watch: an object ─────────▶ see ────┐
//!   watch: it is gone ────────▶ lose ───┤
//!   a cycle's effect, sent ───▶ assume ─┼──▶ World: what was seen, with what is in flight on top
//!   the API server refused ───▶ refused ┤
//!   no echo for too long ─────▶ expire ─┤
//!   the grouper will write ───▶ draft ──┘
//! ```
//!
//! An assumption ends when the watch shows it, when it was refused, or when it is too old. Then the watch is right.

mod drafts;
mod words;

use std::collections::BTreeMap;

use kai_engine::units::{Span, Timestamp};

use crate::key::{GroupKey, Key, PodKey};
use crate::kinds::Object;
use crate::kinds::ObjectId;
use crate::objects::{BindPhase, BindRequest, Pod, PodGroup};
use crate::scheduler::Effect;
use crate::world::World;
use drafts::Drafts;
use words::Words;

/// What is known of the cluster, with what is in flight counted as done.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    world: World,
    /// By pod, which is also the name of the request.
    binds: BTreeMap<Key, Assumed<Bind>>,
    /// When the pods should be gone.
    evictions: BTreeMap<PodKey, Assumed<(String, Timestamp)>>,
    /// Uid of the pod and its node.
    nominations: BTreeMap<PodKey, Assumed<(String, Option<String>)>>,
    notes: BTreeMap<GroupKey, Assumed<Times>>,
    words: Words,
    drafts: Drafts,
}

#[derive(Clone, Debug)]
struct Assumed<T> {
    what: T,
    since: Timestamp,
}

#[derive(Clone, Debug)]
struct Bind {
    request: BindRequest,
    /// An earlier request of the same name that has failed, while it is still there.
    failed: Option<BindRequest>,
}

/// Times that the scheduler keeps on a pod group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    last_start: Option<Timestamp>,
    stale_since: Option<Timestamp>,
    last_eviction: Option<Timestamp>,
}

/// Something that is assumed until it is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Bind(PodKey),
    Eviction(PodKey),
    Nomination(PodKey),
    Note(GroupKey),
    /// What a pod is told of why it waits.
    Mark(PodKey),
    Conditions(GroupKey),
}

/// So many times as long as for deeds do echoes of words and notes take, which make way for deeds.
const WORDS: i64 = 4;

/// Grace period that most pods have; only until the watch shows the real one.
const USUAL_GRACE: Span = Span::seconds(30);

impl InFlight {
    pub fn world(&self) -> &World {
        &self.world
    }

    /// For a scheduler that looks only at what changed, and takes note of it.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// Whether anything that the next cycle rests on waits for its echo. Drafts do not: whoever made them sees to them.
    pub fn is_empty(&self) -> bool {
        self.binds.is_empty() && self.evictions.is_empty() && self.nominations.is_empty() && self.notes.is_empty()
    }

    /// A watch shows an object.
    pub fn see(&mut self, mut object: Object) {
        match &mut object {
            Object::BindRequest(request) if request.batch.is_some() => {
                for held in request.batch.iter().flatten() {
                    self.shown(held);
                }
            }
            Object::BindRequest(request) => {
                if let Some(assumed) = self.binds.get_mut(&request.key)
                    && request.given_up()
                {
                    assumed.what.failed = Some((**request).clone());
                    return;
                }
                self.binds.remove(&request.key);
            }
            Object::Pod(pod) => {
                self.overlay_pod(pod);
                self.overlay_nomination(pod);
                self.overlay_link(pod);
                self.overlay_pod_words(pod);
            }
            Object::PodGroup(group) => {
                self.overlay_draft(group);
                self.overlay_group(group);
                self.overlay_group_words(group);
            }
            _ => {}
        }
        self.world.apply(object);
    }

    /// A watch shows that an object is gone.
    pub fn lose(&mut self, which: &ObjectId) {
        match which {
            ObjectId::Pod(key) => {
                self.lose_drafts_of(key);
                self.evictions.remove(key);
                self.nominations.remove(key);
                self.words.pods.remove(key);
                if self.binds.remove(key).is_some() {
                    self.world.delete(&ObjectId::BindRequest(key.clone()));
                }
            }
            ObjectId::PodGroup(key) if self.keeps_draft(key) => return,
            ObjectId::PodGroup(key) => {
                self.notes.remove(key);
                self.words.groups.remove(key);
            }
            _ => {}
        }
        if let ObjectId::BindRequest(key) = which
            && let Some(assumed) = self.binds.get_mut(key)
        {
            // That was the earlier one: ours has yet to appear.
            assumed.what.failed = None;
            return;
        }
        self.world.delete(which);
    }

    /// An effect is on its way.
    pub fn assume(&mut self, effect: &Effect, now: Timestamp) {
        match effect {
            Effect::Bind { pod, node, gpu_groups, .. } => {
                let request = BindRequest {
                    key: pod.clone(),
                    pod: pod.clone(),
                    pod_uid: self.world.pods.get(pod).map(|pod| pod.uid.clone()),
                    node: node.clone(),
                    gpu_groups: gpu_groups.iter().map(|group| group.name.clone()).collect(),
                    phase: BindPhase::Pending,
                    ..BindRequest::default()
                };
                let failed = self.world.bind_requests.get(pod).filter(|request| request.given_up()).cloned();
                self.world.apply(Object::BindRequest(Box::new(request.clone())));
                self.binds.insert(pod.clone(), Assumed { what: Bind { request, failed }, since: now });
            }
            Effect::Evict { pod, .. } => {
                let Some(mut known) = self.world.pods.get(pod).cloned() else { return };
                let due = *known.deletion.get_or_insert(now.plus(USUAL_GRACE));
                self.evictions.insert(pod.clone(), Assumed { what: (known.uid.clone(), due), since: now });
                self.world.apply(Object::Pod(Box::new(known)));
            }
            Effect::NoteJob { job, last_start, stale_since, last_eviction } => {
                let times = Times { last_start: *last_start, stale_since: *stale_since, last_eviction: *last_eviction };
                self.notes.insert(job.clone(), Assumed { what: times, since: now });
                if let Some(mut group) = self.world.pod_groups.get(job).cloned() {
                    times.write(&mut group);
                    self.world.apply(Object::PodGroup(Box::new(group)));
                }
            }
            Effect::Nominate { pod, node } => {
                let Some(mut known) = self.world.pods.get(pod).cloned() else { return };
                known.nominated_node.clone_from(node);
                let what = (known.uid.clone(), node.clone());
                self.nominations.insert(pod.clone(), Assumed { what, since: now });
                self.world.apply(Object::Pod(Box::new(known)));
            }
            // A request that has failed counts for nothing, there or not.
            Effect::DeleteBindRequest { .. } | Effect::Promise { .. } | Effect::MarkPod { .. } => {}
        }
    }

    /// The API server did not do it: the watch is right.
    pub fn refused(&mut self, asked: &Asked) {
        match asked {
            Asked::Bind(pod) => self.drop_bind(pod),
            Asked::Eviction(pod) => self.drop_eviction(pod),
            // These stay as we think they are until the object is seen again, and are sent again if they differ then.
            Asked::Nomination(pod) => {
                self.nominations.remove(pod);
            }
            Asked::Note(group) => {
                self.notes.remove(group);
            }
            Asked::Mark(pod) => self.unsay_pod(pod),
            Asked::Conditions(group) => self.unsay_group(group),
        }
    }

    /// Gives up on echoes that should have come long ago.
    pub fn expire(&mut self, now: Timestamp, patience: Span) {
        let late = |since: Timestamp| now.since(since) > patience;
        for pod in keys_where(&self.binds, |assumed| late(assumed.since)) {
            self.drop_bind(&pod);
        }
        for pod in keys_where(&self.evictions, |assumed| late(assumed.since)) {
            self.drop_eviction(&pod);
        }
        self.nominations.retain(|_, assumed| !late(assumed.since));
        // Of what is only said, nothing is known to be lost before it can have had its turn.
        let patience = Span(patience.0.saturating_mul(WORDS));
        let late = |since: Timestamp| now.since(since) > patience;
        self.notes.retain(|group, assumed| !late(assumed.since) || self.drafts.is_unwritten(group));
        self.expire_words(now, patience);
    }

    /// What was assumed of the pod stands in a batch now.
    fn shown(&mut self, request: &BindRequest) {
        let ours = |Assumed { what: Bind { request: assumed, .. }, .. }: &Assumed<Bind>| {
            assumed.pod_uid == request.pod_uid && assumed.node == request.node
        };
        if self.binds.get(&request.pod).is_some_and(ours) {
            self.drop_bind(&request.pod);
        }
    }

    fn overlay_pod(&mut self, pod: &mut Pod) {
        let key = pod.key.clone();
        if let Some(Assumed { what: Bind { request, .. }, .. }) = self.binds.get(&key) {
            let another = request.pod_uid.as_ref().is_some_and(|uid| *uid != pod.uid);
            if another || pod.node.is_some() {
                self.drop_bind(&key);
            }
        }
        if let Some(Assumed { what: (uid, due), .. }) = self.evictions.get(&key) {
            if *uid != pod.uid || pod.deletion.is_some() {
                self.evictions.remove(&key);
            } else {
                pod.deletion = Some(*due);
            }
        }
    }

    fn overlay_nomination(&mut self, pod: &mut Pod) {
        let Some(Assumed { what: (uid, node), .. }) = self.nominations.get(&pod.key) else { return };
        if *uid != pod.uid || pod.node.is_some() || pod.nominated_node == *node {
            self.nominations.remove(&pod.key);
        } else {
            pod.nominated_node.clone_from(node);
        }
    }

    fn overlay_group(&mut self, group: &mut PodGroup) {
        let Some(Assumed { what: times, .. }) = self.notes.get(&group.key) else { return };
        if times.shown_by(group) {
            self.notes.remove(&group.key);
        } else {
            times.write(group);
        }
    }

    fn drop_bind(&mut self, pod: &PodKey) {
        // Present only while no watch has shown our request: what the world has is the assumption.
        if let Some(Assumed { what: Bind { failed, .. }, .. }) = self.binds.remove(pod) {
            self.world.delete(&ObjectId::BindRequest(pod.clone()));
            if let Some(failed) = failed {
                self.world.apply(Object::BindRequest(Box::new(failed)));
            }
        }
    }

    fn drop_eviction(&mut self, pod: &PodKey) {
        // Likewise: a deletion that was seen has ended the assumption.
        if self.evictions.remove(pod).is_some()
            && let Some(mut known) = self.world.pods.get(pod).cloned()
        {
            known.deletion = None;
            self.world.apply(Object::Pod(Box::new(known)));
        }
    }
}

impl Times {
    fn write(self, group: &mut PodGroup) {
        group.last_start = self.last_start;
        group.stale_since = self.stale_since;
        group.last_eviction = self.last_eviction;
    }

    /// Times are stored in whole seconds.
    fn shown_by(self, group: &PodGroup) -> bool {
        let second = |time: Option<Timestamp>| time.map(|time| time.0.div_euclid(1_000_000));
        second(self.last_start) == second(group.last_start)
            && second(self.stale_since) == second(group.stale_since)
            && second(self.last_eviction) == second(group.last_eviction)
    }
}

fn keys_where<T>(map: &BTreeMap<Key, T>, wanted: impl Fn(&T) -> bool) -> Vec<Key> {
    map.iter().filter(|(_, value)| wanted(value)).map(|(key, _)| key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use kai_engine::policy::Action;
    use serde_json::{Value, json};

    use super::*;
    use crate::scheduler::{Received, ResourceType};

    const NOW: Timestamp = Timestamp(1_000_000_000);
    const PATIENCE: Span = Span::seconds(30);

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
            given: crate::scheduler::Given::default(),
            why: String::new(),
        }
    }

    fn evict() -> Effect {
        Effect::Evict {
            pod: key(),
            job: Key::new("n", "g"),
            node: None,
            action: Action::Reclaim,
            beneficiary: None,
            batch: 1,
            why: String::new(),
        }
    }

    fn with_pod() -> InFlight {
        let mut known = InFlight::default();
        known.see(pod("u1", None, None));
        known
    }

    fn bound_to(known: &InFlight) -> Option<&str> {
        known.world().bind_requests.get(&key()).map(|request| request.node.as_str())
    }

    fn leaving(known: &InFlight) -> bool {
        known.world().pods[&key()].deletion.is_some()
    }

    #[test]
    fn a_bind_counts_at_once_until_its_echo_takes_over() {
        let mut known = with_pod();
        known.assume(&bind("a"), NOW);
        assert_eq!(bound_to(&known), Some("a"));
        known.see(request("a"));
        assert!(known.is_empty());
        known.lose(&ObjectId::BindRequest(key()));
        assert_eq!(bound_to(&known), None, "the watch has shown it come and go");
    }

    #[test]
    fn a_bind_that_is_asked_for_in_a_batch_counts_once() {
        let mut known = with_pod();
        known.assume(&bind("a"), NOW);
        known.see(batch("b"));
        assert!(!known.is_empty(), "that is somebody else's");
        known.see(batch("a"));
        assert!(known.is_empty());
        assert_eq!(known.world().bind_requests.len(), 1);
        known.lose(&ObjectId::BindRequest(Key::new("n", "batch")));
        assert!(known.world().bind_requests.is_empty());
    }

    #[test]
    fn a_relist_from_before_the_bind_does_not_undo_it() {
        let mut known = with_pod();
        known.assume(&bind("a"), NOW);
        known.lose(&ObjectId::BindRequest(key()));
        assert_eq!(bound_to(&known), Some("a"));
        known.see(pod("u1", None, None));
        assert_eq!(bound_to(&known), Some("a"));
    }

    #[test]
    fn the_end_of_an_earlier_request_of_the_same_name_does_not_undo_it() {
        let mut known = with_pod();
        known.see(failed_request("old"));
        known.assume(&Effect::DeleteBindRequest { request: key(), why: String::new() }, NOW);
        known.assume(&bind("new"), NOW);
        known.see(failed_request("old"));
        assert_eq!(bound_to(&known), Some("new"), "what is left of the old one is not the echo");
        known.lose(&ObjectId::BindRequest(key()));
        assert_eq!(bound_to(&known), Some("new"));
        known.see(request("new"));
        assert!(known.is_empty());
    }

    #[test]
    fn a_failed_request_that_could_not_be_replaced_is_still_there() {
        let mut known = with_pod();
        known.see(failed_request("old"));
        known.assume(&bind("new"), NOW);
        known.refused(&Asked::Bind(key()));
        assert_eq!(bound_to(&known), Some("old"), "so that the next cycle deletes it again");
    }

    #[test]
    fn a_refused_or_forgotten_bind_does_not_count() {
        let mut known = with_pod();
        known.assume(&bind("a"), NOW);
        known.refused(&Asked::Bind(key()));
        assert_eq!(bound_to(&known), None);
        known.assume(&bind("a"), NOW);
        known.expire(NOW.plus(PATIENCE), PATIENCE);
        assert_eq!(bound_to(&known), Some("a"));
        known.expire(NOW.plus(Span(PATIENCE.0 + 1)), PATIENCE);
        assert_eq!(bound_to(&known), None);
    }

    #[test]
    fn a_late_refusal_does_not_undo_what_the_watch_shows() {
        let mut known = with_pod();
        known.assume(&bind("a"), NOW);
        known.see(request("a"));
        known.refused(&Asked::Bind(key()));
        assert_eq!(bound_to(&known), Some("a"));
    }

    #[test]
    fn a_bound_deleted_or_replaced_pod_ends_the_bind() {
        for event in [pod("u1", Some("a"), None), pod("u2", None, None)] {
            let mut known = with_pod();
            known.assume(&bind("a"), NOW);
            known.see(event);
            assert!(known.is_empty());
            assert_eq!(bound_to(&known), None);
        }
        let mut known = with_pod();
        known.assume(&bind("a"), NOW);
        known.lose(&ObjectId::Pod(key()));
        assert!(known.is_empty());
    }

    #[test]
    fn an_evicted_pod_is_leaving_at_once_whatever_else_is_seen_of_it() {
        let mut known = with_pod();
        known.assume(&evict(), NOW);
        assert!(leaving(&known));
        known.see(pod("u1", Some("a"), None));
        assert!(leaving(&known));
        known.see(pod("u1", Some("a"), Some("1970-01-01T00:16:00Z")));
        assert!(known.is_empty());
        assert!(leaving(&known));
    }

    #[test]
    fn a_refused_eviction_leaves_the_pod_where_it_is() {
        let mut known = with_pod();
        known.assume(&evict(), NOW);
        known.refused(&Asked::Eviction(key()));
        assert!(!leaving(&known));
        known.assume(&evict(), NOW);
        known.see(pod("u2", None, None));
        assert!(!leaving(&known), "a new pod of the same name was never evicted");
    }

    #[test]
    fn a_nomination_holds_until_it_is_seen() {
        let nominated = |known: &InFlight| known.world().pods[&key()].nominated_node.clone();
        let mut known = with_pod();
        known.assume(&Effect::Nominate { pod: key(), node: Some("a".to_owned()) }, NOW);
        known.see(pod("u1", None, None));
        assert_eq!(nominated(&known).as_deref(), Some("a"));
        known.see(pod("u2", None, None));
        assert_eq!(nominated(&known), None, "a new pod of the same name was never nominated");
        assert!(known.is_empty());
    }

    #[test]
    fn times_of_a_job_stay_as_written_until_they_are_seen() {
        let group = |annotations: Value| {
            let metadata = json!({"namespace": "n", "name": "g", "annotations": annotations});
            object(&json!({"kind": "PodGroup", "metadata": metadata, "spec": {"queue": "q"}}))
        };
        let mut known = InFlight::default();
        known.see(group(json!({})));
        let since = Timestamp(960_400_000);
        let job = Key::new("n", "g");
        let note =
            Effect::NoteJob { job: job.clone(), last_start: None, stale_since: Some(since), last_eviction: None };
        known.assume(&note, NOW);
        known.see(group(json!({})));
        assert_eq!(known.world().pod_groups[&job].stale_since, Some(since));
        known.see(group(json!({"kai.scheduler/stale-podgroup-timestamp": "1970-01-01T00:16:00Z"})));
        assert!(known.is_empty());
        assert_eq!(known.world().pod_groups[&job].stale_since, Some(Timestamp(960_000_000)));
    }
}
