//! Inside a queue: higher priority takes the place of lower, and what bounds the search for victims.

use expect_test::expect;

use crate::support::{check, check_notes, decide};

/// Walk-through 19.4.
#[test]
fn at_the_limit_a_higher_priority_replaces_a_lower_one() {
    check(
        "node a gpu=2
         queue team quota=1 limit=1
         job train queue=team prio=50 gpu=1 running=a
         job build queue=team prio=100 gpu=1",
        expect![["
            evict train-0 for build (preempt)
            pipeline build-0 a"]],
    );
}

#[test]
fn equal_priority_never_preempts() {
    check(
        "policy actions=allocate,preempt
         node a gpu=1
         queue team quota=1
         job runs queue=team gpu=1 running=a
         job next queue=team gpu=1",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: preempt has no candidates (0 of 1 placed)"]],
    );
}

#[test]
fn preempt_never_crosses_queues() {
    check(
        "policy actions=allocate,preempt
         node a gpu=1
         queue A
         queue B
         job runs queue=B prio=25 gpu=1 running=a
         job next queue=A prio=75 gpu=1",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: preempt has no candidates (0 of 1 placed)"]],
    );
}

#[test]
fn a_non_preemptible_job_is_no_victim_of_a_higher_priority() {
    check(
        "policy actions=allocate,preempt
         node a gpu=1
         queue team quota=2
         job runs queue=team prio=25 preemptible=false gpu=1 running=a
         job next queue=team prio=75 gpu=1",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: preempt has no candidates (0 of 1 placed)"]],
    );
}

#[test]
fn a_non_preemptible_job_above_quota_does_not_preempt() {
    check(
        "policy actions=allocate,preempt
         node a gpu=2
         queue team quota=1
         job runs queue=team prio=50 gpu=2 running=a
         job next queue=team prio=100 gpu=2",
        expect![["
            waits next: non-preemptible over quota, team holds 0 of 1 GPU, asked 2
            waits next: preempt ineligible (0 of 1 placed)"]],
    );
}

#[test]
fn the_lowest_priority_goes_first_and_the_newest_of_it() {
    check(
        "node a gpu=3
         queue team
         job low-old queue=team prio=25 gpu=1 running=a
         job low-new queue=team prio=25 gpu=1 running=a
         job middle  queue=team prio=50 gpu=1 running=a
         job next    queue=team prio=75 gpu=1",
        expect![["
            evict low-new-0 for next (preempt)
            pipeline next-0 a"]],
    );
}

/// Checklist 10: both jobs are evicted in the scenario that works, one fits beside the preemptor again.
#[test]
fn a_victim_that_fits_again_stays_untouched() {
    check(
        "node a gpu=4
         queue team
         job small queue=team prio=50 gpu=1 running=a
         job large queue=team prio=50 gpu=3 running=a age=2000
         job next  queue=team prio=75 gpu=3",
        expect![["
            evict large-0 for next (preempt)
            pipeline next-0 a"]],
    );
}

#[test]
fn a_gang_goes_as_a_whole() {
    check(
        "node a gpu=2
         queue team
         job gang queue=team prio=50 gpu=1 running=a,a
         job next queue=team prio=75 gpu=1",
        expect![["
            evict gang-1 for next (preempt)
            evict gang-0 for next (preempt)
            pipeline next-0 a"]],
    );
}

/// The gang does not fit at first, so the low job is pipelined on the GPU that is being released.
#[test]
fn a_pod_pipelined_in_this_cycle_loses_its_placement_without_being_deleted() {
    check(
        "node a gpu=2
         queue team
         job gone queue=team gpu=1 releasing=a
         job runs queue=team gpu=1 running=a
         job low  queue=team gpu=1
         job next queue=team gpu=2 prio=75",
        expect![["
            evict runs-0 for next (preempt)
            pipeline next-0 a
            waits low: placement revoked"]],
    );
}

/// `low` was placed on the first node in this cycle, before room was sought for the gang.
#[test]
fn a_node_whose_placement_is_taken_back_is_used() {
    let decided = decide(
        "node a gpu=1
         node b gpu=1
         queue team
         job runs queue=team prio=25 gpu=1 running=b
         job low  queue=team prio=25 gpu=1
         job next queue=team prio=75 gpu=1 pods=2",
    );
    assert!(decided.contains("pipeline next-0 a\npipeline next-1 b"), "{decided}");
}

#[test]
fn a_start_that_is_taken_back_is_not_noted() {
    check_notes(
        "node a gpu=2
         queue team
         job runs queue=team gpu=1 running=a
         job low  queue=team gpu=1 started=500
         job next queue=team gpu=2 prio=75",
        expect!["runs started - stale - evicted now"],
    );
}

/// Consolidation moves `low` to make room for `big`; then `mid` takes the place it was to move to.
#[test]
fn a_moved_pod_that_loses_its_place_is_evicted_for_the_preemptor() {
    let decided = decide(
        "node a gpu=2
         node b gpu=1 cpu=4
         queue team
         job low  queue=team prio=25 gpu=1 running=a
         job tiny queue=team prio=25 cpu=1 running=b
         job big  queue=team prio=75 gpu=2
         job mid  queue=team prio=50 gpu=1 cpu=4 only=b",
    );
    assert!(decided.contains("evict low-0 for mid (preempt)"), "{decided}");
}

#[test]
fn a_young_job_is_spared_by_its_queues_setting() {
    check(
        "node a gpu=1
         queue dep preempt-min=60
         queue team parent=dep
         job young queue=team prio=50 gpu=1 running=a started=59
         job next  queue=team prio=75 gpu=1",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: consolidate ineligible (0 of 1 placed)
            waits next: reclaim ineligible (0 of 1 placed)
            waits next: preempt has no candidates (0 of 1 placed)"]],
    );
}

/// Checklist 26.
#[test]
fn during_its_preemption_delay_a_job_evicts_no_pod() {
    check(
        "node a gpu=1
         queue team
         job runs queue=team prio=50 gpu=1 running=a
         job next queue=team prio=75 gpu=1 delay=60 age=20",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: evicts no pod for 40 of 60s"]],
    );
}

#[test]
fn an_eviction_restarts_the_preemption_delay() {
    check(
        "node a gpu=1
         queue team
         job runs queue=team prio=50 gpu=1 running=a
         job next queue=team prio=75 gpu=1 delay=60 age=500 evicted=10",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: evicts no pod for 50 of 60s"]],
    );
}

#[test]
fn after_its_preemption_delay_a_job_evicts() {
    check(
        "node a gpu=1
         queue team
         job runs queue=team prio=50 gpu=1 running=a
         job next queue=team prio=75 gpu=1 delay=60 age=500 evicted=60",
        expect![["
            evict runs-0 for next (preempt)
            pipeline next-0 a"]],
    );
}

#[test]
fn plain_allocation_does_not_wait_for_the_delay() {
    check(
        "node a gpu=1
         queue team
         job next queue=team gpu=1 delay=60 age=20",
        expect!["bind next-0 a"],
    );
}

#[test]
fn the_time_of_an_eviction_is_remembered() {
    check_notes(
        "node a gpu=1
         queue team
         job runs queue=team prio=50 gpu=1 running=a
         job next queue=team prio=75 gpu=1",
        expect!["runs started - stale - evicted now"],
    );
}

/// Checklist 27.
#[test]
fn without_a_generator_no_pod_is_evicted() {
    check(
        "policy generators=none actions=allocate,preempt
         node a gpu=1
         queue team
         job runs queue=team prio=50 gpu=1 running=a
         job next queue=team prio=75 gpu=1",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: preempt has no generator (0 of 1 placed)"]],
    );
}

const ONE_SCENARIO: &str = "
    node a gpu=1
    queue team
    job runs queue=team prio=50 gpu=1 running=a
    job next queue=team prio=75 gpu=1";

#[test]
fn a_search_without_steps_does_not_begin() {
    check(
        &format!("policy steps=1 actions=preempt{ONE_SCENARIO}"),
        expect!["waits next: preempt out of steps (0 of 1 placed)"],
    );
}

#[test]
fn a_search_out_of_steps_leaves_nothing_behind() {
    check(
        &format!("policy steps=4 actions=preempt{ONE_SCENARIO}"),
        expect!["waits next: preempt out of steps (0 of 1 placed)"],
    );
}

/// Walk-through 19.6: one node at a time is not enough for a gang that fills eight.
const EIGHT_FULL_NODES: &str = "
    node n1 gpu=1
    node n2 gpu=1
    node n3 gpu=1
    node n4 gpu=1
    node n5 gpu=1
    node n6 gpu=1
    node n7 gpu=1
    node n8 gpu=1
    queue team
    job v1 queue=team gpu=1 running=n1 age=1
    job v2 queue=team gpu=1 running=n2 age=2
    job v3 queue=team gpu=1 running=n3 age=3
    job v4 queue=team gpu=1 running=n4 age=4
    job v5 queue=team gpu=1 running=n5 age=5
    job v6 queue=team gpu=1 running=n6 age=6
    job v7 queue=team gpu=1 running=n7 age=7
    job v8 queue=team gpu=1 running=n8 age=8
    job gang queue=team gpu=1 pods=8 prio=75";

#[test]
fn victims_around_one_node_do_not_make_room_for_a_gang_of_many() {
    check(
        &format!("policy actions=preempt generators=local\n{EIGHT_FULL_NODES}"),
        expect!["waits gang: preempt exhausted (3 of 8 placed)"],
    );
}

#[test]
fn growing_sets_of_nodes_make_room_for_a_gang_of_many() {
    check(
        &format!("policy actions=preempt\n{EIGHT_FULL_NODES}"),
        expect![["
        evict v1-0 for gang (preempt)
        evict v2-0 for gang (preempt)
        evict v3-0 for gang (preempt)
        evict v4-0 for gang (preempt)
        evict v5-0 for gang (preempt)
        evict v6-0 for gang (preempt)
        evict v7-0 for gang (preempt)
        evict v8-0 for gang (preempt)
        pipeline gang-0 n1
        pipeline gang-1 n2
        pipeline gang-2 n3
        pipeline gang-3 n4
        pipeline gang-4 n5
        pipeline gang-5 n6
        pipeline gang-6 n7
        pipeline gang-7 n8"]],
    );
}

/// Each job runs its minimum of two pods and one more on a larger node, which the gang cannot use.
#[test]
fn a_job_that_loses_its_core_loses_its_surplus_too() {
    let mut lines = vec!["policy actions=preempt".to_owned(), "queue team".to_owned()];
    let mut usable = Vec::new();
    for job in 0..8 {
        let (left, right, other) = (format!("l{job}"), format!("r{job}"), format!("s{job}"));
        lines.push(format!("node {other} gpu=2 tainted"));
        lines.push(format!("job e{job} queue=team prio=25 gpu=1 min=2 running={left},{right},{other}"));
        usable.extend([left, right]);
    }
    lines.extend(usable.iter().map(|node| format!("node {node} gpu=1")));
    lines.push(format!("job gang queue=team prio=75 gpu=1 pods=16 only={}", usable.join(",")));
    let decided = decide(&lines.join("\n"));
    assert!(decided.contains("evict e0-0"), "room is made: {decided}");
    assert!(decided.contains("evict e0-2"), "{decided}");
}
