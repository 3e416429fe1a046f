//! What taking from running jobs may cost: cooldowns after an eviction, the budget of moves, the price of a move.

use expect_test::expect;

use crate::support::check;

#[test]
fn a_cycle_that_may_not_evict_only_places() {
    check(
        "policy evictions=off
         node a gpu=4
         node b gpu=4
         queue A quota=4
         queue B quota=4
         job b1 queue=B gpu=3 running=a
         job b2 queue=B gpu=3 running=b
         job small queue=A gpu=1
         job next queue=A gpu=2",
        expect![["
            bind small-0 a
            waits next: no room for next-0 (0 of 1 placed), 2 × 1 GPU short"]],
    );
}

#[test]
fn a_cycle_that_may_not_evict_opens_no_empty_node_that_consolidation_could_save() {
    let cluster = |evictions: &str| {
        format!(
            "policy keep-nodes-whole=on evictions={evictions}
             node a gpu=4
             node b gpu=4
             node c gpu=4
             queue team
             job left  queue=team gpu=2 running=a
             job right queue=team gpu=2 running=b
             job next  queue=team gpu=3"
        )
    };
    check(&cluster("off"), expect!["waits next: not reached"]);
    check(
        &cluster("on"),
        expect![["
            evict right-0 for next (consolidate)
            pipeline right-0 a
            pipeline next-0 b"]],
    );
}

#[test]
fn a_job_that_was_just_evicted_is_not_reclaimed_again() {
    check(
        "node a gpu=4
         queue A quota=2
         queue B quota=2
         job b1 queue=B gpu=2 running=a started=200 evicted=300
         job b2 queue=B gpu=2 running=a started=15 evicted=19
         job next queue=A gpu=2",
        expect![["
            evict b1-0 for next (reclaim)
            pipeline next-0 a"]],
    );
    check(
        "policy actions=allocate,reclaim
         node a gpu=4
         queue A quota=2
         queue B quota=2
         job b1 queue=B gpu=4 running=a started=15 evicted=19
         job next queue=A gpu=2",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 2 GPU short
            waits next: reclaim has no candidates (0 of 1 placed)"]],
    );
    check(
        "policy actions=allocate,reclaim eviction-cooldown=10
         node a gpu=4
         queue A quota=2
         queue B quota=2
         job b1 queue=B gpu=4 running=a started=15 evicted=19
         job next queue=A gpu=2",
        expect![["
            evict b1-0 for next (reclaim)
            pipeline next-0 a"]],
    );
}

#[test]
fn nor_is_it_preempted_again_though_its_surplus_may_be_taken() {
    check(
        "policy actions=allocate,preempt
         node a gpu=2
         queue team
         job low queue=team gpu=1 running=a,a prio=50 started=5 evicted=10
         job high queue=team gpu=1 prio=75",
        expect![["
            waits high: no room for high-0 (0 of 1 placed), 1 × 1 GPU short
            waits high: preempt has no candidates (0 of 1 placed)"]],
    );
    check(
        "policy actions=allocate,preempt
         node a gpu=2
         queue team
         job low queue=team gpu=1 running=a,a min=1 prio=50 started=5 evicted=10
         job high queue=team gpu=1 prio=75",
        expect![["
            evict low-1 for high (preempt)
            pipeline high-0 a"]],
    );
}

/// A disruption budget forbade it.
#[test]
fn a_job_that_runs_on_was_not_evicted() {
    check(
        "policy actions=allocate,reclaim
         node a gpu=4
         queue A quota=2
         queue B quota=2
         job b1 queue=B gpu=4 running=a started=100 evicted=5
         job next queue=A gpu=2",
        expect![["
            evict b1-0 for next (reclaim)
            pipeline next-0 a"]],
    );
}

#[test]
fn the_return_of_an_evicted_job_costs_others_no_more_than_it_lost() {
    let cluster = |ran: u32| {
        format!(
            "policy actions=allocate,reclaim
             node a gpu=4
             queue A quota=2
             queue B quota=2
             job b1 queue=B gpu=4 running=a started={ran}
             job next queue=A gpu=2 started=110 evicted=10"
        )
    };
    // It had run for 100 s on 2 GPUs: 200 GPU-seconds.
    check(
        &cluster(50),
        expect![["
        evict b1-0 for next (reclaim)
        pipeline next-0 a"]],
    );
    check(
        &cluster(51),
        expect![["
        waits next: no room for next-0 (0 of 1 placed), 1 × 2 GPU short
        waits next: reclaim exhausted (0 of 1 placed)"]],
    );
}

#[test]
fn moves_stop_when_the_budget_is_spent() {
    let cluster = |left: &str| {
        format!(
            "policy actions=allocate,consolidate moves-left={left}
             node a gpu=4
             node b gpu=4
             node c gpu=4
             node d gpu=4
             queue team
             job a queue=team gpu=2 running=a
             job b queue=team gpu=2 running=b
             job c queue=team gpu=2 running=c
             job d queue=team gpu=2 running=d
             job one queue=team gpu=4
             job two queue=team gpu=4"
        )
    };
    check(
        &cluster("2"),
        expect![["
        evict d-0 for one (consolidate)
        pipeline d-0 a
        pipeline one-0 d
        evict c-0 for two (consolidate)
        pipeline c-0 b
        pipeline two-0 c"]],
    );
    check(
        &cluster("1"),
        expect![["
        evict d-0 for one (consolidate)
        pipeline d-0 a
        pipeline one-0 d
        waits two: no room for two-0 (0 of 1 placed), 4 × 2 GPU short
        waits two: consolidate exhausted (0 of 1 placed)"]],
    );
    check(
        &cluster("0"),
        expect![["
            waits one: no room for one-0 (0 of 1 placed), 4 × 2 GPU short
            waits one: consolidate ineligible (0 of 1 placed)
            waits two: no room for two-0 (0 of 1 placed), 4 × 2 GPU short
            waits two: consolidate ineligible (0 of 1 placed)"]],
    );
}

#[test]
fn a_move_may_have_a_price() {
    let cluster = |ran: u32| {
        format!(
            "policy actions=allocate,consolidate lost-work-per-gpu=60
             node a gpu=4
             node b gpu=4
             queue team
             job left  queue=team gpu=2 running=a started={ran}
             job right queue=team gpu=2 running=b started={ran}
             job next  queue=team gpu=4"
        )
    };
    // Moving 2 GPUs for 4 that start: twice a minute.
    check(
        &cluster(120),
        expect![["
        evict right-0 for next (consolidate)
        pipeline right-0 a
        pipeline next-0 b"]],
    );
    check(
        &cluster(121),
        expect![["
        waits next: no room for next-0 (0 of 1 placed), 2 × 2 GPU short
        waits next: consolidate exhausted (0 of 1 placed)"]],
    );
}

#[test]
fn victims_that_lose_least_may_come_first() {
    let cluster = |policy: &str| {
        format!(
            "policy actions=allocate,reclaim {policy}
             node a gpu=3
             queue A quota=1
             queue B quota=2
             job b1 queue=B gpu=1 running=a age=300 started=300
             job b2 queue=B gpu=1 running=a age=200 started=20
             job b3 queue=B gpu=1 running=a age=100 started=100
             job next queue=A gpu=1"
        )
    };
    check(
        &cluster(""),
        expect![["
        evict b3-0 for next (reclaim)
        pipeline next-0 a"]],
    );
    check(
        &cluster("least-work-first=on"),
        expect![["
        evict b2-0 for next (reclaim)
        pipeline next-0 a"]],
    );
}
