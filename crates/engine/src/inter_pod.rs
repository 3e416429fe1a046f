//! What pods ask of each other: to be near some, apart from others, evenly spread among their like.
//!
//! An *topology_key* is a node label whose values are domains, a *matcher* all pods that some rule counts by domain of one topology_key.
//! The ledger keeps how many pods of each matcher are in each domain; a [`InterPodRules`] says what one pod makes of these numbers.
//! Who belongs to which matcher was staying outside, by names, labels and selectors that the engine never sees.

use crate::fit::When;
use crate::ids::{NodeId, PodMatcherId, TaskId, TopologyKeyId};
use crate::ledger::{HoldKind, Ledger, TaskState};
use crate::units::compat;

/// A node label whose values are domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyKey {
    /// The domain of each node, numbered from 0 without gaps; `None` where the label is missing.
    pub domains: Vec<Option<u32>>,
}

impl TopologyKey {
    /// How many domains there are.
    pub fn size(&self) -> u32 {
        self.domains.iter().flatten().max().map_or(0, |last| last + 1)
    }
}

/// Pods that some rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodMatcher {
    /// Where they are counted together.
    pub topology_key: TopologyKeyId,
}

/// A pod that belongs to no job here, but that others mind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmanagedPod {
    /// Where it is.
    pub node: NodeId,
    /// Its matchers, an index into [`crate::snapshot::Snapshot::matcher_lists`].
    pub matchers: Option<u32>,
    /// What its volumes take, an index into [`crate::snapshot::Volumes::needs`].
    pub volumes: Option<u32>,
    /// Whether it is about to leave.
    pub releasing: bool,
}

/// Everything that a pod asks of others, and others of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterPodRules {
    /// One of each must be in the node's domain.
    pub affinity: Vec<PodMatcherId>,
    /// It is itself one of those it must be near, so that it may be the first.
    pub matches_own_affinity: bool,
    /// None may be in the node's domain.
    pub anti_affinity: Vec<PodMatcherId>,
    /// Pods that want none like it in their domain.
    pub existing_anti_affinity: Vec<PodMatcherId>,
    /// Each pod in the node's domain counts this much for the node, or against it.
    pub preferences: Vec<(PodMatcherId, i64)>,
    /// It must leave these evenly spread.
    pub spread_required: Vec<SpreadConstraint>,
    /// It should leave these evenly spread.
    pub spread_preferred: Vec<SpreadConstraint>,
}

/// Pods that are to be spread evenly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpreadConstraint {
    /// The pods, in an topology_key without the nodes that do not count.
    pub matcher: PodMatcherId,
    /// By how many a domain may be ahead of the one with the min_counts.
    pub skew_max: u32,
    /// With fewer domains than this, the one with the min_counts counts as empty.
    pub domains_min: u32,
    /// Whether the pod itself counts.
    pub counts_itself: bool,
}

impl InterPodRules {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self { matches_own_affinity: self.matches_own_affinity, ..Self::default() }
    }

    /// All matchers that it speaks of.
    pub fn matchers(&self) -> impl Iterator<Item = PodMatcherId> + '_ {
        let plain = self.affinity.iter().chain(&self.anti_affinity).chain(&self.existing_anti_affinity).copied();
        let liked = self.preferences.iter().map(|(matcher, _)| *matcher);
        plain.chain(liked).chain(self.spread_required.iter().chain(&self.spread_preferred).map(|spread| spread.matcher))
    }
}

/// Why a node will not do, as far as other pods are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterPodObstacle {
    /// None of those it must be near is there.
    NoMatchingPod(PodMatcherId),
    /// One of those it must stay apart from is there.
    AntiAffinity(PodMatcherId),
    /// One that wants none like it nearby is there.
    ExistingAntiAffinity(PodMatcherId),
    /// The domain has too many already.
    Skew(PodMatcherId),
    /// The node is in no domain.
    NoDomain(PodMatcherId),
}

/// How many pods of a matcher are in a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    /// Are there to stay.
    pub allocated: u32,
    /// Will come.
    pub pipelined: u32,
    /// Are there and leave.
    pub releasing: u32,
}

impl PodCounts {
    /// Will be there when everything has come about.
    pub fn staying(self) -> u32 {
        self.allocated + self.pipelined
    }

    /// PodSetCounts a pod, or takes it out again.
    pub(crate) fn count(&mut self, kind: HoldKind, sign: i64) {
        let counter = match kind {
            HoldKind::Allocated => &mut self.allocated,
            HoldKind::Pipelined => &mut self.pipelined,
            HoldKind::Releasing => &mut self.releasing,
        };
        *counter = if sign > 0 { *counter + 1 } else { *counter - 1 };
    }

    /// All that are there or will be.
    pub fn all(self) -> u32 {
        self.allocated + self.pipelined + self.releasing
    }
}

/// One pod's inter_pod, looked at from where everybody stands right now.
#[derive(Debug)]
pub struct InterPodFilter<'l, 's> {
    ledger: &'l Ledger<'s>,
    task: TaskId,
    inter_pod: &'s InterPodRules,
    /// The pod's own place, if it gives that up: it need not mind itself.
    own: Option<NodeId>,
    /// Nobody that it must be near is anywhere, and it may be the first.
    is_first_match: bool,
    /// The min_counts in any domain, for each of `even`.
    min_counts: Vec<u32>,
}

impl<'l, 's> InterPodFilter<'l, 's> {
    /// `None` if the pod has nothing to do with others.
    pub fn of(ledger: &'l Ledger<'s>, task: TaskId) -> Option<Self> {
        let snapshot = ledger.snapshot;
        let inter_pod = &snapshot.inter_pod[snapshot.task(task).inter_pod? as usize];
        let own = match ledger.state(task) {
            TaskState::Releasing(placement) if ledger.repairs.ignore_releasing_neighbours => Some(placement.node),
            _ => None,
        };
        let mut view = Self { ledger, task, inter_pod, own, is_first_match: false, min_counts: Vec::new() };
        view.is_first_match =
            inter_pod.matches_own_affinity && inter_pod.affinity.iter().all(|matcher| view.is_nowhere(*matcher));
        view.min_counts = inter_pod.spread_required.iter().map(|spread| view.min_count(spread)).collect();
        Some(view)
    }

    /// When the pod may be on the node, or what keeps it from there.
    pub fn check(&self, node: NodeId) -> Result<When, InterPodObstacle> {
        let mut when = When::Now;
        for matcher in &self.inter_pod.affinity {
            let domain = self.domain(*matcher, node).ok_or(InterPodObstacle::NoDomain(*matcher))?;
            let pods = self.pods(*matcher, domain);
            if self.is_first_match || pods.allocated + pods.releasing > 0 {
                continue;
            }
            if pods.pipelined == 0 {
                return Err(InterPodObstacle::NoMatchingPod(*matcher));
            }
            when = self.later();
        }
        let apart =
            self.inter_pod.anti_affinity.iter().map(|matcher| (*matcher, InterPodObstacle::AntiAffinity(*matcher)));
        let shunned = self
            .inter_pod
            .existing_anti_affinity
            .iter()
            .map(|matcher| (*matcher, InterPodObstacle::ExistingAntiAffinity(*matcher)));
        for (matcher, obstacle) in apart.chain(shunned) {
            let pods = self.domain(matcher, node).map_or(PodCounts::default(), |domain| self.pods(matcher, domain));
            let makes_way = self.ledger.repairs.ignore_releasing_neighbours;
            if pods.staying() > 0 || pods.releasing > 0 && !makes_way {
                return Err(obstacle);
            }
            if pods.releasing > 0 {
                when = When::Later;
            }
        }
        for (spread, min_count) in self.inter_pod.spread_required.iter().zip(&self.min_counts) {
            let domain = self.domain(spread.matcher, node).ok_or(InterPodObstacle::NoDomain(spread.matcher))?;
            let count = self.pods(spread.matcher, domain).staying() + u32::from(spread.counts_itself);
            if count > min_count.saturating_add(spread.skew_max) {
                return Err(InterPodObstacle::Skew(spread.matcher));
            }
        }
        Ok(when)
    }

    /// KAI takes a promise for a pod that is there.
    fn later(&self) -> When {
        if self.ledger.repairs.ignore_releasing_neighbours { When::Later } else { When::Now }
    }

    /// Whether it has_preferences some nodes to others.
    pub fn has_preferences(&self) -> bool {
        !self.inter_pod.preferences.is_empty() || !self.inter_pod.spread_preferred.is_empty()
    }

    /// Sum of what it likes about the pods in the node's domains.
    pub fn affinity_score(&self, node: NodeId) -> i64 {
        let pods =
            |matcher: PodMatcherId| self.domain(matcher, node).map_or(0, |domain| self.pods(matcher, domain).all());
        self.inter_pod.preferences.iter().map(|(matcher, weight)| weight * i64::from(pods(*matcher))).sum()
    }

    /// How even each of the nodes would leave those that should be spread, from 0 to 100.
    pub fn spread_scores(&self, nodes: &[NodeId]) -> Vec<i64> {
        if self.inter_pod.spread_preferred.is_empty() {
            return vec![0; nodes.len()];
        }
        let mut uneven: Vec<Option<i64>> = vec![Some(0); nodes.len()];
        for spread in &self.inter_pod.spread_preferred {
            let domains: Vec<Option<u32>> = nodes.iter().map(|node| self.domain(spread.matcher, *node)).collect();
            let distinct: std::collections::BTreeSet<u32> = domains.iter().flatten().copied().collect();
            // Where there are many domains, each holds fewer pods, so that a pod more there weighs more.
            let weight = compat::spread_weight(distinct.len());
            for (sum, domain) in uneven.iter_mut().zip(domains) {
                let counted = domain.map(|domain| i64::from(self.pods(spread.matcher, domain).staying()) * weight);
                let constant = i64::from(spread.skew_max.saturating_sub(1)) * compat::SPREAD_UNIT;
                *sum = sum.zip(counted).map(|(sum, counted)| sum + counted + constant);
            }
        }
        let round = |sum: i64| (sum + compat::SPREAD_UNIT / 2).div_euclid(compat::SPREAD_UNIT);
        let rounded: Vec<Option<i64>> = uneven.into_iter().map(|sum| sum.map(round)).collect();
        let (most, least) = (rounded.iter().flatten().max(), rounded.iter().flatten().min());
        let (Some(most), Some(least)) = (most.copied(), least.copied()) else { return vec![0; nodes.len()] };
        let points = |sum: Option<i64>| match sum {
            None => 0,
            Some(_) if most == 0 => 100,
            Some(sum) => 100 * (most + least - sum) / most,
        };
        rounded.into_iter().map(points).collect()
    }

    fn domain(&self, matcher: PodMatcherId, node: NodeId) -> Option<u32> {
        self.ledger.snapshot.domain(matcher, node)
    }

    fn pods(&self, matcher: PodMatcherId, domain: u32) -> PodCounts {
        let mut pods = self.ledger.matching_pods(matcher, domain);
        if self.own.is_some_and(|own| self.domain(matcher, own) == Some(domain)) && self.is_part_of(matcher) {
            pods.releasing -= 1;
        }
        pods
    }

    fn is_part_of(&self, matcher: PodMatcherId) -> bool {
        let snapshot = self.ledger.snapshot;
        let list = snapshot.task(self.task).matchers.map(|list| &snapshot.matcher_lists[list as usize]);
        list.is_some_and(|list| list.binary_search(&matcher).is_ok())
    }

    fn is_nowhere(&self, matcher: PodMatcherId) -> bool {
        self.ledger.domains_with_matches(matcher).all(|(domain, _)| self.pods(matcher, domain).all() == 0)
    }

    fn min_count(&self, spread: &SpreadConstraint) -> u32 {
        let topology_key = &self.ledger.snapshot.topology_keys
            [self.ledger.snapshot.matchers[spread.matcher.index()].topology_key.index()];
        let size = topology_key.size();
        let (mut occupied, mut min_count) = (0, u32::MAX);
        for (_, pods) in self.ledger.domains_with_matches(spread.matcher).filter(|(_, pods)| pods.staying() > 0) {
            occupied += 1;
            min_count = min_count.min(pods.staying());
        }
        if size < spread.domains_min || occupied < size || occupied == 0 { 0 } else { min_count }
    }
}
