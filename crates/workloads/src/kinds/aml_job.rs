//! `AmlJob` of Azure Machine Learning: a gang of as many pods as nodes.

use crate::error::GroupError;
use crate::group::{GroupSpec, Minimum};
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::workload::Workload;

/// A number, although it stands among environment variables.
const NODE_COUNT: &str = "spec.job.options.envs.AZUREML_NODE_COUNT";

pub const ABOUT: RuleDoc =
    RuleDoc { group: "per owner", minimum: "`AZUREML_NODE_COUNT`", sub_groups: "–", class: TRAIN };

pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    let nodes = workload.object.root().int_required(NODE_COUNT)?;
    Ok(GroupSpec { minimum: Minimum::Members(nodes), ..workload.base() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::related::ObjectStore;
    use crate::testing::{outline, try_group};

    fn job(count: &Value) -> Value {
        json!({"apiVersion": "amlarc.azureml.com/v1alpha1", "kind": "AmlJob", "metadata": {"name": "a"},
            "spec": {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": count}}}}})
    }

    #[test]
    fn needs_the_node_count_as_a_number() {
        let group = |job: Value| try_group(&[job], &json!({}), &ObjectStore::default());
        assert_eq!(outline(&group(job(&json!(3))).unwrap()), "* 3");
        assert!(group(job(&json!("3"))).is_err());
        assert!(group(job(&Value::Null)).is_err());
    }
}
