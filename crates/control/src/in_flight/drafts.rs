//! Groups and links that the grouper of this process is about to write: counted as written until a watch shows them.
//!
//! The watch is right as soon as it shows a group that was to be created, or another one than was to be replaced, and a
//! pod that says what it was to say. Drafts and watches come in any order.

use std::collections::BTreeMap;

use kai_api::keys::{annotation, label, reason};
use kai_engine::units::Timestamp;

use super::InFlight;
use crate::grouper::{Draft, Link};
use crate::key::{GroupKey, Key, PodKey};
use crate::kinds::Object;
use crate::kinds::ObjectId;
use crate::objects::{Pod, PodGroup};
use crate::scheduler::{About, Event, Write};
use crate::world::World;

#[derive(Clone, Debug, Default)]
pub(super) struct Drafts {
    groups: BTreeMap<GroupKey, GroupDraft>,
    links: BTreeMap<PodKey, LinkDraft>,
    /// What is to be written about groups once they exist.
    held: BTreeMap<GroupKey, Vec<Write>>,
    /// What was, and can be written now.
    released: Vec<Write>,
}

#[derive(Clone, Debug)]
struct GroupDraft {
    row: PodGroup,
    /// The stored group; `None` if no watch has shown one.
    replaces: Option<PodGroup>,
}

#[derive(Clone, Debug)]
struct LinkDraft {
    link: Link,
    /// What the pod said when it was last seen, if it was: its group and its leaf.
    before: Option<(Option<String>, Option<String>)>,
}

impl Drafts {
    /// Whether the API server may know nothing of the group.
    pub(super) fn is_unwritten(&self, group: &GroupKey) -> bool {
        self.groups.get(group).is_some_and(|draft| draft.replaces.is_none())
    }
}

impl InFlight {
    /// The grouper is about to write something, or is not any more.
    pub fn draft(&mut self, draft: Draft) {
        match draft {
            Draft::Group(group) => self.draft_group(*group),
            Draft::Link(link) => self.draft_link(link),
            Draft::NoGroup(group) => self.withdraw_group(&group),
            Draft::NoLink(pod) => self.withdraw_link(&pod),
            Draft::Nothing => {
                for pod in self.drafts.links.keys().cloned().collect::<Vec<_>>() {
                    self.withdraw_link(&pod);
                }
                for group in self.drafts.groups.keys().cloned().collect::<Vec<_>>() {
                    self.withdraw_group(&group);
                }
            }
        }
    }

    /// Of what a cycle wants written, what can be: not what is about groups that may not exist yet. That follows when
    /// they do. What can be counts as said from now on.
    pub fn hold(&mut self, writes: Vec<Write>, now: Timestamp) -> Vec<Write> {
        let mut due = std::mem::take(&mut self.drafts.released);
        for write in &due {
            if let Write::NoteGroup { group, .. } = write
                && let Some(assumed) = self.notes.get_mut(group)
            {
                assumed.since = now;
            }
        }
        for write in writes {
            let Some(group) = group_of(&write).filter(|group| self.drafts.is_unwritten(group)) else {
                due.push(write);
                continue;
            };
            match &write {
                Write::NoteGroup { .. } => {
                    let held = self.drafts.held.entry(group.clone()).or_default();
                    held.retain(|write| !matches!(write, Write::NoteGroup { .. }));
                    held.push(write);
                }
                Write::Emit(Event { reason: reason::EVICT, .. }) => {
                    self.drafts.held.entry(group.clone()).or_default().push(write);
                }
                // Said again for as long as it holds.
                _ => {}
            }
        }
        for write in &due {
            self.say(write, now);
        }
        due
    }

    /// Lays what was drafted over a group that a watch shows.
    pub(super) fn overlay_draft(&mut self, group: &mut PodGroup) {
        let Some(draft) = self.drafts.groups.get(&group.key) else { return };
        if draft.replaces.as_ref().is_some_and(|before| at_the_time_of(before, group) == *group) {
            *group = at_the_time_of(&draft.row, group);
            return;
        }
        self.drafts.groups.remove(&group.key);
        for mut write in self.drafts.held.remove(&group.key).unwrap_or_default() {
            if let Write::Emit(Event { about: About::PodGroup(_, uid), .. }) = &mut write {
                uid.clone_from(&group.uid);
            }
            self.drafts.released.push(write);
        }
    }

    /// Lays what was drafted over a pod that a watch shows.
    pub(super) fn overlay_link(&mut self, pod: &mut Pod) {
        let Some(draft) = self.drafts.links.get_mut(&pod.key).filter(|draft| draft.link.uid == pod.uid) else { return };
        if draft.link.shown_by(pod) {
            self.drafts.links.remove(&pod.key);
        } else {
            draft.before = Some(said_by(pod));
            draft.link.write(pod);
        }
    }

    /// A watch shows that a group is gone; whether ours, which has yet to appear, stays.
    pub(super) fn keeps_draft(&mut self, group: &GroupKey) -> bool {
        if self.drafts.is_unwritten(group) {
            return true;
        }
        self.drafts.groups.remove(group);
        false
    }

    /// A watch shows that a pod is gone. The last one takes the draft of its group with it.
    pub(super) fn lose_drafts_of(&mut self, pod: &PodKey) {
        let Some(row) = self.world.pods.get(pod) else { return };
        if self.drafts.links.get(pod).is_some_and(|draft| draft.link.uid == row.uid) {
            self.drafts.links.remove(pod);
        }
        let Some(group) = row.group().filter(|group| self.drafts.is_unwritten(group)) else { return };
        let here = || Key::new(&group.namespace, "");
        let of_it = |key: &Key, name: Option<&str>| key != pod && name == Some(group.name.as_str());
        let near = |key: &Key| key.namespace == group.namespace;
        let mut pods = self.world.pods.range(here()..).take_while(|(key, _)| near(key));
        let mut links = self.drafts.links.range(here()..).take_while(|(key, _)| near(key));
        let others = pods.any(|(key, other)| of_it(key, other.group_name()))
            || links.any(|(key, draft)| of_it(key, draft.link.group.as_deref()));
        if !others {
            self.withdraw_group(&group);
        }
    }

    fn draft_group(&mut self, row: PodGroup) {
        let key = row.key.clone();
        let known = self.world.pod_groups.get(&key);
        let replaces = match self.drafts.groups.get(&key) {
            Some(earlier) => earlier.replaces.clone(),
            // Somebody was faster: it is created already, or says what it is to say.
            None if known.is_some_and(|stored| row.uid.is_empty() || at_the_time_of(&row, stored) == *stored) => return,
            None => known.cloned(),
        };
        let shown = known.map_or_else(|| row.clone(), |known| at_the_time_of(&row, known));
        self.drafts.groups.insert(key, GroupDraft { row, replaces });
        self.world.apply(Object::PodGroup(Box::new(shown)));
    }

    fn draft_link(&mut self, link: Link) {
        let earlier = self.drafts.links.get(&link.pod).filter(|earlier| earlier.link.uid == link.uid);
        let mut before = earlier.and_then(|earlier| earlier.before.clone());
        if let Some(mut pod) = of_uid(&self.world, &link.pod, &link.uid) {
            before.get_or_insert_with(|| said_by(&pod));
            link.write(&mut pod);
            self.world.apply(Object::Pod(Box::new(pod)));
        }
        self.drafts.links.insert(link.pod.clone(), LinkDraft { link, before });
    }

    fn withdraw_group(&mut self, key: &GroupKey) {
        let Some(GroupDraft { replaces, .. }) = self.drafts.groups.remove(key) else { return };
        match (replaces, self.world.pod_groups.get(key)) {
            (Some(before), Some(known)) => {
                let before = at_the_time_of(&before, known);
                self.world.apply(Object::PodGroup(Box::new(before)));
            }
            (Some(_), None) => {}
            (None, _) => {
                self.drafts.held.remove(key);
                self.notes.remove(key);
                self.world.delete(&ObjectId::PodGroup(key.clone()));
            }
        }
    }

    fn withdraw_link(&mut self, pod: &PodKey) {
        let Some(LinkDraft { link, before }) = self.drafts.links.remove(pod) else { return };
        if let Some((group, leaf)) = before
            && let Some(mut row) = of_uid(&self.world, pod, &link.uid)
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

/// What the grouper says of a group, with all that others have to say as it is known of it now.
fn at_the_time_of(group: &PodGroup, known: &PodGroup) -> PodGroup {
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

fn said_by(pod: &Pod) -> (Option<String>, Option<String>) {
    (pod.annotations.get(annotation::POD_GROUP_NAME).cloned(), pod.labels.get(label::SUB_GROUP_NAME).cloned())
}

/// The pod, unless it is another one of the same name.
fn of_uid(world: &World, pod: &PodKey, uid: &str) -> Option<Pod> {
    world.pods.get(pod).filter(|row| row.uid == uid).cloned()
}

/// The group that a write is about.
fn group_of(write: &Write) -> Option<&GroupKey> {
    match write {
        Write::NoteGroup { group, .. }
        | Write::SetGroupConditions { group, .. }
        | Write::Emit(Event { about: About::PodGroup(group, _), .. }) => Some(group),
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

    fn draft(uid: &str, members: i32) -> Draft {
        Draft::Group(Box::new(PodGroup::parse(&group_value(uid, members)).unwrap()))
    }

    fn created(members: i32) -> Draft {
        draft("", members)
    }

    fn replaced(members: i32) -> Draft {
        draft("s", members)
    }

    fn link(uid: &str) -> Draft {
        let (group, sub_group) = (Some("g".to_owned()), None);
        Draft::Link(Link { pod: pod_key(), uid: uid.to_owned(), group, sub_group })
    }

    fn pod_key() -> PodKey {
        Key::new("n", "p")
    }

    fn group_key() -> GroupKey {
        Key::new("n", "g")
    }

    fn members(known: &InFlight) -> Option<u32> {
        known.world().pod_groups.get(&group_key())?.min_member
    }

    fn linked(known: &InFlight) -> Option<&str> {
        known.world().pods[&pod_key()].group_name()
    }

    fn drafts(known: &InFlight) -> (usize, usize) {
        (known.drafts.groups.len(), known.drafts.links.len())
    }

    #[test]
    fn a_group_counts_until_the_watch_shows_it_and_then_the_watch_is_right() {
        let mut known = InFlight::default();
        known.draft(created(2));
        assert_eq!(members(&known), Some(2));
        known.lose(&ObjectId::PodGroup(group_key()));
        assert_eq!(members(&known), Some(2), "that was an earlier one of its name");
        known.see(stored(3));
        assert_eq!((members(&known), drafts(&known)), (Some(3), (0, 0)));
        known.lose(&ObjectId::PodGroup(group_key()));
        assert_eq!(members(&known), None);
    }

    #[test]
    fn a_group_that_was_seen_before_its_draft_stays_as_it_is() {
        let mut known = InFlight::default();
        known.see(stored(3));
        known.draft(created(2));
        assert_eq!((members(&known), drafts(&known)), (Some(3), (0, 0)));
        known.draft(Draft::NoGroup(group_key()));
        assert_eq!(members(&known), Some(3));
    }

    #[test]
    fn a_group_that_could_not_be_created_is_gone() {
        let mut known = InFlight::default();
        known.draft(created(2));
        known.draft(created(4));
        assert_eq!(members(&known), Some(4));
        known.draft(Draft::NoGroup(group_key()));
        assert_eq!(members(&known), None);
    }

    #[test]
    fn a_replacement_holds_against_what_it_replaces() {
        let mut known = InFlight::default();
        known.see(stored(1));
        known.draft(replaced(2));
        let mut noted = group_value("s", 1);
        noted["metadata"]["annotations"] = json!({"kai.scheduler/last-start-timestamp": "1970-01-01T00:00:05Z"});
        known.see(object(&noted));
        let row = &known.world().pod_groups[&group_key()];
        assert_eq!((row.min_member, row.last_start), (Some(2), Some(Timestamp(5_000_000))), "others write it, too");
        known.draft(Draft::NoGroup(group_key()));
        let row = &known.world().pod_groups[&group_key()];
        assert_eq!((row.min_member, row.last_start), (Some(1), Some(Timestamp(5_000_000))));
        known.draft(replaced(2));
        known.see(stored(7));
        assert_eq!((members(&known), drafts(&known)), (Some(7), (0, 0)), "somebody was faster");
    }

    #[test]
    fn a_replacement_that_was_seen_first_needs_no_draft() {
        let mut known = InFlight::default();
        known.see(stored(2));
        known.draft(replaced(2));
        assert_eq!(drafts(&known), (0, 0));
    }

    #[test]
    fn a_link_counts_whenever_the_pod_is_seen_without_it() {
        for draft_first in [true, false] {
            let mut known = InFlight::default();
            if draft_first {
                known.draft(link("u"));
                known.see(pod("u", None));
            } else {
                known.see(pod("u", None));
                known.draft(link("u"));
            }
            assert_eq!(linked(&known), Some("g"));
            known.see(pod("u", None));
            assert_eq!(linked(&known), Some("g"));
            let mut refused = known.clone();
            refused.draft(Draft::NoLink(pod_key()));
            assert_eq!((linked(&refused), drafts(&refused)), (None, (0, 0)));
            known.see(pod("u", Some("g")));
            assert_eq!(drafts(&known), (0, 0));
            known.see(pod("u", Some("other")));
            assert_eq!(linked(&known), Some("other"), "the watch is right again");
        }
    }

    #[test]
    fn a_link_is_for_one_pod_and_not_for_another_of_its_name() {
        let mut known = InFlight::default();
        known.see(pod("old", None));
        known.draft(link("new"));
        assert_eq!(linked(&known), None);
        known.lose(&ObjectId::Pod(pod_key()));
        known.see(pod("new", None));
        assert_eq!(linked(&known), Some("g"));
        known.lose(&ObjectId::Pod(pod_key()));
        assert_eq!(drafts(&known), (0, 0));
    }

    #[test]
    fn the_last_pod_takes_the_draft_of_its_group_along() {
        let mut known = InFlight::default();
        known.draft(created(1));
        known.draft(link("u"));
        known.see(pod("u", None));
        let other =
            Link { pod: Key::new("n", "later"), uid: "v".to_owned(), group: Some("g".to_owned()), sub_group: None };
        known.draft(Draft::Link(other));
        known.lose(&ObjectId::Pod(pod_key()));
        assert_eq!(members(&known), Some(1), "another pod of it has yet to be seen");
        known.draft(Draft::NoLink(Key::new("n", "later")));
        known.draft(link("u"));
        known.see(pod("u", None));
        known.lose(&ObjectId::Pod(pod_key()));
        assert_eq!((members(&known), drafts(&known)), (None, (0, 0)));
    }

    #[test]
    fn nothing_is_left_of_a_grouper_that_is_gone() {
        let mut known = InFlight::default();
        known.see(pod("u", None));
        known.draft(created(2));
        known.draft(link("u"));
        known.draft(Draft::Nothing);
        assert_eq!((members(&known), linked(&known), drafts(&known)), (None, None, (0, 0)));
    }

    fn note(last_start: Timestamp) -> Effect {
        Effect::NoteJob { job: group_key(), last_start: Some(last_start), stale_since: None, last_eviction: None }
    }

    fn note_write(at: &str) -> Write {
        let annotations = [("started".to_owned(), Some(at.to_owned()))].into();
        Write::NoteGroup { group: group_key(), annotations }
    }

    fn event(reason: &'static str, uid: &str) -> Write {
        let about = About::PodGroup(group_key(), uid.to_owned());
        Write::Emit(Event { about, warning: false, reason, message: String::new(), annotations: BTreeMap::new() })
    }

    #[test]
    fn what_is_said_once_of_a_group_waits_until_it_exists() {
        let mut known = InFlight::default();
        known.draft(created(1));
        known.assume(&note(NOW), NOW);
        let conditions = Write::SetGroupConditions { group: group_key(), conditions: Vec::new(), again: false };
        let (pod, reason, message) = (pod_key(), reason::UNSCHEDULABLE, String::new());
        let marked = Write::SetUnschedulable { pod, reason, message, again: false };
        let said = event(reason::UNSCHEDULABLE, "");
        let evicted = event(reason::EVICT, "");
        let writes = vec![note_write("1"), conditions, marked.clone(), said, evicted];
        assert_eq!(known.hold(writes, NOW), [marked]);
        assert_eq!(known.hold(vec![note_write("2")], NOW), []);
        let late = NOW.plus(kai_engine::units::Span::seconds(60));
        known.expire(late, kai_engine::units::Span::seconds(30));
        known.see(stored(1));
        assert_eq!(known.world().pod_groups[&group_key()].last_start, Some(NOW));
        assert_eq!(known.hold(Vec::new(), late), [event(reason::EVICT, "s"), note_write("2")]);
        assert_eq!(known.hold(vec![note_write("3")], late), [note_write("3")]);
        assert!(!known.is_empty(), "its echo has all the time that others have");
    }
}
