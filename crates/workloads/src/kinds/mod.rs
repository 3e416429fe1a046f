//! The rules: one file per workload kind, each with its tests, and the table that says which kind uses which.
//!
//! A new kind is a file here, its `mod` line and its row in [`TABLE`]. A row also names the other kinds that its rule reads, so
//! that watches and permissions follow from the table. Kinds without a row get the base rule.

pub mod aml_job;
pub mod cron_job;
mod declared;
pub mod deployment;
pub mod grove;
pub mod jax_job;
pub mod job;
pub mod job_set;
pub mod karta;
pub mod knative;
pub mod kubeflow;
pub mod leader_worker_set;
pub mod mpi_job;
pub mod notebook;
pub mod paddle_job;
pub mod plain;
pub mod pod;
pub mod pytorch_job;
pub mod ray;
pub mod runai_job;
pub mod spot_request;
pub mod tf_job;
pub mod wrapper;
pub mod xgboost_job;

use std::collections::BTreeSet;

use crate::error::GroupError;
use crate::group::GroupSpec;
use crate::row::row;
pub use crate::row::{ANY, Kind, PostProcess, Row, Rule, RuleDoc};
use crate::workload::Workload;

const POD: Kind = Kind { group: "", version: "v1", kind: "Pod" };
const JOB: Kind = Kind { group: "batch", version: "v1", kind: "Job" };
const POD_GROUP: Kind = Kind { group: "scheduling.run.ai", version: "v2alpha2", kind: "PodGroup" };
const RAY_CLUSTER: Kind = Kind { group: "ray.io", version: "v1", kind: "RayCluster" };
const REVISION: Kind = Kind { group: "serving.knative.dev", version: "v1", kind: "Revision" };
const POD_GANG: Kind = Kind { group: "scheduler.grove.io", version: "v1alpha1", kind: "PodGang" };

pub const TABLE: &[Row] = &[
    row("", &["v1"], "Pod", pod::group, pod::ABOUT),
    row("amlarc.azureml.com", &["v1alpha1"], "AmlJob", aml_job::group, aml_job::ABOUT),
    row("apps", &["v1"], "Deployment", deployment::group, deployment::ABOUT),
    row("apps", &["v1"], "ReplicaSet", plain::group, plain::ABOUT),
    row("apps", &["v1"], "StatefulSet", plain::group, plain::ABOUT),
    row("argoproj.io", &["v1alpha1"], "Workflow", wrapper::group, wrapper::ABOUT),
    row("batch", &["v1"], "CronJob", cron_job::group, cron_job::ABOUT).reads(&[JOB]),
    row("batch", &["v1"], "Job", job::group, job::ABOUT).reads(&[POD_GROUP]),
    row("egx.nvidia.io", &["v1"], "SPOTRequest", spot_request::group, spot_request::ABOUT),
    row("grove.io", &["v1alpha1"], "PodCliqueSet", grove::group, grove::ABOUT).reads(&[POD_GANG]),
    row("grove.io", &["v1alpha1"], "PodGangSet", grove::group, grove::ABOUT).reads(&[POD_GANG]),
    row("jobset.x-k8s.io", &["v1alpha2"], "JobSet", job_set::group, job_set::ABOUT).reads(&[POD_GROUP]),
    row("kubeflow.org", &["v1"], "JAXJob", jax_job::group, jax_job::ABOUT),
    row("kubeflow.org", &["v1", "v2beta1"], "MPIJob", mpi_job::group, mpi_job::ABOUT).reads(&[POD]),
    row("kubeflow.org", &["v1beta1"], "Notebook", notebook::group, notebook::ABOUT),
    row("kubeflow.org", &["v1"], "PaddleJob", paddle_job::group, paddle_job::ABOUT),
    row("kubeflow.org", &["v1"], "PyTorchJob", pytorch_job::group, pytorch_job::ABOUT),
    row("kubeflow.org", &["v1alpha1"], "ScheduledWorkflow", plain::group, plain::ABOUT),
    row("kubeflow.org", &["v1"], "TFJob", tf_job::group, tf_job::ABOUT),
    row("kubeflow.org", &["v1"], "XGBoostJob", xgboost_job::group, xgboost_job::ABOUT),
    row("kubevirt.io", &["v1"], "VirtualMachineInstance", plain::group, plain::ABOUT),
    row("leaderworkerset.x-k8s.io", &["v1"], "LeaderWorkerSet", leader_worker_set::group, leader_worker_set::ABOUT),
    row("machinelearning.seldon.io", &["v1alpha2", "v1"], "SeldonDeployment", plain::group, plain::ABOUT),
    row("nvidia.com", ANY, "DynamoGraphDeployment", wrapper::group, wrapper::ABOUT).not_readable(),
    row("ray.io", &["v1", "v1alpha1"], "RayCluster", ray::group, ray::ABOUT)
        .reads(&[POD_GROUP])
        .post_process(ray::adopt_strays),
    row("ray.io", &["v1", "v1alpha1"], "RayJob", ray::group, ray::ABOUT)
        .reads(&[RAY_CLUSTER, POD_GROUP])
        .post_process(ray::adopt_strays),
    row("ray.io", &["v1", "v1alpha1"], "RayService", ray::group, ray::ABOUT)
        .reads(&[RAY_CLUSTER, POD_GROUP])
        .post_process(ray::adopt_strays),
    row("run.ai", ANY, "DistributedInferenceWorkload", wrapper::group, wrapper::ABOUT),
    row("run.ai", ANY, "DistributedWorkload", wrapper::group, wrapper::ABOUT),
    row("run.ai", ANY, "InferenceWorkload", wrapper::group, wrapper::ABOUT),
    row("run.ai", ANY, "InteractiveWorkload", wrapper::group, wrapper::ABOUT),
    row("run.ai", &["v1"], "RunaiJob", runai_job::group, runai_job::ABOUT).reads(&[POD_GROUP]),
    row("run.ai", ANY, "TrainingWorkload", wrapper::group, wrapper::ABOUT),
    row("serving.knative.dev", &["v1"], "Service", knative::group, knative::ABOUT).reads(&[REVISION, POD, POD_GROUP]),
    row("tekton.dev", &["v1"], "PipelineRun", plain::group, plain::ABOUT),
    row("tekton.dev", &["v1"], "TaskRun", plain::group, plain::ABOUT),
    row("trainer.kubeflow.org", &["v1alpha1"], "TrainJob", wrapper::group, wrapper::ABOUT),
    row("workspace.devfile.io", &["v1alpha2"], "DevWorkspace", plain::group, plain::ABOUT),
];

/// Kinds that stand between pods and the kinds above, or describe gangs.
const INTERMEDIATE_KINDS: &[(&str, &str)] = &[
    ("grove.io", "PodClique"),
    ("grove.io", "PodCliqueScalingGroup"),
    ("kubevirt.io", "VirtualMachine"),
    ("run.ai", "Karta"),
    ("scheduling.k8s.io", "PodGroup"),
    ("scheduling.k8s.io", "Workload"),
    ("serving.knative.dev", "Configuration"),
];

/// Group and kind of all that the shipped role may read. A kind that is not among them ends the owner walk below
/// itself, so this shapes grouping as much as the rules do.
pub fn readable() -> BTreeSet<(&'static str, &'static str)> {
    let rows = TABLE.iter().filter(|row| row.readable);
    let named = rows.flat_map(|row| {
        let related = row.related.iter().map(|kind| (kind.group, kind.kind));
        related.chain([(row.group, row.kind)])
    });
    named.chain(INTERMEDIATE_KINDS.iter().copied()).collect()
}

/// The rule for the object of this workload: by exact version, by any version, by a user's declaration, by a Karta,
/// else the base rule.
pub fn apply(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let any_version = || TABLE.iter().find(|row| row.is_any_version(workload));
    if let Some(row) = exact(workload, TABLE).or_else(any_version) {
        return row.apply(workload);
    }
    if let Some(declared) = declared::group(workload) {
        return declared;
    }
    if let Some(karta) = karta::describing(workload) {
        return karta::group(workload, karta);
    }
    plain::group(workload)
}

/// What a wrapper goes by for the object inside: exact version, a user's declaration or the base rule.
fn apply_exact(workload: &Workload<'_>, table: &[Row]) -> Result<GroupSpec, GroupError> {
    let row = exact(workload, table).map(|row| row.apply(workload));
    row.or_else(|| declared::group(workload)).unwrap_or_else(|| plain::group(workload))
}

fn exact<'t>(workload: &Workload<'_>, table: &'t [Row]) -> Option<&'t Row> {
    table.iter().find(|row| row.is_exactly(workload))
}

/// A row by its names, whatever the version.
pub fn find(group: &str, kind: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.group == group && row.kind == kind)
}

/// A workload cut finer than this is a mistake, and would not fit into one object anyway.
pub(crate) const SEGMENTS_MAX: i32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_unique() {
        let names: Vec<_> = TABLE.iter().map(|row| (row.group, row.kind)).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "keep the table in order of group and kind");
    }

    #[test]
    fn the_role_may_read_tops_what_stands_between_and_what_rules_ask_for() {
        let readable = readable();
        for kind in [("ray.io", "RayJob"), ("grove.io", "PodClique"), ("scheduler.grove.io", "PodGang")] {
            assert!(readable.contains(&kind), "{kind:?}");
        }
        assert!(!readable.contains(&("nvidia.com", "DynamoGraphDeployment")));
        assert!(
            INTERMEDIATE_KINDS.iter().all(|(group, kind)| find(group, kind).is_none()),
            "rows need not be named twice"
        );
    }
}
