//! Nominations: GPUs for which pods were evicted are kept for the nominated pod, even if other jobs come first in order.

use expect_test::expect;

use crate::support::{check, check_nominations};

#[test]
fn nominated_jobs_are_placed_first() {
    check(
        "policy actions=allocate
         node a gpu=4
         queue team
         job first queue=team gpu=4
         job next  queue=team gpu=1 nominated=a",
        expect![["
            bind next-0 a
            waits first: no room for first-0 (0 of 1 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn a_nomination_holds_while_victims_are_released() {
    check(
        "policy actions=allocate
         node a gpu=2
         queue team
         job gone  queue=team gpu=2 releasing=a
         job first queue=team gpu=1 pods=2 min=2
         job next  queue=team gpu=1 nominated=a",
        expect![["
            pipeline next-0 a
            waits first: no room for first-1 (1 of 2 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn a_nomination_is_for_its_node_only() {
    check(
        "policy actions=allocate
         node a gpu=1
         node b gpu=4
         queue team
         job runs  queue=team gpu=1 running=a
         job first queue=team gpu=4
         job next  queue=team gpu=1 nominated=a",
        expect![["
            bind first-0 b
            waits next: no room for next-0 (0 of 1 placed), 2 × 1 GPU short"]],
    );
}

#[test]
fn a_claim_to_room_below_a_limit_counts_as_well() {
    check(
        "policy actions=allocate
         node a gpu=8
         queue dep limit=4
         queue left  parent=dep priority=200
         queue right parent=dep
         job first queue=left gpu=4
         job next  queue=right gpu=1 nominated=a",
        expect![["
            bind next-0 a
            waits first: over limit, dep holds 1 of 4 GPU, asked 4"]],
    );
}

#[test]
fn what_was_claimed_is_not_taken_in_the_same_cycle() {
    check(
        "node a gpu=1
         queue team quota=1
         job next queue=team gpu=1 prio=50 nominated=a
         job high queue=team gpu=1 prio=75",
        expect![["
            bind next-0 a
            waits high: no room for high-0 (0 of 1 placed), 1 × 1 GPU short
            waits high: consolidate ineligible (0 of 1 placed)
            waits high: reclaim ineligible (0 of 1 placed)
            waits high: preempt has no candidates (0 of 1 placed)"]],
    );
}

#[test]
fn a_gang_claims_its_nodes_together() {
    check(
        "policy actions=allocate
         node a gpu=2
         node b gpu=2
         node c gpu=1
         queue team
         job first queue=team gpu=2
         job next  queue=team
           set left  gpu=2 nominated=a
           set right gpu=2 nominated=b",
        expect![["
            bind next.left-0 a
            bind next.right-0 b
            waits first: no room for first-0 (0 of 1 placed), 3 × 1 GPU short"]],
    );
}

#[test]
fn room_made_becomes_a_claim() {
    check_nominations(
        "node a gpu=4
         node b gpu=4
         queue team
         job left  queue=team gpu=2 running=a
         job right queue=team gpu=2 running=b
         job next  queue=team gpu=4",
        expect!["next-0 nominated to b"],
    );
    check_nominations(
        "node a gpu=1
         queue team
         job low  queue=team gpu=1 prio=50 running=a
         job high queue=team gpu=1 prio=75",
        expect!["high-0 nominated to a"],
    );
}

#[test]
fn room_that_frees_itself_is_no_claim() {
    check_nominations(
        "node a gpu=1
         queue team
         job gone queue=team gpu=1 releasing=a
         job next queue=team gpu=1",
        expect![""],
    );
}

#[test]
fn a_claim_without_room_ends() {
    check_nominations(
        "policy actions=allocate
         node a gpu=1
         queue team
         job runs queue=team gpu=1 running=a
         job next queue=team gpu=1 nominated=a",
        expect!["next-0 nominated to no node"],
    );
}
