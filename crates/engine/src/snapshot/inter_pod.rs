//! Inter-pod affinity, anti-affinity and topology spread, as far as they are known before the cycle.
//!
//! A [`TopologyKey`] is a node label whose values are domains, a [`PodMatcher`] all pods that some selector matches,
//! counted by domain of one key. Which pods a selector matches is found out before: the engine sees neither names nor
//! labels nor selectors.

use crate::ids::{NodeId, PodMatcherId, TopologyKeyId};

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

/// Pods that a selector matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodMatcher {
    /// Where they are counted together.
    pub topology_key: TopologyKeyId,
}

/// A pod of no job here, which others must respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmanagedPod {
    /// Where it is.
    pub node: NodeId,
    /// Its matchers, an index into [`crate::snapshot::Snapshot::matcher_lists`].
    pub matchers: Option<u32>,
    /// What its volumes take, an index into [`crate::snapshot::Volumes::needs`].
    pub volumes: Option<u32>,
    /// Whether it is being released.
    pub releasing: bool,
}

/// The inter-pod rules of a pod, and those of others that match it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterPodRules {
    /// Required affinity: a matching pod must be in the node's domain.
    pub affinity: Vec<PodMatcherId>,
    /// It matches its own affinity, so that it may be the first.
    pub matches_own_affinity: bool,
    /// Required anti-affinity: no matching pod may be in the node's domain.
    pub anti_affinity: Vec<PodMatcherId>,
    /// Pods whose own anti-affinity matches this pod.
    pub existing_anti_affinity: Vec<PodMatcherId>,
    /// Preferred affinity and anti-affinity: each matching pod in the node's domain adds this weight.
    pub preferences: Vec<(PodMatcherId, i64)>,
    /// Spread constraints that must hold.
    pub spread_required: Vec<SpreadConstraint>,
    /// Spread constraints that should hold.
    pub spread_preferred: Vec<SpreadConstraint>,
}

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpreadConstraint {
    /// The pods, counted by a topology key without the nodes that do not count.
    pub matcher: PodMatcherId,
    /// By how many pods a domain may be ahead of the one with the fewest.
    pub skew_max: u32,
    /// With fewer domains than this, the one with the fewest counts as empty.
    pub domains_min: u32,
    /// Whether the pod itself counts.
    pub counts_itself: bool,
}

impl InterPodRules {
    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        *self == Self { matches_own_affinity: self.matches_own_affinity, ..Self::default() }
    }

    /// All matchers that it uses.
    pub fn matchers(&self) -> impl Iterator<Item = PodMatcherId> + '_ {
        let required = self.affinity.iter().chain(&self.anti_affinity).chain(&self.existing_anti_affinity).copied();
        let preferred = self.preferences.iter().map(|(matcher, _)| *matcher);
        required
            .chain(preferred)
            .chain(self.spread_required.iter().chain(&self.spread_preferred).map(|spread| spread.matcher))
    }
}
