//! The pod grouper: every pod of our scheduler gets its group, and a link to it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kai_control::grouper::{GroupEffect, reconcile};
use kai_control::world::Key;
use kai_engine::units::{Span, Timestamp};
use kai_workloads::owners::{Lookup, OwnerQuery};
use kai_workloads::{ObjectRef, Objects, Related as _, Settings};
use serde_json::Value;

use super::{Clock, End, Part, Task, key_of};
use crate::cluster::{Call, Refusal, Store};
use crate::manifest::{Id, Kind};

const KINDS: [Kind; 3] = [Kind::Pod, Kind::PodGroup, Kind::PriorityClass];

/// Between attempts for a pod that cannot be grouped: the first pause, and the longest.
const PAUSE: Span = Span::seconds(1);
const PAUSE_MAX: Span = Span::seconds(60);
/// Until a watch shows what others have written.
const MOMENT: Span = Span(200_000);

pub(in crate::chaos) struct GrouperPart {
    settings: Settings,
    seen: Objects,
    pods: BTreeMap<Key, Rc<Value>>,
    /// Groups on their way.
    assumed: BTreeSet<Key>,
    due: BTreeMap<Key, Timestamp>,
    failures: BTreeMap<Key, u32>,
    busy: BTreeSet<Key>,
}

impl GrouperPart {
    pub(in crate::chaos) fn new(settings: Settings) -> Self {
        Self {
            settings,
            seen: Objects::default(),
            pods: BTreeMap::new(),
            assumed: BTreeSet::new(),
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
            busy: BTreeSet::new(),
        }
    }

    fn fail(&mut self, pod: Key, now: Timestamp) {
        for group in std::mem::take(&mut self.assumed) {
            // One of them may be what failed; those that exist will be found to.
            self.seen.remove(&place(&Id::namespaced(Kind::PodGroup, group.namespace, group.name)));
        }
        let attempts = self.failures.entry(pod.clone()).or_default();
        let pause = Span(PAUSE.0 << (*attempts).min(6)).min(PAUSE_MAX);
        *attempts += 1;
        self.due.insert(pod, now.plus(pause));
    }
}

impl Part for GrouperPart {
    fn kinds(&self) -> &'static [Kind] {
        &KINDS
    }

    fn applied(&mut self, id: &Id, value: &Rc<Value>, clock: Clock) {
        let key = key_of(id);
        self.seen.insert((**value).clone());
        match id.kind {
            Kind::Pod => {
                let before = self.pods.insert(key.clone(), Rc::clone(value));
                // Who a pod belongs to does not depend on how it does.
                if before.is_none_or(|before| !same(&before, value)) {
                    self.due.insert(key, clock.wall);
                }
            }
            Kind::PodGroup => {
                self.assumed.remove(&key);
            }
            _ => {}
        }
    }

    fn deleted(&mut self, id: &Id, clock: Clock) {
        let key = key_of(id);
        self.seen.remove(&place(id));
        match id.kind {
            Kind::Pod => {
                self.pods.remove(&key);
                self.due.remove(&key);
                self.failures.remove(&key);
            }
            Kind::PodGroup => {
                self.assumed.remove(&key);
                // Those left without it need it again.
                let name = kai_api::keys::annotation::POD_GROUP_NAME;
                let linked = self.pods.iter().filter(|(pod, value)| {
                    pod.namespace == key.namespace && value["metadata"]["annotations"][name] == *key.name
                });
                self.due.extend(linked.map(|(pod, _)| (pod.clone(), clock.wall)));
            }
            _ => {}
        }
    }

    fn act(&mut self, api: Option<&Store>, clock: Clock) -> Vec<Task> {
        let ready =
            |(pod, at): (&Key, &Timestamp)| (*at <= clock.wall && !self.busy.contains(pod)).then(|| pod.clone());
        let due: Vec<Key> = self.due.iter().filter_map(ready).collect();
        let mut tasks = Vec::new();
        for pod in due {
            self.due.remove(&pod);
            let Some(value) = self.pods.get(&pod) else { continue };
            let read = |query: &OwnerQuery| match api.map(|api| api.object(&query.object)) {
                Some(Some(owner)) => Lookup::Found(owner),
                Some(None) => Lookup::Missing,
                None => Lookup::Unread,
            };
            let Ok(answer) = reconcile(value, read, &self.seen, &self.settings) else {
                self.fail(pod, clock.wall);
                continue;
            };
            for effect in &answer.effects {
                if let GroupEffect::CreatePodGroup(group) = effect {
                    let value = serde_json::to_value(group).unwrap_or_default();
                    self.assumed.insert(Key::of(&value));
                    self.seen.insert(value);
                }
            }
            if answer.effects.is_empty() {
                self.failures.remove(&pod);
                continue;
            }
            self.busy.insert(pod.clone());
            tasks.push(Task {
                about: pod,
                calls: answer.effects.into_iter().map(Call::Group).collect(),
                stubborn: false,
            });
        }
        tasks
    }

    fn finished(&mut self, end: End, clock: Clock) {
        let pod = end.task.about;
        self.busy.remove(&pod);
        match end.refusal {
            None => {
                self.failures.remove(&pod);
            }
            Some(Refusal::Outrun) => {
                self.due.insert(pod, clock.wall.plus(MOMENT));
            }
            Some(Refusal::Failed(_)) => self.fail(pod, clock.wall),
        }
    }

    fn next(&self, clock: Clock) -> Option<Timestamp> {
        let idle = self.due.iter().filter(|(pod, _)| !self.busy.contains(*pod));
        idle.map(|(_, at)| clock.steady.plus(at.since(clock.wall))).min()
    }
}

fn place(id: &Id) -> ObjectRef {
    ObjectRef::new(id.kind.api_version(), id.kind.name(), &id.namespace, &id.name)
}

/// Whether a pod is the same to the grouper.
fn same(one: &Value, other: &Value) -> bool {
    let metadata = ["labels", "annotations", "ownerReferences", "deletionTimestamp", "uid"];
    metadata.iter().all(|field| one["metadata"][field] == other["metadata"][field]) && one["spec"] == other["spec"]
}
