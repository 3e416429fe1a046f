//! `PaddleJob`: no replica type is mandatory.

use super::kubeflow::distributed;
use crate::error::GroupError;
use crate::group::GroupSpec;
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::workload::Workload;

pub const ABOUT: RuleDoc = RuleDoc {
    group: "per owner",
    minimum: "all replicas, or `runPolicy.schedulingPolicy.minAvailable`",
    sub_groups: "–",
    class: TRAIN,
};

pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    distributed(workload, "paddleReplicaSpecs", &[])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::related::ObjectStore;
    use crate::testing::{outline, try_group};

    fn job(specs: &Value) -> Value {
        json!({"apiVersion": "kubeflow.org/v1", "kind": "PaddleJob", "metadata": {"name": "j"},
            "spec": {"paddleReplicaSpecs": specs}})
    }

    #[test]
    fn is_a_gang_of_masters_and_workers() {
        let group = |specs: Value| try_group(&[job(&specs)], &json!({}), &ObjectStore::default());
        let both = json!({"Master": {"replicas": 1}, "Worker": {"replicas": 3}});
        assert_eq!(outline(&group(both).unwrap()), "* 4");
        assert_eq!(outline(&group(json!({"Worker": {"replicas": 2}})).unwrap()), "* 2");
        assert!(group(json!({"Worker": {"replicas": 0}})).is_err());
    }
}
