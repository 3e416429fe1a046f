//! Gangs that lost pods: how long they may go on without their minimum.

use expect_test::expect;

use crate::support::{check, check_notes};

/// Checklist 12.
#[test]
fn a_gang_below_its_minimum_is_removed_after_the_grace_period() {
    check(
        "policy actions=stale
         node a gpu=2
         queue team
         job gang queue=team gpu=1 running=a min=2 stale=60",
        expect!["evict gang-0 (stale)"],
    );
}

#[test]
fn a_gang_below_its_minimum_is_left_alone_before_that() {
    check(
        "policy actions=stale
         node a gpu=2
         queue team
         job gang queue=team gpu=1 running=a min=2 stale=59",
        expect![[""]],
    );
}

#[test]
fn the_clock_starts_when_the_minimum_is_lost_and_stops_when_it_is_back() {
    check_notes(
        "node a gpu=3
         queue team
         job back queue=team gpu=1 running=a pods=2 stale=50
         job lost queue=team gpu=1 running=a min=2",
        expect![["
            back started - stale - evicted -
            lost started - stale now evicted -"]],
    );
}

#[test]
fn a_job_may_bring_its_own_grace_period() {
    check(
        "policy actions=stale
         node a gpu=8
         queue team
         job long  queue=team gpu=1 running=a min=2 stale=100 grace=101
         job never queue=team gpu=1 running=a min=2 stale=9999 grace=never
         job short queue=team gpu=1 running=a min=2 stale=10 grace=10",
        expect!["evict short-0 (stale)"],
    );
}

#[test]
fn without_a_grace_period_stale_gangs_stay() {
    check(
        "policy actions=stale grace=none
         node a gpu=1
         queue team
         job gang queue=team gpu=1 running=a min=2 stale=9999",
        expect![[""]],
    );
}

#[test]
fn a_gang_that_ends_well_is_not_stale() {
    check(
        "policy actions=stale
         node a gpu=1
         queue team
         job gang queue=team gpu=1 running=a succeeded=1 min=2 stale=9999",
        expect![[""]],
    );
}

#[test]
fn terminating_pods_are_still_there() {
    check(
        "policy actions=stale
         node a gpu=2
         queue team
         job gang queue=team gpu=1 running=a releasing=a min=2 stale=9999",
        expect![[""]],
    );
}

#[test]
fn a_job_with_minimum_0_is_never_stale() {
    check(
        "policy actions=stale
         node a gpu=1
         queue team
         job loose queue=team gpu=1 running=a min=0 stale=9999",
        expect![[""]],
    );
}

#[test]
fn stale_gangs_go_whatever_protects_them_from_others() {
    let gang = "policy actions=stale preempt-min=9999 reclaim-min=9999
         node a gpu=1
         queue team quota=1
         job gang queue=team prio=100 gpu=1 running=a min=2 stale=9999 started=5";
    check(gang, expect!["evict gang-0 (stale)"]);
    // The eviction was in favour of no other job, so no preemption delay begins again.
    check_notes(gang, expect![[""]]);
}
