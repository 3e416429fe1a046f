//! Statistics of actions: attempts, simulated and filtered scenarios.

use expect_test::expect;

use crate::support::check_efforts;

/// Nothing is free. `next` reclaims the share of its queue, for which both jobs of a node are evicted; `late` asks for more
/// than its queue may reclaim.
#[test]
fn turns_and_scenarios_are_counted_by_action() {
    check_efforts(
        "node n1 gpu=2
         node n2 gpu=2
         queue A quota=2
         queue B quota=2
         job b1 queue=B gpu=1 running=n1
         job b2 queue=B gpu=1 running=n2
         job b3 queue=B gpu=1 running=n1
         job b4 queue=B gpu=1 running=n2
         job next queue=A gpu=2
         job late queue=A gpu=2",
        expect![["
            allocate: 2 attempts, 0 simulated, 0 filtered
            consolidate: 2 attempts, 0 simulated, 0 filtered
            reclaim: 2 attempts, 1 simulated, 0 filtered
            preempt: 1 attempts, 0 simulated, 0 filtered
            stale: 0 attempts, 0 simulated, 0 filtered"]],
    );
}

/// No victim fits on another node; one scenario is filtered without a simulation.
#[test]
fn scenarios_that_cannot_work_are_counted_as_well() {
    check_efforts(
        "policy actions=consolidate
         node n1 gpu=3
         node n2 gpu=3
         node n3 gpu=3
         queue A
         job a1 queue=A gpu=2 running=n1
         job a2 queue=A gpu=2 running=n2
         job a3 queue=A gpu=2 running=n3
         job next queue=A gpu=3",
        expect!["consolidate: 1 attempts, 5 simulated, 1 filtered"],
    );
}

#[test]
fn a_job_that_fits_has_one_turn() {
    check_efforts(
        "node a gpu=1
         queue A
         job fits queue=A gpu=1",
        expect![["
            allocate: 1 attempts, 0 simulated, 0 filtered
            consolidate: 0 attempts, 0 simulated, 0 filtered
            reclaim: 0 attempts, 0 simulated, 0 filtered
            preempt: 0 attempts, 0 simulated, 0 filtered
            stale: 0 attempts, 0 simulated, 0 filtered"]],
    );
}

#[test]
fn a_stale_gang_has_its_turn() {
    check_efforts(
        "node a gpu=1
         queue A
         job half queue=A gpu=1 pods=2 running=a",
        expect![["
            allocate: 1 attempts, 0 simulated, 0 filtered
            consolidate: 1 attempts, 0 simulated, 0 filtered
            reclaim: 1 attempts, 0 simulated, 0 filtered
            preempt: 1 attempts, 0 simulated, 0 filtered
            stale: 1 attempts, 0 simulated, 0 filtered"]],
    );
}
