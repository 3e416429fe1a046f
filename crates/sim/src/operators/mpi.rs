//! The MPI operator, `v2beta1`: workers as pods, and a Job that runs the launcher.

use kai_control::objects::Malformed;
use serde_json::{Value, json};

use super::{JsonCursor, Role, add_labels};

pub(super) fn roles(job: &JsonCursor<'_>) -> Result<Vec<Role>, Malformed> {
    let specs = job.required("spec.mpiReplicaSpecs")?;
    let launcher = specs.required("Launcher")?;
    if let Some(replicas) = launcher.count("replicas")?.filter(|replicas| *replicas != 1) {
        let problem = format!("an MPIJob has one launcher, not {replicas}");
        return Err(Malformed::new(launcher.path_of("replicas"), problem, "write 1, or leave it out"));
    }
    let suspended = job.flag("spec.runPolicy.suspend")?;
    let mut roles = vec![launcher.role("launcher", u32::from(!suspended), "template")?];
    if let Some(workers) = specs.part("Worker")? {
        let pods = if suspended { 0 } else { workers.count("replicas")?.unwrap_or(0) };
        roles.push(workers.role("worker", pods, "template")?);
    }
    Ok(roles)
}

/// Whether the launcher is made only when all workers run.
pub(crate) fn launcher_waits(job: &Value) -> bool {
    job.pointer("/spec/launcherCreationPolicy").and_then(Value::as_str) == Some("WaitForWorkersReady")
}

/// Name and draft of every worker.
pub(crate) fn workers(job_name: &str, roles: &[Role]) -> Vec<(String, Value)> {
    let Some(workers) = roles.iter().find(|role| role.name == "worker") else { return Vec::new() };
    let pod = |index: u32| {
        let mut pod = marked(&workers.template, job_name, "worker");
        add_labels(&mut pod, "labels", &[("training.kubeflow.org/replica-index", index.to_string())]);
        (format!("{job_name}-worker-{index}"), pod)
    };
    (0..workers.pods).map(pod).collect()
}

/// The Job that runs the launcher, without name and owner.
pub(crate) fn launcher(job_name: &str, roles: &[Role]) -> Option<Value> {
    let role = roles.iter().find(|role| role.name == "launcher").filter(|role| role.pods > 0)?;
    let template = marked(&role.template, job_name, "launcher");
    Some(json!({"metadata": {"labels": {"app": job_name}}, "spec": {"completions": 1, "template": template}}))
}

fn marked(template: &Value, job_name: &str, role: &str) -> Value {
    let mut template = template.clone();
    add_labels(
        &mut template,
        "labels",
        &[
            ("training.kubeflow.org/operator-name", "mpi-operator".to_owned()),
            ("training.kubeflow.org/job-name", job_name.to_owned()),
            ("training.kubeflow.org/job-role", role.to_owned()),
        ],
    );
    template
}

#[cfg(test)]
mod tests {
    use super::super::outline;
    use crate::kinds::Kind;
    use serde_json::json;

    #[test]
    fn one_launcher_and_any_number_of_workers() {
        let spec = |launchers: u32| {
            let template = json!({"spec": {"containers": [{"name": "main"}]}});
            json!({"mpiReplicaSpecs": {"Launcher": {"replicas": launchers, "template": template},
                "Worker": {"replicas": 4, "template": template}}})
        };
        assert_eq!(outline(Kind::MPIJob, &spec(1)), "launcher 1, worker 4");
        assert_eq!(
            outline(Kind::MPIJob, &spec(2)),
            "spec.mpiReplicaSpecs.Launcher.replicas: an MPIJob has one launcher, not 2; write 1, or leave it out"
        );
        assert!(outline(Kind::MPIJob, &json!({"mpiReplicaSpecs": {}})).starts_with("spec.mpiReplicaSpecs.Launcher: "));
    }
}
