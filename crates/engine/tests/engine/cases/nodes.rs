//! Which node: rules that exclude some, scores that order the others, names that decide ties.

use expect_test::expect;

use crate::support::check;

#[test]
fn packing_fills_the_fullest_node_first() {
    check(
        "node a gpu=4
         node b gpu=4
         queue team
         job runs queue=team gpu=1 running=b
         job next queue=team gpu=2",
        expect!["bind next-0 b"],
    );
}

#[test]
fn spreading_uses_the_emptiest_node_first() {
    check(
        "policy gpu=spread
         node a gpu=4
         node b gpu=4
         queue team
         job runs queue=team gpu=1 running=a
         job next queue=team gpu=1 pods=3 min=1",
        expect![["
            bind next-0 b
            bind next-1 a
            bind next-2 b"]],
    );
}

#[test]
fn equal_nodes_are_taken_by_name() {
    check(
        "node b gpu=1
         node a gpu=1
         queue team
         job next queue=team gpu=1",
        expect!["bind next-0 a"],
    );
}

#[test]
fn pods_without_gpu_go_to_nodes_without_gpu() {
    check(
        "node a gpu=1 cpu=4
         node b cpu=64
         queue team
         job next queue=team cpu=1",
        expect!["bind next-0 b"],
    );
}

#[test]
fn pods_without_gpu_are_packed_by_cpu() {
    check(
        "node a cpu=8
         node b cpu=4
         queue team
         job next queue=team cpu=1",
        expect!["bind next-0 b"],
    );
}

#[test]
fn room_now_is_better_than_a_fuller_node_with_room_later() {
    check(
        "node a gpu=1
         node b gpu=4
         queue team
         job gone queue=team gpu=1 releasing=a
         job next queue=team gpu=1",
        expect!["bind next-0 b"],
    );
}

#[test]
fn the_nominated_node_is_better_than_any_other() {
    check(
        "node a gpu=1
         node b gpu=4
         queue team
         job gone queue=team gpu=4 releasing=b
         job next queue=team gpu=1 nominated=b",
        expect!["pipeline next-0 b"],
    );
}

#[test]
fn a_nominated_node_without_room_is_forgotten() {
    check(
        "node a gpu=1
         node b gpu=1
         queue team
         job runs queue=team gpu=1 running=b
         job next queue=team gpu=1 nominated=b",
        expect!["bind next-0 a"],
    );
}

#[test]
fn each_node_is_counted_for_the_first_rule_that_excludes_it() {
    check(
        "policy actions=allocate
         node a gpu=1 cordoned
         node b gpu=1 not-ready
         node c gpu=1 tainted
         node d gpu=1
         node e
         node f gpu=1
         queue team
         job next queue=team gpu=1 only=a,b,c,d,e
         job runs queue=team gpu=1 running=d",
        expect![
            "waits next: no room for next-0 (0 of 1 placed), 2 × 1 GPU short, 1 × Cordoned, 1 × NotReady, 1 × Taint, 1 × Affinity"
        ],
    );
}

#[test]
fn a_taint_that_is_tolerated_does_not_matter() {
    check(
        "node a gpu=1 tainted
         queue team
         job next queue=team gpu=1 tolerates",
        expect!["bind next-0 a"],
    );
}

#[test]
fn a_host_port_is_free_once_on_each_node() {
    check(
        "policy actions=allocate
         node a
         node b
         queue team
         job next queue=team cpu=1 pods=3 min=1 ports=80",
        expect![["
            bind next-0 a
            bind next-1 b
            waits next: no room for next-2 (0 of 1 placed), 2 × port taken"]],
    );
}

#[test]
fn no_pod_is_pipelined_on_a_host_port_of_a_releasing_pod() {
    check(
        "policy actions=allocate
         node a
         queue team
         job gone queue=team cpu=1 ports=80 releasing=a
         job next queue=team cpu=1 ports=80",
        expect!["waits next: no room for next-0 (0 of 1 placed), 1 × port taken"],
    );
}

#[test]
fn every_pod_needs_a_slot() {
    check(
        "policy actions=allocate
         node a pods=1
         queue team
         job next queue=team pods=2 min=1",
        expect![["
            bind next-0 a
            waits next: no room for next-1 (0 of 1 placed), 1 × no pod slot"]],
    );
}

#[test]
fn other_resources_are_counted() {
    check(
        "policy actions=allocate
         node a +rdma=1
         node b
         queue team
         job next queue=team cpu=1 +rdma=1 pods=2 min=1",
        expect![["
            bind next-0 a
            waits next: no room for next-1 (0 of 1 placed), 2 × 1 +rdma short"]],
    );
}

#[test]
fn cpu_and_memory_are_counted() {
    check(
        "policy actions=allocate
         node a gpu=4 cpu=4 mem=8Gi
         queue team
         job cores  queue=team gpu=1 cpu=5
         job memory queue=team gpu=1 mem=9Gi
         job fits   queue=team gpu=1 cpu=4 mem=8Gi",
        expect![["
            bind fits-0 a
            waits cores: no room for cores-0 (0 of 1 placed), 1 × 1000 CPU short
            waits memory: no room for memory-0 (0 of 1 placed), 1 × 1073741824 memory short"]],
    );
}

/// A node over-committed in one resource takes no pod, whatever it requests.
#[test]
fn an_over_committed_node_takes_no_pod() {
    check(
        "policy actions=allocate
         node a gpu=1 cpu=8
         queue team
         job large queue=team gpu=2 running=a
         job next  queue=team cpu=1",
        expect!["waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short"],
    );
}

#[test]
fn gpus_of_pods_from_elsewhere_are_taken_or_awaited() {
    check(
        "policy actions=allocate
         node a gpu=3 taken=2 leaving=1
         queue team
         job now   queue=team gpu=1
         job later queue=team gpu=1
         job never queue=team gpu=1",
        expect![["
            bind now-0 a
            pipeline later-0 a
            waits never: no room for never-0 (0 of 1 placed), 1 × 1 GPU short"]],
    );
}
