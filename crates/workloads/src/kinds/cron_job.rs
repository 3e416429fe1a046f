//! `CronJob`: one group per run, that is per Job it makes. The `CronJob` object itself is not looked at.

use crate::error::{Fault, GroupError};
use crate::group::GroupSpec;
use crate::object::Object;
use crate::object_ref::ObjectRef;
use crate::owners::references;
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::workload::Workload;

const API: &str = "batch/v1";

pub const ABOUT: RuleDoc = RuleDoc { group: "per Job that it makes", minimum: "1", sub_groups: "–", class: TRAIN };

pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let pod = workload.pod;
    let field = "metadata.ownerReferences of kind Job";
    let reference = references(pod.value).find(|reference| reference["kind"] == "Job");
    let name = reference.and_then(|reference| reference["name"].as_str());
    let name = name.ok_or_else(|| pod.fault(field, Fault::Missing))?;
    let job = workload.read(ObjectRef::new(API, "Job", pod.namespace(), name), pod, field)?;
    Ok(workload.base_on(Object::read_as(job, API, "Job"), TRAIN))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::related::ObjectStore;
    use crate::testing::try_group;

    #[test]
    fn the_run_is_the_group_not_the_schedule() {
        let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "uid": "c"}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "nightly-1", "namespace": "lab",
            "uid": "j", "annotations": {"kai.scheduler/batch-min-member": "4"}}});
        let pod = json!({"metadata": {"name": "p", "namespace": "lab",
            "ownerReferences": [{"kind": "Job", "name": "nightly-1"}]}});
        let owners = [job.clone(), cron];
        let spec = try_group(&owners, &pod, &[job].into_iter().collect::<ObjectStore>()).unwrap();
        assert_eq!((spec.name.as_str(), spec.owner.kind.as_str()), ("pg-nightly-1-j", "Job"));
        assert_eq!(spec.minimum, crate::Minimum::Members(1), "the annotation is not read here");

        let error = try_group(&owners, &pod, &ObjectStore::default()).unwrap_err();
        assert!(error.to_string().contains("Job lab/nightly-1, which does not exist"), "{error}");
        assert!(try_group(&owners, &json!({}), &ObjectStore::default()).is_err());
    }
}
