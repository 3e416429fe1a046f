//! In-flight status updates: conditions on pods and pod groups that were sent but not yet observed on a watch. They count
//! as stored, so that a slow watch does not cause duplicate writes.

use kai_api::SchedulingCondition;
use kai_engine::units::Timestamp;

use super::{STATUS_TTL, SchedulerCache};
use crate::controller::Assumed;
use crate::key::{GroupKey, PodKey};
use crate::kinds::Object;
use crate::objects::{Pod, PodGroup};
use crate::scheduler::Write;

/// Updates that await their watch event, by object.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlightStatus {
    pub(super) pods: Assumed<PodKey, InFlightUpdate<Option<String>>>,
    pub(super) groups: Assumed<GroupKey, InFlightUpdate<Vec<SchedulingCondition>>>,
}

/// One update of the status of an object.
#[derive(Clone, Debug)]
pub(super) struct InFlightUpdate<T> {
    /// Uid of the object.
    uid: String,
    sent: T,
    /// The value that the watch showed last.
    observed: T,
}

impl SchedulerCache {
    /// Assumes the status that a write is about to store.
    pub(super) fn assume_status(&mut self, write: &Write, now: Timestamp) {
        match write {
            Write::SetUnschedulable { pod, message, .. } => {
                let Some(mut row) = self.world.pods.get(pod).cloned() else { return };
                self.restore_pod(&mut row);
                let sent = Some(message.clone());
                let observed = std::mem::replace(&mut row.unschedulable_message, sent.clone());
                let update = InFlightUpdate { uid: row.uid.clone(), sent, observed };
                self.statuses.pods.assume_for(pod.clone(), update, now, STATUS_TTL);
                self.world.apply(Object::Pod(Box::new(row)));
            }
            Write::SetGroupConditions { group, conditions, .. } => {
                let Some(mut row) = self.world.pod_groups.get(group).cloned() else { return };
                self.restore_group(&mut row);
                let sent = conditions.clone();
                let observed = std::mem::replace(&mut row.conditions, sent.clone());
                let update = InFlightUpdate { uid: row.uid.clone(), sent, observed };
                self.statuses.groups.assume_for(group.clone(), update, now, STATUS_TTL);
                self.world.apply(Object::PodGroup(Box::new(row)));
            }
            _ => {}
        }
    }

    /// Overlays a pending condition on a pod from the watch. The update is dropped if the pod was replaced or has a node:
    /// then `PodScheduled=False` no longer applies.
    pub(super) fn overlay_pod_status(&mut self, pod: &mut Pod) {
        let Some(update) = self.statuses.pods.get_mut(&pod.key) else { return };
        if update.uid != pod.uid || pod.node.is_some() || pod.unschedulable_message == update.sent {
            self.statuses.pods.confirm(&pod.key);
        } else {
            update.observed = std::mem::replace(&mut pod.unschedulable_message, update.sent.clone());
        }
    }

    /// Overlays pending conditions on a group from the watch.
    pub(super) fn overlay_group_status(&mut self, group: &mut PodGroup) {
        let Some(update) = self.statuses.groups.get_mut(&group.key) else { return };
        if update.uid != group.uid || group.conditions == update.sent {
            self.statuses.groups.confirm(&group.key);
        } else {
            update.observed = std::mem::replace(&mut group.conditions, update.sent.clone());
        }
    }

    /// The update was rejected, or its outcome is unknown: what the watch showed last counts again.
    pub(super) fn forget_pod_status(&mut self, pod: &PodKey) {
        if let Some(update) = self.statuses.pods.forget(pod) {
            self.undo_pod_status(pod, update);
        }
    }

    /// The same for a group.
    pub(super) fn forget_group_status(&mut self, group: &GroupKey) {
        if let Some(update) = self.statuses.groups.forget(group) {
            self.undo_group_status(group, update);
        }
    }

    pub(super) fn expire_status(&mut self, now: Timestamp) {
        for (pod, update) in self.statuses.pods.expire(now) {
            self.undo_pod_status(&pod, update);
        }
        for (group, update) in self.statuses.groups.expire(now) {
            self.undo_group_status(&group, update);
        }
    }

    fn undo_pod_status(&mut self, pod: &PodKey, update: InFlightUpdate<Option<String>>) {
        if let Some(mut row) = self.world.pods.get(pod).filter(|row| row.uid == update.uid).cloned() {
            row.unschedulable_message = update.observed;
            self.world.apply(Object::Pod(Box::new(row)));
        }
    }

    fn undo_group_status(&mut self, group: &GroupKey, update: InFlightUpdate<Vec<SchedulingCondition>>) {
        if let Some(mut row) = self.world.pod_groups.get(group).filter(|row| row.uid == update.uid).cloned() {
            row.conditions = update.observed;
            self.world.apply(Object::PodGroup(Box::new(row)));
        }
    }

    /// Takes a pending update out of the row, so that it is as the watch showed it last.
    fn restore_pod(&mut self, row: &mut Pod) {
        if let Some(update) = self.statuses.pods.forget(&row.key)
            && update.uid == row.uid
        {
            row.unschedulable_message = update.observed;
        }
    }

    fn restore_group(&mut self, row: &mut PodGroup) {
        if let Some(update) = self.statuses.groups.forget(&row.key)
            && update.uid == row.uid
        {
            row.conditions = update.observed;
        }
    }
}

#[cfg(test)]
mod tests {
    use kai_api::keys::reason;
    use kai_engine::units::Span;
    use serde_json::{Value, json};

    use super::*;
    use crate::key::Key;
    use crate::kinds::ObjectId;
    use crate::scheduler::Assumption;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn object(value: &Value) -> Object {
        Object::parse(value).unwrap().unwrap()
    }

    fn key() -> Key {
        Key::new("n", "p")
    }

    fn pod(uid: &str, node: Option<&str>, message: Option<&str>) -> Object {
        let condition =
            |message| json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
        let conditions: Vec<Value> = message.map(condition).into_iter().collect();
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
        Write::SetUnschedulable { pod, reason: reason::UNSCHEDULABLE, message, is_update: false }
    }

    fn stored_message(known: &SchedulerCache) -> Option<&str> {
        known.world().pods[&key()].unschedulable_message.as_deref()
    }

    fn sent(message: &str) -> SchedulerCache {
        let mut known = SchedulerCache::default();
        known.on_apply(pod("u", None, None));
        known.defer_until_created(vec![mark(message)], NOW);
        assert_eq!(stored_message(&known), Some(message));
        known
    }

    #[test]
    fn a_condition_counts_as_soon_as_it_is_sent() {
        let mut known = sent("full");
        known.on_apply(pod("u", None, None));
        assert_eq!(stored_message(&known), Some("full"), "a watch that is late does not undo it");
        known.on_apply(pod("u", None, Some("full")));
        known.on_apply(pod("u", None, None));
        assert_eq!(stored_message(&known), None, "the watch has shown it come and go");
    }

    #[test]
    fn a_rejected_or_expired_condition_does_not_count() {
        let mut known = sent("full");
        known.forget(&Assumption::PodCondition(key()));
        assert_eq!(stored_message(&known), None);
        let mut known = sent("full");
        known.expire(NOW.plus(Span(STATUS_TTL.0 - 1)));
        assert_eq!(stored_message(&known), Some("full"));
        known.expire(NOW.plus(STATUS_TTL));
        assert_eq!(stored_message(&known), None);
    }

    #[test]
    fn a_newer_condition_replaces_an_older_one() {
        let mut known = sent("full");
        known.defer_until_created(vec![mark("fuller")], NOW);
        known.on_apply(pod("u", None, Some("full")));
        assert_eq!(stored_message(&known), Some("fuller"));
        known.forget(&Assumption::PodCondition(key()));
        assert_eq!(stored_message(&known), Some("full"), "what the watch has shown meanwhile");
    }

    #[test]
    fn a_replaced_or_bound_pod_has_no_pending_condition() {
        for event in [pod("v", None, None), pod("u", Some("a"), None)] {
            let mut known = sent("full");
            known.on_apply(event);
            assert_eq!(stored_message(&known), None);
        }
        let mut known = sent("full");
        known.on_delete(&ObjectId::Pod(key()));
        known.on_apply(pod("u", None, None));
        assert_eq!(stored_message(&known), None);
    }

    #[test]
    fn conditions_of_a_group_count_until_they_are_seen() {
        let stored = |known: &SchedulerCache| known.world().pod_groups[&key()].conditions.clone();
        let full = conditions("full");
        let write = Write::SetGroupConditions { group: key(), conditions: full.clone(), is_update: false };
        let mut known = SchedulerCache::default();
        known.on_apply(group(&[]));
        known.defer_until_created(vec![write.clone()], NOW);
        known.on_apply(group(&[]));
        assert_eq!(stored(&known), full);
        known.on_apply(group(&full));
        known.on_apply(group(&[]));
        assert_eq!(stored(&known), [], "the watch has shown them come and go");
        known.defer_until_created(vec![write], NOW);
        known.forget(&Assumption::GroupConditions(key()));
        assert_eq!(stored(&known), []);
    }
}
