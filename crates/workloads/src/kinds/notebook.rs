//! Notebook: a single pod of class build.

use crate::error::GroupError;
use crate::group::GroupSpec;
use crate::priority::BUILD;
use crate::row::RuleDoc;
use crate::workload::Workload;

pub const ABOUT: RuleDoc = RuleDoc { group: "per owner", minimum: "1", sub_groups: "–", class: BUILD };

#[allow(clippy::unnecessary_wraps, reason = "shape of every rule in the table")]
pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    Ok(workload.base_on(workload.object, BUILD))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::check_group;

    #[test]
    fn is_build() {
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "n", "uid": "s"}});
        let notebook = json!({"apiVersion": "kubeflow.org/v1beta1", "kind": "Notebook",
            "metadata": {"name": "n", "uid": "u"}});
        let spec = check_group(&[set, notebook], &json!({}));
        assert_eq!((spec.name.as_str(), spec.priority_class.as_str()), ("pg-n-u", "build"));
    }
}
