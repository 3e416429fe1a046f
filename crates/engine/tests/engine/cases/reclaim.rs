//! Between queues: who may take back from whom, in which order, and who is spared.

use expect_test::expect;

use crate::support::check;

/// Walk-through 19.1.
#[test]
fn a_gang_takes_back_its_queues_quota_from_the_newest_jobs() {
    check(
        "node n1 gpu=4
         node n2 gpu=4
         queue A quota=4
         queue B quota=4
         job b1 queue=B gpu=2 running=n1
         job b2 queue=B gpu=2 running=n1
         job b3 queue=B gpu=2 running=n2
         job b4 queue=B gpu=2 running=n2
         job gang queue=A gpu=2 pods=2",
        expect![[r#"
            evict b4-0 for gang (reclaim)
            evict b3-0 for gang (reclaim)
            promise gang-0 n2
            promise gang-1 n2"#]],
    );
}

/// Walk-through 19.2: within its own quota a queue may take from what another holds above quota, fair or not.
#[test]
fn quota_may_be_taken_back_inside_someones_fair_share() {
    check(
        "node a gpu=4
         node b gpu=4
         queue A quota=4
         queue B quota=2
         job left  queue=B gpu=3 running=a
         job right queue=B gpu=3 running=b
         job next  queue=A gpu=2",
        expect![[r#"
            evict right-0 for next (reclaim)
            promise next-0 b"#]],
    );
}

/// Checklist 1: the surplus is not enough, and without it the queue is at its quota.
#[test]
fn the_core_of_an_elastic_job_is_not_taken_from_a_queue_within_quota() {
    check(
        "node a gpu=3
         queue A quota=2
         queue B quota=2
         job elastic queue=B gpu=1 min=2 running=a,a,a
         job next    queue=A gpu=2",
        expect![[r#"
            waits next: no room for next-0 (0 of 1 placed), 1 × 2 GPU short
            waits next: consolidate not entitled (0 scenarios, 0 of 1 placed)
            waits next: reclaim exhausted (1 scenarios, 0 of 1 placed)
            waits next: preempt has no candidates (0 scenarios, 0 of 1 placed)"#]],
    );
}

#[test]
fn a_surplus_pod_goes_before_a_whole_job() {
    check(
        "node a gpu=4
         queue A quota=1
         queue B quota=1
         job elastic queue=B gpu=1 min=1 running=a,a
         job rigid   queue=B gpu=2 running=a
         job next    queue=A gpu=1",
        expect![[r#"
            evict elastic-1 for next (reclaim)
            promise next-0 a"#]],
    );
}

#[test]
fn reclaim_never_stays_inside_a_queue() {
    check(
        "policy actions=allocate,reclaim
         node a gpu=1
         queue team quota=1
         job runs queue=team gpu=1 prio=25 running=a
         job next queue=team gpu=1 prio=75",
        expect![[r#"
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: reclaim not entitled (0 scenarios, 0 of 1 placed)"#]],
    );
}

#[test]
fn non_preemptible_jobs_are_no_victims() {
    check(
        "node a gpu=1
         queue A quota=1
         queue B quota=0
         job build queue=B gpu=1 prio=100 running=a
         job next  queue=A gpu=1",
        expect![[r#"
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: consolidate not entitled (0 scenarios, 0 of 1 placed)
            waits next: reclaim has no candidates (0 scenarios, 0 of 1 placed)
            waits next: preempt has no candidates (0 scenarios, 0 of 1 placed)"#]],
    );
}

#[test]
fn job_priority_means_nothing_between_queues() {
    check(
        "node a gpu=1
         queue A quota=1
         queue B quota=0
         job high queue=B gpu=1 prio=75 running=a
         job low  queue=A gpu=1 prio=25",
        expect![[r#"
            evict high-0 for low (reclaim)
            promise low-0 a"#]],
    );
}

#[test]
fn a_queue_above_its_share_takes_nothing() {
    check(
        "policy actions=allocate,reclaim
         node a gpu=4
         queue A quota=1
         queue B quota=3
         job own    queue=A gpu=1 running=a
         job theirs queue=B gpu=3 running=a
         job next   queue=A gpu=1",
        expect![[r#"
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: reclaim not entitled (0 scenarios, 0 of 1 placed)"#]],
    );
}

/// The multi-level example of 12.2: the departments are compared, not the teams.
#[test]
fn between_departments_the_departments_are_compared() {
    check(
        "node a gpu=11
         queue d1 quota=4
         queue d2 quota=3 weight=0
         queue p1 parent=d1 quota=3
         queue p2 parent=d1
         queue x  parent=d2
         job runs queue=p2 gpu=1 min=4 running=a,a,a,a
         job many queue=x  gpu=1 min=0 running=a,a,a,a,a,a,a
         job next queue=p1 gpu=1",
        expect![[r#"
            evict many-6 for next (reclaim)
            promise next-0 a"#]],
    );
}

/// Checklist 16: above its share the reclaimer must stay less saturated than those it takes from.
#[test]
fn two_queues_above_their_share_do_not_take_from_each_other() {
    check(
        "policy actions=allocate,reclaim
         node a gpu=3
         queue d1 quota=1
         queue d2 quota=1 weight=0
         queue p1 parent=d1 quota=1
         queue p2 parent=d1
         queue x  parent=d2
         job own    queue=p2 gpu=1 running=a
         job theirs queue=x  gpu=2 running=a
         job next   queue=p1 gpu=1",
        expect![[r#"
            evict theirs-0 for next (reclaim)
            promise next-0 a"#]],
    );
}

/// Checklist 23: the first queue in victim order is within its quota and is passed over.
#[test]
fn a_queue_within_quota_does_not_end_the_search() {
    check(
        "node a gpu=4
         queue A quota=2
         queue B quota=2 priority=50
         queue C quota=0 priority=100
         job within queue=B gpu=2 running=a
         job above  queue=C gpu=2 running=a
         job next   queue=A gpu=2",
        expect![[r#"
            evict above-0 for next (reclaim)
            promise next-0 a"#]],
    );
}

#[test]
fn a_victim_that_finds_another_place_is_moved_and_not_counted_as_taken() {
    check(
        "policy actions=allocate,reclaim
         node a gpu=2
         node b gpu=3
         queue A quota=3
         queue B quota=1
         job small queue=B gpu=1 running=b
         job next  queue=A gpu=3",
        expect![[r#"
            evict small-0 for next (reclaim)
            promise small-0 a
            promise next-0 b"#]],
    );
}

#[test]
fn a_young_job_is_spared() {
    check(
        "node a gpu=1
         queue A quota=1
         queue B reclaim-min=60
         job young queue=B gpu=1 running=a started=59
         job next  queue=A gpu=1",
        expect![[r#"
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: consolidate not entitled (0 scenarios, 0 of 1 placed)
            waits next: reclaim has no candidates (0 scenarios, 0 of 1 placed)
            waits next: preempt has no candidates (0 scenarios, 0 of 1 placed)"#]],
    );
}

#[test]
fn a_job_is_no_longer_young_when_its_time_is_over() {
    check(
        "node a gpu=1
         queue A quota=1
         queue B reclaim-min=60
         job grown queue=B gpu=1 running=a started=60
         job next  queue=A gpu=1",
        expect![[r#"
            evict grown-0 for next (reclaim)
            promise next-0 a"#]],
    );
}

/// Checklist 15.
#[test]
fn a_young_elastic_job_loses_its_surplus_but_not_its_core() {
    check(
        "node a gpu=2
         queue A quota=2
         queue B reclaim-min=60
         job young queue=B gpu=1 min=1 running=a,a started=10
         job small queue=A gpu=1
         job large queue=A gpu=1",
        expect![[r#"
            evict young-1 for small (reclaim)
            promise small-0 a
            waits large: no room for large-0 (0 of 1 placed), 1 × 1 GPU short
            waits large: consolidate not entitled (0 scenarios, 0 of 1 placed)
            waits large: reclaim has no candidates (0 scenarios, 0 of 1 placed)
            waits large: preempt has no candidates (0 scenarios, 0 of 1 placed)"#]],
    );
}

/// The example of 14.3: what counts is the victim's side just below the lowest common queue.
#[test]
fn protection_comes_from_just_below_the_common_queue() {
    let tree = "node a gpu=1
         queue org
         queue lab    parent=org reclaim-min=900
         queue vision parent=lab
         queue v1     parent=vision quota=1 reclaim-min=0
         queue v2     parent=vision quota=1 reclaim-min=300
         queue speech parent=lab quota=1 reclaim-min=120
         queue s1     parent=speech quota=1";
    // v1 from s1: 120 s of speech.
    check(&format!("{tree}\n job s queue=s1 gpu=1 running=a started=119\n job v queue=v1 gpu=1"), expect![[r#"
        waits v: no room for v-0 (0 of 1 placed), 1 × 1 GPU short
        waits v: consolidate not entitled (0 scenarios, 0 of 1 placed)
        waits v: reclaim has no candidates (0 scenarios, 0 of 1 placed)
        waits v: preempt has no candidates (0 scenarios, 0 of 1 placed)"#]]);
    // s1 from v1: nothing set for vision, so 900 s of lab; v1's own 0 is not asked.
    check(&format!("{tree}\n job v queue=v1 gpu=1 running=a started=899\n job s queue=s1 gpu=1"), expect![[r#"
        waits s: no room for s-0 (0 of 1 placed), 1 × 1 GPU short
        waits s: consolidate not entitled (0 scenarios, 0 of 1 placed)
        waits s: reclaim has no candidates (0 scenarios, 0 of 1 placed)
        waits s: preempt has no candidates (0 scenarios, 0 of 1 placed)"#]]);
}

#[test]
fn protection_may_come_from_the_victims_queue_instead() {
    check(
        "policy reclaim-method=queue
         node a gpu=1
         queue d1 quota=1 reclaim-min=900
         queue d2 quota=0 reclaim-min=900
         queue A  parent=d1 quota=1
         queue B  parent=d2 reclaim-min=0
         job young queue=B gpu=1 running=a started=1
         job next  queue=A gpu=1",
        expect![[r#"
            evict young-0 for next (reclaim)
            promise next-0 a"#]],
    );
}

/// Checklist 13.
#[test]
fn jobs_no_easier_than_a_failed_one_are_not_tried() {
    check(
        "policy actions=reclaim
         node a gpu=2
         queue A quota=8
         queue B quota=2
         job busy  queue=B gpu=2 running=a
         job first  queue=A gpu=2
         job second queue=A gpu=2
         job third  queue=A gpu=1",
        expect![[r#"
            waits first: reclaim exhausted (1 scenarios, 0 of 1 placed)
            waits second: reclaim no easier than first (0 scenarios, 0 of 1 placed)
            waits third: reclaim exhausted (1 scenarios, 0 of 1 placed)"#]],
    );
}
