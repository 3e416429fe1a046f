//! Whether what a cycle decided may be so, worked out from the snapshot and the decisions alone.
//!
//! Speed is worth nothing if nodes are filled twice. What is asked here holds for every scenario: nodes and shared
//! GPUs hold what they have, gangs run whole or not at all, and a victim ran before.

use std::collections::{BTreeMap, BTreeSet};

use kai_engine::ids::{NodeId, TaskId};
use kai_engine::outcome::{Assignment, Decision, DeviceRef};
use kai_engine::snapshot::{GPUS, GpuAsk, Status};
use kai_engine::units::GPU;
use kai_engine::{Outcome, Snapshot};

/// Where every pod stands once all decisions are carried out.
#[derive(Debug)]
pub struct After<'s> {
    snapshot: &'s Snapshot,
    /// New places, of pods that waited and of pods that move.
    placed: BTreeMap<TaskId, &'s Assignment>,
    evicted: BTreeSet<TaskId>,
}

impl<'s> After<'s> {
    /// Carries out the decisions.
    pub fn new(snapshot: &'s Snapshot, outcome: &'s Outcome) -> Self {
        let mut after = Self { snapshot, placed: BTreeMap::new(), evicted: BTreeSet::new() };
        for decision in &outcome.decisions {
            match decision {
                Decision::Bind { task, assignment } | Decision::Pipeline { task, assignment } => {
                    assert!(after.placed.insert(*task, assignment).is_none(), "{task:?} gets two places");
                }
                Decision::Evict { task, .. } => {
                    assert!(after.evicted.insert(*task), "{task:?} is evicted twice");
                    assert_eq!(snapshot.task(*task).status, Status::Running, "{task:?} is a victim");
                }
            }
        }
        after
    }

    /// Panics where the decisions cannot all be carried out.
    pub fn assert_possible(&self) {
        self.assert_nodes_hold();
        self.assert_gangs_whole();
    }

    /// Evicted pods that get no other place.
    pub fn losers(&self) -> usize {
        self.evicted.iter().filter(|task| !self.placed.contains_key(task)).count()
    }

    fn node_of(&self, task: TaskId) -> Option<NodeId> {
        match self.placed.get(&task) {
            Some(place) => Some(place.node),
            None => self.snapshot.task(task).node.filter(|_| !self.evicted.contains(&task)),
        }
    }

    fn assert_nodes_hold(&self) {
        let width = self.snapshot.resources.len();
        let mut used = vec![0; self.snapshot.nodes.allocatable.len()];
        let mut shared: BTreeMap<(NodeId, DeviceRef), i64> = BTreeMap::new();
        for task in (0..self.snapshot.tasks.len()).map(TaskId::at) {
            let Some(node) = self.node_of(task) else { continue };
            let shape = self.snapshot.shape(self.snapshot.task(task).shape);
            for (used, need) in used[node.index() * width..].iter_mut().zip(&shape.need) {
                *used += need;
            }
            if let GpuAsk::Fraction { devices, portion } = shape.gpu {
                let place = self.placed.get(&task).expect("no pod shares a GPU before the cycle");
                assert_eq!(place.devices.len(), devices as usize, "{task:?} gets its devices");
                for device in &place.devices {
                    *shared.entry((node, *device)).or_default() += portion;
                }
            }
        }
        for ((node, device), portion) in shared {
            assert!(portion <= GPU, "{device:?} of {node:?} is shared out twice");
            used[node.index() * width + GPUS] += GPU;
        }
        for (index, (used, has)) in used.iter().zip(&self.snapshot.nodes.allocatable).enumerate() {
            assert!(used <= has, "node {} holds {used} of {has} in column {}", index / width, index % width);
        }
    }

    fn assert_gangs_whole(&self) {
        for (index, set) in self.snapshot.pod_sets.iter().enumerate() {
            let running = set.tasks.indices().filter(|task| self.node_of(TaskId::at(*task)).is_some()).count();
            assert!(running == 0 || running >= set.min as usize, "pod set {index} runs {running} of {}", set.min);
        }
    }
}
