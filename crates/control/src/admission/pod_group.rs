//! Pod groups: a tree of sub-groups that can be satisfied.

use std::collections::BTreeMap;

use kai_api::bounds::{SUB_GROUP_LEVELS_MAX, SUB_GROUPS_MAX};
use serde_json::Value;

use super::AdmissionResult;
use crate::ancestors::{Ancestry, ancestries};
use crate::objects::{PodGroup, SubGroup};
use crate::scheduler::namespace_not_allowed;
use crate::world::World;

/// Whether the pod group may enter; `update` when it replaces a stored one, where some rules only warn.
pub fn validate_pod_group(group: &Value, update: bool) -> AdmissionResult {
    if let Some(count) = group["spec"]["subGroups"].as_array().map(Vec::len).filter(|count| *count > SUB_GROUPS_MAX) {
        return AdmissionResult::deny(format!(
            "spec.subGroups has {count} sub-groups, and at most {SUB_GROUPS_MAX} are taken; divide the pods among several \
             pod groups"
        ));
    }
    let ignored_constraints = levels_without_topology(group);
    let group = match PodGroup::parse(group) {
        Ok(group) => group,
        Err(malformed) => return malformed.into(),
    };
    if let Some(why) = structure(&group) {
        return AdmissionResult::deny(why);
    }
    let by_name: BTreeMap<&str, &SubGroup> = group.sub_groups.iter().map(|sub| (sub.name.as_str(), sub)).collect();
    let mut counts: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for sub in &group.sub_groups {
        *counts.entry(sub.parent.as_deref()).or_default() += 1;
    }
    let children = |parent: Option<&str>| counts.get(&parent).copied().unwrap_or_default();
    let mut result = AdmissionResult { warnings: ignored_constraints, ..AdmissionResult::default() };
    for (name, sub) in &by_name {
        let below = children(Some(name));
        if below == 0 && sub.min_sub_group.is_some() {
            result.denials.push(format!(
                "subgroup \"{name}\": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)"
            ));
        }
        if below == 0 && sub.min_member.is_none() {
            result.denials.push(format!("subgroup {name}: minMember is required"));
        }
        if below > 0 && sub.min_member.is_some() {
            let why = format!(
                "subgroup \"{name}\": minMember cannot be set on a mid-level SubGroup (has child SubGroups); use \
                 minSubGroup instead"
            );
            if update { result.warnings.push(why) } else { result.denials.push(why) }
        }
        if below > 0
            && let Some(minimum) = sub.min_sub_group.filter(|minimum| *minimum as usize > below)
        {
            result.warnings.push(format!("subgroup \"{name}\": {}", too_many(minimum, below)));
        }
    }
    let top = children(None);
    if let Some(minimum) = group.min_sub_group.filter(|minimum| *minimum as usize > top) {
        result.warnings.push(too_many(minimum, top));
    }
    result.bounded()
}

/// What to say of a pod group whose queue is not for its namespace. It may enter all the same: queues and namespaces in the
/// world may be older than the pod group, and the scheduler sees to it that nothing of it starts.
pub fn namespace_warning(group: &Value, world: &World) -> Option<String> {
    let group = PodGroup::parse(group).ok()?;
    let queue = world.queue_refusing(&group)?;
    let allowed = queue.namespaces.as_ref().map(ToString::to_string).unwrap_or_default();
    Some(namespace_not_allowed(&group.key.namespace, &queue.name, &allowed))
}

/// A constraint counts only if it names a topology.
fn levels_without_topology(group: &Value) -> Vec<String> {
    let spec = &group["spec"];
    let sub_groups = spec["subGroups"].as_array().into_iter().flatten().enumerate();
    let of_sub_groups = sub_groups.map(|(at, sub)| (format!("spec.subGroups[{at}].topologyConstraint"), sub));
    let constraints = [("spec.topologyConstraint".to_owned(), spec)].into_iter().chain(of_sub_groups);
    let is_set = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
    constraints
        .filter(|(_, owner)| {
            let constraint = &owner["topologyConstraint"];
            let levels = ["requiredTopologyLevel", "preferredTopologyLevel"];
            !is_set(&constraint["topology"]) && levels.iter().any(|level| is_set(&constraint[level]))
        })
        .map(|(place, _)| format!("{place} names a level but no topology and is ignored; name a Topology"))
        .collect()
}

fn too_many(minimum: u32, children: usize) -> String {
    format!("minSubGroup ({minimum}) exceeds the number of direct child SubGroups ({children})")
}

/// What keeps the sub-groups from being a tree at all.
fn structure(group: &PodGroup) -> Option<String> {
    if let (Some(members), Some(_)) = (group.min_member, group.min_sub_group) {
        return Some(format!(
            "minMember and minSubGroup are mutually exclusive: set minMember ({members}) for pods without sub-groups, \
             or minSubGroup for sub-groups"
        ));
    }
    let mut names = BTreeMap::new();
    for sub in &group.sub_groups {
        if names.insert(sub.name.as_str(), sub).is_some() {
            return Some(format!("duplicate subgroup name {}", sub.name));
        }
    }
    for sub in &group.sub_groups {
        if let Some(parent) = sub.parent.as_deref().filter(|parent| !names.contains_key(parent)) {
            return Some(format!("parent {parent} of {} was not found", sub.name));
        }
    }
    let parents = names.iter().map(|(name, sub)| (*name, sub.parent.as_deref())).collect();
    let ancestries = ancestries(&parents);
    if ancestries.values().any(|ancestry| matches!(ancestry, Ancestry::Cycle)) {
        return Some("cycle detected in subgroups".to_owned());
    }
    let too_deep = ancestries.iter().find_map(|(name, ancestry)| match ancestry {
        Ancestry::Levels(levels) if *levels > SUB_GROUP_LEVELS_MAX => Some((name, levels)),
        _ => None,
    });
    if let Some((name, levels)) = too_deep {
        return Some(format!(
            "subgroup \"{name}\" is on level {levels}, and at most {SUB_GROUP_LEVELS_MAX} levels are taken; nest \
             sub-groups less deep"
        ));
    }
    let both = names.values().find(|sub| sub.min_member.is_some() && sub.min_sub_group.is_some());
    both.map(|sub| format!("subgroup \"{}\": minMember and minSubGroup are mutually exclusive", sub.name))
}
