//! Sub-group trees: required members first, optional ones as gangs of their own, surplus given up in reverse.

use expect_test::expect;

use crate::support::check;

/// Walk-through 19.5: the third gang completes the job, the fourth waits for room without making it stale.
#[test]
fn three_of_four_subgroups_start_together() {
    check(
        "node a gpu=7
         queue team
         job g queue=team need=3
           set s0 pods=2 gpu=1
           set s1 pods=2 gpu=1
           set s2 pods=2 gpu=1
           set s3 pods=2 gpu=1",
        expect![["
            bind g.s0-0 a
            bind g.s0-1 a
            bind g.s1-0 a
            bind g.s1-1 a
            bind g.s2-0 a
            bind g.s2-1 a
            waits g: no room for g.s3-1 (1 of 2 placed), 1 × 1 GPU short
            waits g: consolidate ineligible (0 of 2 placed)
            waits g: reclaim ineligible (0 of 2 placed)
            waits g: preempt has no candidates (0 of 2 placed)"]],
    );
}

#[test]
fn an_optional_subgroup_starts_later_as_a_gang() {
    check(
        "node a gpu=8
         queue team
         job g queue=team need=3
           set s0 gpu=1 running=a,a
           set s1 gpu=1 running=a,a
           set s2 gpu=1 running=a,a
           set s3 pods=2 gpu=1",
        expect![["
            bind g.s3-0 a
            bind g.s3-1 a"]],
    );
}

#[test]
fn running_members_count_towards_the_number_needed() {
    check(
        "policy actions=allocate
         node a gpu=3
         queue team
         job g queue=team need=2
           set s0 gpu=1
           set s1 gpu=1 running=a
           set s2 gpu=2",
        expect![["
            bind g.s0-0 a
            waits g: no room for g.s2-0 (0 of 1 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn a_member_without_pods_does_not_block_the_others() {
    check(
        "policy actions=allocate
         node a gpu=2
         queue team
         job g queue=team need=1
           set first pods=0 min=1 gpu=1
           set second gpu=1",
        expect!["bind g.second-0 a"],
    );
}

#[test]
fn an_inner_group_is_complete_with_as_many_members_as_it_needs() {
    check(
        "policy actions=allocate
         node a gpu=2
         queue team
         job g queue=team
           set head gpu=1
           group workers need=1
             set left  gpu=1
             set right gpu=1",
        expect![["
            bind g.head-0 a
            bind g.workers.left-0 a
            waits g: no room for g.workers.right-0 (0 of 1 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn every_member_is_required_by_default() {
    check(
        "policy actions=allocate
         node a gpu=2
         queue team
         job g queue=team
           set head gpu=1
           set tail gpu=2",
        expect!["waits g: no room for g.tail-0 (0 of 1 placed), 1 × 1 GPU short"],
    );
}

#[test]
fn members_that_lack_pods_go_before_members_that_grow() {
    check(
        "policy actions=allocate
         node a gpu=3
         queue team
         job g queue=team need=1
           set a-grows  gpu=1 pods=2 min=1 running=a
           set b-starts gpu=1",
        expect![["
            bind g.b-starts-0 a
            bind g.a-grows-1 a"]],
    );
}

#[test]
fn a_group_that_needs_more_members_than_it_has_never_starts() {
    check(
        "node a gpu=3
         queue team
         job g queue=team need=3
           set left  gpu=1
           set right gpu=1",
        expect!["waits g: not ready, "],
    );
}

/// Walk-through 19.5: one GPU is asked for, and the whole optional gang goes.
#[test]
fn under_pressure_an_optional_subgroup_goes_first_and_whole() {
    check(
        "node a gpu=8
         queue other quota=1
         queue team  quota=4
         job g queue=team need=3
           set s0 gpu=1 running=a,a
           set s1 gpu=1 running=a,a
           set s2 gpu=1 running=a,a
           set s3 gpu=1 running=a,a
         job wants queue=other gpu=1",
        expect![["
            evict g.s3-1 for wants (reclaim)
            evict g.s3-0 for wants (reclaim)
            pipeline wants-0 a"]],
    );
}

#[test]
fn without_optional_subgroups_the_job_goes_as_a_whole() {
    check(
        "node a gpu=6
         queue other quota=1
         queue team  quota=4
         job g queue=team need=3
           set s0 gpu=1 running=a,a
           set s1 gpu=1 running=a,a
           set s2 gpu=1 running=a,a
         job wants queue=other gpu=1",
        expect![["
            evict g.s0-1 for wants (reclaim)
            evict g.s0-0 for wants (reclaim)
            evict g.s1-1 for wants (reclaim)
            evict g.s1-0 for wants (reclaim)
            evict g.s2-1 for wants (reclaim)
            evict g.s2-0 for wants (reclaim)
            pipeline wants-0 a"]],
    );
}

#[test]
fn a_single_surplus_pod_goes_before_an_optional_subgroup() {
    check(
        "node a gpu=4
         queue other quota=1
         queue team  quota=1
         job g queue=team need=1
           set s0 gpu=1 min=1 running=a,a
           set s1 gpu=1 running=a,a
         job wants queue=other gpu=1",
        expect![["
            evict g.s0-1 for wants (reclaim)
            pipeline wants-0 a"]],
    );
}

#[test]
fn a_job_with_an_unstarted_optional_subgroup_is_not_stale() {
    check(
        "policy actions=stale
         node a gpu=1
         queue team
         job g queue=team need=1 stale=1000
           set s0 gpu=1 running=a
           set s1 gpu=1",
        expect!["waits g: not reached"],
    );
}

#[test]
fn room_made_for_a_job_with_optional_subgroups_is_kept() {
    check(
        "node a gpu=2
         queue team
         job old queue=team gpu=2 running=a
         job g queue=team need=1 prio=75
           set s0 gpu=2
           set s1 gpu=2",
        expect![["
            evict old-0 for g (preempt)
            pipeline g.s0-0 a
            waits g: no room for g.s0-0 (0 of 1 placed), 1 × 2 GPU short
            waits g: consolidate ineligible (0 of 1 placed)
            waits g: reclaim ineligible (0 of 1 placed)"]],
    );
}

/// The group needs its first member, which has to wait, so the second waits with it.
#[test]
fn an_optional_group_that_must_wait_for_one_pod_binds_none() {
    check(
        "node a gpu=1
         node b cpu=1
         queue team
         job gone queue=team gpu=1 releasing=a
         job next queue=team need=0
           group g
             set s1 gpu=1
             set s2 min=0 pods=1 cpu=1",
        expect![["
            pipeline next.g.s1-0 a
            pipeline next.g.s2-0 b"]],
    );
}

#[test]
fn an_optional_subgroup_without_enough_pods_is_reported() {
    check(
        "policy actions=allocate
         node a gpu=4
         queue team
         job g queue=team need=1
           set s0 gpu=1 running=a
           set s1 gpu=1 pods=1 min=2",
        expect!["waits g: not ready, g.s1 has 1 of 2 pods, 0 gated"],
    );
}
