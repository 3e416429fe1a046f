//! Kinds without needs of their own: one group per top owner, pods start one by one.
//!
//! `StatefulSet`, `ReplicaSet`, Tekton runs, virtual machines, dev workspaces, Seldon deployments, and every
//! kind the table does not name.

use crate::error::GroupError;
use crate::group::GroupSpec;
use crate::priority::TRAIN;
use crate::row::RuleDoc;
use crate::workload::Workload;

pub const ABOUT: RuleDoc = RuleDoc { group: "per owner", minimum: "1", sub_groups: "–", class: TRAIN };

#[allow(clippy::unnecessary_wraps, reason = "shape of every rule in the table")]
pub fn group(workload: &Workload<'_>) -> Result<GroupSpec, GroupError> {
    Ok(workload.base_on_chain())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{check_group, outline};

    #[test]
    fn all_replicas_of_a_stateful_set_share_one_group() {
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "uid": "u"}});
        let pod = json!({"metadata": {"name": "db-0", "namespace": "lab", "uid": "p"}});
        let spec = check_group(&[set], &pod);
        assert_eq!((spec.name.as_str(), spec.owner.kind.as_str()), ("pg-db-u", "StatefulSet"));
        assert_eq!((outline(&spec).as_str(), spec.priority_class.as_str()), ("* 1", "train"));
    }
}
