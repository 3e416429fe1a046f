//! Invariants of the ledger: undo restores everything, and running sums equal recomputed ones.
//!
//! Standings are shifted at random, sensible or not: the sums do not ask.

use kai_engine::ids::{DeviceId, NodeId, PodMatcherId, PodSetId, PortId, TaskId};
use kai_engine::ledger::PodCounts;
use kai_engine::ledger::QueueRow;
use kai_engine::ledger::{DeviceUsage, Ledger, Mark, Placement, PodSetCounts, TaskState};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::config;
use super::generate::clusters;
use crate::support::World;

/// One thing to do; numbers wrap around.
#[derive(Clone, Debug)]
enum Step {
    /// Shift a pod to this kind of state on these nodes, sharing GPUs that exist, or new ones.
    Shift { task: usize, kind: usize, nodes: [usize; 2], fresh: bool },
    /// Remember this point.
    Mark,
    /// Return to a point, and forget those after it.
    Rollback { mark: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let shift = (0..64usize, 0..6usize, [0..8usize, 0..8usize], any::<bool>())
        .prop_map(|(task, kind, nodes, fresh)| Step::Shift { task, kind, nodes, fresh });
    let rollback = (0..8usize).prop_map(|mark| Step::Rollback { mark });
    vec(prop_oneof![6 => shift, 2 => Just(Step::Mark), 2 => rollback], 1..40)
}

/// Everything that can be seen of a ledger.
#[derive(Debug, PartialEq)]
struct Seen {
    states: Vec<(TaskState, Vec<DeviceId>)>,
    idle: Vec<Vec<i64>>,
    releasing: Vec<Vec<i64>>,
    devices: Vec<Vec<DeviceUsage>>,
    counts: Vec<PodSetCounts>,
    ports: Vec<bool>,
    matchers: Vec<Vec<(u32, PodCounts)>>,
    queues: Vec<QueueRow>,
}

impl Seen {
    fn of(ledger: &Ledger<'_>) -> Self {
        let snapshot = ledger.snapshot;
        let state = |index: usize| {
            let state = ledger.state(TaskId::at(index));
            let devices = state.placement().map_or(Vec::new(), |placement| ledger.devices_of(placement).to_vec());
            (state, devices)
        };
        let devices = |node: NodeId| ledger.devices_on(node).iter().map(|device| *ledger.device(*device)).collect();
        let ports = snapshot.nodes.ids().flat_map(|node| {
            (0..snapshot.port_conflicts.len()).map(move |port| ledger.port_taken(node, PortId::at(port)))
        });
        // A queue's version tells that something happened, and undoing is something.
        let queue = |row: &QueueRow| QueueRow { version: 0, ..row.clone() };
        Self {
            states: (0..snapshot.tasks.len()).map(state).collect(),
            idle: snapshot.nodes.ids().map(|node| ledger.idle(node).to_vec()).collect(),
            releasing: snapshot.nodes.ids().map(|node| ledger.releasing(node).to_vec()).collect(),
            devices: snapshot.nodes.ids().map(devices).collect(),
            counts: (0..snapshot.pod_sets.len()).map(|set| ledger.counts(PodSetId::at(set))).collect(),
            ports: ports.collect(),
            matchers: (0..snapshot.matchers.len())
                .map(|matcher| ledger.domains_with_matches(PodMatcherId::at(matcher)).collect())
                .collect(),
            queues: ledger.queues.rows.iter().map(queue).collect(),
        }
    }
}

fn placement(ledger: &mut Ledger<'_>, task: TaskId, node: usize, fresh: bool) -> Placement {
    let snapshot = ledger.snapshot;
    let node = NodeId::at(node % snapshot.nodes.len());
    let Some(wanted) = snapshot.shape(snapshot.task(task).shape).gpu.shared_devices() else {
        return Placement { node, devices: None, extras: None };
    };
    let mut devices = if fresh { Vec::new() } else { ledger.devices_on(node).to_vec() };
    devices.truncate(wanted as usize);
    while devices.len() < wanted as usize {
        devices.push(ledger.open_device(node));
    }
    Placement { node, devices: Some(ledger.list(devices)), extras: None }
}

fn shift(ledger: &mut Ledger<'_>, task: TaskId, kind: usize, nodes: [usize; 2], fresh: bool) {
    let to = placement(ledger, task, nodes[0], fresh);
    let state = match kind {
        0 => TaskState::Unplaced,
        1 => TaskState::Allocated(to),
        2 => TaskState::Pipelined(to),
        3 => TaskState::Releasing(to),
        4 => TaskState::Moving { from: placement(ledger, task, nodes[1], fresh), to },
        _ => TaskState::StuckReleasing(to),
    };
    ledger.shift(task, state);
}

/// Plays the steps; after each, the sums must be right, and a point returned to must look as it did.
fn play(world: &World, steps: &[Step]) {
    let mut ledger = Ledger::open(&world.snapshot, &world.policy);
    let mut marks: Vec<(Mark, Seen)> = vec![(ledger.mark(), Seen::of(&ledger))];
    for step in steps {
        match step {
            Step::Mark => marks.push((ledger.mark(), Seen::of(&ledger))),
            Step::Rollback { mark } => {
                marks.truncate(mark % marks.len() + 1);
                let (mark, then) = marks.last().expect("the first mark stays");
                ledger.rollback(*mark);
                assert_eq!(Seen::of(&ledger), *then, "undo restores everything");
            }
            Step::Shift { task, kind, nodes, fresh } if !world.snapshot.tasks.is_empty() => {
                shift(&mut ledger, TaskId::at(task % world.snapshot.tasks.len()), *kind, *nodes, *fresh);
            }
            Step::Shift { .. } => {}
        }
        ledger.assert_consistent();
    }
}

#[test]
fn undo_restores_everything_and_sums_stay_right() {
    let inputs = (clusters(), steps());
    let result = TestRunner::new(config()).run(&inputs, |(shown, steps)| {
        play(&World::of(&shown.0), &steps);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
