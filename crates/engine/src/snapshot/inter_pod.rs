//! Inter-pod affinity, anti-affinity and topology spread, as far as they can be told before the cycle.
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
