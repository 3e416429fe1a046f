//! Kubeflow's training operator 1.9: a pod per replica, named by its role and number.

use kai_control::objects::Malformed;
use serde_json::Value;

use super::{JsonCursor, Role, add_labels};
use crate::input_error::suggest;
use crate::kinds::Kind;

const LAUNCHER: &str = "training.kubeflow.org/job-role";

/// What tells the kinds apart: the field that lists the replicas, their sorts, and the name of the controller.
fn traits(kind: Kind) -> (&'static str, &'static [&'static str], &'static str) {
    match kind {
        Kind::TFJob => ("tfReplicaSpecs", &["Chief", "Master", "PS", "Worker", "Evaluator"], "tfjob-controller"),
        Kind::XGBoostJob => ("xgbReplicaSpecs", &["Master", "Worker"], "xgboostjob-controller"),
        Kind::JAXJob => ("jaxReplicaSpecs", &["Worker"], "jaxjob-controller"),
        _ => ("pytorchReplicaSpecs", &["Master", "Worker"], "pytorchjob-controller"),
    }
}

pub(super) fn roles(kind: Kind, job: &JsonCursor<'_>) -> Result<Vec<Role>, Malformed> {
    let (field, sorts, _) = traits(kind);
    let specs = job.required(&format!("spec.{field}"))?;
    let suspended = job.flag("spec.runPolicy.suspend")?;
    let mut roles = Vec::new();
    for (sort, spec) in specs.fields()? {
        if !sorts.iter().any(|known| known.eq_ignore_ascii_case(sort)) {
            let problem = format!("a {} has no replicas of type `{sort}`", kind.name());
            return Err(Malformed::new(spec.path, problem, suggest(sort, sorts)));
        }
        let pods = if suspended { 0 } else { spec.count("replicas")?.unwrap_or(1) };
        roles.push(spec.role(sort.to_lowercase(), pods, "template")?);
    }
    if roles.is_empty() {
        let problem = "it lists no replicas";
        return Err(Malformed::new(specs.path, problem, format!("add replicas of type {}", sorts.join(" or "))));
    }
    // The role that the others wait for comes first.
    roles.sort_by_key(|role| !leads(&role.name));
    Ok(roles)
}

fn leads(role: &str) -> bool {
    matches!(role, "master" | "chief")
}

/// Name and draft of every pod.
pub(crate) fn pods(kind: Kind, job_name: &str, roles: &[Role]) -> Vec<(String, Value)> {
    let led = roles.iter().any(|role| leads(&role.name));
    let mut pods = Vec::new();
    for role in roles {
        for index in 0..role.pods {
            let mut pod = role.template.clone();
            add_labels(
                &mut pod,
                "labels",
                &[
                    ("training.kubeflow.org/operator-name", traits(kind).2.to_owned()),
                    ("training.kubeflow.org/job-name", job_name.to_owned()),
                    ("training.kubeflow.org/replica-type", role.name.clone()),
                    ("training.kubeflow.org/replica-index", index.to_string()),
                ],
            );
            if leads(&role.name) || (!led && role.name == "worker" && index == 0 && kind != Kind::XGBoostJob) {
                add_labels(&mut pod, "labels", &[(LAUNCHER, "master".to_owned())]);
            }
            pods.push((format!("{job_name}-{}-{index}", role.name), pod));
        }
    }
    pods
}

/// Names of the pods with which the job is done.
pub(crate) fn decisive(kind: Kind, job: &Value, job_name: &str, roles: &[Role]) -> Vec<String> {
    let led = roles.iter().any(|role| leads(&role.name));
    let all_workers = job.pointer("/spec/successPolicy").and_then(Value::as_str) == Some("AllWorkers");
    let counts = |role: &&Role| if led { leads(&role.name) } else { role.name == "worker" };
    let names = roles.iter().filter(counts).flat_map(|role| {
        let first_only = kind == Kind::TFJob && !led && !all_workers;
        let pods = if first_only { role.pods.min(1) } else { role.pods };
        (0..pods).map(move |index| format!("{job_name}-{}-{index}", role.name))
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use kai_workloads::DeclaredKinds;
    use serde_json::json;

    use super::super::{example, outline, roles};
    use super::*;

    fn spec(field: &str, sorts: &[(&str, u32)]) -> Value {
        let entry = |(sort, replicas): &(&str, u32)| {
            (
                (*sort).to_owned(),
                json!({"replicas": replicas, "template": {"spec": {"containers": [{"name": "main"}]}}}),
            )
        };
        json!({field: sorts.iter().map(entry).collect::<serde_json::Map<_, _>>()})
    }

    /// `name role` of each pod, and with which the job is done.
    fn plan(kind: Kind, spec: &Value) -> (Vec<String>, Vec<String>) {
        let job = example(kind, spec);
        let roles = roles(kind, &job, &DeclaredKinds::default()).unwrap();
        let shown = |(name, pod): &(String, Value)| match pod["metadata"]["labels"][LAUNCHER].as_str() {
            Some(role) => format!("{name} {role}"),
            None => name.clone(),
        };
        (pods(kind, "x", &roles).iter().map(shown).collect(), decisive(kind, &job, "x", &roles))
    }

    #[test]
    fn the_master_ends_the_job_and_else_all_workers() {
        let both = spec("pytorchReplicaSpecs", &[("Worker", 2), ("Master", 1)]);
        let (pods, last) = plan(Kind::PyTorchJob, &both);
        assert_eq!(pods, ["x-master-0 master", "x-worker-0", "x-worker-1"]);
        assert_eq!(last, ["x-master-0"]);
        let (pods, last) = plan(Kind::PyTorchJob, &spec("pytorchReplicaSpecs", &[("Worker", 2)]));
        assert_eq!(pods, ["x-worker-0 master", "x-worker-1"]);
        assert_eq!(last, ["x-worker-0", "x-worker-1"]);
        let (_, last) = plan(Kind::TFJob, &spec("tfReplicaSpecs", &[("PS", 1), ("Worker", 2)]));
        assert_eq!(last, ["x-worker-0"]);
    }

    #[test]
    fn types_are_checked() {
        assert_eq!(
            outline(Kind::PyTorchJob, &spec("pytorchReplicaSpecs", &[("Worker", 2), ("Chief", 1)])),
            "spec.pytorchReplicaSpecs.Chief: a PyTorchJob has no replicas of type `Chief`; understood here: Master, Worker"
        );
        assert_eq!(
            outline(Kind::JAXJob, &json!({"jaxReplicaSpecs": {}})),
            "spec.jaxReplicaSpecs: it lists no replicas; add replicas of type Worker"
        );
        assert!(outline(Kind::TFJob, &json!({})).starts_with("spec.tfReplicaSpecs: it is missing"));
        let mut suspended = spec("pytorchReplicaSpecs", &[("Worker", 2)]);
        suspended["runPolicy"] = json!({"suspend": true});
        assert_eq!(outline(Kind::PyTorchJob, &suspended), "worker 0");
    }
}
