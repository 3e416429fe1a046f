//! The snapshots themselves: equal for equal arguments, and of the size they are meant to have.

use bench::snapshot::of_scenario;
use kai_engine::Snapshot;
use kai_engine::snapshot::Status;
use kai_engine::units::{Ceiling, GPU};
use kai_generate::cluster::GPUS_PER_NODE;
use kai_generate::{SCENARIOS, Scenario, Size};

fn snapshot(name: &str, nodes: usize) -> Snapshot {
    let scenario = Scenario::named(name).expect("scenarios are named in the table");
    of_scenario(scenario, scenario.size(nodes))
}

/// All columns as text; classes admit every node and print as addresses.
fn text(scenario: &Scenario, size: Size) -> String {
    let Snapshot { nodes, queues, jobs, groups, pod_sets, tasks, shapes, topologies, constraints, .. } =
        &of_scenario(scenario, size);
    format!("{nodes:?}{queues:?}{jobs:?}{groups:?}{pod_sets:?}{tasks:?}{shapes:?}{topologies:?}{constraints:?}")
}

#[test]
fn equal_arguments_give_equal_snapshots() {
    for scenario in &SCENARIOS {
        let size = scenario.size(50);
        assert!(text(scenario, size) == text(scenario, size), "{}", scenario.name);
    }
}

#[test]
fn another_seed_gives_another_snapshot() {
    for name in ["mixed", "allocate", "saturated", "topology"] {
        let scenario = Scenario::named(name).expect("scenarios are named in the table");
        let size = scenario.size(50);
        let other = Size { seed: 2, ..size };
        assert!(text(scenario, size) != text(scenario, other), "{name}");
    }
}

/// Numbers of the snapshots that KAI was measured with: pods, jobs, queues, pending pods.
#[test]
fn sizes_are_those_of_the_comparison() {
    for (name, nodes, want) in [
        ("allocate", 100, [1000, 986, 22, 1000]),
        ("allocate", 1000, [10_000, 9867, 110, 10_000]),
        ("saturated", 100, [1140, 1000, 22, 340]),
        ("reclaim", 100, [482, 417, 8, 32]),
        ("reclaim", 1000, [4820, 4165, 68, 320]),
        ("preempt", 100, [487, 438, 22, 37]),
        ("preempt", 1000, [4846, 4375, 110, 346]),
        ("consolidation_hard", 1000, [6051, 6051, 110, 50]),
        ("topology", 100, [624, 246, 22, 384]),
        ("topology", 1000, [6368, 2462, 110, 3968]),
        ("mixed", 1000, [10_000, 3967, 110, 10_000]),
        ("mixed", 5000, [50_000, 19_777, 110, 50_000]),
    ] {
        let snapshot = snapshot(name, nodes);
        let pending = snapshot.tasks.iter().filter(|task| task.status == Status::Pending).count();
        let got = [snapshot.tasks.len(), snapshot.jobs.len(), snapshot.queues.len(), pending];
        assert_eq!(got, want, "{name} at {nodes} nodes");
        assert_eq!(snapshot.nodes.len(), nodes);
    }
}

#[test]
fn quotas_divide_the_cluster() {
    for scenario in &SCENARIOS {
        let snapshot = of_scenario(scenario, scenario.size(100));
        let (mut top, mut leaves) = (0, 0);
        for queue in &snapshot.queues {
            let Ceiling::At(quota) = queue.quota[2] else { panic!("GPUs have a quota") };
            *(if queue.parent.is_none() { &mut top } else { &mut leaves }) += quota;
        }
        let gpus = (100 * GPUS_PER_NODE) as i64 * GPU;
        // Thirds are rounded to millionths of a GPU.
        assert!((gpus - top).abs() < 10 && (gpus - leaves).abs() < 10, "{}", scenario.name);
    }
}

#[test]
fn mixed_asks_for_nine_tenths_of_the_gpus() {
    let snapshot = snapshot("mixed", 1000);
    let asked: i64 = snapshot.tasks.iter().map(|task| snapshot.shape(task.shape).quota_gpu).sum();
    let share = asked as f64 / (1000 * GPUS_PER_NODE) as f64 / GPU as f64;
    assert!((0.88..0.92).contains(&share), "{share}");
}
