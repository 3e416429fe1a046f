//! `MPIJob`: a gang of launcher and workers. A launcher that waits for its workers is not waited for.

use super::kubeflow::distributed;
use crate::error::GroupError;
use crate::group::{GroupSpec, Minimum};
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::workload::Workload;

const JOB_NAME: &str = "training.kubeflow.org/job-name";
const JOB_ROLE: &str = "training.kubeflow.org/job-role";

pub const ABOUT: RuleDoc = RuleDoc {
    group: "per owner",
    minimum: "all replicas, or `runPolicy.schedulingPolicy.minAvailable`; without the launcher while it waits for workers",
    sub_groups: "–",
    class: TRAIN,
};

pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let mut spec = distributed(workload, "mpiReplicaSpecs", &["Launcher", "Worker"])?;
    let root = workload.object.root();
    let delayed = root.text("spec.launcherCreationPolicy")? == Some("WaitForWorkersReady");
    if let (true, false, Minimum::Members(members)) = (delayed, has_launcher(workload), spec.minimum) {
        let launchers = root.field_required("spec.mpiReplicaSpecs.Launcher.replicas")?;
        let count = launchers.as_int()?;
        if count == 0 {
            return Err(launchers.malformed("a number of pods other than 0"));
        }
        // Fewer than all may be asked for by hand, so that the workers alone are already enough.
        spec.minimum = Minimum::Members(members.saturating_sub(count).max(0));
    }
    Ok(spec)
}

fn has_launcher(workload: &Workload<'_>) -> bool {
    let labels = [(JOB_NAME, workload.object.name()), (JOB_ROLE, "launcher")];
    workload.related.pods(workload.pod.namespace(), &labels).iter().any(|pod| !pod.terminating)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::related::ObjectStore;
    use crate::testing::{outline, try_group};

    fn launcher(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "lab",
            "labels": {JOB_NAME: "m", JOB_ROLE: "launcher"}}})
    }

    #[track_caller]
    fn check(policy: &str, run_policy: &Value, pods: Vec<Value>, expected: &str) {
        let job = json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"}, "spec": {
            "launcherCreationPolicy": policy, "runPolicy": run_policy,
            "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 4}}}});
        let worker = json!({"metadata": {"name": "m-worker-0", "namespace": "lab"}});
        let spec = try_group(&[job], &worker, &pods.into_iter().collect::<ObjectStore>()).unwrap();
        assert_eq!(outline(&spec), expected);
    }

    #[test]
    fn the_launcher_counts_once_it_exists() {
        let waiting = "WaitForWorkersReady";
        check("AtStartup", &json!({}), vec![], "* 5");
        check(waiting, &json!({}), vec![], "* 4");
        check(waiting, &json!({}), vec![launcher("l")], "* 5");
        let mut leaving = launcher("l");
        leaving["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        check(waiting, &json!({}), vec![leaving], "* 4");
        check(waiting, &json!({"schedulingPolicy": {"minAvailable": 0}}), vec![], "* 0");
    }
}
