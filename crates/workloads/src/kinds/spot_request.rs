//! `SPOTRequest`: one group per request, of class inference.

use crate::error::GroupError;
use crate::group::GroupSpec;
use crate::priority::INFERENCE;
use crate::row::RuleDoc;
use crate::workload::Workload;

pub const ABOUT: RuleDoc = RuleDoc { group: "per owner", minimum: "1", sub_groups: "–", class: INFERENCE };

#[allow(clippy::unnecessary_wraps, reason = "shape of every rule in the table")]
pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    Ok(workload.base_on(workload.object, INFERENCE))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::check_group;

    #[test]
    fn is_inference() {
        let request = json!({"apiVersion": "egx.nvidia.io/v1", "kind": "SPOTRequest", "metadata": {"name": "s"}});
        assert_eq!(check_group(&[request], &json!({})).priority_class, "inference");
    }
}
