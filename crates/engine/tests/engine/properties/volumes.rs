//! Volumes: no node gets more of them than it takes, no storage pool gives more than it has, and no pod waits while both suffice.

use std::collections::BTreeSet;

use kai_engine::Snapshot;
use kai_engine::builder::{GroupRow, JobRow, MemberRow, PodSetRow, TaskRow};
use kai_engine::ids::{NodeId, QueueId, TaskId};
use kai_engine::ledger::When;
use kai_engine::ledger::{Ledger, Placement, TaskState};
use kai_engine::nodes::volumes;
use kai_engine::outcome::Decision;
use kai_engine::policy::Policy;
use kai_engine::snapshot::UnmanagedPod;
use kai_engine::snapshot::{GpuAsk, Shape, VolumeNeed};
use kai_engine::units::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;

use super::idle_cluster;

const NODES: usize = 3;

/// Volumes and amounts of a pod, and where it runs.
type PodRow = (Vec<u32>, Vec<(u32, i64)>, Option<usize>);

#[derive(Clone, Debug)]
struct Drawing {
    /// By driver and node.
    limits: Vec<[Option<u32>; NODES]>,
    /// Drivers of volumes.
    volumes: Vec<u32>,
    stores: Vec<i64>,
    /// By kind and node.
    kinds: Vec<[Option<u32>; NODES]>,
    pods: Vec<PodRow>,
    /// What pods outside of jobs need, where they are, and whether they leave.
    unmanaged_pods: Vec<(Vec<u32>, usize, bool)>,
}

fn drawings() -> impl Strategy<Value = Drawing> {
    let limit = || prop::option::weighted(0.8, 0..3_u32);
    let store = || prop::option::weighted(0.8, 0..3_u32);
    let pod = (vec(0..5_u32, 0..3), vec((0..2_u32, 1..3_i64), 0..2), prop::option::weighted(0.4, 0..NODES));
    (
        vec([limit(), limit(), limit()], 2),
        vec(0..2_u32, 5),
        vec(0..4_i64, 3),
        vec([store(), store(), store()], 2),
        vec(pod, 1..6),
        vec((vec(0..5_u32, 1..3), 0..NODES, any::<bool>()), 0..3),
    )
        .prop_map(|(limits, volumes, stores, kinds, pods, unmanaged_pods)| Drawing {
            limits,
            volumes,
            stores,
            kinds,
            pods,
            unmanaged_pods,
        })
}

impl Drawing {
    fn snapshot(&self) -> Snapshot {
        let mut builder = idle_cluster(NODES);
        for limits in &self.limits {
            builder.volume_driver(limits.to_vec());
        }
        for driver in &self.volumes {
            builder.volume(*driver);
        }
        for amount in &self.stores {
            builder.add_storage_pool(*amount);
        }
        for stores in &self.kinds {
            builder.add_storage_class(stores.to_vec());
        }
        for (attached, node, leaving) in &self.unmanaged_pods {
            let volumes = builder.volume_need(VolumeNeed { attached: attached.clone(), storage_needs: Vec::new() });
            builder.unmanaged_pod(UnmanagedPod {
                node: NodeId::at(*node),
                matchers: None,
                volumes,
                releasing: *leaving,
            });
        }
        let class = builder.add_node_filter_of_all();
        let shape = builder.shape(Shape { need: vec![1, 0, 0, 1], gpu: GpuAsk::None, quota_gpu: 0, numa: None });
        for (index, (attached, stored, node)) in self.pods.iter().enumerate() {
            let volumes = builder.volume_need(VolumeNeed { attached: attached.clone(), storage_needs: stored.clone() });
            let place = |node: &usize| TaskRow::running(shape, class, NodeId::at(*node));
            let task = node.as_ref().map_or_else(|| TaskRow::pending(shape, class), place);
            let set = PodSetRow { min: 1, constraint: None, tasks: vec![TaskRow { volumes, ..task }] };
            let root = GroupRow { members: vec![MemberRow::PodSet(set)], ..GroupRow::default() };
            // No two are alike, so that each is tried.
            let job = JobRow { signature: index as u32, ..JobRow::new(QueueId(0), Timestamp(index as i64), root) };
            builder.job(job);
        }
        builder.finish()
    }

    /// When a pod could be on a node, by counting who else is there. `locate` returns the node of a pod, and whether it is being released.
    fn when(&self, pod: usize, node: usize, locate: &dyn Fn(usize) -> Option<(usize, bool)>) -> Option<When> {
        let others = (0..self.pods.len()).filter(|other| *other != pod);
        let others: Vec<(usize, usize, bool)> =
            others.filter_map(|other| locate(other).map(|(at, leaves)| (other, at, leaves))).collect();
        let fits = |leaving: bool| {
            let counts = |leaves: bool| leaving || !leaves;
            let mates = others.iter().filter(|(_, at, leaves)| *at == node && counts(*leaves));
            let strangers = self.unmanaged_pods.iter().filter(|(_, at, leaves)| *at == node && counts(*leaves));
            let (own, asked, _) = &self.pods[pod];
            let volumes = mates.flat_map(|(mate, ..)| &self.pods[*mate].0);
            let volumes: BTreeSet<u32> =
                volumes.chain(strangers.flat_map(|(volumes, ..)| volumes)).chain(own).copied().collect();
            let driver = |volume: &u32| self.volumes[*volume as usize];
            let attached = own.iter().map(driver).all(|mine| {
                let count = volumes.iter().filter(|volume| driver(volume) == mine).count();
                self.limits[mine as usize][node].is_none_or(|limit| count <= limit as usize)
            });
            let from = |pod: usize, at: usize, store: u32| {
                let taken = self.pods[pod].1.iter().filter(|(kind, _)| self.kinds[*kind as usize][at] == Some(store));
                taken.map(|(_, amount)| amount).sum::<i64>()
            };
            let stored = asked.iter().filter_map(|(kind, _)| self.kinds[*kind as usize][node]).all(|store| {
                let taken = others.iter().filter(|(.., leaves)| counts(*leaves));
                let taken: i64 = taken.map(|(other, at, _)| from(*other, *at, store)).sum();
                taken + from(pod, node, store) <= self.stores[store as usize]
            });
            attached && stored
        };
        fits(false).then(|| if fits(true) { When::Now } else { When::Later })
    }
}

fn locate(ledger: &Ledger<'_>, pod: usize) -> Option<(usize, bool)> {
    match ledger.state(TaskId::at(pod)) {
        TaskState::Allocated(assignment) | TaskState::Pipelined(assignment) => Some((assignment.node.index(), false)),
        TaskState::Releasing(assignment) => Some((assignment.node.index(), true)),
        _ => None,
    }
}

/// Places, evicts and drops pods as the numbers say, and asks about every pod on every node on the way.
fn play(drawing: &Drawing, moves: &[(usize, usize, usize)]) -> Result<(), TestCaseError> {
    let snapshot = drawing.snapshot();
    let mut ledger = Ledger::open(&snapshot, &Policy::default());
    let start = ledger.mark();
    for (pod, node, kind) in moves {
        let task = TaskId::at(pod % drawing.pods.len());
        let assignment = Placement { node: NodeId::at(*node), devices: None, extras: None };
        match (ledger.state(task), kind) {
            (TaskState::Unplaced, 0) => ledger.shift(task, TaskState::Pipelined(assignment)),
            (TaskState::Unplaced, _) => ledger.shift(task, TaskState::Allocated(assignment)),
            (TaskState::Allocated(from), 0) => ledger.shift(task, TaskState::Releasing(from)),
            _ => ledger.shift(task, TaskState::Unplaced),
        }
        ledger.assert_consistent();
        let waiting = (0..drawing.pods.len()).filter(|pod| ledger.state(TaskId::at(*pod)) == TaskState::Unplaced);
        for pod in waiting {
            for node in 0..NODES {
                let found = volumes::when(&ledger, TaskId::at(pod), NodeId::at(node));
                let expected = drawing.when(pod, node, &|other| locate(&ledger, other));
                prop_assert_eq!(found.ok(), expected, "pod {} on node {}: {:?}", pod, node, found);
            }
        }
    }
    ledger.rollback(start);
    ledger.assert_consistent();
    Ok(())
}

/// Runs a cycle; judges where pods are in the end.
fn decide(drawing: &Drawing) -> Result<(), TestCaseError> {
    let snapshot = drawing.snapshot();
    let outcome = kai_engine::cycle(&snapshot, &Policy::default(), Timestamp(1_000_000_000));
    let mut places: Vec<Option<(usize, bool)>> =
        drawing.pods.iter().map(|pod| pod.2.map(|node| (node, false))).collect();
    let mut bound = Vec::new();
    for decision in &outcome.decisions {
        let place = &mut places[decision.task().index()];
        match decision {
            Decision::Bind { task, assignment } => {
                bound.push(task.index());
                *place = Some((assignment.node.index(), false));
            }
            Decision::Pipeline { assignment, .. } => *place = Some((assignment.node.index(), false)),
            Decision::Evict { .. } => *place = None,
        }
    }
    for pod in bound {
        let (node, _) = places[pod].expect("a pod that was bound");
        prop_assert!(drawing.when(pod, node, &|other| places[other]).is_some(), "pod {} on node {}", pod, node);
    }
    for pod in (0..drawing.pods.len()).filter(|pod| places[*pod].is_none() && drawing.pods[*pod].2.is_none()) {
        for node in 0..NODES {
            let expected = drawing.when(pod, node, &|other| places[other]);
            prop_assert_eq!(expected, None, "pod {} waits, though node {} would do", pod, node);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn volumes_are_counted_as_by_hand(
        drawing in drawings(),
        moves in vec((0..6_usize, 0..NODES, 0..3_usize), 0..10),
    ) {
        play(&drawing, &moves)?;
    }

    #[test]
    fn volumes_are_neither_overcommitted_nor_left_alone(drawing in drawings()) {
        decide(&drawing)?;
    }
}
