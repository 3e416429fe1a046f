//! When the next cycle may decide otherwise though nothing has happened: what the engine compares with the time.

use crate::support::next_change;

#[test]
fn where_only_an_event_can_change_anything_there_is_no_such_time() {
    let text = "node a gpu=1
         queue team
         job runs queue=team gpu=1 running=a
         job next queue=team gpu=1";
    assert_eq!(next_change(text), None);
}

#[test]
fn a_preemption_delay_ends() {
    let text = "node a gpu=1
         queue team
         job runs queue=team prio=50 gpu=1 running=a
         job next queue=team prio=75 gpu=1 delay=60 age=20";
    assert_eq!(next_change(text), Some(40));
}

#[test]
fn the_grace_of_a_stale_gang_ends() {
    let text = "node a gpu=2
         queue team
         job early queue=team gpu=1 running=a min=2 stale=20
         job late queue=team gpu=1 running=a min=2 stale=10";
    assert_eq!(next_change(text), Some(40));
    let lost_now = "node a gpu=2
         queue team
         job gang queue=team gpu=1 running=a min=2";
    assert_eq!(next_change(lost_now), Some(60));
}

#[test]
fn a_minimum_runtime_ends() {
    let text = "policy preempt-min=100
         node a gpu=1
         queue team
         job runs queue=team prio=50 gpu=1 running=a started=30
         job next queue=team prio=75 gpu=1";
    assert_eq!(next_change(text), Some(70));
}

#[test]
fn the_cooldown_of_a_moved_job_ends() {
    let text = "node a gpu=4
         node b gpu=4
         queue team
         job left  queue=team gpu=2 running=a evicted=299
         job right queue=team gpu=2 running=b evicted=10
         job large queue=team gpu=4";
    assert_eq!(next_change(text), Some(1));
}
