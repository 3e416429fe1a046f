//! What queues are entitled to: the worked examples, through a whole cycle.

use expect_test::expect;

use crate::support::check_shares;

#[test]
fn over_subscribed_quotas_are_all_guaranteed() {
    check_shares(
        "policy actions=allocate
         node a gpu=10
         queue one   quota=5
         queue three quota=5
         queue two   quota=5
         job x queue=one   gpu=5
         job y queue=two   gpu=5
         job z queue=three gpu=5",
        expect![["
            one 5
            three 5
            two 5"]],
    );
}

#[test]
fn queue_priority_beats_every_weight_above_quota_but_no_quota() {
    check_shares(
        "policy actions=allocate
         node a gpu=10
         queue heavy quota=2 weight=100 priority=100
         queue high  quota=2 weight=1 priority=200
         job x queue=heavy gpu=1 pods=10
         job y queue=high  gpu=1 pods=10",
        expect![["
            heavy 2
            high 8"]],
    );
}

/// Example A: 1.4 and 5.6 of the rest, rounded down; the larger fraction gets the last GPU.
#[test]
fn the_rest_is_divided_by_weight_in_whole_gpus() {
    check_shares(
        "policy actions=allocate
         node a gpu=11
         queue one quota=2 weight=1
         queue two quota=2 weight=4
         job x queue=one gpu=1 pods=10
         job y queue=two gpu=1 pods=10",
        expect![["
            one 3
            two 8"]],
    );
}

/// Example D: the rounding remainder of a priority is offered to lower ones first.
#[test]
fn the_last_gpu_may_go_to_a_lower_priority() {
    check_shares(
        "policy actions=allocate
         node a gpu=3
         queue a priority=200
         queue b priority=200
         queue c priority=100
         job x queue=a gpu=1 pods=5
         job y queue=b gpu=1 pods=5
         job z queue=c gpu=1 pods=5",
        expect![["
            a 1
            b 1
            c 1"]],
    );
}

/// Example F.
#[test]
fn past_usage_lowers_the_share_above_quota() {
    check_shares(
        "policy actions=allocate
         node a gpu=10
         queue used usage=0.5
         queue idle
         job x queue=used gpu=1 pods=10
         job y queue=idle gpu=1 pods=10",
        expect![["
            idle 7
            used 3"]],
    );
}

/// Example G: children divide the share of their parent, not its quota.
#[test]
fn children_divide_what_their_parent_got() {
    check_shares(
        "policy actions=allocate
         node a gpu=12
         queue d1 quota=4
         queue d2 quota=4
         queue x parent=d1 quota=2 weight=3
         queue y parent=d1 quota=1 weight=1
         queue z parent=d2
         job jx queue=x gpu=1 pods=10
         job jy queue=y gpu=1 pods=10
         job jz queue=z gpu=1 pods=3",
        expect![["
            d1 9
            d2 3
            x 7
            y 2
            z 3"]],
    );
}

#[test]
fn a_queue_without_weight_gets_its_quota_only() {
    check_shares(
        "policy actions=allocate
         node a gpu=4
         queue team quota=1 weight=0
         job x queue=team gpu=1 pods=4",
        expect!["team 1"],
    );
}

#[test]
fn nodes_that_are_not_ready_and_gpus_of_other_schedulers_are_not_divided() {
    check_shares(
        "policy actions=allocate
         node a gpu=4 taken=1
         node b gpu=4 cordoned
         queue team
         job x queue=team gpu=1 pods=8 min=1",
        expect!["team 3"],
    );
}

/// 16,000 MiB count as a whole GPU of the smallest kind in the cluster.
#[test]
fn memory_requests_are_counted_in_the_smallest_gpus() {
    check_shares(
        "policy actions=allocate
         node a gpu=4 gpumem=16000
         node b gpu=4 gpumem=80000
         queue team
         job x queue=team gpumem=2x8000 prio=50 only=nowhere",
        expect!["team 1"],
    );
}
