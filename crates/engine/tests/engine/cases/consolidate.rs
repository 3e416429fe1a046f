//! Room made by moving pods: everyone who has a place keeps one.

use expect_test::expect;

use crate::support::check;

#[test]
fn a_pod_moves_to_make_one_large_hole_of_two_small_ones() {
    check(
        "node a gpu=4
         node b gpu=4
         queue team
         job left  queue=team gpu=2 running=a
         job right queue=team gpu=2 running=b
         job next  queue=team gpu=4",
        expect![["
            evict right-0 for next (consolidate)
            pipeline right-0 a
            pipeline next-0 b"]],
    );
}

#[test]
fn recently_evicted_jobs_are_not_moved() {
    check(
        "policy actions=allocate,consolidate
         node a gpu=4
         node b gpu=4
         queue team
         job left  queue=team gpu=2 running=a evicted=299
         job right queue=team gpu=2 running=b evicted=10
         job next  queue=team gpu=4",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 2 × 2 GPU short
            waits next: consolidate has no candidates (0 of 1 placed)"]],
    );
    check(
        "node a gpu=4
         node b gpu=4
         queue team
         job left  queue=team gpu=2 running=a evicted=300
         job right queue=team gpu=2 running=b evicted=10
         job next  queue=team gpu=4",
        expect![["
            evict left-0 for next (consolidate)
            pipeline left-0 b
            pipeline next-0 a"]],
    );
}

/// Checklist 11.
#[test]
fn no_pod_moves_if_one_would_lose_its_place() {
    check(
        "policy actions=allocate,consolidate
         node a gpu=4
         node b gpu=4
         queue team
         job left  queue=team gpu=3 running=a
         job right queue=team gpu=3 running=b
         job next  queue=team gpu=2",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 2 × 1 GPU short
            waits next: consolidate exhausted (0 of 1 placed)"]],
    );
}

#[test]
fn moving_comes_before_evicting() {
    check(
        "node a gpu=4
         node b gpu=4
         queue A quota=4
         queue B quota=2
         job left  queue=B gpu=2 running=a
         job right queue=B gpu=2 running=b
         job next  queue=A gpu=4",
        expect![["
            evict right-0 for next (consolidate)
            pipeline right-0 a
            pipeline next-0 b"]],
    );
}

#[test]
fn a_pod_that_can_stay_is_not_moved_with_its_gang() {
    check(
        "node a gpu=2
         node b gpu=2
         node c gpu=2
         queue team
         job gang queue=team gpu=1 running=a,b
         job next queue=team gpu=2 pods=2",
        expect![["
            evict gang-1 for next (consolidate)
            pipeline gang-1 a
            pipeline next-0 c
            pipeline next-1 b"]],
    );
}

#[test]
fn non_preemptible_jobs_neither_move_nor_make_others_move() {
    check(
        "policy actions=allocate,consolidate
         node a gpu=4
         node b gpu=4
         queue team quota=8
         job left  queue=team gpu=2 running=a
         job right queue=team gpu=2 running=b prio=100
         job build queue=team gpu=4 prio=100",
        expect!["waits build: no room for build-0 (0 of 1 placed), 2 × 2 GPU short"],
    );
    check(
        "policy actions=allocate,consolidate
         node a gpu=4
         node b gpu=4
         queue team quota=8
         job left  queue=team gpu=2 running=a prio=100
         job right queue=team gpu=2 running=b prio=100
         job train queue=team gpu=4",
        expect![["
            waits train: no room for train-0 (0 of 1 placed), 2 × 2 GPU short
            waits train: consolidate has no candidates (0 of 1 placed)"]],
    );
}

#[test]
fn no_more_pods_move_than_allowed() {
    let cluster = "node a gpu=4
         node b gpu=4
         queue team
         job left  queue=team gpu=1 pods=2 min=2 running=a,a
         job right queue=team gpu=1 pods=2 min=2 running=b,b
         job next  queue=team gpu=4";
    check(
        &format!("policy actions=consolidate moves=1\n{cluster}"),
        expect!["waits next: consolidate exhausted (0 of 1 placed)"],
    );
    check(
        &format!("policy actions=consolidate moves=2\n{cluster}"),
        expect![["
        evict right-1 for next (consolidate)
        pipeline right-1 a
        evict right-0 for next (consolidate)
        pipeline right-0 a
        pipeline next-0 b"]],
    );
    check(&format!("policy actions=consolidate moves=0\n{cluster}"), expect!["waits next: not reached"]);
}

#[test]
fn min_runtime_does_not_keep_pods_from_moving() {
    check(
        "policy preempt-min=100 reclaim-min=100
         node a gpu=4
         node b gpu=4
         queue team
         job left  queue=team gpu=2 running=a started=1
         job right queue=team gpu=2 running=b started=1
         job next  queue=team gpu=4",
        expect![["
            evict right-0 for next (consolidate)
            pipeline right-0 a
            pipeline next-0 b"]],
    );
}

#[test]
fn a_shared_pod_moves_to_another_shared_gpu() {
    check(
        "node a gpu=2
         queue team
         job left  queue=team gpu=0.5 running=a#0
         job right queue=team gpu=0.5 running=a#1
         job next  queue=team gpu=1",
        expect![["
            evict right-0 for next (consolidate)
            pipeline right-0 a gpu#0
            pipeline next-0 a"]],
    );
}

/// Reclaim takes the place for which `second` moves; now `second` moves for the reclaimer.
#[test]
fn dependent_moves_pass_to_the_new_preemptor() {
    check(
        "node a gpu=4
         node b gpu=4
         queue A quota=4
         queue B quota=4
         job first  queue=A gpu=2 running=a
         job second queue=A gpu=2 running=b
         job third  queue=A gpu=1 running=b
         job helped queue=A gpu=3
         job next   queue=B gpu=4",
        expect![["
            evict second-0 for next (consolidate)
            pipeline second-0 a
            evict third-0 for next (reclaim)
            pipeline next-0 b
            waits helped: no room for helped-0 (0 of 1 placed), 2 × 1 GPU short
            waits helped: preempt has no candidates (0 of 1 placed)"]],
    );
}

/// Reclaim frees other GPUs, so that no pod is moved in the end.
#[test]
fn moves_for_a_job_that_gives_way_are_taken_back() {
    check(
        "node a gpu=4
         node b gpu=4
         queue A quota=4
         queue B quota=4
         job first  queue=A gpu=2 running=a
         job second queue=A gpu=2 running=b
         job third  queue=A gpu=1 running=b
         job helped queue=A gpu=3
         job next   queue=B gpu=2 pods=2",
        expect![["
            evict third-0 for next (reclaim)
            pipeline next-0 a
            pipeline next-1 b
            waits helped: no room for helped-0 (0 of 1 placed), 2 × 1 GPU short
            waits helped: preempt has no candidates (0 of 1 placed)"]],
    );
}
