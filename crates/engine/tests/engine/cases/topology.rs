//! Topology: one domain for a whole group, the fullest that fits, and staying where pods run.

use expect_test::expect;

use crate::support::check;

const TWO_ZONES: &str = "
    policy actions=allocate
    topology zone rack
    node a1 gpu=2 zone=A rack=1
    node a2 gpu=1 zone=A rack=2
    node a3 gpu=1 zone=A rack=3
    node a4 gpu=1 zone=A rack=4
    node b1 gpu=2 zone=B rack=1
    node b2 gpu=2 zone=B rack=2
    node b3 gpu=2 zone=B rack=3
    queue team";

/// The worked example of 11.9: zone A is fuller; inside it the roomiest rack first.
#[test]
fn the_fuller_zone_is_packed_and_inside_it_pods_stay_close() {
    check(
        &format!("{TWO_ZONES}\n job next queue=team gpu=1 pods=3 required=zone preferred=rack"),
        expect![["
            bind next-0 a1
            bind next-1 a1
            bind next-2 a4"]],
    );
}

#[test]
fn a_required_level_holds_all_or_nothing_starts() {
    check(
        &format!("{TWO_ZONES}\n job next queue=team gpu=1 pods=3 required=rack"),
        expect![
            "waits next: no domain for 3 pods (Some(At(1))), A.1 takes 2, A.2 takes 1, A.3 takes 1, A.4 takes 1, B.1 takes 2, B.2 takes 2, B.3 takes 2"
        ],
    );
}

#[test]
fn a_group_larger_than_every_domain_waits_with_that_reason() {
    check(
        &format!("{TWO_ZONES}\n job next queue=team gpu=1 pods=12 required=zone"),
        expect!["waits next: no domain for 12 pods (Some(At(0))), all together are too small"],
    );
}

#[test]
fn a_preferred_level_alone_may_be_left() {
    check(
        &format!("{TWO_ZONES}\n job next queue=team gpu=1 pods=7 preferred=zone"),
        expect![["
        bind next-0 b1
        bind next-1 b1
        bind next-2 b2
        bind next-3 b2
        bind next-4 b3
        bind next-5 b3
        bind next-6 a2"]],
    );
}

#[test]
fn a_group_that_runs_grows_in_its_domain() {
    check(
        "policy actions=allocate
         topology zone
         node a gpu=2 zone=A
         node b gpu=2 zone=B
         queue team
         job grows queue=team gpu=1 pods=4 min=1 running=b required=zone",
        expect![["
            bind grows-1 b
            waits grows: no domain for 1 pods (Some(At(0))), A takes 2, B takes 0"]],
    );
}

#[test]
fn nodes_without_all_levels_are_not_used() {
    check(
        "policy actions=allocate
         topology zone rack
         node a gpu=2 zone=A
         node b gpu=1 zone=A rack=1
         queue team
         job next queue=team gpu=2 required=zone",
        expect!["waits next: no domain for 1 pods (Some(At(0))), all together are too small"],
    );
}

#[test]
fn each_subgroup_may_have_a_domain_of_its_own() {
    check(
        "policy actions=allocate
         topology zone rack
         node a1 gpu=2 zone=A rack=1
         node a2 gpu=2 zone=A rack=2
         node b1 gpu=3 zone=B rack=1
         queue team
         job next queue=team required=zone
           set left  gpu=1 pods=2 required=rack
           set right gpu=1 pods=2 required=rack",
        expect![["
            bind next.left-0 a1
            bind next.left-1 a1
            bind next.right-0 a2
            bind next.right-1 a2"]],
    );
}

#[test]
fn an_unknown_level_or_topology_is_named_as_the_reason() {
    check(
        "policy actions=allocate
         topology zone
         node a gpu=2 zone=A
         queue team
         job next queue=team gpu=1 required=hall",
        expect!["waits next: unknown topology or level"],
    );
    check(
        "policy actions=allocate
         node a gpu=2
         queue team
         job next queue=team gpu=1 required=zone",
        expect!["waits next: unknown topology or level"],
    );
}

/// All nodes with room are in one rack, and only the zone is required.
#[test]
fn a_zone_of_one_rack_is_a_zone() {
    check(
        "policy actions=allocate
         topology zone rack
         node a gpu=2 zone=A rack=1
         queue team
         job next queue=team gpu=1 pods=2 required=zone",
        expect![["
            bind next-0 a
            bind next-1 a"]],
    );
}

#[test]
fn victims_are_sought_in_one_domain() {
    check(
        "topology zone
         node a gpu=2 zone=A
         node b gpu=2 zone=B
         queue team
         job low-a queue=team prio=25 gpu=1 running=a,a min=1
         job low-b queue=team prio=25 gpu=1 running=b,b min=1
         job next  queue=team prio=75 gpu=1 pods=2 required=zone",
        expect![["
            evict low-b-1 for next (preempt)
            evict low-b-0 for next (preempt)
            pipeline next-0 b
            pipeline next-1 b"]],
    );
}
