//! `keepNodesWhole`: nodes in use are filled, and consolidated, before an empty one is opened.

use expect_test::expect;

use crate::support::{check, check_notes};

const HALF_FULL: &str = "
    node a gpu=4
    node b gpu=4
    node c gpu=4
    queue team
    job left  queue=team gpu=2 running=a
    job right queue=team gpu=2 running=b";

#[test]
fn an_empty_node_is_opened_by_default() {
    check(&format!("{HALF_FULL}\n    job next queue=team gpu=3"), expect!["bind next-0 c"]);
}

#[test]
fn pods_move_together_before_an_empty_node_is_opened() {
    check(
        &format!("policy keep-nodes-whole=on{HALF_FULL}\n    job next queue=team gpu=3"),
        expect![["
        evict right-0 for next (consolidate)
        pipeline right-0 a
        pipeline next-0 b"]],
    );
}

#[test]
fn nodes_in_use_are_filled_first() {
    check(
        "policy keep-nodes-whole=on gpu=spread
         node a gpu=4
         node b gpu=4
         queue team
         job left queue=team gpu=1 running=b
         job next queue=team gpu=1 pods=3 min=1",
        expect![["
            bind next-0 b
            bind next-1 b
            bind next-2 b"]],
    );
}

#[test]
fn where_moving_does_not_help_the_empty_node_is_opened_in_the_same_cycle() {
    check(
        "policy keep-nodes-whole=on
         node a gpu=4
         node b gpu=4
         queue team
         job left queue=team gpu=2 running=a prio=100 preemptible=false
         job next queue=team gpu=3",
        expect!["bind next-0 b"],
    );
}

#[test]
fn a_pod_of_a_whole_node_opens_one() {
    check(&format!("policy keep-nodes-whole=on{HALF_FULL}\n    job next queue=team gpu=4"), expect!["bind next-0 c"]);
}

#[test]
fn a_job_that_moves_and_grows_has_not_started_anew() {
    check_notes(
        "policy keep-nodes-whole=on
         node a gpu=4
         node b gpu=4
         node c gpu=4
         queue team
         job left  queue=team gpu=2 running=a
         job right queue=team gpu=2 min=1 running=b pending=1
         job next  queue=team gpu=3 prio=75",
        expect!["right started - stale - evicted now"],
    );
}
