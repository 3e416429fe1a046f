//! Between queues: who may take back from whom, in which order, and who is spared.

use expect_test::expect;

use crate::support::{check, check_causes, decide};

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
        expect![["
            evict b4-0 for gang (reclaim)
            evict b3-0 for gang (reclaim)
            pipeline gang-0 n2
            pipeline gang-1 n2"]],
    );
}

#[test]
fn an_eviction_reports_its_gang_size_and_what_both_sides_held() {
    check_causes(
        "node a gpu=4
         queue A quota=2
         queue B quota=1
         job b1 queue=B gpu=1 running=a
         job b2 queue=B gpu=1 running=a
         job b3 queue=B gpu=1 running=a
         job b4 queue=B gpu=1 running=a
         job next queue=A gpu=2",
        expect![["
            b4-0: 2 together, B holds 4 of 2, A holds 0 of 2
            b3-0: 2 together, B holds 4 of 2, A holds 0 of 2"]],
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
        expect![["
            evict right-0 for next (reclaim)
            pipeline next-0 b"]],
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
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 2 GPU short
            waits next: consolidate ineligible (0 of 1 placed)
            waits next: reclaim exhausted (0 of 1 placed)
            waits next: preempt has no candidates (0 of 1 placed)"]],
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
        expect![["
            evict elastic-1 for next (reclaim)
            pipeline next-0 a"]],
    );
}

#[test]
fn reclaim_never_stays_inside_a_queue() {
    check(
        "policy actions=allocate,reclaim
         node a gpu=2
         queue other quota=1
         queue team  quota=2
         job fixed queue=other gpu=1 prio=100 running=a
         job runs  queue=team gpu=1 prio=25 running=a
         job next  queue=team gpu=1 prio=75",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: reclaim has no candidates (0 of 1 placed)"]],
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
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: consolidate ineligible (0 of 1 placed)
            waits next: reclaim has no candidates (0 of 1 placed)
            waits next: preempt has no candidates (0 of 1 placed)"]],
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
        expect![["
            evict high-0 for low (reclaim)
            pipeline low-0 a"]],
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
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: reclaim ineligible (0 of 1 placed)"]],
    );
}

/// The multi-level example of 12.2: the departments are compared, not the teams.
#[test]
fn between_departments_the_departments_are_compared() {
    check(
        "node a gpu=11
         queue d1 quota=4 weight=0
         queue d2 quota=3 weight=0
         queue p1 parent=d1 quota=3
         queue p2 parent=d1
         queue x  parent=d2
         job runs queue=p2 gpu=1 min=4 running=a,a,a,a
         job many queue=x  gpu=1 min=0 running=a,a,a,a,a,a,a
         job next queue=p1 gpu=1",
        expect![["
            evict many-6 for next (reclaim)
            pipeline next-0 a"]],
    );
}

/// Checklist 16: above its share the reclaimer must stay less saturated than those it takes from.
#[test]
fn two_queues_above_their_share_do_not_take_from_each_other() {
    check(
        "policy actions=allocate,reclaim
         node a gpu=3
         queue d1 quota=1 weight=0
         queue d2 quota=1 weight=0
         queue p1 parent=d1 quota=1
         queue p2 parent=d1
         queue x  parent=d2
         job own    queue=p2 gpu=1 running=a prio=100
         job theirs queue=x  gpu=2 running=a
         job next   queue=p1 gpu=1",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: reclaim exhausted (0 of 1 placed)"]],
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
        expect![["
            evict above-0 for next (reclaim)
            pipeline next-0 a"]],
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
        expect![["
            evict small-0 for next (reclaim)
            pipeline small-0 a
            pipeline next-0 b"]],
    );
}

#[test]
fn unless_moved_pods_are_to_be_counted_as_taken() {
    check(
        "policy actions=allocate,reclaim consolidating-reclaim=off
         node a gpu=2
         node b gpu=3
         queue A quota=3
         queue B quota=1
         job small queue=B gpu=1 running=b
         job next  queue=A gpu=3",
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 2 × 1 GPU short
            waits next: reclaim exhausted (0 of 1 placed)"]],
    );
}

/// Departments d1 and d2 are above their shares: 5 of 4 after the reclaim, against 6 of 3 that remain.
#[test]
fn the_multiplier_makes_a_reclaimer_above_its_share_more_modest() {
    let cluster = "
         node a gpu=11
         queue d1 quota=4 weight=0
         queue d2 quota=3 weight=0
         queue p1 parent=d1 quota=3
         queue p2 parent=d1
         queue x  parent=d2
         job runs queue=p2 gpu=1 min=4 running=a,a,a,a prio=100
         job many queue=x  gpu=1 min=0 running=a,a,a,a,a,a,a
         job next queue=p1 gpu=1";
    check(
        &format!("policy actions=reclaim multiplier=1{cluster}"),
        expect![["
        evict many-6 for next (reclaim)
        pipeline next-0 a"]],
    );
    check(
        &format!("policy actions=reclaim multiplier=2{cluster}"),
        expect!["waits next: reclaim exhausted (0 of 1 placed)"],
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
        expect![["
            waits next: no room for next-0 (0 of 1 placed), 1 × 1 GPU short
            waits next: consolidate ineligible (0 of 1 placed)
            waits next: reclaim has no candidates (0 of 1 placed)
            waits next: preempt has no candidates (0 of 1 placed)"]],
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
        expect![["
            evict grown-0 for next (reclaim)
            pipeline next-0 a"]],
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
         job first  queue=A gpu=1
         job second queue=A gpu=1",
        expect![["
            evict young-1 for first (reclaim)
            pipeline first-0 a
            waits second: no room for second-0 (0 of 1 placed), 1 × 1 GPU short
            waits second: consolidate ineligible (0 of 1 placed)
            waits second: reclaim has no candidates (0 of 1 placed)
            waits second: preempt has no candidates (0 of 1 placed)"]],
    );
}

/// The example of 14.3: what counts is the victim's side just below the lowest common queue.
const LAB: &str = "
    node a gpu=1
    queue org
    queue lab    parent=org reclaim-min=900
    queue vision parent=lab
    queue v1     parent=vision reclaim-min=0
    queue v2     parent=vision reclaim-min=300
    queue speech parent=lab reclaim-min=120
    queue s1     parent=speech";

/// A victim's queue under the lab, a reclaimer's queue with all the quota on its side, and the time that protects.
fn lab(victim: &str, reclaimer: &str, started: i64) -> String {
    let group = |queue: &str| if queue == "s1" { "speech" } else { "vision" };
    let mut lab = LAB.to_owned();
    for queue in [group(reclaimer), reclaimer] {
        lab = lab.replace(&format!("queue {queue} "), &format!("queue {queue} quota=1 "));
    }
    format!(
        "{lab}\n    job runs queue={victim} gpu=1 running=a started={started}\n    job next queue={reclaimer} gpu=1"
    )
}

#[test]
fn protection_comes_from_just_below_the_common_queue() {
    let spared = |text: String| assert!(!decide(&text).contains("evict"), "{text}");
    let taken = |text: String| assert!(decide(&text).contains("evict runs-0 for next (reclaim)"), "{text}");
    // From speech: its own two minutes.
    spared(lab("s1", "v1", 119));
    taken(lab("s1", "v1", 120));
    // Inside vision: the victim's own five minutes.
    spared(lab("v2", "v1", 299));
    taken(lab("v2", "v1", 300));
    // From vision, which says nothing: the fifteen minutes of the lab. The 0 of the victim's own queue is not asked.
    spared(lab("v1", "s1", 899));
    taken(lab("v1", "s1", 900));
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
        expect![["
            evict young-0 for next (reclaim)
            pipeline next-0 a"]],
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
        expect![["
            waits first: reclaim exhausted (0 of 1 placed)
            waits second: reclaim no easier than first (0 of 1 placed)
            waits third: reclaim exhausted (0 of 1 placed)"]],
    );
}

/// The room was made at the cost of a running job; if another takes it, that job was evicted for nothing.
#[test]
fn a_place_for_which_a_pod_was_evicted_is_not_taken_in_the_same_cycle() {
    let by_the_victims_queue = decide(
        "policy actions=reclaim
         node a gpu=3
         node c gpu=2 tainted
         queue A quota=1
         queue B quota=1 weight=0
         job runs queue=B gpu=2 running=a
         job back queue=B gpu=1
         job next queue=A gpu=3",
    );
    assert!(by_the_victims_queue.contains("pipeline next-0 a"), "{by_the_victims_queue}");
    // `wide` may not reclaim, because of its cores.
    let by_a_higher_priority = decide(
        "node a gpu=3
         queue A quota=2 cpu-quota=1 weight=0
         queue B
         job runs  queue=B gpu=2 running=a
         job small queue=A prio=25 gpu=2
         job wide  queue=A prio=50 gpu=2 cpu=2",
    );
    assert!(by_a_higher_priority.contains("pipeline small-0 a"), "{by_a_higher_priority}");
}

/// Its queue is ordered by the gang, so that a job evicted for the small one would be scheduled first and take its place back.
#[test]
fn a_small_job_behind_a_large_one_takes_nothing_from_those_who_come_first() {
    let cluster = |order: &str| {
        format!(
            "node a gpu=9
             queue A quota=4
             queue B quota=4
             job a1 queue=A gpu=4 running=a
             job b1 queue=B gpu=1 running=a
             job b2 queue=B gpu=1 running=a
             job b3 queue=B gpu=1 running=a
             job b4 queue=B gpu=1 running=a
             job b5 queue=B gpu=1 running=a
             {order}"
        )
    };
    check(
        &cluster("job gang queue=A gpu=8\n job small queue=A gpu=0.5"),
        expect![["
            waits gang: no room for gang-0 (0 of 1 placed), 1 × 8 GPU short
            waits gang: consolidate ineligible (0 of 1 placed)
            waits gang: reclaim ineligible (0 of 1 placed)
            waits gang: preempt has no candidates (0 of 1 placed)
            waits small: no room for small-0 (0 of 1 placed), 1 × no GPU with room
            waits small: consolidate ineligible (0 of 1 placed)
            waits small: reclaim blocked by gang (0 of 1 placed)
            waits small: preempt has no candidates (0 of 1 placed)"]],
    );
    check(
        &cluster("job small queue=A gpu=0.5\n job gang queue=A gpu=8"),
        expect![["
            evict b5-0 for small (reclaim)
            pipeline small-0 a gpu#0
            waits gang: no room for gang-0 (0 of 1 placed), 1 × 8 GPU short
            waits gang: consolidate ineligible (0 of 1 placed)
            waits gang: reclaim ineligible (0 of 1 placed)
            waits gang: preempt has no candidates (0 of 1 placed)"]],
    );
}
