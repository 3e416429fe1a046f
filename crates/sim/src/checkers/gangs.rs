//! A gang that the scheduler starts has its minimum afterwards; one that it takes pods from keeps it, or nothing.
//!
//! A gang may be short for other reasons: a node was lost. Moving what is left of it is no harm. Pods that have
//! succeeded are not waited for.

use std::collections::{BTreeMap, BTreeSet};

use kai_api::bounds::{SUB_GROUP_LEVELS_MAX, SUB_GROUPS_MAX};
use kai_control::ancestors::{Ancestry, ancestries};
use kai_control::key::GroupKey;
use kai_control::objects::{Phase, PodGroup, SubGroup};

use super::CycleObservation;

pub(super) fn check(observation: &CycleObservation<'_>) -> Vec<String> {
    let touched = |keys: &BTreeSet<_>| -> BTreeSet<GroupKey> {
        keys.iter().filter_map(|key| observation.world.pods.get(key)?.group()).collect()
    };
    let started = touched(&observation.performed.bound);
    let reduced = touched(&observation.performed.evicted);
    let mut gangs: BTreeMap<GroupKey, Strength<'_>> =
        started.union(&reduced).map(|key| (key.clone(), Strength::default())).collect();
    if gangs.is_empty() {
        return Vec::new();
    }
    count_pods(observation, &mut gangs);
    let mut wrong = Vec::new();
    for (key, Strength { before, after }) in &gangs {
        let Some(group) = observation.world.pod_groups.get(key) else { continue };
        let total: u32 = after.values().sum();
        let living = Living::of(observation, key);
        if living.satisfy(group, after) {
            continue;
        }
        if started.contains(key) {
            wrong.push(format!("pod group {key} was started with {total} pods, less than its minimum"));
        } else if total > 0 && living.satisfy(group, before) {
            wrong.push(format!("pod group {key} was reduced to {total} pods, less than its minimum"));
        }
    }
    wrong
}

/// Whether evictions of this cycle brought a gang below its minimum.
pub(super) fn lost_its_minimum(observation: &CycleObservation<'_>, job: &GroupKey) -> bool {
    let Some(group) = observation.world.pod_groups.get(job) else { return false };
    let mut gangs = BTreeMap::from([(job.clone(), Strength::default())]);
    count_pods(observation, &mut gangs);
    let living = Living::of(observation, job);
    gangs.values().all(|gang| living.satisfy(group, &gang.before) && !living.satisfy(group, &gang.after))
}

/// Whether a gang has its minimum once its pipelined pods are bound.
pub(super) fn will_be_whole(observation: &CycleObservation<'_>, job: &GroupKey) -> bool {
    let Some(group) = observation.world.pod_groups.get(job) else { return false };
    let mut later: BTreeMap<&str, u32> = BTreeMap::new();
    for pod in observation.world.pods.values().filter(|pod| pod.group().as_ref() == Some(job)) {
        if observation.counts(pod) || observation.performed.pipelined.contains(&pod.key) {
            *later.entry(pod.sub_group().unwrap_or_default()).or_default() += 1;
        }
    }
    Living::of(observation, job).satisfy(group, &later)
}

/// Pods of each leaf that hold a place.
#[derive(Debug, Default)]
struct Strength<'a> {
    before: BTreeMap<&'a str, u32>,
    after: BTreeMap<&'a str, u32>,
}

/// Counts pods before and after the cycle. One that was pipelined to another place as it lost its own is moved, not
/// lost.
fn count_pods<'a>(observation: &CycleObservation<'a>, gangs: &mut BTreeMap<GroupKey, Strength<'a>>) {
    let performed = observation.performed;
    for pod in observation.world.pods.values() {
        let evicted = performed.evicted.contains(&pod.key);
        let moved = evicted && performed.pipelined.contains(&pod.key);
        let holds = observation.counts(pod);
        if !holds && !evicted {
            continue;
        }
        let Some(gang) = pod.group().and_then(|group| gangs.get_mut(&group)) else { continue };
        let leaf = pod.sub_group().unwrap_or_default();
        if holds || moved {
            *gang.after.entry(leaf).or_default() += 1;
        }
        if !performed.bound.contains(&pod.key) {
            *gang.before.entry(leaf).or_default() += 1;
        }
    }
}

/// Pods of each leaf: all that are known, and those that have not succeeded.
#[derive(Debug, Default)]
struct Living<'a> {
    leaves: BTreeMap<&'a str, (u32, u32)>,
}

impl<'a> Living<'a> {
    fn of(observation: &CycleObservation<'a>, job: &GroupKey) -> Self {
        let mut leaves: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for pod in observation.world.pods.values().filter(|pod| pod.group().as_ref() == Some(job)) {
            let (all, living) = leaves.entry(pod.sub_group().unwrap_or_default()).or_default();
            *all += u32::from(pod.phase != Phase::Failed);
            *living += u32::from(!matches!(pod.phase, Phase::Failed | Phase::Succeeded));
        }
        Self { leaves }
    }

    /// Where all of the minimum were there, those that are not done are enough.
    fn minimum(&self, min: u32, leaf: Option<&str>) -> u32 {
        let chosen = self.leaves.iter().filter(|(name, _)| leaf.is_none_or(|leaf| leaf == **name));
        let (all, living) = chosen.fold((0, 0), |sum, (_, leaf)| (sum.0 + leaf.0, sum.1 + leaf.1));
        if all >= min { min.min(living) } else { min }
    }

    /// The tree rule: a leaf needs its pods, a group enough of its members.
    fn satisfy(&self, group: &PodGroup, counts: &BTreeMap<&str, u32>) -> bool {
        if group.sub_groups.is_empty() {
            return counts.values().sum::<u32>() >= self.minimum(group.min_member.unwrap_or(1), None);
        }
        if !is_accepted(group) {
            return true;
        }
        let mut children: BTreeMap<Option<&str>, Vec<&SubGroup>> = BTreeMap::new();
        for member in &group.sub_groups {
            children.entry(member.parent.as_deref()).or_default().push(member);
        }
        self.enough(&children, None, group.min_sub_group, counts)
    }

    /// Recurses as deep as accepted sub-groups nest.
    fn enough(
        &self,
        children: &BTreeMap<Option<&str>, Vec<&SubGroup>>,
        parent: Option<&str>,
        need: Option<u32>,
        counts: &BTreeMap<&str, u32>,
    ) -> bool {
        let members = children.get(&parent).map_or(&[][..], Vec::as_slice);
        let need = need.map_or(members.len(), |need| need as usize);
        let good = members.iter().filter(|member| {
            let name = member.name.as_str();
            if children.contains_key(&Some(name)) {
                self.enough(children, Some(name), member.min_sub_group, counts)
            } else {
                counts.get(name).copied().unwrap_or(0) >= self.minimum(member.min_member.unwrap_or(0), Some(name))
            }
        });
        good.count() >= need
    }
}

/// Whether the scheduler takes the tree. One that it refuses has no pods to be short of.
fn is_accepted(group: &PodGroup) -> bool {
    let parents = group.sub_groups.iter().map(|sub| (sub.name.as_str(), sub.parent.as_deref())).collect();
    let fits =
        |ancestry: &Ancestry<'_>| matches!(ancestry, Ancestry::Levels(levels) if *levels <= SUB_GROUP_LEVELS_MAX);
    group.sub_groups.len() <= SUB_GROUPS_MAX && ancestries(&parents).values().all(fits)
}
