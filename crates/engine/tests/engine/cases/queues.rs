//! Queues: limits and quotas at every level, and whose job comes next.

use expect_test::expect;

use crate::support::check;

#[test]
fn a_preemptible_job_may_exceed_quota_up_to_the_limit() {
    check(
        "policy actions=allocate
         node a gpu=4
         queue team quota=1 limit=2
         job next queue=team gpu=1 pods=3 min=1",
        expect![["
            bind next-0 a
            bind next-1 a
            waits next: over limit, team holds 2 of 2 GPU, asked 1"]],
    );
}

#[test]
fn the_limit_of_a_department_binds_its_teams() {
    check(
        "policy actions=allocate
         node a gpu=4
         queue dep limit=2
         queue one parent=dep
         queue two parent=dep
         job runs  queue=one gpu=1 running=a
         job large queue=two gpu=2
         job fits  queue=two gpu=1",
        expect![["
            bind fits-0 a
            waits large: over limit, dep holds 1 of 2 GPU, asked 2"]],
    );
}

#[test]
fn limits_of_cpu_and_memory_bind_as_well() {
    check(
        "policy actions=allocate
         node a
         queue cores  cpu-limit=1
         queue memory mem-limit=1Gi
         job left  queue=cores  cpu=2
         job right queue=memory mem=2Gi",
        expect![["
            waits left: over limit, cores holds 0 of 1000 milli-cores, asked 2000
            waits right: over limit, memory holds 0 of 1073741824 bytes, asked 2147483648"]],
    );
}

#[test]
fn a_limit_of_nothing_binds_only_those_who_ask() {
    check(
        "policy actions=allocate
         node a gpu=1
         queue team limit=0
         job cpu queue=team cpu=1
         job gpu queue=team gpu=1",
        expect![["
            bind cpu-0 a
            waits gpu: over limit, team holds 0 of 0 GPU, asked 1"]],
    );
}

#[test]
fn terminating_pods_do_not_count_against_the_limit() {
    check(
        "node a gpu=2
         queue team limit=1
         job gone queue=team gpu=1 releasing=a
         job next queue=team gpu=1",
        expect!["bind next-0 a"],
    );
}

#[test]
fn a_gang_is_held_against_the_limit_as_a_whole() {
    check(
        "policy actions=allocate
         node a gpu=4
         queue team limit=2
         job gang queue=team gpu=1 pods=3",
        expect!["waits gang: over limit, team holds 0 of 2 GPU, asked 3"],
    );
}

#[test]
fn a_non_preemptible_job_may_fill_the_quota_exactly() {
    check(
        "policy actions=allocate
         node a gpu=4
         queue team quota=2
         job build queue=team prio=100 gpu=2",
        expect!["bind build-0 a"],
    );
}

#[test]
fn one_millicore_above_quota_is_too_much_for_a_non_preemptible_job() {
    check(
        "policy actions=allocate
         node a
         queue team cpu-quota=1
         job build queue=team prio=100 cpu=1001m
         job train queue=team prio=50 cpu=1001m",
        expect![["
            bind train-0 a
            waits build: non-preemptible over quota, team holds 0 of 1000 milli-cores, asked 1001"]],
    );
}

#[test]
fn non_preemptible_work_stays_within_quota_at_every_level() {
    check(
        "policy actions=allocate
         node a gpu=4
         queue dep quota=1
         queue one parent=dep quota=2
         queue two parent=dep quota=2
         job runs  queue=one prio=100 gpu=1 running=a
         job build queue=two prio=100 gpu=1",
        expect!["waits build: non-preemptible over quota, dep holds 1 of 1 GPU, asked 1"],
    );
}

#[test]
fn preemptible_work_does_not_use_up_the_quota_for_non_preemptible_work() {
    check(
        "policy actions=allocate
         node a gpu=4
         queue team quota=2
         job train queue=team prio=50 gpu=2 running=a
         job build queue=team prio=100 gpu=2",
        expect!["bind build-0 a"],
    );
}

#[test]
fn preemptibility_can_be_set_apart_from_priority() {
    check(
        "policy actions=allocate
         node a gpu=4
         queue team quota=0
         job high queue=team prio=125 preemptible=true gpu=1
         job low  queue=team prio=25 preemptible=false gpu=1",
        expect![["
            bind high-0 a
            waits low: non-preemptible over quota, team holds 0 of 0 GPU, asked 1"]],
    );
}

/// 8,000 MiB are a tenth of the larger GPU, which is what the limit of the job is checked with; on the small
/// node they would cost half a GPU.
#[test]
fn memory_requests_cost_what_they_take_on_their_node() {
    check(
        "policy actions=allocate
         node large gpu=1 gpumem=80000
         node small gpu=1 gpumem=16000
         queue team limit=0.4
         job part  queue=team gpumem=8000
         job wrong queue=team gpumem=8000 only=small",
        expect![["
            bind part-0 large gpu#0
            waits wrong: no room for wrong-0 (0 of 1 placed), 1 × Affinity, 1 × team full of GPU"]],
    );
}

#[test]
fn a_job_of_a_missing_queue_waits_with_that_reason() {
    check(
        "node a gpu=1
         queue team
         job lost queue=taem gpu=1",
        expect!["waits lost: no such queue"],
    );
}

#[test]
fn a_queue_with_children_holds_no_jobs() {
    check(
        "node a gpu=1
         queue dep
         queue team parent=dep
         job inner queue=dep gpu=1",
        expect!["waits inner: dep has children"],
    );
}

#[test]
fn the_starved_queue_comes_first() {
    check(
        "policy actions=allocate
         node a gpu=1
         queue ahead  quota=0 priority=200
         queue behind quota=1
         job first  queue=ahead gpu=1
         job second queue=behind gpu=1",
        expect![["
            bind second-0 a
            waits first: no room for first-0 (0 of 1 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn queue_priority_comes_before_shares() {
    check(
        "policy actions=allocate
         node a gpu=3
         queue high priority=200
         queue low  priority=100
         job runs   queue=high gpu=1 running=a
         job second queue=low  gpu=2
         job first  queue=high gpu=2",
        expect![["
            bind first-0 a
            waits second: no room for second-0 (0 of 1 placed), 1 × 2 GPU short"]],
    );
}

#[test]
fn of_equal_queues_the_one_with_the_smaller_share_comes_first() {
    check(
        "policy actions=allocate
         node a gpu=3
         queue full  quota=2
         queue empty quota=2
         job runs   queue=full  gpu=2 running=a
         job second queue=full  gpu=1
         job first  queue=empty gpu=1",
        expect![["
            bind first-0 a
            waits second: no room for second-0 (0 of 1 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn inside_a_queue_priority_then_age_decides() {
    check(
        "policy actions=allocate
         node a gpu=2
         queue team
         job young queue=team gpu=1 age=10
         job old   queue=team gpu=1 age=20
         job high  queue=team gpu=1 age=5 prio=75",
        expect![["
            bind high-0 a
            bind old-0 a
            waits young: no room for young-0 (0 of 1 placed), 1 × 1 GPU short"]],
    );
}

#[test]
fn a_depth_keeps_the_best_jobs_of_each_queue() {
    check(
        "policy actions=allocate depth=1
         node a gpu=8
         queue team
         job low  queue=team gpu=1 prio=25
         job high queue=team gpu=1 prio=75",
        expect![["
            bind high-0 a
            waits low: not reached"]],
    );
}
