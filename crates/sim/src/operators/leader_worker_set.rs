//! `LeaderWorkerSet` 0.6: a `StatefulSet` of leaders, and for each leader one of workers, which the leader owns.

use kai_control::objects::Malformed;
use serde_json::{Value, json};

use super::{JsonCursor, Role, add_labels};
use crate::json::object_at;

const SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
const GROUP_KEY: &str = "leaderworkerset.sigs.k8s.io/group-key";
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
const SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
const SUBGROUP_SIZE: &str = "leaderworkerset.sigs.k8s.io/subgroup-size";

pub(super) fn roles(set: &JsonCursor<'_>) -> Result<Vec<Role>, Malformed> {
    let template = set.required("spec.leaderWorkerTemplate")?;
    let groups = set.count("spec.replicas")?.unwrap_or(1);
    let size = template.count("size")?.unwrap_or(1);
    if size == 0 {
        return Err(Malformed::new(template.path_of("size"), "a group has no pods", "write a number from 1 up"));
    }
    template.count("subGroupPolicy.subGroupSize")?;
    let leader = if template.part("leaderTemplate")?.is_some() { "leaderTemplate" } else { "workerTemplate" };
    Ok(vec![
        template.role("leader", groups, leader)?,
        template.role("worker", groups.saturating_mul(size - 1), "workerTemplate")?,
    ])
}

/// The defaults of the kind's definition.
pub(super) fn complete(set: &mut Value) {
    if let Some(spec) = object_at(set, &["spec"]) {
        spec.entry("replicas").or_insert_with(|| json!(1));
        spec.entry("startupPolicy").or_insert_with(|| json!("LeaderCreated"));
    }
    if let Some(template) = object_at(set, &["spec", "leaderWorkerTemplate"]) {
        template.entry("size").or_insert_with(|| json!(1));
    }
}

pub(crate) fn size(set: &Value) -> u32 {
    let size = set.pointer("/spec/leaderWorkerTemplate/size").and_then(Value::as_u64).unwrap_or(1);
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Whether workers are made only when their leader runs.
pub(crate) fn workers_wait(set: &Value) -> bool {
    set.pointer("/spec/startupPolicy").and_then(Value::as_str) == Some("LeaderReady")
}

/// Whether a group starts anew when it loses a pod.
pub(crate) fn restarts_whole(set: &Value) -> bool {
    let policy = set.pointer("/spec/leaderWorkerTemplate/restartPolicy").and_then(Value::as_str);
    policy.is_none_or(|policy| policy == "RecreateGroupOnPodRestart")
}

/// The set of leaders, without name and owner.
pub(crate) fn leaders(set: &Value, set_name: &str) -> Value {
    let template = set.pointer("/spec/leaderWorkerTemplate/leaderTemplate").filter(|template| template.is_object());
    let template = template.or_else(|| set.pointer("/spec/leaderWorkerTemplate/workerTemplate"));
    let mut template = template.cloned().unwrap_or_default();
    add_labels(&mut template, "labels", &[(WORKER_INDEX, "0".to_owned()), (SET_NAME, set_name.to_owned())]);
    add_labels(&mut template, "annotations", &[(SIZE, size(set).to_string())]);
    if let Some(policy) = set.pointer("/spec/leaderWorkerTemplate/subGroupPolicy") {
        let sort = policy.get("subGroupPolicyType").and_then(Value::as_str).unwrap_or("LeaderWorker");
        let entry = ("leaderworkerset.sigs.k8s.io/subgroup-policy-type", sort.to_owned());
        add_labels(&mut template, "annotations", &[entry]);
    }
    mark_subgroup_size(&mut template, set);
    let replicas = set.pointer("/spec/replicas").cloned().unwrap_or_else(|| json!(1));
    stateful_set(&json!({SET_NAME: set_name}), &replicas, &template, 0)
}

/// The set of workers of one leader, without name and owner.
pub(crate) fn workers(set: &Value, set_name: &str, leader: &Value, leader_name: &str) -> Value {
    let mut template = set.pointer("/spec/leaderWorkerTemplate/workerTemplate").cloned().unwrap_or_default();
    let of_leader = |key: &str| leader.pointer("/metadata/labels").and_then(|labels| labels.get(key)?.as_str());
    let labels: Vec<(&str, String)> = [GROUP_INDEX, GROUP_KEY]
        .into_iter()
        .filter_map(|key| Some((key, of_leader(key)?.to_owned())))
        .chain([(SET_NAME, set_name.to_owned())])
        .collect();
    add_labels(&mut template, "labels", &labels);
    let leader_key = "leaderworkerset.sigs.k8s.io/leader-name";
    add_labels(&mut template, "annotations", &[(SIZE, size(set).to_string()), (leader_key, leader_name.to_owned())]);
    mark_subgroup_size(&mut template, set);
    let mut own = json!({});
    for (key, value) in labels {
        own[key] = json!(value);
    }
    stateful_set(&own, &json!(size(set).saturating_sub(1)), &template, 1)
}

fn mark_subgroup_size(template: &mut Value, set: &Value) {
    if let Some(size) = set.pointer("/spec/leaderWorkerTemplate/subGroupPolicy/subGroupSize").and_then(Value::as_u64) {
        add_labels(template, "annotations", &[(SUBGROUP_SIZE, size.to_string())]);
    }
}

fn stateful_set(labels: &Value, replicas: &Value, template: &Value, start: u32) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"replicas": replicas, "podManagementPolicy": "Parallel",
        "ordinals": {"start": start}, "template": template}})
}

/// What the webhook of `LeaderWorkerSet` writes on a pod when it is made; nothing on pods of others.
pub(crate) fn admit(pod: &mut Value, name: &str, namespace: &str) {
    let label = |key: &str| pod.pointer("/metadata/labels").and_then(|labels| labels.get(key)?.as_str());
    if label(SET_NAME).is_none() {
        return;
    }
    let number = name.rsplit_once('-').map_or("", |(_, number)| number).to_owned();
    let entries = if label(WORKER_INDEX) == Some("0") {
        // A hash in a real cluster; what matters is that each group has its own.
        vec![(GROUP_INDEX, number), (GROUP_KEY, format!("{namespace}.{name}"))]
    } else {
        vec![(WORKER_INDEX, number)]
    };
    add_labels(pod, "labels", &entries);
}

#[cfg(test)]
mod tests {
    use super::super::{example, outline};
    use super::*;
    use crate::kinds::Kind;

    fn spec(template: Value) -> Value {
        let mut template = template;
        template["workerTemplate"] = json!({"spec": {"containers": [{"name": "main"}]}});
        json!({"replicas": 2, "leaderWorkerTemplate": template})
    }

    #[test]
    fn leaders_and_their_workers_know_each_other() {
        let spec = spec(json!({"size": 3, "subGroupPolicy": {"subGroupSize": 2}}));
        assert_eq!(outline(Kind::LeaderWorkerSet, &spec), "leader 2, worker 4");
        let set = example(Kind::LeaderWorkerSet, &spec);
        let leaders = leaders(&set, "x");
        assert_eq!(leaders["spec"]["replicas"], 2);
        let mut leader = leaders["spec"]["template"].clone();
        admit(&mut leader, "x-1", "lab");
        assert_eq!(
            leader["metadata"]["labels"],
            json!({SET_NAME: "x", WORKER_INDEX: "0", GROUP_INDEX: "1", GROUP_KEY: "lab.x-1"})
        );
        let workers = workers(&set, "x", &leader, "x-1");
        assert_eq!((&workers["spec"]["replicas"], &workers["spec"]["ordinals"]["start"]), (&json!(2), &json!(1)));
        let mut worker = workers["spec"]["template"].clone();
        admit(&mut worker, "x-1-2", "lab");
        assert_eq!(
            worker["metadata"]["labels"],
            json!({SET_NAME: "x", WORKER_INDEX: "2", GROUP_INDEX: "1", GROUP_KEY: "lab.x-1"})
        );
        assert_eq!(worker["metadata"]["annotations"][SUBGROUP_SIZE], "2");
    }

    #[test]
    fn groups_have_at_least_one_pod() {
        assert_eq!(
            outline(Kind::LeaderWorkerSet, &spec(json!({"size": 0}))),
            "spec.leaderWorkerTemplate.size: a group has no pods; write a number from 1 up"
        );
        assert!(outline(Kind::LeaderWorkerSet, &json!({})).starts_with("spec.leaderWorkerTemplate: it is missing"));
        assert_eq!(outline(Kind::LeaderWorkerSet, &spec(json!({}))), "leader 2, worker 0");
    }
}
