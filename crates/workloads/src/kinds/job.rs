//! Job: one group per Job. Pods start one by one unless the Job asks for a gang by annotation.
//!
//! Parallelism and suspension do not matter. Nor do completions, until some are there: pods that have succeeded are not
//! made again, and a minimum that counts them would never be met.

use kai_api::keys::annotation;

use crate::error::GroupError;
use crate::group::{GroupSpec, Minimum};
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::workload::Workload;

pub const ABOUT: RuleDoc = RuleDoc {
    group: "per owner",
    minimum: "1, or annotation `kai.scheduler/batch-min-member`",
    sub_groups: "–",
    class: TRAIN,
};

pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let mut spec = workload.base();
    if let Some(name) = legacy_group(workload, &spec) {
        spec.name = name;
        return Ok(spec);
    }
    if let Some(members) = workload.object.annotation_int(annotation::BATCH_MIN_MEMBER)? {
        spec.minimum = Minimum::Members(left_to_do(workload)?.map_or(members, |left| members.min(left)));
    }
    Ok(spec)
}

/// Pods that have yet to succeed, once others have.
fn left_to_do(workload: &Workload<'_>) -> Result<Option<i32>, GroupError> {
    let job = workload.object.root();
    let (completions, succeeded) = (job.int("spec.completions")?, job.int("status.succeeded")?);
    Ok(completions.zip(succeeded).filter(|(_, succeeded)| *succeeded > 0).map(|(all, done)| (all - done).max(0)))
}

/// Older releases made one group per pod; a pod that has such a group keeps it.
fn legacy_group(workload: &Workload<'_>, spec: &GroupSpec) -> Option<String> {
    let name = format!("pg-{}-{}", workload.pod.name(), workload.object.uid());
    let wanted = workload.settings.search_legacy_pod_groups && name != spec.name;
    (wanted && workload.related.pod_group(&spec.namespace, &name).is_some()).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::related::ObjectStore;
    use crate::testing::{check_group, outline, try_group};

    fn job(annotations: &Value) -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "sweep", "uid": "u", "annotations": annotations}, "spec": {"parallelism": 2}})
    }

    fn pod(name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "lab"}})
    }

    #[test]
    fn pods_of_a_job_share_one_group_and_start_one_by_one() {
        for name in ["sweep-a", "sweep-b"] {
            let spec = check_group(&[job(&json!({}))], &pod(name));
            assert_eq!((spec.name.as_str(), outline(&spec).as_str()), ("pg-sweep-u", "* 1"));
        }
    }

    #[test]
    fn the_annotation_makes_a_gang() {
        let with = |text: &str| job(&json!({"kai.scheduler/batch-min-member": text}));
        assert_eq!(outline(&check_group(&[with("2")], &pod("a"))), "* 2");
        assert_eq!(outline(&check_group(&[with("0")], &pod("a"))), "* 0");
        assert!(try_group(&[with("x")], &pod("a"), &ObjectStore::default()).is_err());
    }

    #[test]
    fn what_is_done_is_not_waited_for() {
        let mut job = job(&json!({"kai.scheduler/batch-min-member": "3"}));
        job["spec"]["completions"] = json!(4);
        for (succeeded, minimum) in [(0, "* 3"), (1, "* 3"), (2, "* 2"), (4, "* 0")] {
            job["status"]["succeeded"] = json!(succeeded);
            assert_eq!(outline(&check_group(&[job.clone()], &pod("a"))), minimum);
        }
    }

    #[test]
    fn a_group_of_an_older_release_is_kept() {
        let related: ObjectStore = [json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": "pg-a-u", "namespace": "lab"}})]
        .into_iter()
        .collect();
        let broken = job(&json!({"kai.scheduler/batch-min-member": "x"}));
        let spec = try_group(&[broken], &pod("a"), &related).unwrap();
        assert_eq!((spec.name.as_str(), outline(&spec).as_str()), ("pg-a-u", "* 1"));
    }
}
