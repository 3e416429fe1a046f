//! Devices that pods get through resource claims, and what claims ask for.
//!
//! Selectors are evaluated before the cycle: [`SelectorMatches`] are the devices that match.

use fixedbitset::FixedBitSet;

use crate::ids::{ClaimId, NodeId};

/// Devices and claims. Nothing where no pod has a claim.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// Devices, in the order in which they are tried.
    pub devices: Vec<ClaimDevice>,
    /// Devices that each node reaches, in order; filled in by the builder.
    pub devices_by_node: Vec<Vec<u32>>,
    /// Distinct sets of nodes; devices, requests and allocations point at them.
    pub node_sets: Vec<FixedBitSet>,
    /// Nodes that see a pool of which a slice is missing: a request for all devices cannot be met there.
    pub incomplete_pools: FixedBitSet,
    /// Distinct sets of selectors.
    pub selector_matches: Vec<SelectorMatches>,
    /// Values of the attributes that devices must agree in: one column of a value per device.
    pub attributes: Vec<Vec<Option<u32>>>,
    /// Distinct contents of claims.
    pub asks: Vec<ClaimAsk>,
    /// Claims that pods here use or that hold devices.
    pub claims: Vec<Claim>,
    /// Claims of a pod, in its order; a task points at one list.
    pub lists: Vec<Vec<ClaimId>>,
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimDevice {
    /// Nodes that reach it: an index into [`Claims::node_sets`].
    pub nodes: u32,
    /// The node whose GPU column counts it, if it is a GPU of one node.
    pub gpu_of: Option<NodeId>,
}

/// The devices that a set of selectors matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorMatches {
    /// Devices that match.
    pub matching: FixedBitSet,
    /// Devices on which a selector fails; to meet one ends the attempt.
    pub failing: FixedBitSet,
}

/// What a claim asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimAsk {
    /// In order.
    pub requests: Vec<ClaimRequest>,
    /// Attributes in which devices must agree.
    pub match_attributes: Vec<MatchAttribute>,
}

/// One request of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The first that can be met counts.
    pub alternatives: Vec<SubRequest>,
    /// Where it counts, an index into [`Claims::node_sets`]: elsewhere something other than a claim provides it.
    /// `None` is everywhere.
    pub nodes: Option<u32>,
}

/// One way to meet a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubRequest {
    /// Which devices: an index into [`Claims::selector_matches`].
    pub selection: u32,
    /// How many.
    pub mode: AllocationMode,
    /// For administration: devices in use will do, and stay free for others.
    pub admin: bool,
}

/// How many devices a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationMode {
    /// So many.
    ExactCount(u32),
    /// All that match, and at least one.
    All,
}

/// Devices of some requests must have the same value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchAttribute {
    /// An index into [`Claims::attributes`].
    pub attribute: u32,
    /// Requests concerned, each with the one alternative that is meant, if one is; empty is all of them.
    pub requests: Vec<(u32, Option<u32>)>,
}

impl MatchAttribute {
    /// Whether a device for this request and alternative is concerned.
    pub fn concerns(&self, request: u32, alternative: u32) -> bool {
        let named =
            |(other, only): &(u32, Option<u32>)| *other == request && only.is_none_or(|only| only == alternative);
        self.requests.is_empty() || self.requests.iter().any(named)
    }
}

/// A claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What it asks for: an index into [`Claims::asks`].
    pub ask: u32,
    /// What it has been given before the cycle.
    pub allocated: Option<Allocation>,
    /// Something other than the pods of the snapshot uses it, so that it stays allocated.
    pub held_externally: bool,
    /// GPUs that the requests of its pods count for it; `None` is as many as it is given.
    pub gpus_counted: Option<u32>,
}

/// Devices of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The devices that are known.
    pub picks: Vec<Pick>,
    /// Nodes from which they can be used, an index into [`Claims::node_sets`]; `None` is everywhere.
    pub nodes: Option<u32>,
}

/// A device for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pick {
    /// The request of the claim.
    pub request: u32,
    /// Which of its alternatives.
    pub alternative: u32,
    /// The device.
    pub device: u32,
    /// For administration, so that it stays free for others.
    pub admin: bool,
}

/// Devices that a pod uses through one claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// The claim.
    pub claim: ClaimId,
    /// Its devices.
    pub picks: Vec<Pick>,
}
