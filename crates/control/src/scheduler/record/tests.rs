use kai_engine::CycleProgress;
use serde_json::json;

use super::*;
use crate::key::Key;
use crate::kinds::ObjectId;
use crate::scheduler::effect::{
    BindExtras, ClaimedDevices, ExtendedDevices, GpuGroup, NumaZone, Received, ResourceType,
};
use crate::scheduler::reasons::{BindReason, IgnoredPod, StaleBindRequest};
use crate::scheduler::settings::NumaSettings;
use crate::scheduler::test_cluster::{NOW, objects, world};
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
    job nowhere queue=unknown gpu=1";

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
fn all_effects_are_recorded_with_all_that_they_hold() {
    let key = |name: &str| Key::new("lab", name);
    let extras = BindExtras {
        numa_zones: vec![NumaZone { zone: "node-0".to_owned(), amount: [("cpu".to_owned(), "2".to_owned())].into() }],
        claims: vec![ClaimedDevices {
            name: "gpu".to_owned(),
            claim: key("claim"),
            allocation: json!({"devices": {}}),
        }],
        extended: Some(ExtendedDevices {
            allocation: json!({"devices": {}}),
            requests: vec![json!({"name": "r"})],
            mappings: vec![("main".to_owned(), "nvidia.com/gpu".to_owned(), "r".to_owned())],
        }),
    };
    let effects = vec![
        Effect::Bind {
            pod: key("pod"),
            job: key("job"),
            node: "a".to_owned(),
            received: Received { kind: ResourceType::Fraction, devices: 1, portion: 500_000 },
            gpu_groups: vec![GpuGroup { name: "g1".to_owned(), fresh: true }],
            extras,
            why: BindReason { together: 1, queue: None },
        },
        Effect::SetGroupTimestamps {
            job: key("job"),
            last_start: Some(NOW),
            stale_since: None,
            last_eviction: Some(Timestamp(NOW.0 + 1)),
        },
        Effect::Nominate { pod: key("pod"), node: Some("a".to_owned()) },
        Effect::Nominate { pod: key("other"), node: None },
        Effect::DeleteBindRequest { request: key("request"), why: StaleBindRequest::NodeGone { node: "b".to_owned() } },
        Effect::MarkPod {
            pod: key("pod"),
            reason: IgnoredPod { group: key("job"), sub_group: None, leaves: vec!["leaf".to_owned()], more_leaves: 0 },
        },
    ];
    let cycle = CycleResult { effects, next_change_at: Some(NOW), ..CycleResult::default() };
    let seen = (&World::default(), &Settings::default(), &Usage::default());
    let record = CycleRecord::new(1, NOW, seen, &cycle, Vec::new());
    assert_eq!((&record.outcome, record.next_change_at), (&cycle.effects, Some(NOW)));
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<CycleRecord>(&text).unwrap(), record);
    let types: Vec<String> = serde_json::to_value(&record.outcome)
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .map(|effect| effect["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(types, ["bind", "setGroupTimestamps", "nominate", "nominate", "deleteBindRequest", "markPod"]);
}

#[test]
fn a_policy_is_read_back_as_it_was_written() {
    use crate::scheduler::usage::UsageRule;
    let numa = NumaSettings { ignored: ["memory".to_owned()].into(), reconstruct_available: false };
    let usage = Some(UsageRule::every(kai_engine::units::Span::seconds(60)));
    let settings =
        Settings { numa: Some(numa), usage, node_pool_value: Some("blue".to_owned()), ..Settings::default() };
    let policy = CyclePolicy::from(&settings);
    assert_ne!(policy, CyclePolicy::from(&Settings::default()));
    let text = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<CyclePolicy>(&text).unwrap(), policy);
    assert!(!text.contains("connection"), "where usage is stored may contain a password: {text}");
}

#[test]
fn a_record_counts_all_kinds_and_names_what_changed() {
    let mut world = world(BUSY);
    let mut scheduler = Scheduler::new(Settings::default());
    scheduler.cycle(&mut world, &Usage::default(), NOW);
    assert_eq!(scheduler.changes(), None, "all is new");
    let extra = world.pods.values().next().unwrap().clone();
    world.delete(&ObjectId::Pod(extra.key.clone()));
    for object in objects("queue team quota=3\ntopology racks") {
        world.apply(object);
    }
    scheduler.cycle(&mut world, &Usage::default(), NOW);
    let seen = (&world, &Settings::default(), &Usage::default());
    let record = CycleRecord::new(2, NOW, seen, &CycleResult::default(), Vec::new());
    let input = record.with_changes(scheduler.changes().cloned()).input;
    assert_eq!(input.objects.get("Topology"), Some(&1));
    assert_eq!(input.objects.get("Pod"), Some(&world.pods.len()));
    let changes = input.changes.unwrap();
    assert_eq!((changes.total, changes.objects.len()), (3, 3));
    let change = |object: ObjectId, change| ObjectChange { object, change };
    assert!(changes.objects.contains(&change(ObjectId::Pod(extra.key), ChangeKind::Deleted)), "{changes:?}");
    assert!(changes.objects.contains(&change(ObjectId::Queue("team".to_owned()), ChangeKind::Updated)), "{changes:?}");
    assert!(
        changes.objects.contains(&change(ObjectId::Topology("racks".to_owned()), ChangeKind::Added)),
        "{changes:?}"
    );
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
