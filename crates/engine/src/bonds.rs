//! What pods ask of each other: to be near some, apart from others, evenly spread among their like.
//!
//! An *area* is a node label whose values are domains, a *crowd* all pods that some rule counts by domain of one area.
//! The ledger keeps how many pods of each crowd are in each domain; a [`Bond`] says what one pod makes of these numbers.
//! Who belongs to which crowd was settled outside, by names, labels and selectors that the engine never sees.

use crate::fit::When;
use crate::ids::{AreaId, CrowdId, NodeId, TaskId};
use crate::ledger::{DeviceLoad, Ledger, Standing};
use crate::units::compat;

/// A node label whose values are domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// The domain of each node, numbered from 0 without gaps; `None` where the label is missing.
    pub domains: Vec<Option<u32>>,
}

impl Area {
    /// How many domains there are.
    pub fn size(&self) -> u32 {
        self.domains.iter().flatten().max().map_or(0, |last| last + 1)
    }
}

/// Pods that some rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// Where they are counted together.
    pub area: AreaId,
}

/// A pod that belongs to no job here, but that others mind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bystander {
    /// Where it is.
    pub node: NodeId,
    /// Its crowds, an index into [`crate::snapshot::Snapshot::crowd_lists`].
    pub crowds: Option<u32>,
    /// What its volumes take, an index into [`crate::snapshot::Volumes::needs`].
    pub volumes: Option<u32>,
    /// Whether it is about to leave.
    pub leaving: bool,
}

/// Everything that a pod asks of others, and others of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bond {
    /// One of each must be in the node's domain.
    pub near: Vec<CrowdId>,
    /// It is itself one of those it must be near, so that it may be the first.
    pub founds: bool,
    /// None may be in the node's domain.
    pub apart: Vec<CrowdId>,
    /// Pods that want none like it in their domain.
    pub shunned: Vec<CrowdId>,
    /// Each pod in the node's domain counts this much for the node, or against it.
    pub liked: Vec<(CrowdId, i64)>,
    /// It must leave these evenly spread.
    pub even: Vec<Spread>,
    /// It should leave these evenly spread.
    pub rather_even: Vec<Spread>,
}

/// Pods that are to be spread evenly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spread {
    /// The pods, in an area without the nodes that do not count.
    pub crowd: CrowdId,
    /// By how many a domain may be ahead of the one with the fewest.
    pub skew_max: u32,
    /// With fewer domains than this, the one with the fewest counts as empty.
    pub domains_min: u32,
    /// Whether the pod itself counts.
    pub counts_itself: bool,
}

impl Bond {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self { founds: self.founds, ..Self::default() }
    }

    /// All crowds that it speaks of.
    pub fn crowds(&self) -> impl Iterator<Item = CrowdId> + '_ {
        let plain = self.near.iter().chain(&self.apart).chain(&self.shunned).copied();
        let liked = self.liked.iter().map(|(crowd, _)| *crowd);
        plain.chain(liked).chain(self.even.iter().chain(&self.rather_even).map(|spread| spread.crowd))
    }
}

/// Why a node will not do, as far as other pods are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Friction {
    /// None of those it must be near is there.
    NotNear(CrowdId),
    /// One of those it must stay apart from is there.
    Apart(CrowdId),
    /// One that wants none like it nearby is there.
    Shunned(CrowdId),
    /// The domain has too many already.
    Uneven(CrowdId),
    /// The node is in no domain.
    NoDomain(CrowdId),
}

/// How many pods of a crowd are in a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heads {
    /// Are there to stay.
    pub held: u32,
    /// Will come.
    pub promised: u32,
    /// Are there and leave.
    pub leaving: u32,
}

impl Heads {
    /// Will be there when everything has come about.
    pub fn settled(self) -> u32 {
        self.held + self.promised
    }

    /// Counts a pod, or takes it out again.
    pub(crate) fn count(&mut self, load: DeviceLoad, sign: i64) {
        let counter = match load {
            DeviceLoad::Held => &mut self.held,
            DeviceLoad::Promised => &mut self.promised,
            DeviceLoad::Leaving => &mut self.leaving,
        };
        *counter = if sign > 0 { *counter + 1 } else { *counter - 1 };
    }

    /// All that are there or will be.
    pub fn all(self) -> u32 {
        self.held + self.promised + self.leaving
    }
}

/// One pod's bond, looked at from where everybody stands right now.
#[derive(Debug)]
pub struct View<'l, 's> {
    ledger: &'l Ledger<'s>,
    task: TaskId,
    bond: &'s Bond,
    /// The pod's own place, if it gives that up: it need not mind itself.
    own: Option<NodeId>,
    /// Nobody that it must be near is anywhere, and it may be the first.
    founds: bool,
    /// The fewest in any domain, for each of `even`.
    fewest: Vec<u32>,
}

impl<'l, 's> View<'l, 's> {
    /// `None` if the pod has nothing to do with others.
    pub fn of(ledger: &'l Ledger<'s>, task: TaskId) -> Option<Self> {
        let snapshot = ledger.snapshot;
        let bond = &snapshot.bonds[snapshot.task(task).bond? as usize];
        let own = match ledger.standing(task) {
            Standing::Leaving(spot) if ledger.repairs.leavers_make_way => Some(spot.node),
            _ => None,
        };
        let mut view = Self { ledger, task, bond, own, founds: false, fewest: Vec::new() };
        view.founds = bond.founds && bond.near.iter().all(|crowd| view.is_nowhere(*crowd));
        view.fewest = bond.even.iter().map(|spread| view.fewest(spread)).collect();
        Some(view)
    }

    /// When the pod may be on the node, or what keeps it from there.
    pub fn when(&self, node: NodeId) -> Result<When, Friction> {
        let mut when = When::Now;
        for crowd in &self.bond.near {
            let domain = self.domain(*crowd, node).ok_or(Friction::NoDomain(*crowd))?;
            let heads = self.heads(*crowd, domain);
            if self.founds || heads.held + heads.leaving > 0 {
                continue;
            }
            if heads.promised == 0 {
                return Err(Friction::NotNear(*crowd));
            }
            when = self.later();
        }
        let apart = self.bond.apart.iter().map(|crowd| (*crowd, Friction::Apart(*crowd)));
        let shunned = self.bond.shunned.iter().map(|crowd| (*crowd, Friction::Shunned(*crowd)));
        for (crowd, friction) in apart.chain(shunned) {
            let heads = self.domain(crowd, node).map_or(Heads::default(), |domain| self.heads(crowd, domain));
            let makes_way = self.ledger.repairs.leavers_make_way;
            if heads.settled() > 0 || heads.leaving > 0 && !makes_way {
                return Err(friction);
            }
            if heads.leaving > 0 {
                when = When::Later;
            }
        }
        for (spread, fewest) in self.bond.even.iter().zip(&self.fewest) {
            let domain = self.domain(spread.crowd, node).ok_or(Friction::NoDomain(spread.crowd))?;
            let count = self.heads(spread.crowd, domain).settled() + u32::from(spread.counts_itself);
            if count > fewest.saturating_add(spread.skew_max) {
                return Err(Friction::Uneven(spread.crowd));
            }
        }
        Ok(when)
    }

    /// KAI takes a promise for a pod that is there.
    fn later(&self) -> When {
        if self.ledger.repairs.leavers_make_way { When::Later } else { When::Now }
    }

    /// Whether it prefers some nodes to others.
    pub fn prefers(&self) -> bool {
        !self.bond.liked.is_empty() || !self.bond.rather_even.is_empty()
    }

    /// Sum of what it likes about the pods in the node's domains.
    pub fn liking(&self, node: NodeId) -> i64 {
        let heads = |crowd: CrowdId| self.domain(crowd, node).map_or(0, |domain| self.heads(crowd, domain).all());
        self.bond.liked.iter().map(|(crowd, weight)| weight * i64::from(heads(*crowd))).sum()
    }

    /// How even each of the nodes would leave those that should be spread, from 0 to 100.
    pub fn evenness(&self, nodes: &[NodeId]) -> Vec<i64> {
        if self.bond.rather_even.is_empty() {
            return vec![0; nodes.len()];
        }
        let mut uneven: Vec<Option<i64>> = vec![Some(0); nodes.len()];
        for spread in &self.bond.rather_even {
            let domains: Vec<Option<u32>> = nodes.iter().map(|node| self.domain(spread.crowd, *node)).collect();
            let distinct: std::collections::BTreeSet<u32> = domains.iter().flatten().copied().collect();
            // Where there are many domains, each holds fewer pods, so that a pod more there weighs more.
            let weight = compat::spread_weight(distinct.len());
            for (sum, domain) in uneven.iter_mut().zip(domains) {
                let counted = domain.map(|domain| i64::from(self.heads(spread.crowd, domain).settled()) * weight);
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

    fn domain(&self, crowd: CrowdId, node: NodeId) -> Option<u32> {
        self.ledger.snapshot.domain(crowd, node)
    }

    fn heads(&self, crowd: CrowdId, domain: u32) -> Heads {
        let mut heads = self.ledger.heads(crowd, domain);
        if self.own.is_some_and(|own| self.domain(crowd, own) == Some(domain)) && self.is_part_of(crowd) {
            heads.leaving -= 1;
        }
        heads
    }

    fn is_part_of(&self, crowd: CrowdId) -> bool {
        let snapshot = self.ledger.snapshot;
        let list = snapshot.task(self.task).crowds.map(|list| &snapshot.crowd_lists[list as usize]);
        list.is_some_and(|list| list.binary_search(&crowd).is_ok())
    }

    fn is_nowhere(&self, crowd: CrowdId) -> bool {
        self.ledger.crowd(crowd).all(|(domain, _)| self.heads(crowd, domain).all() == 0)
    }

    fn fewest(&self, spread: &Spread) -> u32 {
        let area = &self.ledger.snapshot.areas[self.ledger.snapshot.crowds[spread.crowd.index()].area.index()];
        let size = area.size();
        let (mut occupied, mut fewest) = (0, u32::MAX);
        for (_, heads) in self.ledger.crowd(spread.crowd).filter(|(_, heads)| heads.settled() > 0) {
            occupied += 1;
            fewest = fewest.min(heads.settled());
        }
        if size < spread.domains_min || occupied < size || occupied == 0 { 0 } else { fewest }
    }
}
