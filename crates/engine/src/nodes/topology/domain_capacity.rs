//! How much capacity each domain of a topology has for some pods; remembered, so that after a placement only the domains
//! of changed nodes are measured again.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Tree;
use crate::ids::{NodeId, TaskId};
use crate::ledger::Ledger;
use crate::snapshot::{GPUS, PODS, ResourceKind};
use crate::units::{GPU, Ratio};

/// What the pods ask for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Demand {
    sum: Vec<i64>,
    /// The largest request in each column, if the pods are alike enough to be counted.
    each: Option<Vec<i64>>,
    pub(super) count: i64,
}

impl Demand {
    pub(super) fn of(ledger: &Ledger<'_>, tasks: &[TaskId]) -> Self {
        let width = ledger.snapshot.resources.len();
        let (mut sum, mut each, mut asking) = (vec![0; width], vec![0; width], vec![0; width]);
        for task in tasks {
            let shape = ledger.snapshot.shape(ledger.snapshot.task(*task).shape);
            for column in 0..width {
                // Shares of GPUs are amounts, too.
                let is_shared = column == GPUS && shape.gpu.shared_devices().is_some();
                // Where a device class provides it, nodes may have none of it.
                let backed = ledger.snapshot.resources[column] == ResourceKind::DeviceClassBacked;
                let need = if is_shared { shape.quota_gpu } else { shape.need[column] };
                let need = if backed { 0 } else { need };
                sum[column] += need;
                each[column] = each[column].max(need);
                asking[column] += usize::from(need > 0);
            }
        }
        let alike = asking[GPUS..].iter().all(|asking| *asking == 0 || *asking == tasks.len());
        Self { sum, each: alike.then_some(each), count: tasks.len() as i64 }
    }
}

/// Capacities of domains, as measured before.
#[derive(Debug, Default)]
pub struct DomainCapacityCache {
    known: BTreeMap<(usize, Demand), TreeCapacity>,
    /// Measure everything every time, to compare results in tests.
    pub no_cache: bool,
}

/// Bound on remembered domains over all demands, to bound memory: about 50 MB.
const REMEMBERED_MAX: usize = 400_000;

impl DomainCapacityCache {
    /// The capacity in each domain of a tree, as it is now.
    pub(super) fn measure(
        &mut self,
        ledger: &Ledger<'_>,
        index: usize,
        tree: &Tree,
        demand: Demand,
    ) -> &mut TreeCapacity {
        let size: usize = tree.levels.iter().map(Vec::len).sum();
        if self.no_cache || self.known.len() * size > REMEMBERED_MAX {
            self.known.clear();
        }
        let capacity =
            self.known.entry((index, demand)).or_insert_with_key(|(_, demand)| TreeCapacity::new(ledger, tree, demand));
        capacity.refresh(ledger, tree);
        capacity
    }
}

/// What is free in each domain of a tree, and what that means for some pods.
#[derive(Debug)]
pub(super) struct TreeCapacity {
    demand: Demand,
    levels: Vec<Vec<DomainCapacity>>,
    /// How much of the ledger's log of changed nodes is accounted for.
    generation: usize,
}

#[derive(Clone, Debug)]
struct DomainCapacity {
    free: Vec<i64>,
    /// Pods that fit, if they can be counted.
    capacity: i64,
    /// The part of what is free that the pods would take, in the scarcest column.
    ratio: Ratio,
    /// Domains below, fullest first; `None` if not known.
    children: Option<Vec<usize>>,
}

impl TreeCapacity {
    fn new(ledger: &Ledger<'_>, tree: &Tree, demand: &Demand) -> Self {
        let nothing = DomainCapacity {
            free: vec![0; demand.sum.len()],
            capacity: 0,
            ratio: ratio(&demand.sum, &vec![0; demand.sum.len()]),
            children: None,
        };
        let levels = tree.levels.iter().map(|level| vec![nothing.clone(); level.len()]).collect();
        let mut tree_capacity = Self { demand: demand.clone(), levels, generation: ledger.generation() };
        for domain in 0..tree.levels.last().map_or(0, Vec::len) {
            tree_capacity.remeasure(ledger, tree, domain);
        }
        tree_capacity
    }

    fn refresh(&mut self, ledger: &Ledger<'_>, tree: &Tree) {
        let Some(changed) = ledger.nodes_changed_since(self.generation) else {
            *self = Self::new(ledger, tree, &self.demand);
            return;
        };
        self.generation = ledger.generation();
        let mut domains: Vec<usize> =
            changed.filter_map(|node| tree.homes[node.index()]).map(|domain| domain as usize).collect();
        domains.sort_unstable();
        domains.dedup();
        for domain in domains {
            self.remeasure(ledger, tree, domain);
        }
    }

    /// Looks at the nodes of a narrowest domain again; wider ones change by as much.
    fn remeasure(&mut self, ledger: &Ledger<'_>, tree: &Tree, domain: usize) {
        let (mut level, mut domain) = (tree.levels.len() - 1, domain);
        let mut free = vec![0; self.demand.sum.len()];
        let mut capacity = 0;
        for node in &tree.levels[level][domain].nodes {
            let row = ledger.idle(*node).iter().zip(ledger.releasing(*node));
            free.iter_mut().zip(row).for_each(|(sum, (idle, releasing))| *sum += idle + releasing);
            if let Some(each) = &self.demand.each {
                capacity += node_capacity(ledger, *node, each, self.demand.count);
            }
        }
        let known = &self.levels[level][domain];
        free.iter_mut().zip(&known.free).for_each(|(free, known)| *free -= known);
        capacity -= known.capacity;
        loop {
            let measure = &mut self.levels[level][domain];
            measure.free.iter_mut().zip(&free).for_each(|(sum, change)| *sum += change);
            measure.capacity += capacity;
            measure.ratio = ratio(&self.demand.sum, &measure.free);
            if level == 0 {
                return;
            }
            domain = tree.levels[level][domain].parent;
            level -= 1;
            self.levels[level][domain].children = None;
        }
    }

    pub(super) fn capacity(&self, level: usize, domain: usize) -> Option<i64> {
        self.demand.each.as_ref().map(|_| self.levels[level][domain].capacity)
    }

    pub(super) fn fits(&self, (level, domain): (usize, usize)) -> bool {
        match self.capacity(level, domain) {
            Some(capacity) => capacity >= self.demand.count,
            None => self.levels[level][domain].ratio <= Ratio::new(1, 1),
        }
    }

    /// Domains of each level under `start`, fullest first at every fork.
    pub(super) fn sorted(&mut self, tree: &Tree, start: (usize, usize), depth: usize) -> Vec<Vec<usize>> {
        let mut sorted = vec![Vec::new(); start.0];
        sorted.push(vec![start.1]);
        for level in start.0..depth {
            let mut below = Vec::with_capacity(tree.levels[level + 1].len());
            for domain in &sorted[level] {
                if self.levels[level][*domain].children.is_none() {
                    let mut children = tree.levels[level][*domain].children.clone();
                    children.sort_by_key(|child| (Reverse(self.levels[level + 1][*child].ratio), *child));
                    self.levels[level][*domain].children = Some(children);
                }
                below.extend(self.levels[level][*domain].children.iter().flatten());
            }
            sorted.push(below);
        }
        sorted
    }
}

/// The part of the free amounts that the pods would take, in the scarcest column.
fn ratio(sum: &[i64], free: &[i64]) -> Ratio {
    let mut largest = Ratio::new(0, 1);
    for (column, (need, free)) in sum.iter().zip(free).enumerate() {
        if column != PODS && *need > 0 {
            let ratio = if *free <= 0 { Ratio::new(1000, 1) } else { Ratio::new(*need, *free) };
            largest = largest.max(ratio);
        }
    }
    largest
}

/// How many such pods a node could take, each column on its own.
fn node_capacity(ledger: &Ledger<'_>, node: NodeId, each: &[i64], count: i64) -> i64 {
    if each.iter().enumerate().all(|(column, need)| column == PODS && *need <= 1 || *need == 0) {
        return count;
    }
    let mut parts = 0;
    if 0 < each[GPUS] && each[GPUS] < GPU {
        let memory = ledger.snapshot.nodes.device_memory[node.index()];
        for device in ledger.devices_on(node).iter().map(|device| ledger.device(*device)) {
            let left = memory - device.allocated - device.pipelined;
            if device.used() > 0 && left > 0 {
                parts += left * GPU / memory;
            }
        }
    }
    let row = ledger.idle(node).iter().zip(ledger.releasing(node)).enumerate();
    let free = row.map(|(column, (idle, releasing))| idle + releasing + if column == GPUS { parts } else { 0 });
    let mut most = None;
    for (need, free) in each.iter().zip(free) {
        if *need > free {
            return 0;
        }
        if *need > 0 {
            most = Some(most.map_or(free / need, |most: i64| most.min(free / need)));
        }
    }
    most.unwrap_or(count)
}
