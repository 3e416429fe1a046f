//! `XGBoostJob`: needs a master and workers.

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
    distributed(workload, "xgbReplicaSpecs", &["Master", "Worker"])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::related::ObjectStore;
    use crate::testing::{outline, try_group};

    fn job(specs: &Value) -> Value {
        json!({"apiVersion": "kubeflow.org/v1", "kind": "XGBoostJob", "metadata": {"name": "j"},
            "spec": {"xgbReplicaSpecs": specs}})
    }

    #[test]
    fn is_a_gang_of_master_and_workers() {
        let group = |specs: Value| try_group(&[job(&specs)], &json!({}), &ObjectStore::default());
        let spec = group(json!({"Master": {"replicas": 1}, "Worker": {"replicas": 3}})).unwrap();
        assert_eq!(outline(&spec), "* 4");
        assert!(group(json!({"Master": {"replicas": 1}})).is_err());
        assert!(group(json!({"Worker": {"replicas": 3}})).is_err());
    }
}
