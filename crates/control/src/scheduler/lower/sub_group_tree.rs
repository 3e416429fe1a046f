//! The tree of sub-groups that a pod group describes, checked.

use std::collections::BTreeMap;

use kai_api::bounds::{SUB_GROUP_LEVELS_MAX, SUB_GROUPS_MAX};
use kai_api::keys::name::DEFAULT_SUB_GROUP;

use crate::ancestors::{Ancestry, ancestries};
use crate::key::GroupKey;
use crate::objects::{Pod, PodGroup, SubGroup, TopologyConstraint};
use crate::scheduler::reasons::{IgnoredPod, SubGroupFault};

/// Enough to recognise how a group names its leaves.
const LEAVES_SHOWN: usize = 10;

/// A checked tree. Leaves are numbered in the order in which the tree is walked, members in name order.
pub(super) struct SubGroupTree<'w> {
    pub(super) root: InnerGroup<'w>,
    pub(super) leaves: Vec<&'w str>,
    by_name: BTreeMap<&'w str, usize>,
    /// The tree cannot be used. Then all pods are in one leaf, and none may be scheduled.
    pub(super) fault: Option<SubGroupFault>,
    named: bool,
}

/// An inner group.
pub(super) struct InnerGroup<'w> {
    pub(super) need: Option<u32>,
    pub(super) constraint: Option<&'w TopologyConstraint>,
    pub(super) members: Vec<TreeChild<'w>>,
}

/// A member of an inner group.
pub(super) enum TreeChild<'w> {
    InnerGroup(InnerGroup<'w>),
    Leaf { index: usize, min: u32, constraint: Option<&'w TopologyConstraint> },
}

impl<'w> SubGroupTree<'w> {
    pub(super) fn of(group: &'w PodGroup) -> Self {
        let fault = fault(&group.sub_groups);
        let mut leaves = Vec::new();
        let named = !group.sub_groups.is_empty() && fault.is_none();
        let members = if named {
            tree_children(None, &children(&group.sub_groups), &mut leaves)
        } else {
            leaves.push(DEFAULT_SUB_GROUP);
            // A broken tree is never short of pods: what is reported is the tree itself.
            let min = if fault.is_some() { 0 } else { group.min_member.unwrap_or(1) };
            vec![TreeChild::Leaf { index: 0, min, constraint: None }]
        };
        let need = group.min_sub_group.filter(|_| fault.is_none());
        let by_name = leaves.iter().enumerate().map(|(index, leaf)| (*leaf, index)).collect();
        Self {
            root: InnerGroup { need, constraint: group.constraint.as_ref(), members },
            leaves,
            by_name,
            fault,
            named,
        }
    }

    /// The leaf that a pod belongs to.
    pub(super) fn leaf_of(&self, pod: &Pod) -> Option<usize> {
        if self.fault.is_some() {
            return Some(0);
        }
        let name = pod.sub_group().unwrap_or(DEFAULT_SUB_GROUP);
        self.by_name.get(name).copied()
    }

    /// Why a pod belongs to no leaf.
    pub(super) fn explain_no_leaf(&self, pod: &Pod, group: &str) -> IgnoredPod {
        let leaves: &[&str] = if self.named { &self.leaves } else { &[] };
        let shown = leaves.len().min(LEAVES_SHOWN);
        IgnoredPod {
            group: GroupKey::new(pod.key.namespace.as_str(), group),
            sub_group: pod.sub_group().map(str::to_owned),
            leaves: leaves[..shown].iter().map(|leaf| (*leaf).to_owned()).collect(),
            more_leaves: leaves.len() - shown,
        }
    }
}

/// Sub-groups below each parent, by name.
type Children<'w> = BTreeMap<Option<&'w str>, BTreeMap<&'w str, &'w SubGroup>>;

fn children(sub_groups: &[SubGroup]) -> Children<'_> {
    let mut children = Children::new();
    for sub_group in sub_groups {
        children.entry(sub_group.parent.as_deref()).or_default().insert(&sub_group.name, sub_group);
    }
    children
}

/// Recurses as deep as [`fault`] lets a tree be.
fn tree_children<'w>(
    parent: Option<&'w str>,
    children: &Children<'w>,
    leaves: &mut Vec<&'w str>,
) -> Vec<TreeChild<'w>> {
    let mut children_here = Vec::new();
    for (name, sub_group) in children.get(&parent).into_iter().flatten() {
        let constraint = sub_group.constraint.as_ref();
        children_here.push(if children.contains_key(&Some(name)) {
            let members = tree_children(Some(name), children, leaves);
            TreeChild::InnerGroup(InnerGroup { need: sub_group.min_sub_group, constraint, members })
        } else {
            leaves.push(name);
            TreeChild::Leaf { index: leaves.len() - 1, min: sub_group.min_member.unwrap_or(0), constraint }
        });
    }
    children_here
}

fn fault(sub_groups: &[SubGroup]) -> Option<SubGroupFault> {
    if sub_groups.len() > SUB_GROUPS_MAX {
        return Some(SubGroupFault::TooMany { count: sub_groups.len(), most: SUB_GROUPS_MAX });
    }
    let mut parents: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for sub_group in sub_groups {
        if parents.insert(&sub_group.name, sub_group.parent.as_deref()).is_some() {
            return Some(SubGroupFault::Duplicate { name: sub_group.name.clone() });
        }
    }
    for (name, parent) in &parents {
        if let Some(parent) = parent.filter(|parent| !parents.contains_key(parent)) {
            return Some(SubGroupFault::UnknownParent { name: (*name).to_owned(), parent: parent.to_owned() });
        }
    }
    let ancestries = ancestries(&parents);
    let endless = ancestries.iter().find(|(_, ancestry)| matches!(ancestry, Ancestry::Cycle | Ancestry::BelowCycle));
    if let Some((name, _)) = endless {
        return Some(SubGroupFault::Cycle { name: (*name).to_owned() });
    }
    ancestries.iter().find_map(|(name, ancestry)| match ancestry {
        Ancestry::Levels(levels) if *levels > SUB_GROUP_LEVELS_MAX => {
            Some(SubGroupFault::TooDeep { name: (*name).to_owned(), levels: *levels, most: SUB_GROUP_LEVELS_MAX })
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    use super::*;

    fn group(spec: &Value) -> PodGroup {
        PodGroup::parse(&json!({"metadata": {"name": "g"}, "spec": spec})).unwrap()
    }

    fn draw(branch: &InnerGroup<'_>, leaves: &[&str]) -> String {
        let need = branch.need.map_or_else(|| "all".to_owned(), |need| need.to_string());
        let members: Vec<String> = branch
            .members
            .iter()
            .map(|child| match child {
                TreeChild::InnerGroup(inner) => draw(inner, leaves),
                TreeChild::Leaf { index, min, .. } => format!("{}:{min}", leaves[*index]),
            })
            .collect();
        format!("{need}({})", members.join(" "))
    }

    fn check(spec: &Value, want: &Expect) {
        let group = group(spec);
        let tree = SubGroupTree::of(&group);
        let fault = tree.fault.as_ref().map_or_else(String::new, |fault| format!(" {fault:?}"));
        want.assert_eq(&(draw(&tree.root, &tree.leaves) + &fault));
    }

    #[test]
    fn a_group_without_sub_groups_has_one_leaf() {
        check(&json!({}), &expect!["all(default:1)"]);
        check(&json!({"minMember": 0}), &expect!["all(default:0)"]);
        check(&json!({"minMember": 4, "minSubGroup": 2}), &expect!["2(default:4)"]);
    }

    #[test]
    fn sub_groups_nest_in_name_order() {
        check(
            &json!({"minMember": 9, "minSubGroup": 1, "subGroups": [
                {"name": "workers", "minMember": 4},
                {"name": "b", "parent": "left", "minMember": 2},
                {"name": "left", "minSubGroup": 1, "minMember": 7},
                {"name": "a", "parent": "left"},
            ]}),
            &expect!["1(1(a:0 b:2) workers:4)"],
        );
    }

    #[test]
    fn broken_trees_are_named_not_guessed() {
        let twice = json!([{"name": "a", "minMember": 1}, {"name": "a", "minMember": 2}]);
        check(&json!({"subGroups": twice}), &expect![[r#"all(default:0) Duplicate { name: "a" }"#]]);
        let orphan = json!([{"name": "a", "parent": "b"}]);
        check(
            &json!({"subGroups": orphan, "minSubGroup": 3}),
            &expect![[r#"all(default:0) UnknownParent { name: "a", parent: "b" }"#]],
        );
        let circle = json!([{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}, {"name": "c"}]);
        check(&json!({"subGroups": circle}), &expect![[r#"all(default:0) Cycle { name: "a" }"#]]);
    }

    /// Sub-groups of which each is below the one before.
    fn chain(length: usize) -> Value {
        let sub_group = |index: usize| match index {
            0 => json!({"name": "s0"}),
            _ => json!({"name": format!("s{index}"), "parent": format!("s{}", index - 1)}),
        };
        (0..length).map(sub_group).collect()
    }

    #[test]
    fn trees_beyond_a_bound_are_refused_by_its_name() {
        let fault = |sub_groups: &Value| SubGroupTree::of(&group(&json!({"subGroups": sub_groups}))).fault;
        assert_eq!(fault(&chain(SUB_GROUP_LEVELS_MAX)), None);
        for length in [SUB_GROUP_LEVELS_MAX + 1, 5_000, SUB_GROUPS_MAX] {
            assert!(matches!(fault(&chain(length)), Some(SubGroupFault::TooDeep { most: 32, .. })), "{length}");
        }
        assert!(matches!(fault(&chain(300_000)), Some(SubGroupFault::TooMany { count: 300_000, most: 16_384 })));
        let wide: Value = (0..SUB_GROUPS_MAX).map(|index| json!({"name": format!("s{index}")})).collect();
        assert_eq!(fault(&wide), None);
    }

    #[test]
    fn pods_find_their_leaf_by_label() {
        let pod = |labels: Value| Pod::parse(&json!({"metadata": {"name": "p", "labels": labels}})).unwrap();
        let (plain, labelled) = (pod(json!({})), pod(json!({"kai.scheduler/subgroup-name": "b"})));
        let (flat, tree) = (group(&json!({})), group(&json!({"subGroups": [{"name": "a"}, {"name": "b"}]})));
        assert_eq!(SubGroupTree::of(&flat).leaf_of(&plain), Some(0));
        assert_eq!(SubGroupTree::of(&flat).leaf_of(&labelled), None);
        assert_eq!(SubGroupTree::of(&tree).leaf_of(&labelled), Some(1));
        assert_eq!(SubGroupTree::of(&tree).leaf_of(&plain), None);
        expect!["The pod names no sub-group, but PodGroup default/g has some, so that the pod is ignored. Label it kai.scheduler/subgroup-name with one of its leaves: a, b."]
            .assert_eq(&SubGroupTree::of(&tree).explain_no_leaf(&plain, "g").explain().message);
    }
}
