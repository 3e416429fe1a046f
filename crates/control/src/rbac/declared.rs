//! What the pod grouper may read beside the kinds of its table: kinds that users have declared.

use std::collections::{BTreeMap, BTreeSet};

use kai_api::keys::name;
use serde_json::{Value, json};

use super::{accounts, binding_to, cluster_role};

const ROLE: &str = "kai-podgrouper-declared";
const GROUPER: &str = "kai-podgrouper";

/// A role for these groups and plurals, and its binding; nothing if there are none.
pub fn manifests(kinds: &[(String, String)]) -> Vec<Value> {
    if kinds.is_empty() {
        return Vec::new();
    }
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (group, plural) in kinds {
        groups.entry(group).or_default().insert(plural);
    }
    let rules: Vec<Value> = groups
        .into_iter()
        .map(|(group, plurals)| json!({"apiGroups": [group], "resources": plurals, "verbs": ["get", "list", "watch"]}))
        .collect();
    let accounts = [(name::NAMESPACE, accounts()[GROUPER]), (name::NAMESPACE, name::ALL_IN_ONE)];
    vec![cluster_role(ROLE, &rules), binding_to("ClusterRole", None, ROLE, &accounts)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_a_group_share_a_rule() {
        let kinds = [("a.io", "xs"), ("b.io", "ys"), ("a.io", "zs")]
            .map(|(group, plural)| (group.to_owned(), plural.to_owned()));
        let all = manifests(&kinds);
        assert_eq!(all[0]["rules"][0]["resources"], json!(["xs", "zs"]));
        assert_eq!(all[0]["rules"].as_array().map(Vec::len), Some(2));
        assert_eq!(all[1]["subjects"][0]["name"], "pod-grouper");
        assert!(manifests(&[]).is_empty());
    }
}
