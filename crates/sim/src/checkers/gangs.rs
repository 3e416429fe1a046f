//! A gang that the scheduler touches has its minimum afterwards, or nothing at all.

use std::collections::{BTreeMap, BTreeSet};

use kai_control::objects::{Pod, PodGroup, SubGroup};
use kai_control::world::GroupKey;

use super::Evidence;

pub(super) fn check(evidence: &Evidence<'_>) -> Vec<String> {
    let touched = |keys: &BTreeSet<_>| -> BTreeSet<GroupKey> {
        keys.iter().filter_map(|key| evidence.world.pods.get(key)?.group()).collect()
    };
    let started = touched(&evidence.performed.bound);
    let reduced = touched(&evidence.performed.evicted);
    let mut wrong = Vec::new();
    for key in started.union(&reduced) {
        let Some(group) = evidence.world.pod_groups.get(key) else { continue };
        let counts = pods_per_leaf(evidence, key);
        let total: u32 = counts.values().sum();
        if !satisfied(group, &counts) && (total > 0 || started.contains(key)) {
            let what = if started.contains(key) { "started" } else { "reduced" };
            wrong.push(format!("pod group {key} was {what} to {total} pods, less than its minimum"));
        }
    }
    wrong
}

/// Pods that hold a place, or were promised another one in the same breath as they lost theirs.
fn pods_per_leaf<'a>(evidence: &Evidence<'a>, key: &GroupKey) -> BTreeMap<&'a str, u32> {
    let mut counts = BTreeMap::new();
    let member = |pod: &&Pod| pod.group().as_ref() == Some(key);
    for pod in evidence.world.pods.values().filter(member) {
        let moved = evidence.performed.evicted.contains(&pod.key) && evidence.performed.promised.contains(&pod.key);
        if evidence.counts(pod) || moved {
            *counts.entry(pod.sub_group().unwrap_or_default()).or_default() += 1;
        }
    }
    counts
}

/// The tree rule: a leaf needs its pods, a group enough of its members.
fn satisfied(group: &PodGroup, counts: &BTreeMap<&str, u32>) -> bool {
    if group.sub_groups.is_empty() {
        return counts.values().sum::<u32>() >= group.min_member.unwrap_or(1);
    }
    enough(group, None, group.min_sub_group, counts)
}

fn enough(group: &PodGroup, parent: Option<&str>, need: Option<u32>, counts: &BTreeMap<&str, u32>) -> bool {
    let members: Vec<&SubGroup> = group.sub_groups.iter().filter(|member| member.parent.as_deref() == parent).collect();
    let need = need.map_or(members.len(), |need| need as usize);
    let good = members.iter().filter(|member| {
        let inner = group.sub_groups.iter().any(|other| other.parent.as_deref() == Some(&member.name));
        if inner {
            enough(group, Some(&member.name), member.min_sub_group, counts)
        } else {
            counts.get(member.name.as_str()).copied().unwrap_or(0) >= member.min_member.unwrap_or(0)
        }
    });
    good.count() >= need
}
