//! `KubeRay` 1.5, started with `--batch-scheduler=kai-scheduler`: a head and groups of workers, all pods of a `RayCluster`.
//!
//! A `RayJob` makes a cluster and, once that is up, a Job that submits the work; a `RayService` makes a cluster.

use kai_api::keys::{label, name};
use kai_control::objects::Malformed;
use serde_json::{Value, json};

use super::{JsonCursor, Role, add_labels};
use crate::json::object_at;

/// `KubeRay`'s name for the head among its groups.
const HEAD: &str = "headgroup";
/// Which group of its cluster a pod belongs to.
pub(crate) const GROUP: &str = "ray.io/group";
/// Names of pods are cut so that a random ending fits.
const PREFIX_MAX: usize = 50;

/// Head and workers of what stands below `spec`.
pub(super) fn cluster_roles(spec: &JsonCursor<'_>) -> Result<Vec<Role>, Malformed> {
    let mut roles = vec![spec.role(HEAD, 1, "headGroupSpec.template")?];
    let suspended = spec.flag("suspend")?;
    if suspended {
        roles[0].pods = 0;
    }
    for group in spec.list("workerGroupSpecs")? {
        let name =
            group.text("groupName")?.filter(|name| !name.is_empty()).ok_or_else(|| group.missing("groupName"))?;
        if roles.iter().any(|role| role.name == name) {
            let problem = format!("group `{name}` is there twice");
            return Err(Malformed::new(
                group.path_of("groupName"),
                problem,
                "give each worker group a name of its own",
            ));
        }
        let pods = if suspended { 0 } else { workers(&group)? };
        roles.push(group.role(name, pods, "template")?);
    }
    Ok(roles)
}

/// `replicas`, kept within `minReplicas` and `maxReplicas`, of `numOfHosts` pods each.
fn workers(group: &JsonCursor<'_>) -> Result<u32, Malformed> {
    if group.flag("suspend")? {
        return Ok(0);
    }
    let replicas = group.count("replicas")?.unwrap_or(0);
    let least = group.count("minReplicas")?.unwrap_or(0);
    // The default of `maxReplicas`, which people also write out, is more than any cluster holds.
    let unlimited = group.part("maxReplicas")?.is_none_or(|most| most.value.as_u64() == Some(i32::MAX as u64));
    let most = if unlimited { u32::MAX } else { group.count("maxReplicas")?.unwrap_or(u32::MAX) };
    if least > most {
        let problem = format!("minReplicas {least} is more than maxReplicas {most}");
        return Err(Malformed::new(group.path_of("minReplicas"), problem, "lower it, or raise maxReplicas"));
    }
    Ok(replicas.clamp(least, most).saturating_mul(group.count("numOfHosts")?.unwrap_or(1)))
}

/// The pods of the cluster and the one that submits the work.
pub(super) fn job_roles(job: &JsonCursor<'_>) -> Result<Vec<Role>, Malformed> {
    let spec = job.required("spec")?;
    if spec.part("clusterSelector")?.is_some() {
        return Err(Malformed::new(
            "spec.clusterSelector",
            "work on a cluster that exists already is not simulated",
            "describe the cluster in spec.rayClusterSpec",
        ));
    }
    let mut roles = cluster_roles(&spec.required("rayClusterSpec")?)?;
    let submits = spec.text("submissionMode")?.is_none_or(|mode| mode == "K8sJobMode");
    if spec.flag("suspend")? {
        for role in &mut roles {
            role.pods = 0;
        }
    } else if submits {
        let role = match spec.part("submitterPodTemplate")? {
            Some(_) => spec.role("submitter", 1, "submitterPodTemplate")?,
            None => Role {
                name: "submitter".to_owned(),
                pods: 1,
                path: spec.path_of("submitterPodTemplate"),
                template: default_submitter(),
            },
        };
        roles.push(role);
    }
    Ok(roles)
}

/// As `KubeRay` makes it for those who do not say.
fn default_submitter() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "ray-job-submitter", "resources": {
        "limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "200Mi"}}}]}})
}

/// The pod of a role of `cluster`, and what its name begins with.
pub(crate) fn pod(cluster: &Value, cluster_name: &str, role: &Role) -> (String, Value) {
    let head = role.name == HEAD;
    let node_type = if head { "head" } else { "worker" };
    let mut pod = role.template.clone();
    let own = pod.pointer("/metadata/labels").cloned();
    add_labels(
        &mut pod,
        "labels",
        &[
            ("ray.io/is-ray-node", "yes".to_owned()),
            ("ray.io/identifier", format!("{cluster_name}-{node_type}")),
            ("app.kubernetes.io/name", "kuberay".to_owned()),
            ("app.kubernetes.io/created-by", "kuberay-operator".to_owned()),
        ],
    );
    // The template has the last word on these, and none on the next.
    if let (Some(Value::Object(own)), Some(labels)) = (own, object_at(&mut pod, &["metadata", "labels"])) {
        labels.extend(own);
    }
    add_labels(
        &mut pod,
        "labels",
        &[
            ("ray.io/cluster", cluster_name.to_owned()),
            ("ray.io/node-type", node_type.to_owned()),
            (GROUP, role.name.clone()),
        ],
    );
    schedule(&mut pod, cluster);
    if head {
        add_autoscaler(&mut pod, cluster);
    } else if let Some(spec) = object_at(&mut pod, &["spec"]) {
        // Workers wait for the head; what that takes is part of their request.
        let amounts = json!({"cpu": "200m", "memory": "256Mi"});
        let wait = json!({"name": "wait-gcs-ready", "resources": {"limits": amounts, "requests": amounts}});
        if let Some(list) = spec.entry("initContainers").or_insert_with(|| json!([])).as_array_mut() {
            list.push(wait);
        }
    }
    let prefix = if head { cluster_name.to_owned() } else { format!("{cluster_name}-{}", role.name) };
    let prefix: String = prefix.to_lowercase().chars().take(PREFIX_MAX).collect();
    (format!("{prefix}-{node_type}"), pod)
}

/// What `KubeRay`'s integration writes on everything it makes: our name, and the queue of the object.
///
/// A template that names another scheduler keeps it, as it does where the integration is not switched on.
pub(crate) fn schedule(pod: &mut Value, owner: &Value) {
    if let Some(spec) = object_at(pod, &["spec"]) {
        spec.entry("schedulerName").or_insert_with(|| json!(name::SCHEDULER));
    }
    let queue = owner.pointer("/metadata/labels").and_then(|labels| labels.get(label::QUEUE)?.as_str());
    if let Some(queue) = queue.filter(|queue| !queue.is_empty()) {
        add_labels(pod, "labels", &[(label::QUEUE, queue.to_owned())]);
    }
}

/// With autoscaling the head runs the autoscaler as well.
fn add_autoscaler(head: &mut Value, cluster: &Value) {
    if cluster.pointer("/spec/enableInTreeAutoscaling") != Some(&json!(true)) {
        return;
    }
    let amounts = json!({"cpu": "500m", "memory": "512Mi"});
    let resources = cluster.pointer("/spec/autoscalerOptions/resources").cloned();
    let resources = resources.unwrap_or_else(|| json!({"limits": amounts, "requests": amounts}));
    if let Some(containers) = head.pointer_mut("/spec/containers").and_then(Value::as_array_mut) {
        containers.push(json!({"name": "autoscaler", "resources": resources}));
    }
}

/// The cluster that a `RayJob` or a `RayService` makes, without name and owner.
pub(crate) fn cluster_of(owner: &Value, spec: &str) -> Value {
    let text = |pointer: &str| owner.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let mut cluster = json!({"metadata": {}, "spec": owner.pointer(spec)});
    for map in ["labels", "annotations"] {
        if let Some(entries) = owner.pointer(&format!("/metadata/{map}")) {
            cluster["metadata"][map] = entries.clone();
        }
    }
    add_labels(
        &mut cluster,
        "labels",
        &[
            ("ray.io/originated-from-cr-name", text("/metadata/name").to_owned()),
            ("ray.io/originated-from-crd", text("/kind").to_owned()),
        ],
    );
    cluster
}

#[cfg(test)]
mod tests {
    use kai_workloads::DeclaredKinds;

    use super::super::{example, outline, roles};
    use super::*;
    use crate::kinds::Kind;

    fn template() -> Value {
        json!({"spec": {"containers": [{"name": "main"}]}})
    }

    fn cluster(workers: &Value) -> Value {
        json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": workers})
    }

    fn group(mut group: Value) -> Value {
        group["template"] = template();
        group
    }

    #[test]
    fn replicas_stay_within_their_bounds() {
        let groups = json!([
            group(json!({"groupName": "a", "replicas": 3, "minReplicas": 1, "maxReplicas": 8, "numOfHosts": 2})),
            group(json!({"groupName": "b", "replicas": 1, "minReplicas": 2})),
            group(json!({"groupName": "c", "replicas": 9, "maxReplicas": 4})),
            group(json!({"groupName": "d"})),
            group(json!({"groupName": "e", "replicas": 5, "suspend": true, "maxReplicas": 2_147_483_647})),
        ]);
        assert_eq!(outline(Kind::RayCluster, &cluster(&groups)), "headgroup 1, a 6, b 2, c 4, d 0, e 0");
        let mut suspended = cluster(&groups);
        suspended["suspend"] = json!(true);
        assert_eq!(outline(Kind::RayCluster, &suspended), "headgroup 0, a 0, b 0, c 0, d 0, e 0");
    }

    #[test]
    fn nonsense_is_refused_by_field() {
        for (groups, error) in [
            (json!([{"groupName": "a"}]), "spec.workerGroupSpecs[0].template: it is missing; add `template:` here"),
            (json!([group(json!({}))]), "spec.workerGroupSpecs[0].groupName: it is missing; add `groupName:` here"),
            (
                json!([group(json!({"groupName": "a", "minReplicas": 3, "maxReplicas": 2}))]),
                "spec.workerGroupSpecs[0].minReplicas: minReplicas 3 is more than maxReplicas 2; lower it, or raise \
                 maxReplicas",
            ),
            (
                json!([group(json!({"groupName": "a", "replicas": "3"}))]),
                "spec.workerGroupSpecs[0].replicas: expected a whole number from 0 up, found the text `3`; write a whole \
                 number from 0 up here",
            ),
            (
                json!([group(json!({"groupName": "a", "replicas": 100_000, "numOfHosts": 100_000}))]),
                "spec: 4294967296 pods are more than a cluster holds; ask for up to 150000 pods",
            ),
            (json!(3), "spec.workerGroupSpecs: expected a list, found the number 3; write a list here"),
        ] {
            assert_eq!(outline(Kind::RayCluster, &cluster(&groups)), error);
        }
        assert_eq!(
            outline(Kind::RayCluster, &json!({})),
            "spec.headGroupSpec.template: it is missing; add `headGroupSpec.template:` here"
        );
    }

    #[test]
    fn a_job_has_a_submitter() {
        let spec = json!({"rayClusterSpec": cluster(&json!([]))});
        assert_eq!(outline(Kind::RayJob, &spec), "headgroup 1, submitter 1");
        let mut alone = spec;
        alone["submissionMode"] = json!("HTTPMode");
        assert_eq!(outline(Kind::RayJob, &alone), "headgroup 1");
        assert!(outline(Kind::RayJob, &json!({"clusterSelector": {}})).starts_with("spec.clusterSelector: "));
    }

    #[test]
    fn pods_are_marked_for_ray_and_for_us() {
        let mut spec = cluster(&json!([group(json!({"groupName": "gpu", "replicas": 1}))]));
        spec["enableInTreeAutoscaling"] = json!(true);
        spec["workerGroupSpecs"][0]["template"]["metadata"] =
            json!({"labels": {"app.kubernetes.io/name": "mine", "ray.io/group": "other"}});
        let cluster = example(Kind::RayCluster, &spec);
        let pods: Vec<(String, Value)> = roles(Kind::RayCluster, &cluster, &DeclaredKinds::default())
            .unwrap()
            .iter()
            .map(|role| pod(&cluster, "x", role))
            .collect();
        let (head, worker) = (&pods[0], &pods[1]);
        assert_eq!((head.0.as_str(), worker.0.as_str()), ("x-head", "x-gpu-worker"));
        assert_eq!(
            worker.1["metadata"]["labels"],
            json!({"ray.io/is-ray-node": "yes", "ray.io/identifier": "x-worker", "app.kubernetes.io/name": "mine",
                "app.kubernetes.io/created-by": "kuberay-operator", "ray.io/cluster": "x", "ray.io/node-type": "worker",
                "ray.io/group": "gpu", "kai.scheduler/queue": "team"})
        );
        assert_eq!(head.1["spec"]["schedulerName"], "kai-scheduler");
        assert_eq!(head.1["spec"]["containers"][1]["name"], "autoscaler");
        assert_eq!(worker.1["spec"]["initContainers"][0]["name"], "wait-gcs-ready");
    }
}
