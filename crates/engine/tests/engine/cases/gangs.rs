//! Gangs: all of the minimum or nothing, pods pipelined on what is being released, growth pod by pod.

use expect_test::expect;

use crate::support::{check, check_notes};

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    check(
        "policy actions=allocate
         node a gpu=2
         queue team
         job gang  queue=team gpu=1 pods=3
         job later queue=team gpu=1 pods=2",
        expect![["
            bind later-0 a
            bind later-1 a
            waits gang: no room for gang-2 (2 of 3 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn a_gang_that_must_wait_for_one_pod_binds_none() {
    check(
        "node a gpu=2
         node b gpu=1
         queue team
         job gone queue=team gpu=1 releasing=b
         job gang queue=team gpu=1 pods=3",
        expect![["
            pipeline gang-0 a
            pipeline gang-1 a
            pipeline gang-2 b"]],
    );
}

#[test]
fn an_elastic_job_binds_its_minimum_and_waits_with_the_rest() {
    check(
        "node a gpu=2
         node b gpu=1
         queue team
         job gone    queue=team gpu=1 releasing=b
         job elastic queue=team gpu=1 pods=3 min=2",
        expect![["
            bind elastic-0 a
            bind elastic-1 a
            pipeline elastic-2 b"]],
    );
}

#[test]
fn pipelined_pods_keep_releasing_resources_from_later_jobs() {
    check(
        "policy actions=allocate
         node a gpu=1
         queue team
         job gone   queue=team gpu=1 releasing=a
         job first  queue=team gpu=1
         job second queue=team gpu=1",
        expect![["
            pipeline first-0 a
            waits second: no room for second-0 (0 of 1 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn no_pod_is_pipelined_on_a_pod_stuck_in_releasing() {
    check(
        "policy actions=allocate
         node a gpu=1
         queue team
         job stuck queue=team gpu=1 stuck=a
         job next  queue=team gpu=1",
        expect!["waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short"],
    );
}

#[test]
fn a_stuck_pod_still_counts_for_its_gang() {
    check(
        "node a gpu=2
         queue team
         job gang queue=team gpu=1 stuck=a running=a stale=100",
        expect![[""]],
    );
}

/// Walk-through 19.3: below minimum first, then exact, then the older one.
#[test]
fn elastic_jobs_of_equal_priority_grow_in_turns() {
    check(
        "policy actions=allocate
         node a gpu=5
         queue team
         job x queue=team gpu=1 pods=4 min=1
         job y queue=team gpu=1 pods=4 min=1",
        expect![["
            bind x-0 a
            bind y-0 a
            bind x-1 a
            bind y-1 a
            bind x-2 a
            waits x: no room for x-3 (0 of 1 placed), 1 × 1 GPU short
            waits y: no room for y-2 (0 of 1 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn a_job_below_its_minimum_goes_before_the_growth_of_an_older_one() {
    check(
        "policy actions=allocate
         node a gpu=2
         queue team
         job grows queue=team gpu=1 pods=2 min=1 running=a
         job young queue=team gpu=1",
        expect![["
            bind young-0 a
            waits grows: no room for grows-1 (0 of 1 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn growth_of_a_higher_priority_goes_before_a_minimum() {
    check(
        "policy actions=allocate
         node a gpu=2
         queue team
         job grows queue=team gpu=1 pods=2 min=1 running=a prio=75
         job young queue=team gpu=1",
        expect![["
            bind grows-1 a
            waits young: no room for young-0 (0 of 1 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn with_minimum_0_pods_start_one_at_a_time() {
    check(
        "policy actions=allocate
         node a gpu=2
         queue team
         job loose queue=team gpu=1 pods=3 min=0",
        expect![["
            bind loose-0 a
            bind loose-1 a
            waits loose: no room for loose-2 (0 of 1 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn gated_pods_do_not_count_towards_the_minimum() {
    check(
        "node a gpu=4
         queue team
         job gang queue=team gpu=1 pods=3 gated=1 min=3",
        expect!["waits gang: not ready, gang has 3 of 3 pods, 1 gated"],
    );
}

#[test]
fn a_gang_starts_beside_its_gated_surplus() {
    check(
        "policy actions=allocate
         node a gpu=4
         queue team
         job gang queue=team gpu=1 pods=3 gated=1 min=2",
        expect![["
            bind gang-1 a
            bind gang-2 a
            waits gang"]],
    );
}

#[test]
fn a_gang_without_enough_pods_is_not_started() {
    check(
        "node a gpu=4
         queue team
         job gang queue=team gpu=1 pods=2 min=3",
        expect!["waits gang: not ready, gang has 2 of 3 pods, 0 gated"],
    );
}

#[test]
fn a_gang_that_lost_a_pod_gets_only_what_is_missing() {
    check(
        "policy actions=allocate
         node a gpu=3
         queue team
         job gang queue=team gpu=1 running=a,a pods=3 min=3",
        expect!["bind gang-2 a"],
    );
}

#[test]
fn a_job_started_when_its_first_pod_is_bound_not_when_it_is_pipelined() {
    check_notes(
        "policy actions=allocate
         node a gpu=1
         node b gpu=1
         queue team
         job gone    queue=team gpu=1 releasing=b
         job binds   queue=team gpu=1
         job waits   queue=team gpu=1
         job runs    queue=team cpu=1 running=a pods=2 min=1 started=500",
        expect!["binds started now stale - evicted -"],
    );
}

#[test]
fn a_pod_larger_than_a_node_waits_with_the_amount_that_is_short() {
    check(
        "policy actions=allocate
         node a gpu=2
         node b gpu=4
         queue team
         job large queue=team gpu=8",
        expect!["waits large: no room for large-0 (0 of 1 placed), 2 × 4 GPU short"],
    );
}
