//! Finds the best node for a pod without looking at every node each time.
//!
//! Pods of one shape and node filter see the same nodes with the same score. For each such pair a tournament tree keeps
//! the best node on top; after a placement only the changed nodes are compared again. [`Finder::scan`] looks at every
//! node: it serves the pods that the trees do not cover, and the tests as the reference.

use std::collections::BTreeMap;

use super::filter::{PodFilters, over_capacity_everywhere};
use super::free_bounds::{FreeBounds, ScarceRequest};
use super::score::{self, DomainScores, Score};
use super::tournament::Tournament;
use crate::ids::{NodeFilterId, NodeId, NodeSet, ShapeId, TaskId};
use crate::ledger::{Ledger, When};
use crate::policy::{Policy, Strategy};
use crate::snapshot::{GPUS, GpuAsk, Shape};

/// Finds nodes; remembers what it learnt as long as the ledger lives.
#[derive(Debug, Default)]
pub struct Finder {
    trees: BTreeMap<(ShapeId, NodeFilterId), Tournament>,
    /// What is free at least and at most.
    bounds: Option<FreeBounds>,
    /// Requests that no node takes, and how much of the ledger's log of changed nodes is accounted for.
    unschedulable: BTreeMap<(ScarceRequest, NodeFilterId), usize>,
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
        let filters = PodFilters::new(ledger, policy, task);
        let has_preferences = filters.has_preferences();
        let dear = row.ports.is_some() || row.claims.is_some();
        if self.full_scan || dear || domain_scores.is_some() || has_preferences || needs_range(policy, shape) {
            return Self::scan(ledger, policy, task, nodes, domain_scores);
        }
        if policy.scores.nominated
            && let Some(node) = row.nominated
            && nodes.contains(node)
            && filters.accept(node)
        {
            return Some(node);
        }
        if self.trees.len() * ledger.snapshot.nodes.len() > REMEMBERED_MAX {
            self.trees.clear();
        }
        let known = self.trees.contains_key(&(row.shape, row.node_filter));
        if !known && self.is_known_unschedulable(&filters) {
            return None;
        }
        let tree = self.trees.entry((row.shape, row.node_filter)).or_insert_with(|| Tournament::new(&filters));
        tree.refresh(&filters);
        let Some(best) = tree.best() else {
            if !known {
                let scarce = self.bounds(ledger).scarce_part(shape);
                self.unschedulable.insert((scarce, row.node_filter), ledger.generation());
            }
            return None;
        };
        // The filters that look at this pod alone can only lower a node's score, from now to later. If they allow the
        // tournament's winner now, it is best.
        if nodes.contains(best) && filters.accept_pod(best) == Some(When::Now) {
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
    fn is_known_unschedulable(&mut self, filters: &PodFilters<'_, '_>) -> bool {
        let ledger = filters.ledger;
        let key = (self.bounds(ledger).scarce_part(filters.shape), filters.row.node_filter);
        let Some(generation) = self.unschedulable.get_mut(&key) else { return false };
        let unschedulable = ledger
            .nodes_changed_since(*generation)
            .is_some_and(|mut changed| !changed.any(|node| filters.accept_request(node)));
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
        let filters = PodFilters::new(ledger, policy, task);
        let offered = nodes
            .iter(ledger.snapshot.nodes.len())
            .filter(|node| domain_scores.is_none_or(|all| all.get(*node).is_some()))
            .filter(|node| filters.accept_request(*node));
        let accepted: Vec<(NodeId, When)> =
            offered.filter_map(|node| Some((node, filters.accept_pod(node)?))).collect();
        let preferences = filters.has_preferences().then(|| preference_points(&filters, &accepted));
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
            // The search for devices is expensive, so that it is done only for a node that would win.
            if best.is_none_or(|(leader, _)| score > leader) && filters.accept_claims(node) {
                best = Some((score, node));
            }
        }
        best.map(|(_, node)| node)
    }
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

/// Scores of nodes by what the pod prefers about other pods.
fn preference_points(filters: &PodFilters<'_, '_>, accepted: &[(NodeId, When)]) -> Vec<i64> {
    let nodes: Vec<NodeId> = accepted.iter().map(|(node, _)| *node).collect();
    let Some(inter_pod) = &filters.inter_pod else { return vec![0; nodes.len()] };
    let spread = inter_pod.spread_scores(&nodes);
    let points = |(node, spread): (&NodeId, i64)| {
        inter_pod.affinity_score(*node) * score::AFFINITY_POINT + spread * score::SPREAD_POINT
    };
    nodes.iter().zip(spread).map(points).collect()
}
