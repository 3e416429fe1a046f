//! `RunaiJob`: one group per replica index, named after the pod without its last part.

use crate::error::GroupError;
use crate::group::GroupSpec;
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::workload::Workload;

pub const ABOUT: RuleDoc = RuleDoc { group: "per replica", minimum: "1", sub_groups: "–", class: TRAIN };

#[allow(clippy::unnecessary_wraps, reason = "shape of every rule in the table")]
pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let mut spec = workload.base();
    let pod = workload.pod.name();
    let stem = pod.rsplit_once('-').map_or(pod, |(stem, _)| stem);
    spec.name = format!("pg-{stem}-{}", workload.object.uid());
    if let Some(name) = legacy_group(workload, &spec) {
        spec.name = name;
    }
    Ok(spec)
}

/// Older releases named the group after the job, or after the pod if there were several.
fn legacy_group(workload: &Workload<'_>, spec: &GroupSpec) -> Option<String> {
    let parallelism = workload.object.value["spec"]["parallelism"].as_i64().unwrap_or(1);
    let named = if parallelism <= 1 { workload.object.name() } else { workload.pod.name() };
    let name = format!("pg-{named}-{}", workload.object.uid());
    let wanted = workload.settings.search_legacy_pod_groups;
    (wanted && workload.related.pod_group(&spec.namespace, &name).is_some()).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::related::ObjectStore;
    use crate::testing::try_group;

    #[track_caller]
    fn check(parallelism: &Value, pod: &str, existing: &str, name: &str) {
        let job = json!({"apiVersion": "run.ai/v1", "kind": "RunaiJob", "metadata": {"name": "job", "uid": "u"},
            "spec": {"parallelism": parallelism}});
        let related: ObjectStore = [json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": existing}})]
        .into_iter()
        .collect();
        assert_eq!(try_group(&[job], &json!({"metadata": {"name": pod}}), &related).unwrap().name, name);
    }

    #[test]
    fn is_named_after_the_pod_without_its_last_part() {
        check(&json!(1), "job-0-0", "", "pg-job-0-u");
        check(&json!(1), "whole", "", "pg-whole-u");
    }

    #[test]
    fn groups_of_older_releases_are_kept() {
        check(&json!(1), "job-0-0", "pg-job-u", "pg-job-u");
        check(&json!("many"), "job-0-0", "pg-job-u", "pg-job-u");
        check(&json!(2), "job-0-0", "pg-job-u", "pg-job-0-u");
        check(&json!(2), "job-0-0", "pg-job-0-0-u", "pg-job-0-0-u");
    }
}
