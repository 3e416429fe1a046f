//! Finds the best node for a pod without looking at every node each time.
//!
//! Pods of one shape and class see the same nodes with the same score. For each such pair a tournament tree keeps the
//! best node on top; after a placement only the changed nodes play again. [`Finder::scan`] is the plain twin that
//! looks at every node: it serves the pods that the trees do not cover, and the tests.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use crate::capacity;
use crate::claims;
use crate::fit::{self, When};
use crate::free_bounds::{FreeBounds, ScarceRequest};
use crate::ids::{ClassId, NodeId, ShapeId, TaskId};
use crate::inter_pod::InterPodFilter;
use crate::ledger::Ledger;
use crate::numa;
use crate::policy::{Policy, Strategy};
use crate::score::{self, Score};
use crate::snapshot::{GPUS, GpuAsk, Shape, Task};
use crate::volumes;

/// Nodes to choose from.
#[derive(Clone, Copy, Debug)]
pub enum NodeSet<'a> {
    /// All nodes.
    All,
    /// These nodes.
    Only(&'a FixedBitSet),
}

impl<'a> NodeSet<'a> {
    /// Whether the node may be chosen.
    pub fn contains(self, node: NodeId) -> bool {
        match self {
            Self::All => true,
            Self::Only(set) => set.contains(node.index()),
        }
    }

    /// The nodes, in name order.
    pub fn iter(self, count: usize) -> impl Iterator<Item = NodeId> + use<'a> {
        let (all, some) = match self {
            Self::All => (Some(0..count), None),
            Self::Only(set) => (None, Some(set.ones())),
        };
        all.into_iter().flatten().chain(some.into_iter().flatten()).map(NodeId::at)
    }
}

/// Extra score of nodes for one pod, from a preferred topology level; nodes without an entry are not used.
#[derive(Clone, Debug)]
pub struct DomainScores(Vec<Option<i64>>);

impl DomainScores {
    /// No node is used yet.
    pub fn new(node_count: usize) -> Self {
        Self(vec![None; node_count])
    }

    /// Gives a node its score.
    pub fn set(&mut self, node: NodeId, score: i64) {
        self.0[node.index()] = Some(score);
    }

    /// The score of a node.
    pub fn get(&self, node: NodeId) -> Option<i64> {
        self.0[node.index()]
    }

    /// Nodes with score, in name order.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, i64)> + '_ {
        let known = self.0.iter().enumerate();
        known.filter_map(|(node, score)| score.map(|score| (NodeId::at(node), score)))
    }
}

/// Finds nodes; remembers what it learnt as long as the ledger lives.
#[derive(Debug, Default)]
pub struct Finder {
    trees: BTreeMap<(ShapeId, ClassId), Tournament>,
    /// What is free at least and at most.
    bounds: Option<FreeBounds>,
    /// Requests that no node takes, and how much of the ledger's log of changed nodes is accounted for.
    unschedulable: BTreeMap<(ScarceRequest, ClassId), usize>,
    /// Look at every node every time, to compare results in tests.
    pub full_scan: bool,
}

/// Bound on remembered scores over all trees, to bound memory: about 100 MB.
const REMEMBERED_MAX: usize = 4_000_000;

impl Finder {
    /// The best node for the pod, or `None` if none will do.
    pub fn best(
        &mut self,
        ledger: &Ledger<'_>,
        policy: &Policy,
        task: TaskId,
        nodes: NodeSet<'_>,
        domain_scores: Option<&DomainScores>,
    ) -> Option<NodeId> {
        let row = ledger.snapshot.task(task);
        let shape = ledger.snapshot.shape(row.shape);
        if policy.filters && over_capacity_everywhere(ledger, policy, task, shape) {
            return None;
        }
        if !self.full_scan && self.bounds(ledger).rules_out(shape) {
            return None;
        }
        let inter_pod = InterPodFilter::of(ledger, task);
        let has_preferences =
            policy.scores.pod_affinity && inter_pod.as_ref().is_some_and(InterPodFilter::has_preferences);
        let dear = row.ports.is_some() || row.claims.is_some();
        if self.full_scan || dear || domain_scores.is_some() || has_preferences || needs_range(policy, shape) {
            return Self::scan(ledger, policy, task, nodes, domain_scores);
        }
        if policy.scores.nominated
            && let Some(node) = row.nominated
            && nodes.contains(node)
            && is_feasible(ledger, policy, task, node)
        {
            return Some(node);
        }
        if self.trees.len() * ledger.snapshot.nodes.len() > REMEMBERED_MAX {
            self.trees.clear();
        }
        let known = self.trees.contains_key(&(row.shape, row.class));
        if !known && self.is_known_unschedulable(ledger, policy, row) {
            return None;
        }
        let tree = self.trees.entry((row.shape, row.class)).or_insert_with(|| Tournament::new(ledger, policy, row));
        tree.refresh(ledger, policy, row);
        let Some(best) = tree.best() else {
            if !known {
                let scarce = self.bounds(ledger).scarce_part(shape);
                self.unschedulable.insert((scarce, row.class), ledger.generation());
            }
            return None;
        };
        // Others never make a node better than the tree has it, so a winner whom they let in at once stays the winner.
        let lets_in_now =
            || filter_inter_pod_and_volumes(ledger, policy, task, inter_pod.as_ref(), best) == Some(When::Now);
        if nodes.contains(best) && within_capacity(ledger, policy, task, best) && lets_in_now() {
            return Some(best);
        }
        Self::scan(ledger, policy, task, nodes, None)
    }

    /// What is free at least and at most on any one node.
    pub fn bounds(&mut self, ledger: &Ledger<'_>) -> &mut FreeBounds {
        let bounds = self.bounds.get_or_insert_with(|| FreeBounds::new(ledger));
        bounds.refresh(ledger);
        bounds
    }

    /// Whether a request that differs only in what every node has enough of found no node, and none has changed since
    /// that would take this one.
    fn is_known_unschedulable(&mut self, ledger: &Ledger<'_>, policy: &Policy, row: &Task) -> bool {
        let key = (self.bounds(ledger).scarce_part(ledger.snapshot.shape(row.shape)), row.class);
        let Some(generation) = self.unschedulable.get_mut(&key) else { return false };
        let unschedulable = ledger
            .nodes_changed_since(*generation)
            .is_some_and(|mut changed| !changed.any(|node| is_shape_feasible(ledger, policy, row, node)));
        if unschedulable {
            *generation = ledger.generation();
        } else {
            self.unschedulable.remove(&key);
        }
        unschedulable
    }

    /// The same by looking at every node.
    pub fn scan(
        ledger: &Ledger<'_>,
        policy: &Policy,
        task: TaskId,
        nodes: NodeSet<'_>,
        domain_scores: Option<&DomainScores>,
    ) -> Option<NodeId> {
        let row = ledger.snapshot.task(task);
        let shape = ledger.snapshot.shape(row.shape);
        let range = needs_range(policy, shape).then(|| FreeRange::of(ledger, nodes));
        let inter_pod = InterPodFilter::of(ledger, task);
        let offered = nodes
            .iter(ledger.snapshot.nodes.len())
            .filter(|node| domain_scores.is_none_or(|all| all.get(*node).is_some()));
        let accepted: Vec<(NodeId, When)> =
            offered.filter_map(|node| Some((node, filter(ledger, policy, task, inter_pod.as_ref(), node)?))).collect();
        let preferences = inter_pod.filter(|inter_pod| policy.scores.pod_affinity && inter_pod.has_preferences());
        let preferences = preferences.map(|inter_pod| {
            let nodes: Vec<NodeId> = accepted.iter().map(|(node, _)| *node).collect();
            let spread_scores = inter_pod.spread_scores(&nodes);
            let points =
                |(node, even): (&NodeId, i64)| inter_pod.affinity_score(*node) * score::LIKED + even * score::EVEN;
            nodes.iter().zip(spread_scores).map(points).collect::<Vec<i64>>()
        });
        let mut best: Option<(Score, NodeId)> = None;
        for (index, (node, when)) in accepted.into_iter().enumerate() {
            let mut score = score::score(ledger, policy, shape, node);
            score.points += domain_scores.and_then(|all| all.get(node)).unwrap_or(0);
            score.points += preferences.as_ref().map_or(0, |points| points[index]);
            if when == When::Later {
                score.points -= score::available(ledger, policy, shape, node);
            }
            if policy.scores.nominated && row.nominated == Some(node) {
                score.points += score::NOMINATED;
            }
            if let Some(range) = &range {
                score.placement = range.placement(ledger, node);
            }
            // Looking for devices is dear, so only a node that would win is asked.
            if best.is_none_or(|(leader, _)| score > leader) && claims::fits(ledger, task, node) {
                best = Some((score, node));
            }
        }
        best.map(|(_, node)| node)
    }
}

/// Whether the pod may be placed on the node, now or later.
pub fn is_feasible(ledger: &Ledger<'_>, policy: &Policy, task: TaskId, node: NodeId) -> bool {
    let inter_pod = InterPodFilter::of(ledger, task);
    filter(ledger, policy, task, inter_pod.as_ref(), node).is_some() && claims::fits(ledger, task, node)
}

/// When others let the pod onto the node, if it may be placed there at all; its claims are not looked at. Resources are
/// looked at for later.
fn filter(
    ledger: &Ledger<'_>,
    policy: &Policy,
    task: TaskId,
    inter_pod: Option<&InterPodFilter<'_, '_>>,
    node: NodeId,
) -> Option<When> {
    let row = ledger.snapshot.task(task);
    let fits = is_shape_feasible(ledger, policy, row, node)
        && (!policy.filters || row.ports.is_none_or(|set| ports_free(ledger, set, node)))
        && within_capacity(ledger, policy, task, node);
    if fits { filter_inter_pod_and_volumes(ledger, policy, task, inter_pod, node) } else { None }
}

/// When other pods, and the volumes that are there, let the pod onto the node.
pub fn filter_inter_pod_and_volumes(
    ledger: &Ledger<'_>,
    policy: &Policy,
    task: TaskId,
    inter_pod: Option<&InterPodFilter<'_, '_>>,
    node: NodeId,
) -> Option<When> {
    if !policy.filters {
        return Some(When::Now);
    }
    let others = inter_pod.map_or(Ok(When::Now), |inter_pod| inter_pod.check(node)).ok()?;
    match volumes::when(ledger, task, node).ok()? {
        When::Now => Some(others),
        When::Later => Some(When::Later),
    }
}

/// The part that depends on shape and class alone.
fn is_shape_feasible(ledger: &Ledger<'_>, policy: &Policy, row: &Task, node: NodeId) -> bool {
    let class = &ledger.snapshot.classes[row.class.index()];
    let shape = ledger.snapshot.shape(row.shape);
    (!policy.filters || class.admitted.contains(node.index()))
        && fit::fits(ledger, shape, node, When::Later)
        && (shape.gpu.shared_devices().is_none()
            || fit::choose_devices(ledger, shape, node, policy.device_order)
                .is_some_and(|choice| !policy.filters || fit::slots_suffice(ledger, node, choice.fresh)))
        && (!policy.numa || numa::fits(ledger, shape, node))
}

fn ports_free(ledger: &Ledger<'_>, set: u32, node: NodeId) -> bool {
    ledger.snapshot.port_sets[set as usize].iter().all(|port| !ledger.port_taken(node, *port))
}

/// Whether the pod's queue may take on what it costs on this node.
pub fn within_capacity(ledger: &Ledger<'_>, policy: &Policy, task: TaskId, node: NodeId) -> bool {
    let job = ledger.snapshot.job(ledger.snapshot.task(task).job);
    match job.queue {
        Some(queue) if policy.filters && policy.proportion.is_some() => {
            capacity::check(&ledger.queues, queue, job.preemptible, ledger.cost(task, node)).is_none()
        }
        _ => true,
    }
}

/// What a pod costs differs between nodes only if it asks for GPU memory.
fn over_capacity_everywhere(ledger: &Ledger<'_>, policy: &Policy, task: TaskId, shape: &Shape) -> bool {
    let same = !matches!(shape.gpu, GpuAsk::Memory { .. });
    same && !ledger.snapshot.nodes.is_empty() && !within_capacity(ledger, policy, task, NodeId(0))
}

/// MIG nodes may have no whole GPUs at all; packing then scores them like the emptiest node, which takes the range of
/// all nodes to know.
fn needs_range(policy: &Policy, shape: &Shape) -> bool {
    shape.gpu == GpuAsk::Mig && policy.scores.placement.is_some_and(|placement| placement.gpu == Strategy::Pack)
}

struct FreeRange {
    least: i64,
    most: i64,
}

impl FreeRange {
    fn of(ledger: &Ledger<'_>, nodes: NodeSet<'_>) -> Self {
        let mut range = Self { least: i64::MAX, most: 0 };
        for node in nodes.iter(ledger.snapshot.nodes.len()) {
            if let Some(free) = Self::free(ledger, node) {
                range.least = range.least.min(free);
                range.most = range.most.max(free);
            }
        }
        range
    }

    fn free(ledger: &Ledger<'_>, node: NodeId) -> Option<i64> {
        let total = ledger.snapshot.row(&ledger.snapshot.nodes.allocatable, node)[GPUS];
        (total != 0).then(|| ledger.idle(node)[GPUS] + ledger.releasing(node)[GPUS])
    }

    fn placement(&self, ledger: &Ledger<'_>, node: NodeId) -> i64 {
        match Self::free(ledger, node) {
            Some(_) if self.most == 0 => 0,
            Some(_) if self.least == self.most => 1,
            Some(free) => self.most - free,
            None => 0,
        }
    }
}

/// Keeps the best node for one shape and class on top.
#[derive(Debug)]
struct Tournament {
    scores: Vec<Option<Score>>,
    /// Winners, root at 1; leaf `i` is at `width + i`. Holds node indices.
    winners: Vec<u32>,
    width: usize,
    /// How much of the ledger's log of changed nodes is accounted for.
    generation: usize,
}

const NOBODY: u32 = u32::MAX;

impl Tournament {
    fn new(ledger: &Ledger<'_>, policy: &Policy, row: &Task) -> Self {
        let count = ledger.snapshot.nodes.len();
        let width = count.next_power_of_two().max(1);
        let scores = (0..count).map(|node| Self::judge(ledger, policy, row, NodeId::at(node))).collect();
        let mut tree = Self { scores, winners: vec![NOBODY; 2 * width], width, generation: ledger.generation() };
        for node in 0..count {
            tree.winners[width + node] = tree.entrant(node);
        }
        for slot in (1..width).rev() {
            tree.winners[slot] = tree.play(slot);
        }
        tree
    }

    fn judge(ledger: &Ledger<'_>, policy: &Policy, row: &Task, node: NodeId) -> Option<Score> {
        let shape = ledger.snapshot.shape(row.shape);
        is_shape_feasible(ledger, policy, row, node).then(|| score::score(ledger, policy, shape, node))
    }

    fn entrant(&self, node: usize) -> u32 {
        if self.scores[node].is_some() { node as u32 } else { NOBODY }
    }

    fn play(&self, slot: usize) -> u32 {
        let (left, right) = (self.winners[2 * slot], self.winners[2 * slot + 1]);
        match (left, right) {
            (NOBODY, other) | (other, NOBODY) => other,
            // The left one comes first by name, so it keeps ties.
            _ if self.scores[right as usize] > self.scores[left as usize] => right,
            _ => left,
        }
    }

    fn refresh(&mut self, ledger: &Ledger<'_>, policy: &Policy, row: &Task) {
        let Some(changed) = ledger.nodes_changed_since(self.generation) else {
            *self = Self::new(ledger, policy, row);
            return;
        };
        self.generation = ledger.generation();
        for node in changed {
            let score = Self::judge(ledger, policy, row, node);
            if score == self.scores[node.index()] {
                continue;
            }
            self.scores[node.index()] = score;
            let mut slot = self.width + node.index();
            self.winners[slot] = self.entrant(node.index());
            while slot > 1 {
                slot /= 2;
                self.winners[slot] = self.play(slot);
            }
        }
    }

    fn best(&self) -> Option<NodeId> {
        let winner = self.winners[1];
        (winner != NOBODY).then_some(NodeId(winner))
    }
}
