//! Deployment: replicas are independent, so each pod is its own group, of class inference.
//!
//! Labels, queue and topology come from the Deployment.

use crate::base::group_name;
use crate::error::GroupError;
use crate::group::{GroupSpec, OwnerRef};
use crate::priority::INFERENCE;
use crate::row::RuleDoc;
use crate::workload::Workload;

pub const ABOUT: RuleDoc = RuleDoc { group: "per pod", minimum: "1", sub_groups: "–", class: INFERENCE };

#[allow(clippy::unnecessary_wraps, reason = "shape of every rule in the table")]
pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    Ok(GroupSpec {
        name: group_name(workload.pod),
        owner: OwnerRef::of(workload.pod),
        ..workload.base_on(workload.object, INFERENCE)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::check_group;

    #[test]
    fn each_replica_is_a_group_owned_by_its_pod() {
        let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "api-6d5f", "uid": "r"}});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "api", "uid": "d",
            "labels": {"kai.scheduler/queue": "serving"}}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "api-6d5f-abcde", "uid": "u"}});
        let spec = check_group(&[set, deployment], &pod);
        assert_eq!((spec.name.as_str(), spec.owner.kind.as_str()), ("pg-api-6d5f-abcde-u", "Pod"));
        assert_eq!((spec.queue.as_str(), spec.priority_class.as_str()), ("serving", "inference"));
        assert!(spec.annotations["kai.scheduler/top-owner-metadata"].contains("kind: Deployment"));
    }
}
