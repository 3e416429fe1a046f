//! Which sets of nodes a group may use under a topology constraint, best first.
//!
//! Domains that must hold the group are tried from the narrowest level to the widest and, within a level, fullest
//! first. A preferred level also gives nodes merit, so that inside a wide domain pods stay close together.

use std::cmp::Reverse;

use fixedbitset::FixedBitSet;

use crate::finder::{DomainMerit, NodeSet};
use crate::ids::{NodeId, TaskId};
use crate::ledger::Ledger;
use crate::outcome::DomainFit;
use crate::score::DOMAIN_STEP;
use crate::snapshot::{Constraint, GPUS, LevelRef, PODS, Topology};
use crate::units::{GPU, Ratio};

/// The domains of a topology, level by level; the root, which holds all member nodes, is level 0.
#[derive(Clone, Debug)]
pub struct Tree {
    levels: Vec<Vec<Domain>>,
    /// Whether each node belongs to the topology.
    members: FixedBitSet,
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
        Self { levels, members }
    }
}

/// Where a group may be placed.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Node sets, best first.
    pub sets: Vec<FixedBitSet>,
    /// Merit of nodes by their preferred-level domain.
    pub merit: Option<DomainMerit>,
}

/// Why a group can be placed nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The topology or one of its levels does not exist, or no level is named.
    Unknown,
    /// No domain is large enough; empty if not even all of them together are.
    TooSmall(Vec<DomainFit>),
}

/// Node sets for pods of one group. `running` are the nodes of pods that the group must stay with.
pub fn choose(
    ledger: &Ledger<'_>,
    trees: &[Tree],
    constraint: &Constraint,
    tasks: &[TaskId],
    nodes: NodeSet<'_>,
    running: &[NodeId],
) -> Result<Choice, Refusal> {
    let tree = &trees[constraint.topology.ok_or(Refusal::Unknown)?.index()];
    let level = |level: Option<LevelRef>| match level {
        None => Ok(None),
        Some(LevelRef::Unknown) => Err(Refusal::Unknown),
        Some(LevelRef::At(index)) => Ok(Some(index as usize + 1)),
    };
    let (required, preferred) = (level(constraint.required)?, level(constraint.preferred)?);
    let narrowest = preferred.or(required).ok_or(Refusal::Unknown)?;
    let widest = required.unwrap_or(0);
    if widest > narrowest {
        return Err(Refusal::Unknown);
    }

    let mut valid = tree.members.clone();
    if let NodeSet::Only(set) = nodes {
        valid.intersect_with(set);
    }
    let start = common_domain(tree, &valid, narrowest);
    let demand = Demand::of(ledger, tasks);
    let room = Room::measure(ledger, tree, start, &demand);
    if !room.fits(start, &demand) {
        return Err(Refusal::TooSmall(Vec::new()));
    }
    let sorted = sorted_levels(tree, start, narrowest, &room);
    let merit = preferred.map(|level| merit(tree, &sorted, level));
    let home = homes(tree, required, running);

    let mut sets = Vec::new();
    for level in (widest..=narrowest).rev() {
        for domain in sorted.get(level).into_iter().flatten().copied() {
            let at_home = home.as_ref().is_none_or(|home| home.contains(&ancestor(tree, level, domain, widest)));
            if at_home && room.fits((level, domain), &demand) {
                let mut set = FixedBitSet::with_capacity(valid.len());
                set.extend(tree.levels[level][domain].nodes.iter().map(|node| node.index()));
                set.intersect_with(&valid);
                sets.push(set);
            }
        }
    }
    if sets.is_empty() {
        let fit = |domain: &usize| DomainFit {
            level: widest.saturating_sub(1) as u32,
            domain: *domain as u32,
            fits: room.capacity(widest, *domain).map(|fits| u32::try_from(fits.max(0)).unwrap_or(u32::MAX)),
        };
        let mut domains: Vec<_> = sorted.get(widest).into_iter().flatten().map(fit).collect();
        domains.sort_by_key(|fit| fit.domain);
        return Err(Refusal::TooSmall(domains));
    }
    Ok(Choice { sets, merit })
}

/// The narrowest domain that holds all valid nodes, not narrower than asked for.
fn common_domain(tree: &Tree, valid: &FixedBitSet, narrowest: usize) -> (usize, usize) {
    let mut domain = (0, 0);
    loop {
        let (level, id) = domain;
        if level == narrowest || valid.is_clear() {
            return domain;
        }
        let holds_all = |child: &&usize| {
            let nodes = &tree.levels[level + 1][**child].nodes;
            nodes.iter().filter(|node| valid.contains(node.index())).count() == valid.count_ones(..)
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

/// Domains of each level under `start`, fullest first at every fork.
fn sorted_levels(tree: &Tree, start: (usize, usize), depth: usize, room: &Room) -> Vec<Vec<usize>> {
    let mut levels = vec![Vec::new(); start.0];
    levels.push(vec![start.1]);
    for level in start.0..depth {
        let mut below = Vec::new();
        for domain in &levels[level] {
            let mut children = tree.levels[level][*domain].children.clone();
            children.sort_by_key(|child| (Reverse(room.ratio(level + 1, *child)), *child));
            below.extend(children);
        }
        levels.push(below);
    }
    levels
}

/// The emptiest domain of the preferred level has most merit.
fn merit(tree: &Tree, sorted: &[Vec<usize>], level: usize) -> DomainMerit {
    let domains = &sorted[level];
    let mut merit = DomainMerit::new();
    for (index, domain) in domains.iter().enumerate() {
        let points = (10 * (index + 1) / domains.len()) as i64 * DOMAIN_STEP;
        merit.extend(tree.levels[level][*domain].nodes.iter().map(|node| (*node, points)));
    }
    merit
}

/// What the pods ask for.
struct Demand {
    sum: Vec<i64>,
    /// The largest request in each column, if the pods are alike enough to be counted.
    each: Option<Vec<i64>>,
    count: i64,
}

impl Demand {
    fn of(ledger: &Ledger<'_>, tasks: &[TaskId]) -> Self {
        let requests: Vec<Vec<i64>> = tasks.iter().map(|task| request(ledger, *task)).collect();
        let width = ledger.snapshot.columns.len();
        let mut sum = vec![0; width];
        let mut each = vec![0; width];
        for request in &requests {
            for column in 0..width {
                sum[column] += request[column];
                each[column] = each[column].max(request[column]);
            }
        }
        let alike = (GPUS..width).all(|column| {
            let asking = requests.iter().filter(|request| request[column] > 0).count();
            asking == 0 || asking == requests.len()
        });
        Self { sum, each: alike.then_some(each), count: tasks.len() as i64 }
    }
}

/// Amounts per column, shares of GPUs included.
fn request(ledger: &Ledger<'_>, task: TaskId) -> Vec<i64> {
    let shape = ledger.snapshot.shape(ledger.snapshot.task(task).shape);
    let mut request = shape.need.clone();
    if shape.gpu.shared_devices().is_some() {
        request[GPUS] = shape.quota_gpu;
    }
    request
}

/// What is free in each domain under the start.
struct Room {
    free: Vec<Vec<Option<Vec<i64>>>>,
    capacity: Vec<Vec<i64>>,
    counted: bool,
    sum: Vec<i64>,
}

impl Room {
    fn measure(ledger: &Ledger<'_>, tree: &Tree, start: (usize, usize), demand: &Demand) -> Self {
        let mut room = Self {
            free: tree.levels.iter().map(|level| vec![None; level.len()]).collect(),
            capacity: tree.levels.iter().map(|level| vec![0; level.len()]).collect(),
            counted: demand.each.is_some(),
            sum: demand.sum.clone(),
        };
        room.fill(ledger, tree, start, demand);
        room
    }

    fn fill(&mut self, ledger: &Ledger<'_>, tree: &Tree, (level, id): (usize, usize), demand: &Demand) {
        let domain = &tree.levels[level][id];
        let mut free = vec![0; demand.sum.len()];
        let mut capacity = 0;
        if level + 1 < tree.levels.len() {
            for child in &domain.children {
                self.fill(ledger, tree, (level + 1, *child), demand);
                let below = self.free[level + 1][*child].as_ref().expect("just filled");
                free.iter_mut().zip(below).for_each(|(sum, amount)| *sum += amount);
                capacity += self.capacity[level + 1][*child];
            }
        } else {
            for node in &domain.nodes {
                let row = ledger.idle(*node).iter().zip(ledger.releasing(*node));
                let row: Vec<i64> = row.map(|(idle, releasing)| idle + releasing).collect();
                free.iter_mut().zip(&row).for_each(|(sum, amount)| *sum += amount);
                if let Some(each) = &demand.each {
                    capacity += node_capacity(ledger, *node, row, each, demand.count);
                }
            }
        }
        self.free[level][id] = Some(free);
        self.capacity[level][id] = capacity;
    }

    fn capacity(&self, level: usize, domain: usize) -> Option<i64> {
        self.counted.then(|| self.capacity[level][domain])
    }

    fn fits(&self, (level, domain): (usize, usize), demand: &Demand) -> bool {
        match self.capacity(level, domain) {
            Some(capacity) => capacity >= demand.count,
            None => self.ratio(level, domain) <= Ratio::new(1, 1),
        }
    }

    /// The part of the domain's free amounts that the pods would take, in the scarcest column.
    fn ratio(&self, level: usize, domain: usize) -> Ratio {
        let mut largest = Ratio::new(0, 1);
        let nothing = vec![0; self.sum.len()];
        let free = self.free[level][domain].as_ref().unwrap_or(&nothing);
        for (column, (need, free)) in self.sum.iter().zip(free).enumerate() {
            if column != PODS && *need > 0 {
                let ratio = if *free <= 0 { Ratio::new(1000, 1) } else { Ratio::new(*need, *free) };
                largest = largest.max(ratio);
            }
        }
        largest
    }
}

/// How many such pods a node could take, each column on its own.
fn node_capacity(ledger: &Ledger<'_>, node: NodeId, mut free: Vec<i64>, each: &[i64], count: i64) -> i64 {
    if each.iter().enumerate().all(|(column, need)| column == PODS && *need <= 1 || *need == 0) {
        return count;
    }
    if 0 < each[GPUS] && each[GPUS] < GPU {
        let memory = ledger.snapshot.nodes.device_memory[node.index()];
        for device in ledger.devices_on(node).iter().map(|device| ledger.device(*device)) {
            let left = memory - device.held - device.promised;
            if device.used() > 0 && left > 0 {
                free[GPUS] += left * GPU / memory;
            }
        }
    }
    if each.iter().zip(&free).any(|(need, free)| need > free) {
        return 0;
    }
    each.iter().zip(&free).filter(|(need, _)| **need > 0).map(|(need, free)| free / need).min().unwrap_or(count)
}
