//! Pod groups and links that the grouper of this process plans to write: they count as written until a watch shows them.
//!
//! A planned write ends when the watch shows the created group, any version of the group other than the one it replaces, or
//! the link on the pod. Planned writes and watch events come in any order.

use std::collections::BTreeMap;

use kai_api::keys::{annotation, label, reason};
use kai_engine::units::Timestamp;

use super::{STATUS_TTL, SchedulerCache};
use crate::calls::{Link, PlannedWrite};
use crate::controller::Assumed;
use crate::key::{GroupKey, Key, PodKey};
use crate::kinds::Object;
use crate::kinds::ObjectId;
use crate::objects::{Pod, PodGroup};
use crate::scheduler::{Event, InvolvedObject, Write};
use crate::world::World;

#[derive(Clone, Debug, Default)]
pub(super) struct PlannedWrites {
    groups: Assumed<GroupKey, PlannedGroup>,
    links: Assumed<PodKey, PlannedLink>,
    /// Writes about groups that do not exist yet.
    deferred: BTreeMap<GroupKey, Vec<Write>>,
    /// Deferred writes whose group exists now.
    sendable: Vec<Write>,
}

#[derive(Clone, Debug)]
struct PlannedGroup {
    row: PodGroup,
    /// The stored group; `None` if no watch has shown one.
    replaces: Option<PodGroup>,
}

#[derive(Clone, Debug)]
struct PlannedLink {
    link: Link,
    /// Group and leaf of the pod as last observed, if it was.
    before: Option<(Option<String>, Option<String>)>,
}

impl PlannedWrites {
    /// Whether no watch has shown the group yet.
    pub(super) fn is_planned_only(&self, group: &GroupKey) -> bool {
        self.groups.get(group).is_some_and(|planned| planned.replaces.is_none())
    }
}

impl SchedulerCache {
    /// The grouper plans a write, or cancels it.
    pub fn assume_planned(&mut self, planned: PlannedWrite) {
        match planned {
            PlannedWrite::Group(group) => self.plan_group(*group),
            PlannedWrite::Link(link) => self.plan_link(link),
            PlannedWrite::CancelGroup(group) => self.cancel_group(&group),
            PlannedWrite::CancelLink(pod) => self.cancel_link(&pod),
            PlannedWrite::CancelAll => {
                for pod in self.planned.links.iter().map(|(pod, _)| pod.clone()).collect::<Vec<_>>() {
                    self.cancel_link(&pod);
                }
                for group in self.planned.groups.iter().map(|(group, _)| group.clone()).collect::<Vec<_>>() {
                    self.cancel_group(&group);
                }
            }
        }
    }

    /// Returns the writes that can be sent now and assumes their conditions. Writes about a pod group that is not created
    /// yet are deferred until the watch shows it.
    pub fn defer_until_created(&mut self, writes: Vec<Write>, now: Timestamp) -> Vec<Write> {
        let mut due = std::mem::take(&mut self.planned.sendable);
        for write in &due {
            if let Write::PatchGroupTimestamps { group, .. } = write {
                self.group_timestamps.limit(group, now, STATUS_TTL);
            }
        }
        for write in writes {
            let Some(group) = group_of(&write).filter(|group| self.planned.is_planned_only(group)) else {
                due.push(write);
                continue;
            };
            match &write {
                Write::PatchGroupTimestamps { .. } => {
                    let deferred = self.planned.deferred.entry(group.clone()).or_default();
                    deferred.retain(|write| !matches!(write, Write::PatchGroupTimestamps { .. }));
                    deferred.push(write);
                }
                Write::Emit(Event { reason: reason::EVICT, .. }) => {
                    self.planned.deferred.entry(group.clone()).or_default().push(write);
                }
                // Not deferred: the next cycle writes it for as long as it holds.
                _ => {}
            }
        }
        for write in &due {
            self.assume_status(write, now);
        }
        due
    }

    /// Overlays a planned write on a group from the watch.
    pub(super) fn overlay_planned_group(&mut self, group: &mut PodGroup) {
        let Some(planned) = self.planned.groups.get(&group.key) else { return };
        if planned.replaces.as_ref().is_some_and(|before| with_observed_fields(before, group) == *group) {
            *group = with_observed_fields(&planned.row, group);
            return;
        }
        self.planned.groups.confirm(&group.key);
        for mut write in self.planned.deferred.remove(&group.key).unwrap_or_default() {
            if let Write::Emit(Event { about: InvolvedObject::PodGroup(_, uid), .. }) = &mut write {
                uid.clone_from(&group.uid);
            }
            self.planned.sendable.push(write);
        }
    }

    /// Overlays a planned link on a pod from the watch.
    pub(super) fn overlay_planned_link(&mut self, pod: &mut Pod) {
        let Some(planned) = self.planned.links.get_mut(&pod.key).filter(|planned| planned.link.uid == pod.uid) else {
            return;
        };
        if planned.link.matches(pod) {
            self.planned.links.confirm(&pod.key);
        } else {
            planned.before = Some(link_of(pod));
            planned.link.write(pod);
        }
    }

    /// Whether the deletion of a group is of an earlier one, because the planned one is not created yet.
    pub(super) fn ignores_delete(&mut self, group: &GroupKey) -> bool {
        if self.planned.is_planned_only(group) {
            return true;
        }
        self.planned.groups.forget(group);
        false
    }

    /// A pod was deleted. With its last pod the planned group goes, too.
    pub(super) fn drop_planned_of(&mut self, pod: &PodKey) {
        let Some(row) = self.world.pods.get(pod) else { return };
        if self.planned.links.get(pod).is_some_and(|planned| planned.link.uid == row.uid) {
            self.planned.links.forget(pod);
        }
        let Some(group) = row.group().filter(|group| self.planned.is_planned_only(group)) else { return };
        if !self.has_other_pods(&group, pod) {
            self.cancel_group(&group);
        }
    }

    /// Whether other pods of the group exist, or have a planned link to it.
    fn has_other_pods(&self, group: &GroupKey, pod: &PodKey) -> bool {
        let first = || Key::new(&group.namespace, "");
        let near = |key: &Key| key.namespace == group.namespace;
        let is_other = |key: &Key, name: Option<&str>| key != pod && name == Some(group.name.as_str());
        let mut pods = self.world.pods.range(first()..).take_while(|(key, _)| near(key));
        let mut links = self.planned.links.iter_from(first()).take_while(|(key, _)| near(key));
        pods.any(|(key, other)| is_other(key, other.group_name()))
            || links.any(|(key, planned)| is_other(key, planned.link.group.as_deref()))
    }

    fn plan_group(&mut self, row: PodGroup) {
        let key = row.key.clone();
        let known = self.world.pod_groups.get(&key);
        let replaces = match self.planned.groups.get(&key) {
            Some(earlier) => earlier.replaces.clone(),
            // The watch was faster: the group is created already, or has its planned fields.
            None if known.is_some_and(|stored| row.uid.is_empty() || with_observed_fields(&row, stored) == *stored) => {
                return;
            }
            None => known.cloned(),
        };
        let shown = known.map_or_else(|| row.clone(), |known| with_observed_fields(&row, known));
        self.planned.groups.assume(key, PlannedGroup { row, replaces });
        self.world.apply(Object::PodGroup(Box::new(shown)));
    }

    fn plan_link(&mut self, link: Link) {
        let earlier = self.planned.links.get(&link.pod).filter(|earlier| earlier.link.uid == link.uid);
        let mut before = earlier.and_then(|earlier| earlier.before.clone());
        if let Some(mut pod) = pod_with_uid(&self.world, &link.pod, &link.uid) {
            before.get_or_insert_with(|| link_of(&pod));
            link.write(&mut pod);
            self.world.apply(Object::Pod(Box::new(pod)));
        }
        self.planned.links.assume(link.pod.clone(), PlannedLink { link, before });
    }

    fn cancel_group(&mut self, key: &GroupKey) {
        let Some(PlannedGroup { replaces, .. }) = self.planned.groups.forget(key) else { return };
        match (replaces, self.world.pod_groups.get(key)) {
            (Some(before), Some(known)) => {
                let before = with_observed_fields(&before, known);
                self.world.apply(Object::PodGroup(Box::new(before)));
            }
            (Some(_), None) => {}
            (None, _) => {
                self.planned.deferred.remove(key);
                self.group_timestamps.forget(key);
                self.world.delete(&ObjectId::PodGroup(key.clone()));
            }
        }
    }

    fn cancel_link(&mut self, pod: &PodKey) {
        let Some(PlannedLink { link, before }) = self.planned.links.forget(pod) else { return };
        if let Some((group, leaf)) = before
            && let Some(mut row) = pod_with_uid(&self.world, pod, &link.uid)
        {
            let put = |map: &mut BTreeMap<String, String>, key: &str, value: Option<String>| match value {
                Some(value) => drop(map.insert(key.to_owned(), value)),
                None => drop(map.remove(key)),
            };
            put(&mut row.annotations, annotation::POD_GROUP_NAME, group);
            put(&mut row.labels, label::SUB_GROUP_NAME, leaf);
            self.world.apply(Object::Pod(Box::new(row)));
        }
    }
}

/// `group` with the fields that other writers own (uid, timestamps, conditions) taken from `known`.
fn with_observed_fields(group: &PodGroup, known: &PodGroup) -> PodGroup {
    PodGroup {
        uid: known.uid.clone(),
        created: known.created,
        last_start: known.last_start,
        stale_since: known.stale_since,
        last_eviction: known.last_eviction,
        backed_off_on: known.backed_off_on.clone(),
        conditions: known.conditions.clone(),
        ..group.clone()
    }
}

/// Group and leaf that the pod names.
fn link_of(pod: &Pod) -> (Option<String>, Option<String>) {
    (pod.annotations.get(annotation::POD_GROUP_NAME).cloned(), pod.labels.get(label::SUB_GROUP_NAME).cloned())
}

/// The pod, unless the one of this name has another uid.
fn pod_with_uid(world: &World, pod: &PodKey, uid: &str) -> Option<Pod> {
    world.pods.get(pod).filter(|row| row.uid == uid).cloned()
}

/// The pod group that a write is about.
fn group_of(write: &Write) -> Option<&GroupKey> {
    match write {
        Write::PatchGroupTimestamps { group, .. }
        | Write::SetGroupConditions { group, .. }
        | Write::Emit(Event { about: InvolvedObject::PodGroup(group, _), .. }) => Some(group),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::scheduler::Effect;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn object(value: &Value) -> Object {
        Object::parse(value).unwrap().unwrap()
    }

    /// A pod as a watch shows it.
    fn pod(uid: &str, group: Option<&str>) -> Object {
        let annotations = group.map(|group| json!({"pod-group-name": group}));
        let metadata = json!({"namespace": "n", "name": "p", "uid": uid, "annotations": annotations});
        object(&json!({"kind": "Pod", "metadata": metadata, "spec": {}}))
    }

    fn group_value(uid: &str, members: i32) -> Value {
        let metadata = json!({"namespace": "n", "name": "g", "uid": uid});
        json!({"kind": "PodGroup", "metadata": metadata, "spec": {"queue": "q", "minMember": members}})
    }

    /// A group as a watch shows it.
    fn stored(members: i32) -> Object {
        object(&group_value("s", members))
    }

    fn draft(uid: &str, members: i32) -> PlannedWrite {
        PlannedWrite::Group(Box::new(PodGroup::parse(&group_value(uid, members)).unwrap()))
    }

    fn created(members: i32) -> PlannedWrite {
        draft("", members)
    }

    fn replaced(members: i32) -> PlannedWrite {
        draft("s", members)
    }

    fn link(uid: &str) -> PlannedWrite {
        let (group, sub_group) = (Some("g".to_owned()), None);
        PlannedWrite::Link(Link { pod: pod_key(), uid: uid.to_owned(), group, sub_group })
    }

    fn pod_key() -> PodKey {
        Key::new("n", "p")
    }

    fn group_key() -> GroupKey {
        Key::new("n", "g")
    }

    fn members(known: &SchedulerCache) -> Option<u32> {
        known.world().pod_groups.get(&group_key())?.min_member
    }

    fn linked(known: &SchedulerCache) -> Option<&str> {
        known.world().pods[&pod_key()].group_name()
    }

    fn planned_counts(known: &SchedulerCache) -> (usize, usize) {
        (known.planned.groups.iter().count(), known.planned.links.iter().count())
    }

    #[test]
    fn a_group_counts_until_the_watch_shows_it_and_then_the_watch_is_right() {
        let mut known = SchedulerCache::default();
        known.assume_planned(created(2));
        assert_eq!(members(&known), Some(2));
        known.on_delete(&ObjectId::PodGroup(group_key()));
        assert_eq!(members(&known), Some(2), "that was an earlier one of its name");
        known.on_apply(stored(3));
        assert_eq!((members(&known), planned_counts(&known)), (Some(3), (0, 0)));
        known.on_delete(&ObjectId::PodGroup(group_key()));
        assert_eq!(members(&known), None);
    }

    #[test]
    fn a_group_that_the_watch_shows_before_its_plan_stays_as_it_is() {
        let mut known = SchedulerCache::default();
        known.on_apply(stored(3));
        known.assume_planned(created(2));
        assert_eq!((members(&known), planned_counts(&known)), (Some(3), (0, 0)));
        known.assume_planned(PlannedWrite::CancelGroup(group_key()));
        assert_eq!(members(&known), Some(3));
    }

    #[test]
    fn a_group_that_could_not_be_created_is_gone() {
        let mut known = SchedulerCache::default();
        known.assume_planned(created(2));
        known.assume_planned(created(4));
        assert_eq!(members(&known), Some(4));
        known.assume_planned(PlannedWrite::CancelGroup(group_key()));
        assert_eq!(members(&known), None);
    }

    #[test]
    fn a_replacement_holds_against_what_it_replaces() {
        let mut known = SchedulerCache::default();
        known.on_apply(stored(1));
        known.assume_planned(replaced(2));
        let mut noted = group_value("s", 1);
        noted["metadata"]["annotations"] = json!({"kai.scheduler/last-start-timestamp": "1970-01-01T00:00:05Z"});
        known.on_apply(object(&noted));
        let row = &known.world().pod_groups[&group_key()];
        assert_eq!((row.min_member, row.last_start), (Some(2), Some(Timestamp(5_000_000))), "others write it, too");
        known.assume_planned(PlannedWrite::CancelGroup(group_key()));
        let row = &known.world().pod_groups[&group_key()];
        assert_eq!((row.min_member, row.last_start), (Some(1), Some(Timestamp(5_000_000))));
        known.assume_planned(replaced(2));
        known.on_apply(stored(7));
        assert_eq!((members(&known), planned_counts(&known)), (Some(7), (0, 0)), "the watch was faster");
    }

    #[test]
    fn a_replacement_that_the_watch_shows_first_is_not_planned() {
        let mut known = SchedulerCache::default();
        known.on_apply(stored(2));
        known.assume_planned(replaced(2));
        assert_eq!(planned_counts(&known), (0, 0));
    }

    #[test]
    fn a_link_counts_whenever_the_watch_shows_the_pod_without_it() {
        for planned_first in [true, false] {
            let mut known = SchedulerCache::default();
            if planned_first {
                known.assume_planned(link("u"));
                known.on_apply(pod("u", None));
            } else {
                known.on_apply(pod("u", None));
                known.assume_planned(link("u"));
            }
            assert_eq!(linked(&known), Some("g"));
            known.on_apply(pod("u", None));
            assert_eq!(linked(&known), Some("g"));
            let mut refused = known.clone();
            refused.assume_planned(PlannedWrite::CancelLink(pod_key()));
            assert_eq!((linked(&refused), planned_counts(&refused)), (None, (0, 0)));
            known.on_apply(pod("u", Some("g")));
            assert_eq!(planned_counts(&known), (0, 0));
            known.on_apply(pod("u", Some("other")));
            assert_eq!(linked(&known), Some("other"), "the watch is right again");
        }
    }

    #[test]
    fn a_link_is_for_one_pod_and_not_for_another_of_its_name() {
        let mut known = SchedulerCache::default();
        known.on_apply(pod("old", None));
        known.assume_planned(link("new"));
        assert_eq!(linked(&known), None);
        known.on_delete(&ObjectId::Pod(pod_key()));
        known.on_apply(pod("new", None));
        assert_eq!(linked(&known), Some("g"));
        known.on_delete(&ObjectId::Pod(pod_key()));
        assert_eq!(planned_counts(&known), (0, 0));
    }

    #[test]
    fn the_planned_group_goes_with_its_last_pod() {
        let mut known = SchedulerCache::default();
        known.assume_planned(created(1));
        known.assume_planned(link("u"));
        known.on_apply(pod("u", None));
        let other =
            Link { pod: Key::new("n", "later"), uid: "v".to_owned(), group: Some("g".to_owned()), sub_group: None };
        known.assume_planned(PlannedWrite::Link(other));
        known.on_delete(&ObjectId::Pod(pod_key()));
        assert_eq!(members(&known), Some(1), "another pod of it has yet to be seen");
        known.assume_planned(PlannedWrite::CancelLink(Key::new("n", "later")));
        known.assume_planned(link("u"));
        known.on_apply(pod("u", None));
        known.on_delete(&ObjectId::Pod(pod_key()));
        assert_eq!((members(&known), planned_counts(&known)), (None, (0, 0)));
    }

    #[test]
    fn nothing_stays_planned_when_the_grouper_stops() {
        let mut known = SchedulerCache::default();
        known.on_apply(pod("u", None));
        known.assume_planned(created(2));
        known.assume_planned(link("u"));
        known.assume_planned(PlannedWrite::CancelAll);
        assert_eq!((members(&known), linked(&known), planned_counts(&known)), (None, None, (0, 0)));
    }

    fn note(last_start: Timestamp) -> Effect {
        Effect::SetGroupTimestamps {
            job: group_key(),
            last_start: Some(last_start),
            stale_since: None,
            last_eviction: None,
        }
    }

    fn note_write(at: &str) -> Write {
        let annotations = [("started".to_owned(), Some(at.to_owned()))].into();
        Write::PatchGroupTimestamps { group: group_key(), annotations }
    }

    fn event(reason: &'static str, uid: &str) -> Write {
        let about = InvolvedObject::PodGroup(group_key(), uid.to_owned());
        Write::Emit(Event { about, warning: false, reason, message: String::new(), annotations: BTreeMap::new() })
    }

    #[test]
    fn writes_about_a_group_are_deferred_until_it_exists() {
        let mut known = SchedulerCache::default();
        known.assume_planned(created(1));
        known.assume(&note(NOW), NOW);
        let conditions = Write::SetGroupConditions { group: group_key(), conditions: Vec::new(), is_update: false };
        let (pod, reason, message) = (pod_key(), reason::UNSCHEDULABLE, String::new());
        let marked = Write::SetUnschedulable { pod, reason, message, is_update: false };
        let pending = event(reason::UNSCHEDULABLE, "");
        let evicted = event(reason::EVICT, "");
        let writes = vec![note_write("1"), conditions, marked.clone(), pending, evicted];
        assert_eq!(known.defer_until_created(writes, NOW), [marked]);
        assert_eq!(known.defer_until_created(vec![note_write("2")], NOW), []);
        let late = NOW.plus(kai_engine::units::Span::seconds(60));
        known.expire(late);
        known.on_apply(stored(1));
        assert_eq!(known.world().pod_groups[&group_key()].last_start, Some(NOW));
        assert_eq!(known.defer_until_created(Vec::new(), late), [event(reason::EVICT, "s"), note_write("2")]);
        assert_eq!(known.defer_until_created(vec![note_write("3")], late), [note_write("3")]);
        assert!(!known.is_empty(), "its time to live starts when it is sent");
    }
}
