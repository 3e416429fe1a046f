//! What pods and groups are being told of why they wait: counted as said until a watch shows it. Watches are slow when
//! thousands wait, which is when nobody should be told the same twice.

use std::collections::BTreeMap;

use kai_api::SchedulingCondition;
use kai_engine::units::{Span, Timestamp};

use super::{Assumed, InFlight, keys_where};
use crate::key::{GroupKey, PodKey};
use crate::kinds::Object;
use crate::objects::{Pod, PodGroup};
use crate::scheduler::Write;

#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    pub(super) pods: BTreeMap<PodKey, Assumed<Said<Option<String>>>>,
    pub(super) groups: BTreeMap<GroupKey, Assumed<Said<Vec<SchedulingCondition>>>>,
}

#[derive(Clone, Debug)]
pub(super) struct Said<T> {
    /// Of the object.
    uid: String,
    words: T,
    /// What the object said when it was last seen.
    before: T,
}

impl InFlight {
    /// A write is on its way.
    pub(super) fn say(&mut self, write: &Write, now: Timestamp) {
        match write {
            Write::SetUnschedulable { pod, message, .. } => {
                let Some(mut row) = self.world.pods.get(pod).cloned() else { return };
                self.restore_pod(&mut row);
                let words = Some(message.clone());
                let before = std::mem::replace(&mut row.unschedulable, words.clone());
                let said = Said { uid: row.uid.clone(), words, before };
                self.words.pods.insert(pod.clone(), Assumed { what: said, since: now });
                self.world.apply(Object::Pod(Box::new(row)));
            }
            Write::SetGroupConditions { group, conditions, .. } => {
                let Some(mut row) = self.world.pod_groups.get(group).cloned() else { return };
                self.restore_group(&mut row);
                let words = conditions.clone();
                let before = std::mem::replace(&mut row.conditions, words.clone());
                let said = Said { uid: row.uid.clone(), words, before };
                self.words.groups.insert(group.clone(), Assumed { what: said, since: now });
                self.world.apply(Object::PodGroup(Box::new(row)));
            }
            _ => {}
        }
    }

    /// Lays what is being said over a pod that a watch shows. Whoever is bound waits for nothing.
    pub(super) fn overlay_pod_words(&mut self, pod: &mut Pod) {
        let Some(Assumed { what: said, .. }) = self.words.pods.get_mut(&pod.key) else { return };
        if said.uid != pod.uid || pod.node.is_some() || pod.unschedulable == said.words {
            self.words.pods.remove(&pod.key);
        } else {
            said.before = std::mem::replace(&mut pod.unschedulable, said.words.clone());
        }
    }

    /// The same of a group.
    pub(super) fn overlay_group_words(&mut self, group: &mut PodGroup) {
        let Some(Assumed { what: said, .. }) = self.words.groups.get_mut(&group.key) else { return };
        if said.uid != group.uid || group.conditions == said.words {
            self.words.groups.remove(&group.key);
        } else {
            said.before = std::mem::replace(&mut group.conditions, said.words.clone());
        }
    }

    /// It was not said, or nobody knows whether it was.
    pub(super) fn unsay_pod(&mut self, pod: &PodKey) {
        if let Some(mut row) = self.world.pods.get(pod).cloned() {
            self.restore_pod(&mut row);
            self.world.apply(Object::Pod(Box::new(row)));
        }
        self.words.pods.remove(pod);
    }

    pub(super) fn unsay_group(&mut self, group: &GroupKey) {
        if let Some(mut row) = self.world.pod_groups.get(group).cloned() {
            self.restore_group(&mut row);
            self.world.apply(Object::PodGroup(Box::new(row)));
        }
        self.words.groups.remove(group);
    }

    pub(super) fn expire_words(&mut self, now: Timestamp, patience: Span) {
        let late = |since: Timestamp| now.since(since) > patience;
        for pod in keys_where(&self.words.pods, |assumed| late(assumed.since)) {
            self.unsay_pod(&pod);
        }
        for group in keys_where(&self.words.groups, |assumed| late(assumed.since)) {
            self.unsay_group(&group);
        }
    }

    /// Takes what is being said out of the row, so that it is as it was last seen.
    fn restore_pod(&mut self, row: &mut Pod) {
        if let Some(Assumed { what: said, .. }) = self.words.pods.remove(&row.key)
            && said.uid == row.uid
        {
            row.unschedulable = said.before;
        }
    }

    fn restore_group(&mut self, row: &mut PodGroup) {
        if let Some(Assumed { what: said, .. }) = self.words.groups.remove(&row.key)
            && said.uid == row.uid
        {
            row.conditions = said.before;
        }
    }
}

#[cfg(test)]
mod tests {
    use kai_api::keys::reason;
    use serde_json::{Value, json};

    use super::*;
    use crate::in_flight::{Asked, WORDS};
    use crate::key::Key;
    use crate::kinds::ObjectId;

    const NOW: Timestamp = Timestamp(1_000_000_000);
    /// Of deeds; of words it is longer.
    const PATIENCE: Span = Span::seconds(30);
    const LATE: Span = Span(PATIENCE.0 * WORDS);

    fn object(value: &Value) -> Object {
        Object::parse(value).unwrap().unwrap()
    }

    fn key() -> Key {
        Key::new("n", "p")
    }

    fn pod(uid: &str, node: Option<&str>, told: Option<&str>) -> Object {
        let condition =
            |message| json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
        let conditions: Vec<Value> = told.map(condition).into_iter().collect();
        let metadata = json!({"namespace": "n", "name": "p", "uid": uid});
        let (spec, status) = (json!({"nodeName": node}), json!({"conditions": conditions}));
        object(&json!({"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}))
    }

    fn group(conditions: &[SchedulingCondition]) -> Object {
        let (metadata, status) = (json!({"namespace": "n", "name": "p"}), json!({"schedulingConditions": conditions}));
        object(&json!({"kind": "PodGroup", "metadata": metadata, "spec": {"queue": "q"}, "status": status}))
    }

    fn conditions(message: &str) -> Vec<SchedulingCondition> {
        vec![SchedulingCondition { message: message.to_owned(), ..SchedulingCondition::default() }]
    }

    fn mark(message: &str) -> Write {
        let (pod, message) = (key(), message.to_owned());
        Write::SetUnschedulable { pod, reason: reason::UNSCHEDULABLE, message, again: false }
    }

    fn told(known: &InFlight) -> Option<&str> {
        known.world().pods[&key()].unschedulable.as_deref()
    }

    fn telling(message: &str) -> InFlight {
        let mut known = InFlight::default();
        known.see(pod("u", None, None));
        known.hold(vec![mark(message)], NOW);
        assert_eq!(told(&known), Some(message));
        known
    }

    #[test]
    fn a_pod_is_told_as_soon_as_the_words_are_on_their_way() {
        let mut known = telling("full");
        known.see(pod("u", None, None));
        assert_eq!(told(&known), Some("full"), "a watch that is late does not undo it");
        known.see(pod("u", None, Some("full")));
        known.see(pod("u", None, None));
        assert_eq!(told(&known), None, "the watch has shown it come and go");
    }

    #[test]
    fn words_that_were_not_said_do_not_count() {
        let mut known = telling("full");
        known.refused(&Asked::Mark(key()));
        assert_eq!(told(&known), None);
        let mut known = telling("full");
        known.expire(NOW.plus(LATE), PATIENCE);
        assert_eq!(told(&known), Some("full"));
        known.expire(NOW.plus(Span(LATE.0 + 1)), PATIENCE);
        assert_eq!(told(&known), None);
    }

    #[test]
    fn newer_words_take_the_place_of_older_ones() {
        let mut known = telling("full");
        known.hold(vec![mark("fuller")], NOW);
        known.see(pod("u", None, Some("full")));
        assert_eq!(told(&known), Some("fuller"));
        known.refused(&Asked::Mark(key()));
        assert_eq!(told(&known), Some("full"), "what the watch has shown meanwhile");
    }

    #[test]
    fn another_pod_of_the_same_name_and_one_that_is_bound_were_told_nothing() {
        for event in [pod("v", None, None), pod("u", Some("a"), None)] {
            let mut known = telling("full");
            known.see(event);
            assert_eq!(told(&known), None);
        }
        let mut known = telling("full");
        known.lose(&ObjectId::Pod(key()));
        known.see(pod("u", None, None));
        assert_eq!(told(&known), None);
    }

    #[test]
    fn conditions_of_a_group_count_until_they_are_seen() {
        let said = |known: &InFlight| known.world().pod_groups[&key()].conditions.clone();
        let full = conditions("full");
        let write = Write::SetGroupConditions { group: key(), conditions: full.clone(), again: false };
        let mut known = InFlight::default();
        known.see(group(&[]));
        known.hold(vec![write.clone()], NOW);
        known.see(group(&[]));
        assert_eq!(said(&known), full);
        known.see(group(&full));
        known.see(group(&[]));
        assert_eq!(said(&known), [], "the watch has shown them come and go");
        known.hold(vec![write], NOW);
        known.refused(&Asked::Conditions(key()));
        assert_eq!(said(&known), []);
    }
}
