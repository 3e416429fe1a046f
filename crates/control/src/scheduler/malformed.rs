//! Objects that cannot be used as they are, and events about them.

use std::collections::BTreeMap;

use kai_api::keys::reason;
use serde_json::Value;

use crate::controller::{LeftOut, NewEvent, Regarding, Skipped};
use crate::key::Key;
use crate::kinds::Kind;
use crate::objects::Malformed;

/// What was reported of malformed objects, so that it is reported once.
#[derive(Debug, Default)]
pub(super) struct MalformedObjects {
    reported: BTreeMap<(Kind, Key), Report>,
    events: Vec<NewEvent>,
}

#[derive(Debug, PartialEq, Eq)]
struct Report {
    uid: String,
    text: String,
}

impl MalformedObjects {
    /// An object has these problems. Pods of the scheduler and pod groups get an event; those of other objects are in the log
    /// only.
    pub(super) fn report(
        &mut self,
        kind: Kind,
        object: &Value,
        left_out: LeftOut,
        problems: &[Malformed],
        scheduler: &str,
    ) -> Vec<Skipped> {
        let Some(first) = problems.first() else {
            if !self.reported.is_empty() {
                self.reported.remove(&(kind, kind.key_of(object)));
            }
            return Vec::new();
        };
        let key = kind.key_of(object);
        let reported = Report {
            uid: object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            text: format!("{first}; {}. {}", first.hint, consequence(left_out)),
        };
        if self.reported.get(&(kind, key.clone())) == Some(&reported) {
            return Vec::new();
        }
        let ours = kind == Kind::PodGroup || kind == Kind::Pod && object["spec"]["schedulerName"] == scheduler;
        if ours {
            self.events.push(NewEvent {
                regarding: Regarding { kind, key: key.clone(), uid: reported.uid.clone() },
                warning: true,
                reason: reason::MALFORMED,
                message: reported.text.clone(),
                annotations: BTreeMap::new(),
            });
        }
        self.reported.insert((kind, key.clone()), reported);
        problems.iter().map(|malformed| Skipped::malformed(left_out, kind, key.clone(), malformed)).collect()
    }

    pub(super) fn forget(&mut self, kind: Kind, key: &Key) {
        if !self.reported.is_empty() {
            self.reported.remove(&(kind, key.clone()));
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<NewEvent> {
        std::mem::take(&mut self.events)
    }
}

fn consequence(left_out: LeftOut) -> &'static str {
    match left_out {
        LeftOut::Change => "Until then it counts as it was before this change.",
        LeftOut::Fields => "Until then the field counts as the most that it can mean.",
        _ => "Until then it is ignored.",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kai_engine::units::{Span, Timestamp};
    use serde_json::json;

    use super::*;
    use crate::controller::{Clock, Controller as _};
    use crate::key::PodKey;
    use crate::scheduler::{SchedulerController, Settings};

    fn pod(node: Option<&str>, annotations: &Value) -> Value {
        json!({
            "kind": "Pod", "metadata": {"name": "p", "namespace": "lab", "uid": "u", "annotations": annotations},
            "spec": {"schedulerName": "kai-scheduler", "nodeName": node,
                "containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}]},
        })
    }

    fn queue(quota: &Value) -> Value {
        json!({"kind": "Queue", "metadata": {"name": "q"}, "spec": {"resources": {"gpu": {"quota": quota}}}})
    }

    fn group(preemptibility: &str) -> Value {
        json!({"kind": "PodGroup", "metadata": {"name": "g", "namespace": "lab", "uid": "v"},
            "spec": {"queue": "q", "preemptibility": preemptibility}})
    }

    /// A controller that is shown objects one after the other, with cycles in between.
    struct Watched {
        controller: SchedulerController,
        now: Timestamp,
    }

    impl Watched {
        fn new() -> Self {
            let controller = SchedulerController::new(Settings::default(), Span::seconds(1));
            Self { controller, now: Timestamp(1_000_000_000) }
        }

        /// What was left out, and the messages of events.
        fn apply(&mut self, kind: Kind, object: Value) -> (Vec<LeftOut>, Vec<String>) {
            self.now = self.now.plus(Span::seconds(10));
            let now = Clock { wall: self.now, steady: self.now };
            let skipped = self.controller.on_apply(kind, &Arc::new(object), now);
            let events = self.controller.poll(now).events;
            assert!(events.iter().all(|event| event.warning && event.reason == "Malformed"));
            (skipped.iter().map(|one| one.left_out).collect(), events.into_iter().map(|event| event.message).collect())
        }

        fn gpus(&self) -> Option<i64> {
            self.controller.world().pods.get(&PodKey::new("lab", "p")).map(|pod| pod.request.resources.gpus)
        }
    }

    #[test]
    fn a_malformed_pod_with_a_node_counts_and_gets_one_event() {
        let mps = json!({"mps": "true"});
        let message = "metadata.annotations.mps: MPS needs a GPU fraction; add the annotation gpu-fraction, or remove \
                       mps. Until then the field counts as the most that it can mean.";
        let reported = (vec![LeftOut::Fields], vec![message.to_owned()]);
        let mut watched = Watched::new();
        assert_eq!(watched.apply(Kind::Pod, pod(Some("n"), &mps)), reported);
        assert_eq!((watched.gpus(), watched.apply(Kind::Pod, pod(Some("n"), &mps))), (Some(8), (vec![], vec![])));
        assert_eq!(watched.apply(Kind::Pod, pod(Some("n"), &json!({}))), (vec![], vec![]));
        assert_eq!(watched.apply(Kind::Pod, pod(Some("n"), &mps)), reported);
        let mut foreign = pod(Some("n"), &json!({"mps": "true", "a": 1}));
        foreign["spec"]["schedulerName"] = json!("other");
        assert_eq!(watched.apply(Kind::Pod, foreign), (vec![LeftOut::Fields; 2], vec![]), "only in the log");
        assert_eq!(watched.gpus(), Some(8));
    }

    #[test]
    fn a_malformed_pod_that_waits_is_ignored_unless_it_is_about_to_be_bound() {
        let mut watched = Watched::new();
        let mps = pod(None, &json!({"mps": "true"}));
        watched.apply(Kind::Pod, pod(None, &json!({})));
        let (left_out, events) = watched.apply(Kind::Pod, mps.clone());
        assert_eq!((left_out, events.len(), watched.gpus()), (vec![LeftOut::Object], 1, None));
        assert_eq!(watched.apply(Kind::Pod, mps.clone()), (vec![], vec![]), "it is reported once");
        watched.apply(Kind::Pod, pod(None, &json!({})));
        let request = json!({"kind": "BindRequest", "metadata": {"name": "p", "namespace": "lab",
            "ownerReferences": [{"uid": "u"}]}, "spec": {"podName": "p", "selectedNode": "n"}});
        // Without a cycle in between, which would delete the request for a node that is not there.
        let now = Clock { wall: watched.now, steady: watched.now };
        watched.controller.on_apply(Kind::BindRequest, &Arc::new(request), now);
        let skipped = watched.controller.on_apply(Kind::Pod, &Arc::new(mps), now);
        assert_eq!((skipped[0].left_out, watched.gpus()), (LeftOut::Change, Some(8)));
    }

    #[test]
    fn a_malformed_change_of_a_queue_or_group_leaves_it_as_it_was() {
        let mut watched = Watched::new();
        watched.apply(Kind::Queue, queue(&json!(4)));
        assert_eq!(watched.apply(Kind::Queue, queue(&json!("lots"))).0, [LeftOut::Change]);
        assert!(watched.controller.world().queues.contains_key("q"));
        watched.apply(Kind::PodGroup, group("preemptible"));
        let (left_out, events) = watched.apply(Kind::PodGroup, group("sometimes"));
        assert_eq!((left_out, events.len()), (vec![LeftOut::Change], 1));
        assert_eq!(watched.controller.world().pod_groups[&PodKey::new("lab", "g")].preemptible, Some(true));
        let mut fresh = Watched::new();
        assert_eq!(fresh.apply(Kind::Queue, queue(&json!("lots"))).0, [LeftOut::Object]);
        assert!(fresh.controller.world().queues.is_empty());
    }
}
