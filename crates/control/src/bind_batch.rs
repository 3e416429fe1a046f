//! Many bind requests in one object: a burst of pods costs the API server one write more, not one each.
//!
//! A batch is a `BindRequest` with a label that says so; each annotation of a family holds one request. Watchers of
//! bind requests see the requests in it as if they stood alone, under the name `batch/number`. The binder takes those
//! out that it cannot carry out, and removes the batch some time after the rest was done.

use std::collections::BTreeMap;

use kai_api::keys::{annotation, label, received};
use kai_api::{BindRequest, BindRequestSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::key::Key;

/// Requests that fit into one batch: annotations may have 256 KiB together.
pub const SIZE_MAX: usize = 256;

/// One request of a batch.
#[derive(Serialize, Deserialize)]
struct Entry {
    /// Of the pod.
    uid: String,
    spec: BindRequestSpec,
}

/// Whether the request asks for nothing but a node: it is carried out in one step, and need not tell how far it has come.
pub fn is_node_only(request: &BindRequest) -> bool {
    let spec = &request.spec;
    spec.received_resource_type == received::REGULAR
        && spec.selected_gpu_groups.is_empty()
        && spec.resource_claim_allocations.is_empty()
        && spec.extended_resource_claim_allocation.is_none()
        && spec.predicted_numa_zones.is_empty()
        && spec.backoff_limit.is_none()
}

/// One object for all of these requests, which are of one namespace and one shard.
pub fn pack(name: &str, requests: &[BindRequest]) -> BindRequest {
    let mut batch = BindRequest::new(name, BindRequestSpec::default());
    let mut annotations = BTreeMap::new();
    for (number, request) in requests.iter().enumerate() {
        let owner = request.metadata.owner_references.iter().flatten().next();
        let entry = Entry { uid: owner.map_or_else(String::new, |pod| pod.uid.clone()), spec: request.spec.clone() };
        // Text and numbers always have a JSON form.
        let entry = serde_json::to_string(&entry).unwrap_or_default();
        annotations.insert(format!("{}{number}", annotation::BIND_BATCH_PREFIX), entry);
    }
    let first = requests.first().map(|request| &request.metadata);
    let mut labels = first.and_then(|first| first.labels.clone()).unwrap_or_default();
    labels.remove(label::SELECTED_NODE);
    labels.insert(label::BIND_BATCH.to_owned(), requests.len().to_string());
    batch.metadata.namespace = first.and_then(|first| first.namespace.clone());
    batch.metadata.labels = Some(labels);
    batch.metadata.annotations = Some(annotations);
    batch
}

/// Whether this bind request holds others, or did.
pub fn is_batch(request: &Value) -> bool {
    request["metadata"]["labels"][label::BIND_BATCH].is_string()
}

/// The requests in a batch, as if each were an object. What cannot be read is left out.
pub fn unpack(batch: &Value) -> Vec<Value> {
    let metadata = &batch["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let annotations = metadata["annotations"].as_object().into_iter().flatten();
    let entries = annotations.filter_map(|(key, text)| {
        let number = key.strip_prefix(annotation::BIND_BATCH_PREFIX)?;
        let entry: Value = serde_json::from_str(text.as_str()?).ok()?;
        Some(json!({
            "apiVersion": batch["apiVersion"],
            "kind": batch["kind"],
            "metadata": {
                "name": format!("{name}/{number}"),
                "namespace": metadata["namespace"],
                // A request in a batch is never changed, only taken out.
                "resourceVersion": metadata["uid"],
                "creationTimestamp": metadata["creationTimestamp"],
                "deletionTimestamp": metadata["deletionTimestamp"],
                "labels": metadata["labels"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": entry["spec"]["podName"], "uid": entry["uid"]}],
            },
            "spec": entry["spec"],
        }))
    });
    entries.collect()
}

/// The batch that a request is in, and its annotation there; `None` for one that stands alone.
pub fn batch_of(request: &Key) -> Option<(Key, String)> {
    let (batch, number) = request.name.split_once('/')?;
    Some((Key::new(&request.namespace, batch), format!("{}{number}", annotation::BIND_BATCH_PREFIX)))
}

/// A merge patch that takes a request out of its batch.
pub fn removal_patch(annotation: &str) -> Value {
    let annotations = BTreeMap::from([(annotation, Value::Null)]);
    json!({"metadata": {"annotations": annotations}})
}

/// Keys of the requests in this batch, among those of a table.
pub(crate) fn requests_in<T>(table: &BTreeMap<Key, T>, batch: &Key) -> Vec<Key> {
    let first = Key::new(&batch.namespace, format!("{}/", batch.name));
    table.range(first..).map(|(key, _)| key).take_while(|key| holds(batch, key)).cloned().collect()
}

fn holds(batch: &Key, request: &Key) -> bool {
    request.namespace == batch.namespace
        && request.name.strip_prefix(batch.name.as_str()).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;
    use crate::objects;

    fn request(pod: &str, node: &str) -> BindRequest {
        let spec = BindRequestSpec {
            pod_name: pod.to_owned(),
            selected_node: node.to_owned(),
            received_resource_type: received::REGULAR.to_owned(),
            ..BindRequestSpec::default()
        };
        let mut request = BindRequest::new(pod, spec);
        request.metadata.namespace = Some("lab".to_owned());
        request.metadata.labels = Some([("pool".to_owned(), "blue".to_owned())].into());
        let owner = OwnerReference { uid: format!("uid-of-{pod}"), ..OwnerReference::default() };
        request.metadata.owner_references = Some(vec![owner]);
        request
    }

    fn batch() -> Value {
        let mut value = serde_json::to_value(pack("batch-1", &[request("a", "n1"), request("b", "n2")])).unwrap();
        value["metadata"]["uid"] = json!("of-the-batch");
        value
    }

    #[test]
    fn requests_come_out_as_they_went_in() {
        let batch = batch();
        assert!(is_batch(&batch));
        let read: Vec<objects::BindRequest> =
            unpack(&batch).iter().map(|value| objects::BindRequest::parse(value).unwrap()).collect();
        let seen: Vec<_> = read
            .iter()
            .map(|row| (row.key.to_string(), row.pod.name.as_str(), row.pod_uid.as_deref(), row.node.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                ("lab/batch-1/0".to_owned(), "a", Some("uid-of-a"), "n1"),
                ("lab/batch-1/1".to_owned(), "b", Some("uid-of-b"), "n2"),
            ]
        );
        assert_eq!(read[0].labels["pool"], "blue");
    }

    #[test]
    fn a_request_is_taken_out_by_its_place() {
        let mut batch = batch();
        let taken = Key::new("lab", "batch-1/0");
        let (carrier, annotation) = batch_of(&taken).unwrap();
        assert_eq!(carrier, Key::new("lab", "batch-1"));
        assert!(holds(&carrier, &taken) && !holds(&carrier, &Key::new("lab", "batch-10/0")));
        assert_eq!(removal_patch(&annotation), json!({"metadata": {"annotations": {&annotation: null}}}));
        batch["metadata"]["annotations"].as_object_mut().unwrap().remove(&annotation);
        assert_eq!(unpack(&batch).len(), 1);
        assert_eq!(batch_of(&Key::new("lab", "alone")), None);
    }

    #[test]
    fn a_batch_that_is_empty_is_still_no_request() {
        assert!(is_batch(&serde_json::to_value(pack("batch-1", &[])).unwrap()));
    }

    #[test]
    fn a_pod_that_shares_a_gpu_is_not_batched() {
        let mut shared = request("a", "n1");
        assert!(is_node_only(&shared));
        shared.spec.selected_gpu_groups.push("g".to_owned());
        assert!(!is_node_only(&shared));
    }
}
