//! `JobSet`: one group, a parent per replicated job, a leaf per Job.
//!
//! ```text
//! *          2 children      1 if jobs start in order
//! driver     1 child
//! └ driver-replica-0   1 pod
//! worker     2 children
//! ├ worker-replica-0   4 pods = parallelism
//! └ worker-replica-1   4 pods
//! ```

use kai_api::keys::annotation;

use crate::error::GroupError;
use crate::group::{GroupSpec, Minimum, SubGroupSpec, TopologyConstraint};
use crate::kinds::SEGMENTS_MAX;
use crate::object::{FieldRef, Object};
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::topology;
use crate::workload::Workload;

const REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";
const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";

pub const ABOUT: RuleDoc = RuleDoc {
    group: "per owner",
    minimum: "every replicated job; the first if they start in order; or annotation `kai.scheduler/batch-min-member`",
    sub_groups: "a parent per replicated job, a leaf per Job with its parallelism",
    class: TRAIN,
};

pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let spec = workload.base();
    if has_flat_group(workload, &spec) {
        return flat(workload, spec);
    }
    let (set, pod) = (workload.object, workload.pod);
    let jobs = replicated_jobs(set)?;
    let mine = format!("{}-replica-{}", pod.label_required(REPLICATED_JOB)?, pod.label_required(JOB_INDEX)?);

    let mut sub_groups = Vec::new();
    for job in &jobs {
        sub_groups.push(SubGroupSpec::parent(job.name, job.replicas));
        for i in 0..job.replicas {
            let name = format!("{}-replica-{i}", job.name);
            let belongs = name == mine;
            let leaf = SubGroupSpec::leaf(name, job.members).below(job.name).within(job.topology.clone());
            sub_groups.push(leaf.holding(pod, belongs));
        }
    }
    let spec = GroupSpec { minimum: Minimum::SubGroups(children_needed(set, &jobs)?), sub_groups, ..spec };
    if spec.leaf_of(pod.name()).is_none() {
        let expected = "the name and index of a replicated job of its JobSet";
        return Err(pod.malformed(format!("labels {REPLICATED_JOB} and {JOB_INDEX}"), expected, &mine));
    }
    Ok(spec)
}

struct ReplicatedJob<'a> {
    name: &'a str,
    replicas: i32,
    /// Pods each replica needs.
    members: i32,
    topology: Option<TopologyConstraint>,
    depends: bool,
}

/// Replicated jobs that have replicas; a parent without children would be refused.
fn replicated_jobs(set: Object<'_>) -> Result<Vec<ReplicatedJob<'_>>, GroupError> {
    let list = set.root().field_required("spec.replicatedJobs")?;
    let entries = set.root().list("spec.replicatedJobs")?;
    if entries.is_empty() {
        return Err(list.malformed("a list of at least one job"));
    }
    let mut jobs = Vec::new();
    let mut leaves = 0_i32;
    for entry in entries {
        let name = entry.text_required("name")?;
        let replicas = entry.int("replicas")?.unwrap_or(1).max(0);
        leaves = leaves.saturating_add(replicas);
        if leaves > SEGMENTS_MAX {
            return Err(list.malformed(format!("made of at most {SEGMENTS_MAX} replicas")));
        }
        let template = entry.field("template")?;
        let members = members(&entry, template.as_ref())?;
        if replicas > 0 {
            let topology = template.as_ref().and_then(topology::of_template).filter(TopologyConstraint::is_complete);
            let depends = !entry.list("dependsOn")?.is_empty();
            jobs.push(ReplicatedJob { name, replicas, members, topology, depends });
        }
    }
    Ok(jobs)
}

fn members(entry: &FieldRef<'_>, template: Option<&FieldRef<'_>>) -> Result<i32, GroupError> {
    let parallelism = entry.int("template.spec.parallelism")?.unwrap_or(1);
    let annotated = template.and_then(|template| Some((template, template.annotation(annotation::BATCH_MIN_MEMBER)?)));
    match annotated {
        None | Some((_, "")) => Ok(parallelism),
        Some((template, text)) => positive(text)
            .ok_or_else(|| template.malformed_annotation(annotation::BATCH_MIN_MEMBER, "an integer above 0", text)),
    }
}

/// How many replicated jobs must be satisfied at once.
fn children_needed(set: Object<'_>, jobs: &[ReplicatedJob<'_>]) -> Result<i32, GroupError> {
    let all = i32::try_from(jobs.len()).unwrap_or(i32::MAX);
    if let Some(wanted) = annotated_minimum(set)? {
        return Ok(wanted.min(all));
    }
    // A job that waits for another one has no pods at first, just as with jobs in order.
    let one_by_one = in_order(set)? || jobs.iter().any(|job| job.depends);
    Ok(if one_by_one { all.min(1) } else { all })
}

fn in_order(set: Object<'_>) -> Result<bool, GroupError> {
    Ok(set.root().text("spec.startupPolicy.startupPolicyOrder")? == Some("InOrder"))
}

fn annotated_minimum(set: Object<'_>) -> Result<Option<i32>, GroupError> {
    let Some(text) = set.annotation(annotation::BATCH_MIN_MEMBER) else { return Ok(None) };
    let error = || set.malformed(format!("annotation {}", annotation::BATCH_MIN_MEMBER), "an integer above 0", text);
    positive(text).map(Some).ok_or_else(error)
}

fn positive(text: &str) -> Option<i32> {
    text.parse().ok().filter(|number| *number > 0)
}

/// Did an older release make groups without sub-groups for this set?
fn has_flat_group(workload: &Workload<'_>, spec: &GroupSpec) -> bool {
    let ours = |name: &str| name.strip_prefix(&spec.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    let stored = workload.related.pod_groups(&spec.namespace, &spec.name);
    stored.iter().any(|group| ours(&group.name) && group.sub_groups.is_empty())
}

/// The shape of that older release: a group per set, or per replicated job if these start in order.
fn flat(workload: &Workload<'_>, mut spec: GroupSpec) -> Result<GroupSpec, GroupError> {
    let job = workload.pod.label_required(REPLICATED_JOB)?;
    if in_order(workload.object)? {
        spec.name = format!("{}-{job}", spec.name);
    }
    spec.minimum = Minimum::Members(annotated_minimum(workload.object)?.unwrap_or(1));
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::related::ObjectStore;
    use crate::testing::{outline, try_group};

    fn set(spec: &Value) -> Value {
        json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"name": "js", "uid": "u"}, "spec": spec})
    }

    fn driver_and_workers() -> Value {
        json!([{"name": "driver", "replicas": 1},
               {"name": "worker", "replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 3}}}])
    }

    fn pod(job: &str, index: &str) -> Value {
        json!({"metadata": {"name": "p", "namespace": "lab", "labels": {REPLICATED_JOB: job, JOB_INDEX: index}}})
    }

    fn group(set: &Value, pod: &Value) -> Result<String, GroupError> {
        try_group(std::slice::from_ref(set), pod, &ObjectStore::default()).map(|spec| outline(&spec))
    }

    const TREE: &str = "driver 1!\ndriver-replica-0 1 < driver\n\
                        worker 2!\nworker-replica-0 4 < worker\nworker-replica-1 4 < worker [p]";

    #[test]
    fn a_tree_of_replicated_jobs() {
        let any = set(&json!({"replicatedJobs": driver_and_workers()}));
        assert_eq!(group(&any, &pod("worker", "1")).unwrap(), format!("* 2!\n{TREE}"));
        let ordered = set(&json!({"replicatedJobs": driver_and_workers(),
            "startupPolicy": {"startupPolicyOrder": "InOrder"}}));
        assert_eq!(group(&ordered, &pod("worker", "1")).unwrap(), format!("* 1!\n{TREE}"));
    }

    #[test]
    fn jobs_that_depend_on_others_start_as_in_order() {
        let mut jobs = driver_and_workers();
        jobs[1]["dependsOn"] = json!([{"name": "driver", "status": "Complete"}]);
        let spec = group(&set(&json!({"replicatedJobs": jobs})), &pod("worker", "1")).unwrap();
        assert_eq!(spec, format!("* 1!\n{TREE}"));
    }

    #[test]
    fn a_job_without_replicas_is_left_out() {
        let mut jobs = driver_and_workers();
        jobs[0]["replicas"] = json!(0);
        let spec = group(&set(&json!({"replicatedJobs": jobs})), &pod("worker", "0")).unwrap();
        assert_eq!(spec, "* 1!\nworker 2!\nworker-replica-0 4 < worker [p]\nworker-replica-1 4 < worker");
    }

    #[test]
    fn annotations_set_the_minimums() {
        let mut jobs = driver_and_workers();
        jobs[1]["template"]["metadata"] = json!({"annotations": {annotation::BATCH_MIN_MEMBER: "9"}});
        let mut annotated = set(&json!({"replicatedJobs": jobs}));
        annotated["metadata"]["annotations"] = json!({annotation::BATCH_MIN_MEMBER: "7"});
        let spec = group(&annotated, &pod("driver", "0")).unwrap();
        assert!(spec.starts_with("* 2!"), "capped at the number of jobs: {spec}");
        assert!(spec.contains("worker-replica-0 9"), "may exceed parallelism: {spec}");
        for text in ["0", "x", ""] {
            annotated["metadata"]["annotations"] = json!({annotation::BATCH_MIN_MEMBER: text});
            assert!(group(&annotated, &pod("driver", "0")).is_err(), "{text}");
        }
    }

    #[test]
    fn pods_must_name_their_replicated_job_and_index() {
        let set = set(&json!({"replicatedJobs": driver_and_workers()}));
        assert!(group(&set, &pod("worker", "2")).is_err());
        assert!(group(&set, &pod("other", "0")).is_err());
        assert!(group(&set, &json!({"metadata": {"labels": {REPLICATED_JOB: "worker"}}})).is_err());
        assert!(group(&set, &json!({"metadata": {"labels": {JOB_INDEX: "0"}}})).is_err());
    }

    #[test]
    fn absurd_sizes_are_refused() {
        for jobs in [json!([]), json!([{"replicas": 1}]), json!([{"name": "a", "replicas": i32::MAX}]), json!({})] {
            assert!(group(&set(&json!({"replicatedJobs": jobs})), &pod("a", "0")).is_err(), "{jobs}");
        }
    }

    #[test]
    fn flat_groups_of_older_releases_live_on() {
        let stored: ObjectStore = [json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": "pg-js-u-driver", "namespace": "lab"}})]
        .into_iter()
        .collect();
        let set = set(&json!({"replicatedJobs": driver_and_workers(),
            "startupPolicy": {"startupPolicyOrder": "InOrder"}}));
        let spec = try_group(&[set], &pod("worker", "9"), &stored).unwrap();
        assert_eq!((spec.name.as_str(), outline(&spec).as_str()), ("pg-js-u-worker", "* 1"));
    }
}
