//! Which sets of nodes a group may use under a topology constraint, best first.
//!
//! Domains that must hold the group are tried from the narrowest level to the widest and, within a level, fullest
//! first. A preferred level also gives nodes score, so that inside a wide domain pods stay close together.

mod domain_capacity;

use fixedbitset::FixedBitSet;

use crate::ids::{NodeId, NodeSet, TaskId};
use crate::ledger::Ledger;
use crate::nodes::score::{DOMAIN_STEP, DomainScores};
use crate::outcome::DomainFit;
use crate::snapshot::{Constraint, LevelRef, Topology};
use domain_capacity::Demand;
pub use domain_capacity::DomainCapacityCache;

/// The domains of a topology, level by level; the root, which holds all member nodes, is level 0.
#[derive(Clone, Debug)]
pub struct Tree {
    levels: Vec<Vec<Domain>>,
    /// Whether each node belongs to the topology.
    members: FixedBitSet,
    /// The narrowest domain of each node.
    homes: Vec<Option<u32>>,
}

#[derive(Clone, Debug, Default)]
struct Domain {
    parent: usize,
    children: Vec<usize>,
    nodes: Vec<NodeId>,
}

impl Tree {
    /// The tree of a topology.
    pub fn new(topology: &Topology, node_count: usize) -> Self {
        let mut members = FixedBitSet::with_capacity(node_count);
        let belongs = |node: usize| topology.levels.iter().all(|level| level[node].is_some());
        members.extend((0..node_count).filter(|node| belongs(*node)));
        let mut levels = vec![vec![Domain { nodes: members.ones().map(NodeId::at).collect(), ..Domain::default() }]];
        for (index, level) in topology.levels.iter().enumerate() {
            let count = level.iter().flatten().max().map_or(0, |last| *last as usize + 1);
            let mut domains = vec![Domain::default(); count];
            for node in members.ones() {
                let domain = level[node].expect("members have every level") as usize;
                let above = index.checked_sub(1).map_or(0, |above| topology.levels[above][node].unwrap_or(0) as usize);
                domains[domain].parent = above;
                domains[domain].nodes.push(NodeId::at(node));
            }
            for (id, domain) in domains.iter().enumerate() {
                if !domain.nodes.is_empty() {
                    levels[index][domain.parent].children.push(id);
                }
            }
            levels.push(domains);
        }
        let home = |node: usize| match topology.levels.last() {
            Some(level) => level[node].filter(|_| members.contains(node)),
            None => Some(0),
        };
        let homes = (0..node_count).map(home).collect();
        Self { levels, members, homes }
    }
}

/// Where a group may be placed.
#[derive(Clone, Debug)]
pub struct DomainChoice {
    /// Level and number of domains, best first.
    domains: Vec<(usize, usize)>,
    /// Nodes that may be used at all.
    valid: FixedBitSet,
    /// Score of nodes by their preferred-level domain.
    pub scores: Option<DomainScores>,
}

impl DomainChoice {
    /// How many node sets there are.
    pub fn len(&self) -> usize {
        self.domains.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// One of the node sets; the first is best. The tree is the one they were chosen from.
    pub fn set(&self, tree: &Tree, index: usize) -> FixedBitSet {
        let (level, domain) = self.domains[index];
        let mut set = FixedBitSet::with_capacity(self.valid.len());
        let nodes = tree.levels[level][domain].nodes.iter().map(|node| node.index());
        set.extend(nodes.filter(|node| self.valid.contains(*node)));
        set
    }
}

/// Why a group can be placed nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DomainRefusal {
    /// The topology or one of its levels does not exist, or no level is named.
    Unknown,
    /// No domain is large enough; empty if not even all of them together are.
    TooSmall(Vec<DomainFit>),
}

/// Node sets for pods of one group. `running` are the nodes of pods that the group must stay with.
pub fn choose(
    ledger: &Ledger<'_>,
    trees: &[Tree],
    capacities: &mut DomainCapacityCache,
    constraint: &Constraint,
    tasks: &[TaskId],
    nodes: NodeSet<'_>,
    running: &[NodeId],
) -> Result<DomainChoice, DomainRefusal> {
    let topology = constraint.topology.ok_or(DomainRefusal::Unknown)?.index();
    let tree = &trees[topology];
    let level = |level: Option<LevelRef>| match level {
        None => Ok(None),
        Some(LevelRef::Unknown) => Err(DomainRefusal::Unknown),
        Some(LevelRef::At(index)) => Ok(Some(index as usize + 1)),
    };
    let (required, preferred) = (level(constraint.required)?, level(constraint.preferred)?);
    let narrowest = preferred.or(required).ok_or(DomainRefusal::Unknown)?;
    let widest = required.unwrap_or(0);
    if widest > narrowest {
        return Err(DomainRefusal::Unknown);
    }

    let mut valid = tree.members.clone();
    if let NodeSet::Only(set) = nodes {
        valid.intersect_with(set);
    }
    let start = common_domain(tree, &valid, narrowest);
    let capacity = capacities.measure(ledger, topology, tree, Demand::of(ledger, tasks));
    if !capacity.fits(start) {
        return Err(DomainRefusal::TooSmall(Vec::new()));
    }
    let sorted = capacity.sorted(tree, start, narrowest);
    let scores = preferred.map(|level| domain_scores(tree, &sorted[level], level));
    let home = homes(tree, required, running);

    let mut domains = Vec::new();
    for level in (widest..=narrowest).rev() {
        let fitting = sorted.get(level).into_iter().flatten().filter(|domain| capacity.fits((level, **domain)));
        domains.extend(fitting.map(|domain| (level, *domain)).filter(|(level, domain)| {
            home.as_ref().is_none_or(|home| home.contains(&ancestor(tree, *level, *domain, widest)))
        }));
    }
    if domains.is_empty() {
        let fit = |domain: &usize| DomainFit {
            level: widest.saturating_sub(1) as u32,
            domain: *domain as u32,
            fits: capacity.capacity(widest, *domain).map(|fits| u32::try_from(fits.max(0)).unwrap_or(u32::MAX)),
        };
        let mut domains: Vec<_> = sorted.get(widest).into_iter().flatten().map(fit).collect();
        domains.sort_by_key(|fit| fit.domain);
        return Err(DomainRefusal::TooSmall(domains));
    }
    Ok(DomainChoice { domains, valid, scores })
}

/// The narrowest domain that holds all valid nodes, not narrower than asked for.
fn common_domain(tree: &Tree, valid: &FixedBitSet, narrowest: usize) -> (usize, usize) {
    let mut domain = (0, 0);
    let count = valid.count_ones(..);
    loop {
        let (level, id) = domain;
        if level == narrowest || count == 0 {
            return domain;
        }
        let holds_all = |child: &&usize| {
            let nodes = &tree.levels[level + 1][**child].nodes;
            nodes.iter().filter(|node| valid.contains(node.index())).count() == count
        };
        match tree.levels[level][id].children.iter().find(holds_all) {
            Some(child) => domain = (level + 1, *child),
            None => return domain,
        }
    }
}

fn ancestor(tree: &Tree, mut level: usize, mut domain: usize, wanted: usize) -> usize {
    while level > wanted {
        domain = tree.levels[level][domain].parent;
        level -= 1;
    }
    domain
}

/// Required-level domains in which the group runs already; `None` if that does not bind it.
fn homes(tree: &Tree, required: Option<usize>, running: &[NodeId]) -> Option<Vec<usize>> {
    let level = required?;
    if running.is_empty() {
        return None;
    }
    let lives_in = |domain: &Domain| domain.nodes.iter().any(|node| running.contains(node));
    Some((0..tree.levels[level].len()).filter(|domain| lives_in(&tree.levels[level][*domain])).collect())
}

/// The emptiest domain of the preferred level has most score.
fn domain_scores(tree: &Tree, domains: &[usize], level: usize) -> DomainScores {
    let mut scores = DomainScores::new(tree.homes.len());
    for (index, domain) in domains.iter().enumerate() {
        let points = (10 * (index + 1) / domains.len()) as i64 * DOMAIN_STEP;
        tree.levels[level][*domain].nodes.iter().for_each(|node| scores.set(*node, points));
    }
    scores
}
