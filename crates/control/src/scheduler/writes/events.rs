//! Events, and which of them were sent already.

use std::collections::BTreeMap;

use super::{CycleWrites, Event, InvolvedObject, WritePlanner};
use crate::key::{GroupKey, PodKey};

impl WritePlanner {
    /// Drops events that were sent with the same message after the last cycle, and debounced ones if any of the same reason
    /// was sent.
    pub(super) fn dedupe_events(&mut self, events: Vec<(Event, bool)>) -> Vec<Event> {
        let before = std::mem::take(&mut self.sent_events);
        let mut unsent = Vec::new();
        for (event, debounced) in events {
            let key = (event.about.clone(), event.reason);
            if let Some(message) = before.get(&key).filter(|_| debounced) {
                self.sent_events.insert(key, message.clone());
                continue;
            }
            let sent = before.get(&key) == Some(&event.message) || self.sent_events.get(&key) == Some(&event.message);
            self.sent_events.insert(key, event.message.clone());
            if !sent {
                unsent.push(event);
            }
        }
        unsent
    }
}

impl CycleWrites<'_> {
    pub(super) fn pod_event(&mut self, pod: &PodKey, warning: bool, reason: &'static str, message: String) {
        let uid = self.world.pods.get(pod).map_or_else(String::new, |row| row.uid.clone());
        let about = InvolvedObject::Pod(pod.clone(), uid);
        self.events.push((Event { about, warning, reason, message, annotations: BTreeMap::new() }, self.debounced));
    }

    pub(super) fn group_event(
        &mut self,
        group: &GroupKey,
        reason: &'static str,
        message: String,
        annotations: BTreeMap<String, String>,
    ) {
        let uid = self.world.pod_groups.get(group).map_or_else(String::new, |row| row.uid.clone());
        let about = InvolvedObject::PodGroup(group.clone(), uid);
        self.events.push((Event { about, warning: false, reason, message, annotations }, self.debounced));
    }
}
