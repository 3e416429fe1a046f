//! `TFJob`: no replica type is mandatory.

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
    distributed(workload, "tfReplicaSpecs", &[])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::related::ObjectStore;
    use crate::testing::{outline, try_group};

    fn job(specs: &Value) -> Value {
        json!({"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "j"},
            "spec": {"tfReplicaSpecs": specs}})
    }

    #[test]
    fn is_a_gang_of_all_types() {
        let specs = json!({"PS": {"replicas": 2}, "Worker": {"replicas": 3}});
        let spec = try_group(&[job(&specs)], &json!({}), &ObjectStore::default()).unwrap();
        assert_eq!(outline(&spec), "* 5");
    }
}
