//! What users can see at the end of a scenario: objects as fields and values, without what no two runs share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::redaction::Redaction;

/// Objects of a scenario, as they came from the API server.
#[derive(Debug)]
pub(crate) struct Seen {
    /// What came of each step.
    pub(crate) outcomes: Vec<String>,
    /// Pod groups, pods, config maps and events of the namespace.
    pub(crate) now: Vec<Value>,
    pub(crate) queues: Vec<Value>,
    pub(crate) reservations: Vec<Value>,
    /// All that there ever were.
    pub(crate) bind_requests: Vec<Value>,
    pub(crate) pods: Vec<Value>,
}

/// Fields with their values, of every object of a kind and name; several, where names are generated.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Sight(pub(crate) BTreeMap<Subject, Vec<Fields>>);

pub(crate) type Fields = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub(crate) struct Subject {
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl From<Subject> for String {
    fn from(Subject { kind, name }: Subject) -> Self {
        format!("{kind} {name}")
    }
}

impl From<String> for Subject {
    fn from(text: String) -> Self {
        let (kind, name) = text.split_once(' ').unwrap_or((&text, ""));
        Self { kind: kind.to_owned(), name: name.to_owned() }
    }
}

impl Seen {
    pub(crate) fn sight(&self) -> Sight {
        let Self { outcomes, now, queues, reservations, bind_requests, pods } = self;
        let mut redaction = Redaction::of([now, reservations, bind_requests, pods].into_iter().flatten());
        let mut sight = Sight::default();
        for (number, outcome) in outcomes.iter().enumerate() {
            sight.add("Step", (number + 1).to_string(), [("outcome".to_owned(), outcome.clone())].into());
        }
        for object in now.iter().chain(queues).chain(bind_requests) {
            let name = redaction.plain(object["metadata"]["name"].as_str().unwrap_or_default());
            let (kind, view) = match object["kind"].as_str() {
                Some("Pod") => ("Pod", pod(object)),
                Some("PodGroup") => ("PodGroup", whole(object)),
                Some("BindRequest") => ("BindRequest", whole(object)),
                Some("Queue") => ("Queue", json!({"status": object["status"]})),
                Some("ConfigMap") if name != "kube-root-ca.crt" => {
                    ("ConfigMap", json!({"labels": object["metadata"]["labels"], "data": object["data"]}))
                }
                _ => continue,
            };
            sight.add(kind, name, fields(&view, &mut redaction));
        }
        for object in reservations {
            // Its name concerns only the binder.
            sight.add("ReservationPod", String::new(), fields(&metadata(object), &mut redaction));
        }
        sight.add_events(now, &mut redaction);
        sight.0.values_mut().for_each(|alike| alike.sort());
        sight
    }
}

impl Sight {
    fn add(&mut self, kind: &str, name: String, fields: Fields) {
        self.0.entry(Subject { kind: kind.to_owned(), name }).or_default().push(fields);
    }

    /// Which reasons were given about an object; how often is a matter of time. Others are the operators' business.
    fn add_events(&mut self, objects: &[Value], redaction: &mut Redaction) {
        for event in objects.iter().filter(|object| object["kind"] == "Event") {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let about = &event["involvedObject"];
            if about["kind"] != "Pod" && about["kind"] != "PodGroup" {
                continue;
            }
            let name = format!("{} {}", text(&about["kind"]), redaction.plain(&text(&about["name"])));
            let subject = Subject { kind: "Events".to_owned(), name };
            let reasons = self.0.entry(subject).or_insert_with(|| vec![Fields::new()]);
            reasons[0].insert(text(&event["reason"]), text(&event["type"]));
        }
    }
}

/// What KAI reads from a pod or writes to it.
fn pod(pod: &Value) -> Value {
    let mut view = metadata(pod);
    let spec = &pod["spec"];
    view["spec"] = json!({"nodeName": spec["nodeName"], "runtimeClassName": spec["runtimeClassName"]});
    view["phase"] = pod["status"]["phase"].clone();
    view["conditions"] = pod["status"]["conditions"].clone();
    let environment = |container: &Value| json!({"name": container["name"], "env": container["env"], "envFrom": container["envFrom"]});
    view["containers"] = spec["containers"].as_array().into_iter().flatten().map(environment).collect();
    view
}

fn whole(object: &Value) -> Value {
    let mut view = metadata(object);
    view["spec"] = object["spec"].clone();
    view["status"] = object["status"].clone();
    view
}

fn metadata(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!({
        "labels": metadata["labels"],
        "annotations": metadata["annotations"],
        "finalizers": metadata["finalizers"],
        "owners": metadata["ownerReferences"],
    })
}

/// Sentences, and what is different in every run.
const LEFT_OUT: [&str; 6] =
    ["message", "lastTransitionTime", "lastProbeTime", "observedGeneration", "transitionID", "uid"];

fn fields(view: &Value, redaction: &mut Redaction) -> Fields {
    let mut fields = Fields::new();
    flatten(view, String::new(), redaction, &mut fields);
    fields
}

fn flatten(value: &Value, path: String, redaction: &mut Redaction, fields: &mut Fields) {
    match value {
        Value::Null => {}
        Value::Object(map) => {
            let heard = |(key, _): &(&String, &Value)| !LEFT_OUT.contains(&key.as_str());
            for (key, value) in map.iter().filter(heard) {
                flatten(value, step(&path, &redaction.plain(key)), redaction, fields);
            }
        }
        Value::Array(items) if items.iter().all(Value::is_string) => {
            // Where the order is not the same in every run, it means nothing; elsewhere values alone tell enough.
            let mut texts: Vec<String> =
                items.iter().filter_map(Value::as_str).map(|text| redaction.plain(text)).collect();
            texts.sort();
            if !texts.is_empty() {
                fields.insert(path, texts.join(", "));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let key = item.as_object().and_then(key_of).map_or(index.to_string(), |key| redaction.plain(key));
                flatten(item, format!("{path}[{key}]"), redaction, fields);
            }
        }
        Value::String(text) => {
            fields.insert(path, redaction.plain(text));
        }
        other => {
            fields.insert(path, other.to_string());
        }
    }
}

/// What tells an element of a list from the others, wherever it stands.
fn key_of(item: &Map<String, Value>) -> Option<&str> {
    ["type", "name"].iter().find_map(|key| item.get(*key)?.as_str())
}

/// Labels and the like have dots in their names.
fn step(path: &str, key: &str) -> String {
    match (path, key.contains(['.', '/'])) {
        ("", _) => key.to_owned(),
        (_, true) => format!("{path}[{key}]"),
        (_, false) => format!("{path}.{key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_become_fields_without_sentences_and_times() {
        let group = json!({
            "kind": "PodGroup",
            "metadata": {"name": "pg-a", "labels": {"kai.scheduler/queue": "q"}},
            "spec": {"minMember": 2, "subGroups": [{"name": "head", "minMember": 1}], "empty": {}},
            "status": {"conditions": [{"type": "Ready", "status": "True", "message": "all is well"}]},
        });
        let event = |reason: &str| {
            json!({"kind": "Event", "involvedObject": {"kind": "PodGroup", "name": "pg-a"}, "reason": reason,
                "type": "Normal", "message": "never mind"})
        };
        let seen = Seen {
            outcomes: vec!["1 running, 0 waiting".to_owned()],
            now: vec![group, event("Late"), event("Late")],
            queues: Vec::new(),
            reservations: Vec::new(),
            bind_requests: Vec::new(),
            pods: Vec::new(),
        };
        let expected = json!({
            "Events PodGroup pg-a": [{"Late": "Normal"}],
            "PodGroup pg-a": [{
                "labels[kai.scheduler/queue]": "q",
                "spec.minMember": "2",
                "spec.subGroups[head].minMember": "1",
                "spec.subGroups[head].name": "head",
                "status.conditions[Ready].status": "True",
                "status.conditions[Ready].type": "Ready",
            }],
            "Step 1": [{"outcome": "1 running, 0 waiting"}],
        });
        assert_eq!(serde_json::to_value(seen.sight()).unwrap(), expected);
    }
}
