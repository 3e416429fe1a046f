use kai_engine::CycleProgress;

use super::*;
use crate::scheduler::test_cluster::{NOW, world};
use crate::scheduler::{Scheduler, cycle_with_progress};

/// Waits, limits, evictions, a broken queue and a pod without a group.
const BUSY: &str = "node a gpu=4 label:zone=x
    node b gpu=2 label:zone=y
    queue team quota=2
    queue other quota=4
    queue small limit=1
    queue lost parent=missing
    job old queue=team gpu=4 on=a
    job next queue=other gpu=4
    job big queue=other gpu=99
    job over queue=small gpu=2
    job apart queue=team gpu=1 app=x apart=x@zone
    job nowhere queue=nobody gpu=1";

fn record(number: u64, text: &str) -> CycleRecord {
    let (world, settings, usage) = (world(text), Settings::default(), Usage::default());
    let mut statistics = Vec::new();
    let cycle = cycle_with_progress(&world, &settings, &usage, NOW, |progress| {
        if let CycleProgress::ActionDone(action, stats) = progress {
            statistics.push(ActionRecord::new(action, stats));
        }
    });
    CycleRecord::new(number, NOW, (&world, &settings, &usage), &cycle, statistics)
}

#[test]
fn a_record_is_read_back_as_it_was_written() {
    let record = record(7, BUSY);
    assert!(!record.outcome.is_empty() && record.pending.len() > 2 && !record.problems.is_empty(), "{record:?}");
    let text = serde_json::to_string(&record).unwrap();
    let again: CycleRecord = serde_json::from_str(&text).unwrap();
    assert_eq!(again, record);
    assert_eq!(serde_json::to_string(&again).unwrap(), text);
    // Sentences are made of the data alone.
    for (left, right) in again.pending.iter().zip(&record.pending) {
        assert_eq!(left.explanations(), right.explanations());
    }
}

#[test]
fn a_history_keeps_what_acted_and_the_last() {
    let idle = "node a gpu=1";
    let mut history = CycleHistory::new(2, usize::MAX);
    for number in 1..=4 {
        history.add(record(number, BUSY));
    }
    history.add(record(5, idle));
    history.add(record(6, idle));
    let kept: Vec<u64> = history.list().iter().map(|summary| summary.cycle).collect();
    assert_eq!(kept, [3, 4, 6]);
    assert!(history.get(6).is_some() && history.get(5).is_none());
    // In bytes, too.
    let mut history = CycleHistory::new(64, 1);
    history.add(record(1, BUSY));
    history.add(record(2, BUSY));
    let kept: Vec<u64> = history.list().iter().map(|summary| summary.cycle).collect();
    assert_eq!(kept, [2]);
}

#[test]
fn a_scheduler_that_lowers_incrementally_makes_the_same_record() {
    let (mut world, settings, usage) = (world(BUSY), Settings::default(), Usage::default());
    let mut scheduler = Scheduler::new(settings.clone());
    // The second cycle reuses what the first one explained.
    for number in 1..=2 {
        let mut statistics = Vec::new();
        let cycle = scheduler.cycle_with_progress(&mut world, &usage, NOW, |progress| {
            if let CycleProgress::ActionDone(action, stats) = progress {
                statistics.push(ActionRecord::new(action, stats));
            }
        });
        let live = CycleRecord::new(number, NOW, (&world, &settings, &usage), &cycle, statistics);
        let replayed = record(number, BUSY);
        assert_eq!(live, replayed);
        assert_eq!(serde_json::to_string(&live).unwrap(), serde_json::to_string(&replayed).unwrap());
    }
}
