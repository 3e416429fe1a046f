//! Pods that mind each other: near, apart, liked, evenly spread.

use expect_test::expect;

use crate::support::check;

#[test]
fn a_gang_of_pods_apart_takes_a_node_each() {
    check(
        "node a gpu=4
         node b gpu=4
         node c gpu=4
         queue team
         job web queue=team pods=3 gpu=1 labels=web anti-affinity=web@node",
        expect![[r"
            bind web-0 a
            bind web-1 b
            bind web-2 c"]],
    );
}

#[test]
fn a_pod_apart_waits_if_every_domain_is_taken() {
    check(
        "topology zone
         node a gpu=4 zone=x
         node b gpu=4 zone=x
         queue team
         job old queue=team gpu=1 labels=web running=a
         job new queue=team gpu=1 anti-affinity=web@zone",
        expect![[r"
            waits new: no room for new-0 (0 of 1 placed), 2 × anti-affinity to web
            waits new: consolidate exhausted (0 of 1 placed)
            waits new: reclaim has no candidates (0 of 1 placed)
            waits new: preempt has no candidates (0 of 1 placed)"]],
    );
}

#[test]
fn those_who_are_there_keep_others_away_as_well() {
    check(
        "node a gpu=4
         node b gpu=4
         queue team
         job old queue=team gpu=1 anti-affinity=web@node running=a
         job new queue=team gpu=1 labels=web",
        expect!["bind new-0 b"],
    );
}

#[test]
fn anti_affinity_does_not_hold_on_a_node_outside_every_domain() {
    check(
        "topology zone
         node a gpu=1 zone=x
         node b gpu=4
         queue team
         job old queue=team gpu=1 labels=web running=b
         job new queue=team gpu=2 anti-affinity=web@zone",
        expect!["bind new-0 b"],
    );
}

#[test]
fn a_pod_goes_where_those_are_that_it_must_be_near() {
    check(
        "topology zone
         node a gpu=4 zone=x
         node b gpu=4 zone=y
         node c gpu=4 zone=y
         queue team
         job db queue=team gpu=4 labels=db running=c
         job web queue=team gpu=1 affinity=db@zone",
        expect!["bind web-0 b"],
    );
}

#[test]
fn no_matching_pod_and_a_node_without_domain_are_different_obstacles() {
    check(
        "topology zone
         node a gpu=4 zone=x
         node b gpu=4
         queue team
         job web queue=team gpu=1 affinity=db@zone",
        expect![[r"
            waits web: no room for web-0 (0 of 1 placed), 1 × no matching pod db, 1 × no domain for db
            waits web: consolidate has no candidates (0 of 1 placed)
            waits web: reclaim has no candidates (0 of 1 placed)
            waits web: preempt has no candidates (0 of 1 placed)"]],
    );
}

/// Kubernetes: only a pod that has all the labels at once counts for several terms.
#[test]
fn one_pod_must_be_everything_that_is_asked_for() {
    check(
        "node a gpu=4
         node b gpu=4
         queue team
         job one queue=team gpu=1 labels=x running=a
         job two queue=team gpu=1 labels=y running=a
         job both queue=team gpu=2 labels=x,y running=b
         job new queue=team gpu=1 affinity=x@node,y@node",
        expect!["bind new-0 b"],
    );
}

#[test]
fn the_first_of_its_kind_may_be_anywhere_and_the_others_follow() {
    check(
        "topology zone
         node a gpu=4 zone=x
         node b gpu=4 zone=y
         node c gpu=1 zone=y
         queue team
         job fill queue=team gpu=2 running=b
         job web queue=team pods=3 gpu=1 labels=web affinity=web@zone",
        expect![[r"
            bind web-0 c
            bind web-1 b
            bind web-2 b"]],
    );
}

#[test]
fn the_first_of_its_kind_needs_a_domain() {
    check(
        "topology zone
         node a gpu=4
         queue team
         job web queue=team gpu=1 labels=web affinity=web@zone",
        expect![[r"
            waits web: no room for web-0 (0 of 1 placed), 1 × no domain for web
            waits web: consolidate has no candidates (0 of 1 placed)
            waits web: reclaim has no candidates (0 of 1 placed)
            waits web: preempt has no candidates (0 of 1 placed)"]],
    );
}

#[test]
fn a_pod_is_pipelined_in_a_domain_whose_pods_are_being_released() {
    check(
        "node a gpu=4
         queue team
         job old queue=team gpu=1 labels=web releasing=a
         job new queue=team gpu=1 anti-affinity=web@node",
        expect!["pipeline new-0 a"],
    );
}

#[test]
fn a_free_domain_comes_before_one_that_is_being_left() {
    check(
        "node a gpu=2
         node b gpu=4
         queue team
         job old queue=team gpu=1 labels=web releasing=a
         job new queue=team gpu=1 anti-affinity=web@node",
        expect!["bind new-0 b"],
    );
}

#[test]
fn a_pod_waits_for_a_neighbour_that_is_only_pipelined() {
    check(
        "node a gpu=2
         queue team
         job old queue=team gpu=1 releasing=a
         job first queue=team gpu=2 labels=db
         job second queue=team affinity=db@node",
        expect![[r"
            pipeline first-0 a
            pipeline second-0 a"]],
    );
}

/// KAI keeps the domain closed while the victim is still there, so that no pod is ever evicted for it.
#[test]
fn a_victim_frees_its_domain() {
    let cluster = "node a gpu=4
         queue team
         job low queue=team gpu=1 labels=web running=a prio=10 started=1000
         job high queue=team gpu=1 anti-affinity=web@node prio=60";
    check(
        cluster,
        expect![[r"
        evict low-0 for high (preempt)
        pipeline high-0 a"]],
    );
    check(
        &format!("policy repairs=none\n{cluster}"),
        expect![[r"
        waits high: no room for high-0 (0 of 1 placed), 1 × anti-affinity to web
        waits high: consolidate exhausted (0 of 1 placed)
        waits high: reclaim has no candidates (0 of 1 placed)
        waits high: preempt exhausted (0 of 1 placed)"]],
    );
}

#[test]
fn a_victim_may_return_to_the_domain_it_was_the_only_one_in() {
    check(
        "node a gpu=4
         node b gpu=2
         queue team
         job low queue=team gpu=2 pods=2 min=1 labels=web anti-affinity=web@node running=a,b prio=10 started=1000
         job high queue=team gpu=4 prio=60",
        expect![[r"
            evict low-0 for high (preempt)
            pipeline high-0 a"]],
    );
}

#[test]
fn liked_neighbours_outweigh_a_fuller_node() {
    check(
        "node a gpu=4
         node b gpu=4
         node c gpu=4
         queue team
         job fill queue=team gpu=3 running=a
         job bad queue=team gpu=2 labels=bad running=b
         job db queue=team gpu=1 labels=db running=c
         job web queue=team gpu=1 prefer=db@node*5,bad@node*-5",
        expect!["bind web-0 c"],
    );
}

#[test]
fn who_likes_the_pod_counts_too() {
    check(
        "node a gpu=4
         node b gpu=4
         queue team
         job fill queue=team gpu=3 running=a
         job fan queue=team gpu=1 prefer=web@node*5 running=b
         job web queue=team gpu=1 labels=web",
        expect!["bind web-0 b"],
    );
}

#[test]
fn pods_are_spread_evenly_over_domains() {
    check(
        "topology zone
         node a gpu=8 zone=x
         node b gpu=8 zone=y
         node c gpu=1 zone=z
         queue team
         job web queue=team pods=6 min=5 gpu=1 labels=web spread=web@zone*1",
        expect![[r"
            bind web-0 c
            bind web-1 a
            bind web-2 b
            bind web-3 a
            bind web-4 b
            waits web: no room for web-5 (0 of 1 placed), 1 × 1 GPU short, 2 × skew of web
            waits web: consolidate has no candidates (0 of 1 placed)
            waits web: reclaim has no candidates (0 of 1 placed)
            waits web: preempt has no candidates (0 of 1 placed)"]],
    );
}

#[test]
fn too_few_domains_count_as_having_an_empty_one() {
    check(
        "topology zone
         node a gpu=8 zone=x
         node b gpu=8 zone=y
         queue team
         job web queue=team pods=4 min=1 gpu=1 labels=web spread=web@zone*1/3",
        expect![[r"
            bind web-0 a
            bind web-1 b
            waits web: no room for web-2 (0 of 1 placed), 2 × skew of web
            waits web: consolidate has no candidates (0 of 1 placed)
            waits web: reclaim has no candidates (0 of 1 placed)
            waits web: preempt has no candidates (0 of 1 placed)"]],
    );
}

#[test]
fn pods_that_leave_do_not_count_for_evenness() {
    check(
        "node a gpu=8
         node b gpu=8
         queue team
         job old queue=team gpu=1 labels=web releasing=a,a
         job web queue=team gpu=1 labels=web spread=web@node*1",
        expect!["bind web-0 a"],
    );
}

#[test]
fn pods_should_be_spread_but_start_anyway() {
    check(
        "topology zone
         node a gpu=8 zone=x
         node b gpu=8 zone=y
         node c gpu=8
         queue team
         job fill queue=team gpu=6 running=b
         job web queue=team pods=5 gpu=1 labels=web soft-spread=web@zone*1",
        expect![[r"
            bind web-0 b
            bind web-1 a
            bind web-2 b
            bind web-3 a
            bind web-4 a"]],
    );
}

#[test]
fn room_now_outweighs_evenness() {
    check(
        "node a gpu=2
         node b gpu=2
         queue team
         job gone queue=team gpu=2 releasing=b
         job web queue=team pods=2 gpu=1 labels=web soft-spread=web@node*1",
        expect![[r"
            bind web-0 a
            bind web-1 a"]],
    );
}
