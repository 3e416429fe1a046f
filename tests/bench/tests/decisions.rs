//! What cycles over the scenarios decide, at sizes small enough to check every place.

use bench::check::After;
use bench::count::Count;
use bench::snapshot::{self, NOW};
use kai_engine::{Outcome, Policy, Snapshot};
use kai_generate::{SCENARIOS, Scenario};

fn run(name: &str, nodes: usize) -> (Snapshot, Outcome) {
    let scenario = Scenario::named(name).expect("scenarios are named in the table");
    let snapshot = snapshot::of_scenario(scenario, scenario.size(nodes));
    let outcome = kai_engine::cycle(&snapshot, &Policy::default(), NOW);
    After::new(&snapshot, &outcome).assert_possible();
    (snapshot, outcome)
}

fn count(name: &str, nodes: usize) -> Count {
    let (snapshot, outcome) = run(name, nodes);
    Count::of(&snapshot, &outcome)
}

#[test]
fn what_is_decided_can_be_carried_out() {
    for scenario in &SCENARIOS {
        run(scenario.name, 50);
    }
}

#[test]
fn an_empty_cluster_takes_all_pods() {
    assert_eq!(count("allocate", 100), Count { bound: 1000, ..Count::default() });
    assert_eq!(count("mixed", 200), Count { bound: 2000, ..Count::default() });
    assert_eq!(count("topology", 100), Count { bound: 384, ..Count::default() });
    assert_eq!(count("topology_rack", 100), Count { bound: 384, ..Count::default() });
}

#[test]
fn a_fair_and_full_cluster_is_left_alone() {
    assert_eq!(count("saturated", 100), Count { waiting: 340, ..Count::default() });
    assert_eq!(count("saturated_distinct", 50), Count { waiting: 170, ..Count::default() });
}

/// One move for each place, as KAI does.
#[test]
fn consolidation_moves_one_pod_for_each_place() {
    let (snapshot, outcome) = run("consolidation", 100);
    assert_eq!(Count::of(&snapshot, &outcome), Count { evicted: 5, pipelined: 10, ..Count::default() });
    assert_eq!(After::new(&snapshot, &outcome).losers(), 0);
}

/// NVIDIA KAI v0.17 places no job here; v0.13 places all with 5.7 moves each.
#[test]
fn hard_consolidation_places_all_jobs_and_every_moved_pod() {
    let (snapshot, outcome) = run("consolidation_hard", 100);
    let count = Count::of(&snapshot, &outcome);
    assert_eq!((count.bound, count.waiting), (0, 0));
    assert_eq!(count.pipelined, count.evicted + 5);
    assert!(count.evicted <= 5 * 7, "{} moves for 5 places", count.evicted);
    assert_eq!(After::new(&snapshot, &outcome).losers(), 0);
}

/// Every queue may take one-GPU pods from itself; no queue may reclaim, since all are at their share.
#[test]
fn preemption_evicts_one_for_one() {
    let count = count("preempt_even", 100);
    assert_eq!((count.bound, count.evicted, count.pipelined), (0, 15, 15));
}

/// Single pods of 8 GPUs all get a place; no more GPUs are taken than are asked for, rounded up to whole gangs.
#[test]
fn reclaim_serves_queues_below_their_share() {
    let count = count("reclaim_g1", 100);
    assert_eq!(count.waiting, 0);
    assert!(count.pipelined >= 4);
}

/// Gangs of 8 nodes get theirs from gangs of their own department, without one eviction too many. The first victims
/// in order are of another department, and may not lose that much.
#[test]
fn reclaim_turns_to_queues_close_by() {
    assert_eq!(count("reclaim", 100), Count { evicted: 32, pipelined: 32, ..Count::default() });
}
