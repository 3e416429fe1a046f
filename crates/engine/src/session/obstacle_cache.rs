//! Why no node takes a pod, counted once for all pods that are alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Session;
use crate::ids::{NodeFilterId, NodeSet, ShapeId, TaskId};
use crate::nodes::explain;
use crate::nodes::free_bounds::ScarceRequest;
use crate::outcome::{NodeObstacle, ObstacleCounts};
use crate::snapshot::GpuAsk;

/// What was counted, and at which generation of the ledger.
type Counted = (usize, Arc<ObstacleCounts>);

/// Obstacles that were counted before.
#[derive(Default)]
pub(super) struct ObstacleCache {
    /// By request and node filter.
    by_request: BTreeMap<(ShapeId, NodeFilterId), Counted>,
    /// The same for all requests that differ only in what every node has enough of.
    by_scarce_request: BTreeMap<(ScarceRequest, NodeFilterId), Counted>,
}

impl Session<'_> {
    /// Why no node will do; remembered for pods that are alike until something changes.
    pub(super) fn obstacles(&mut self, task: TaskId, nodes: NodeSet<'_>) -> Arc<ObstacleCounts> {
        let row = self.snapshot.task(task);
        let shape = self.snapshot.shape(row.shape);
        // What memory costs depends on the node, so that on some the pod's own queue may be the obstacle.
        let alone = row.ports.is_some()
            || row.inter_pod.is_some()
            || row.volumes.is_some()
            || row.claims.is_some()
            || shape.numa.is_some()
            || matches!(shape.gpu, GpuAsk::Memory { .. });
        if alone || self.finder.full_scan || matches!(nodes, NodeSet::Only(_)) {
            return Arc::new(explain::count_obstacles(&self.ledger, self.policy, task, nodes));
        }
        let generation = self.ledger.generation();
        let alike = (row.shape, row.node_filter);
        if let Some((_, obstacles)) =
            self.obstacle_cache.by_request.get(&alike).filter(|(known, _)| *known == generation)
        {
            return Arc::clone(obstacles);
        }
        let bounds = self.finder.bounds(&self.ledger);
        if let Some(obstacles) = bounds.obstacles(&self.ledger, shape) {
            let obstacles = Arc::new(obstacles);
            self.obstacle_cache.by_request.insert(alike, (generation, Arc::clone(&obstacles)));
            return obstacles;
        }
        let scarce = (bounds.scarce_part(shape), row.node_filter);
        if let Some((_, obstacles)) =
            self.obstacle_cache.by_scarce_request.get(&scarce).filter(|(known, _)| *known == generation)
        {
            return Arc::clone(obstacles);
        }
        let obstacles = Arc::new(explain::count_obstacles(&self.ledger, self.policy, task, nodes));
        // A queue's bound concerns the pod's own queue.
        if !obstacles.counts.iter().any(|(obstacle, _)| matches!(obstacle, NodeObstacle::Queue(..))) {
            self.obstacle_cache.by_request.insert(alike, (generation, Arc::clone(&obstacles)));
            self.obstacle_cache.by_scarce_request.insert(scarce, (generation, Arc::clone(&obstacles)));
        }
        obstacles
    }
}
