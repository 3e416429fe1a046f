//! Inter-pod affinity, anti-affinity and topology spread: which nodes a pod may use, given the pods in place.
//!
//! The snapshot says which pods a pod's rules count ([`InterPodRules`]), the ledger how many of them are in each domain.

use crate::ids::{NodeId, PodMatcherId, TaskId};
use crate::ledger::{Ledger, PodCounts, TaskState, When};
use crate::outcome::InterPodObstacle;
use crate::snapshot::{InterPodRules, SpreadConstraint};
use crate::units::compat;

/// The inter-pod rules of one pod, against the present state of the ledger.
#[derive(Debug)]
pub(crate) struct InterPodFilter<'l, 's> {
    ledger: &'l Ledger<'s>,
    task: TaskId,
    inter_pod: &'s InterPodRules,
    /// Node that the pod itself is being released from; its own counts there are ignored.
    own: Option<NodeId>,
    /// No pod matches its affinity anywhere, and it matches that itself: it may be the first.
    is_first_match: bool,
    /// The fewest pods in any domain, for each of `spread_required`.
    min_counts: Vec<u32>,
}

impl<'l, 's> InterPodFilter<'l, 's> {
    /// `None` if the pod has no inter-pod rules.
    pub(crate) fn of(ledger: &'l Ledger<'s>, task: TaskId) -> Option<Self> {
        let snapshot = ledger.snapshot;
        let inter_pod = &snapshot.inter_pod[snapshot.task(task).inter_pod? as usize];
        let own = match ledger.state(task) {
            TaskState::Releasing(placement) if ledger.repairs.ignore_releasing_neighbours => Some(placement.node),
            _ => None,
        };
        let mut filter = Self { ledger, task, inter_pod, own, is_first_match: false, min_counts: Vec::new() };
        filter.is_first_match =
            inter_pod.matches_own_affinity && inter_pod.affinity.iter().all(|matcher| filter.is_nowhere(*matcher));
        filter.min_counts = inter_pod.spread_required.iter().map(|spread| filter.min_count(spread)).collect();
        Some(filter)
    }

    /// When the pod may be on the node, or its obstacle there.
    pub(crate) fn check(&self, node: NodeId) -> Result<When, InterPodObstacle> {
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
        let anti_affinity =
            self.inter_pod.anti_affinity.iter().map(|matcher| (*matcher, InterPodObstacle::AntiAffinity(*matcher)));
        let existing_anti_affinity = self
            .inter_pod
            .existing_anti_affinity
            .iter()
            .map(|matcher| (*matcher, InterPodObstacle::ExistingAntiAffinity(*matcher)));
        for (matcher, obstacle) in anti_affinity.chain(existing_anti_affinity) {
            let pods = self.domain(matcher, node).map_or(PodCounts::default(), |domain| self.pods(matcher, domain));
            let ignores_releasing = self.ledger.repairs.ignore_releasing_neighbours;
            if pods.staying() > 0 || pods.releasing > 0 && !ignores_releasing {
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

    /// KAI counts a pipelined pod as present.
    fn later(&self) -> When {
        if self.ledger.repairs.ignore_releasing_neighbours { When::Later } else { When::Now }
    }

    /// Whether it has preferred terms or constraints.
    pub(crate) fn has_preferences(&self) -> bool {
        !self.inter_pod.preferences.is_empty() || !self.inter_pod.spread_preferred.is_empty()
    }

    /// Sum of the preferred terms over the pods in the node's domains.
    pub(crate) fn affinity_score(&self, node: NodeId) -> i64 {
        let pods =
            |matcher: PodMatcherId| self.domain(matcher, node).map_or(0, |domain| self.pods(matcher, domain).all());
        self.inter_pod.preferences.iter().map(|(matcher, weight)| weight * i64::from(pods(*matcher))).sum()
    }

    /// Score by preferred spread constraints, 0 (most skew) to 100.
    pub(crate) fn spread_scores(&self, nodes: &[NodeId]) -> Vec<i64> {
        if self.inter_pod.spread_preferred.is_empty() {
            return vec![0; nodes.len()];
        }
        let mut skews: Vec<Option<i64>> = vec![Some(0); nodes.len()];
        for spread in &self.inter_pod.spread_preferred {
            let domains: Vec<Option<u32>> = nodes.iter().map(|node| self.domain(spread.matcher, *node)).collect();
            let distinct: std::collections::BTreeSet<u32> = domains.iter().flatten().copied().collect();
            // Where there are many domains, each holds fewer pods, so that a pod more there weighs more.
            let weight = compat::spread_weight(distinct.len());
            for (sum, domain) in skews.iter_mut().zip(domains) {
                let counted = domain.map(|domain| i64::from(self.pods(spread.matcher, domain).staying()) * weight);
                let constant = i64::from(spread.skew_max.saturating_sub(1)) * compat::SPREAD_UNIT;
                *sum = sum.zip(counted).map(|(sum, counted)| sum + counted + constant);
            }
        }
        let round = |sum: i64| (sum + compat::SPREAD_UNIT / 2).div_euclid(compat::SPREAD_UNIT);
        let rounded: Vec<Option<i64>> = skews.into_iter().map(|sum| sum.map(round)).collect();
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
