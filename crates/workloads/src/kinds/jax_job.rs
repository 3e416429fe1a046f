//! `JAXJob`: needs workers.

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
    distributed(workload, "jaxReplicaSpecs", &["Worker"])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::related::ObjectStore;
    use crate::testing::{outline, try_group};

    fn job(specs: &Value) -> Value {
        json!({"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "metadata": {"name": "j"},
            "spec": {"jaxReplicaSpecs": specs}})
    }

    #[test]
    fn is_a_gang_of_workers() {
        let group = |specs: Value| try_group(&[job(&specs)], &json!({}), &ObjectStore::default());
        assert_eq!(outline(&group(json!({"Worker": {"replicas": 4}})).unwrap()), "* 4");
        assert!(group(json!({"Master": {"replicas": 1}})).is_err());
    }
}
