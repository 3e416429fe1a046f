//! Shared GPUs: by fraction, by memory, several at once, and MIG instances.

use expect_test::expect;

use crate::support::check;

#[test]
fn two_halves_share_one_gpu() {
    check(
        "node a gpu=2
         queue team
         job left  queue=team gpu=0.5
         job right queue=team gpu=0.5",
        expect![["
            bind left-0 a gpu#0
            bind right-0 a gpu#0"]],
    );
}

#[test]
fn spreading_over_devices_opens_a_free_gpu_first() {
    check(
        "policy devices=spread
         node a gpu=2
         queue team
         job left  queue=team gpu=0.5
         job right queue=team gpu=0.5",
        expect![["
            bind left-0 a gpu#0
            bind right-0 a gpu#1"]],
    );
}

#[test]
fn the_fullest_gpu_with_room_comes_first() {
    check(
        "node a gpu=3
         queue team
         job running queue=team gpu=0.2 running=a#0
         job fuller  queue=team gpu=0.6 running=a#1
         job next    queue=team gpu=0.4",
        expect!["bind next-0 a gpu#1"],
    );
}

#[test]
fn thirds_of_a_gpu_do_not_add_up_to_more_than_one() {
    check(
        "policy actions=allocate
         node a gpu=1
         queue team
         job thirds queue=team gpu=0.4 pods=3 min=1",
        expect![["
            bind thirds-0 a gpu#0
            bind thirds-1 a gpu#0
            waits thirds: no room for thirds-2 (0 of 1 placed), 1 × no GPU with room"]],
    );
}

#[test]
fn a_whole_gpu_is_not_taken_from_a_shared_one() {
    check(
        "policy actions=allocate
         node a gpu=1
         queue team
         job part  queue=team gpu=0.1 running=a#0
         job whole queue=team gpu=1",
        expect!["waits whole: no room for whole-0 (0 of 1 placed), 1 × 1 GPU short"],
    );
}

#[test]
fn memory_is_looked_for_on_each_device() {
    check(
        "policy actions=allocate
         node a gpu=2 gpumem=16000
         queue team
         job left   queue=team gpumem=10000
         job right  queue=team gpumem=10000
         job beside queue=team gpumem=6000
         job large  queue=team gpumem=20000",
        expect![["
            bind left-0 a gpu#0
            bind right-0 a gpu#1
            bind beside-0 a gpu#0
            waits large: no room for large-0 (0 of 1 placed), 1 × GPU of 16000 MiB too small"]],
    );
}

#[test]
fn memory_is_not_asked_of_gpus_whose_memory_is_unknown() {
    check(
        "policy actions=allocate
         node a gpu=2
         queue team
         job part queue=team gpumem=10",
        expect!["waits part: no room for part-0 (0 of 1 placed), 1 × DeviceMemoryUnknown"],
    );
}

#[test]
fn two_halves_of_two_gpus_use_a_half_free_one_and_open_another() {
    check(
        "node a gpu=2
         queue team
         job half  queue=team gpu=0.5 running=a#0
         job twice queue=team gpu=2x0.5",
        expect!["bind twice-0 a gpu#0 gpu#1"],
    );
}

#[test]
fn parts_of_several_gpus_are_on_different_ones() {
    check(
        "policy actions=allocate
         node a gpu=1
         queue team
         job twice queue=team gpu=2x0.5",
        expect!["waits twice: no room for twice-0 (0 of 1 placed), 1 × no GPU with room"],
    );
}

/// 0.3 of the device are idle and 0.5 are being given back, so 0.5 fit later.
#[test]
fn a_half_is_pipelined_on_a_gpu_from_which_another_half_is_released() {
    check(
        "node a gpu=1
         queue team
         job stays queue=team gpu=0.2 running=a#0
         job gone  queue=team gpu=0.5 releasing=a#0
         job next  queue=team gpu=0.5",
        expect!["pipeline next-0 a gpu#0"],
    );
}

#[test]
fn a_gpu_whose_pods_are_all_being_released_is_offered_as_a_new_one() {
    check(
        "node a gpu=1
         queue team
         job gone queue=team gpu=0.5 releasing=a#0
         job next queue=team gpu=0.5",
        expect!["pipeline next-0 a gpu#1"],
    );
}

#[test]
fn a_stuck_pod_keeps_its_part_of_a_gpu() {
    check(
        "policy actions=allocate
         node a gpu=1
         queue team
         job stuck queue=team gpu=0.6 stuck=a#0
         job next  queue=team gpu=0.5",
        expect!["waits next: no room for next-0 (0 of 1 placed), 1 × no GPU with room"],
    );
}

#[test]
fn a_newly_shared_gpu_needs_a_slot_for_its_reservation() {
    check(
        "policy actions=allocate
         node a gpu=2 pods=2
         queue team
         job first  queue=team gpu=0.5
         job second queue=team gpu=0.6
         job third  queue=team gpu=0.5",
        expect![["
            bind first-0 a gpu#0
            bind third-0 a gpu#0
            waits second: no room for second-0 (0 of 1 placed), 1 × no pod slot"]],
    );
}

#[test]
fn a_pod_that_shares_goes_where_a_gpu_is_shared_already() {
    check(
        "node a gpu=1
         node b gpu=4
         queue team
         job half queue=team gpu=0.5 running=b#0
         job next queue=team gpu=0.5",
        expect!["bind next-0 b gpu#0"],
    );
}

#[test]
fn mig_instances_are_counted_by_profile() {
    check(
        "policy actions=allocate
         node a mig-1g.5gb=2 mig-3g.20gb=1 mig-mixed
         queue team
         job slices queue=team mig-1g.5gb=1 pods=3 min=1
         job large  queue=team mig-3g.20gb=1",
        expect![["
            bind slices-0 a
            bind large-0 a
            bind slices-1 a
            waits slices: no room for slices-2 (0 of 1 placed), 1 × 1 mig-1g.5gb short"]],
    );
}

/// An instance costs its queue as many GPUs as it has slices.
#[test]
fn mig_slices_count_against_the_limit() {
    check(
        "policy actions=allocate
         node a mig-1g.5gb=7 mig-3g.20gb=2 mig-mixed
         queue team limit=3
         job large queue=team mig-3g.20gb=1
         job small queue=team mig-1g.5gb=1",
        expect![["
            bind large-0 a
            waits small: over limit, team holds 3 of 3 GPU, asked 1"]],
    );
}

#[test]
fn a_mixed_node_takes_mig_requests_and_pods_without_gpu_only() {
    check(
        "policy actions=allocate
         node a gpu=2 mig-1g.5gb=1 mig-mixed
         queue team
         job cpu   queue=team cpu=1
         job mig   queue=team mig-1g.5gb=1
         job part  queue=team gpu=0.5
         job whole queue=team gpu=1",
        expect![["
            bind cpu-0 a
            bind mig-0 a
            waits part: no room for part-0 (0 of 1 placed), 1 × MigMixed
            waits whole: no room for whole-0 (0 of 1 placed), 1 × MigMixed"]],
    );
}

#[test]
fn a_node_of_strategy_single_takes_whole_gpus_only() {
    check(
        "policy actions=allocate
         node a gpu=2 mig-1g.5gb=1 mig-single
         queue team
         job cpu   queue=team cpu=1
         job mig   queue=team mig-1g.5gb=1
         job part  queue=team gpu=0.5
         job whole queue=team gpu=1",
        expect![["
            bind cpu-0 a
            bind whole-0 a
            waits mig: no room for mig-0 (0 of 1 placed), 1 × MigSingle
            waits part: no room for part-0 (0 of 1 placed), 1 × MigSingle"]],
    );
}

#[test]
fn mig_requests_need_a_mig_node() {
    check(
        "policy actions=allocate
         node a gpu=2
         queue team
         job mig queue=team mig-1g.5gb=1",
        expect!["waits mig: no room for mig-0 (0 of 1 placed), 1 × 1 mig-1g.5gb short"],
    );
}

/// One GPU is free and one is being given back: the second half has to wait for it.
#[test]
fn spreading_over_devices_waits_for_a_gpu_that_is_being_given_back() {
    check(
        "policy devices=spread
         node a gpu=2 taken=1 leaving=1
         queue team
         job halves queue=team gpu=0.5 pods=2 min=0",
        expect![["
            bind halves-0 a gpu#0
            pipeline halves-1 a gpu#1"]],
    );
}
