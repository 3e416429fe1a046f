use std::fmt::Write as _;

use expect_test::{Expect, expect};
use kai_api::SchedulingCondition;

use super::*;
use crate::scheduler::effect::PendingJob;
use crate::scheduler::reasons::PendingReason;
use crate::scheduler::test_cluster::{NOW, world};
use crate::scheduler::{Usage, cycle};

fn report(planner: &mut WritePlanner, world: &World) -> Vec<Write> {
    let settings = Settings::default();
    let cycle = cycle(world, &settings, &Usage::default(), NOW);
    planner.plan(world, &cycle, &settings, NOW)
}

fn draw(writes: &[Write]) -> String {
    let mut text = String::new();
    for write in writes {
        match write {
            Write::CreateBindRequest(request) => {
                writeln!(text, "create {}", serde_json::to_string_pretty(request).unwrap()).unwrap();
            }
            Write::SetGroupConditions { group, conditions, .. } => {
                writeln!(text, "conditions of {group}:").unwrap();
                for known in conditions {
                    let codes: Vec<&str> = known.reasons.iter().map(|why| why.reason.as_str()).collect();
                    let (pool, id) = (&known.node_pool, &known.transition_id);
                    writeln!(text, "  {pool} {id} {codes:?} {}", known.message).unwrap();
                    for details in known.reasons.iter().filter_map(|why| why.details.as_ref()) {
                        writeln!(text, "  {}", serde_json::to_string(details).unwrap()).unwrap();
                    }
                }
            }
            Write::Emit(event) => {
                let about = match &event.about {
                    InvolvedObject::Pod(key, _) => format!("pod {key}"),
                    InvolvedObject::PodGroup(key, _) => format!("group {key}"),
                };
                writeln!(text, "event {} on {about}: {} {:?}", event.reason, event.message, event.annotations).unwrap();
            }
            other => writeln!(text, "{other:?}").unwrap(),
        }
    }
    text
}

fn check(text: &str, want: &Expect) {
    want.assert_eq(&draw(&report(&mut WritePlanner::default(), &world(text))));
}

/// The world after the writes, as far as they concern conditions.
fn after(mut world: World, writes: &[Write]) -> World {
    for write in writes {
        match write {
            Write::SetGroupConditions { group, conditions, .. } => {
                world.pod_groups.get_mut(group).unwrap().conditions.clone_from(conditions);
            }
            Write::SetUnschedulable { pod, message, .. } => {
                world.pods.get_mut(pod).unwrap().unschedulable_message = Some(message.clone());
            }
            _ => {}
        }
    }
    world
}

const FULL: &str = "node a gpu=2
    queue team quota=2
    job old queue=team gpu=2 on=a
    job new queue=team gpu=1";

#[test]
fn rewording_the_same_reasons_is_debounced() {
    let text = |gpus: u32| FULL.replace("gpu=1", &format!("gpu={gpus}"));
    let writes_after = |seconds: i64, then: &str| {
        let mut planner = WritePlanner::default();
        let first = report(&mut planner, &world(&text(1)));
        assert_ne!(first, []);
        let known = after(world(then), &first);
        let (settings, now) = (Settings::default(), NOW.plus(Span::seconds(seconds)));
        planner.plan(&known, &cycle(&known, &settings, &Usage::default(), now), &settings, now)
    };
    // The same reasons, other numbers.
    assert_eq!(writes_after(9, &text(2)), []);
    let later = writes_after(10, &text(2));
    let marks = |write: &&Write| matches!(write, Write::SetUnschedulable { .. });
    assert_eq!(later.iter().filter(marks).count(), 1, "{later:?}");
    // Next time it takes longer.
    let (mut planner, mut written, mut reported) = (WritePlanner::default(), Vec::new(), Vec::new());
    for second in 0..40_u32 {
        let (settings, now) = (Settings::default(), NOW.plus(Span::seconds(second.into())));
        let known = after(world(&text(1 + second % 2)), &written);
        let writes = planner.plan(&known, &cycle(&known, &settings, &Usage::default(), now), &settings, now);
        if !writes.is_empty() {
            reported.push(second);
        }
        written.extend(writes);
    }
    assert_eq!(reported, [0, 11, 32]);
    // A remark is no other reason.
    let mut planner = WritePlanner::default();
    let known = after(world(&text(1)), &report(&mut planner, &world(&text(1))));
    let (settings, now) = (Settings::default(), NOW.plus(Span::seconds(1)));
    let mut remarked = cycle(&known, &settings, &Usage::default(), now);
    let PendingJob { job, queue, mut reasons, blocked, .. } = PendingJob::clone(&remarked.pending[0]);
    reasons.push(PendingReason::NotAttempted);
    remarked.pending[0] = PendingJob::new(job, queue, reasons, blocked).into();
    assert_eq!(planner.plan(&known, &remarked, &settings, now), []);
    // Another reason is reported at once.
    let limited = text(1).replace("quota=2", "quota=2 limit=2");
    assert_ne!(writes_after(0, &limited), []);
}

#[test]
fn a_pod_pending_for_a_queue_gets_its_numbers() {
    check(
        "node a gpu=4
         queue team quota=1 limit=2
         job old queue=team gpu=2 on=a
         job new queue=team gpu=1",
        &expect![[r#"
            SetUnschedulable { pod: Key { namespace: "lab", name: "new-0" }, reason: "OverLimit", message: "Queue team may use at most 2 GPUs, it holds 2 and the job asks for 1 more. Wait for jobs of the queue to end, or raise its limit. No capacity can be freed. Consolidation: tried 1 scenario, best placed 0 of 1 pods (1 lacks resources). Reclaim: queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job requests 1 more. Preemption: no lower-priority job in the queue is eligible.", is_update: false }
            conditions of lab/new:
              default 1 ["OverLimit"] Queue team may use at most 2 GPUs, it holds 2 and the job asks for 1 more. Wait for jobs of the queue to end, or raise its limit. No capacity can be freed. Consolidation: tried 1 scenario, best placed 0 of 1 pods (1 lacks resources). Reclaim: queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job requests 1 more. Preemption: no lower-priority job in the queue is eligible.
              {"queueDetails":{"name":"team","queueRequestedResources":{"cpu":"2","memory":"2G","nvidia.com/gpu":"3"},"queueDeservedResources":{"nvidia.com/gpu":"1"},"queueAllocatedResources":{"cpu":"1","memory":"1G","nvidia.com/gpu":"2"},"queueAllocatedNonPreemptibleResources":{"cpu":"0","memory":"0","nvidia.com/gpu":"0"},"queueResourceLimits":{"nvidia.com/gpu":"2"},"podGroupRequestedResources":{"cpu":"1","memory":"1G","nvidia.com/gpu":"1"},"podGroupRequestedNonPreemptibleResources":{"cpu":"0","memory":"0","nvidia.com/gpu":"0"}}}
            event Unschedulable on pod lab/new-0: Queue team may use at most 2 GPUs, it holds 2 and the job asks for 1 more. Wait for jobs of the queue to end, or raise its limit. No capacity can be freed. Consolidation: tried 1 scenario, best placed 0 of 1 pods (1 lacks resources). Reclaim: queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job requests 1 more. Preemption: no lower-priority job in the queue is eligible. {}
            event Unschedulable on group lab/new: Queue team may use at most 2 GPUs, it holds 2 and the job asks for 1 more. Wait for jobs of the queue to end, or raise its limit. No capacity can be freed. Consolidation: tried 1 scenario, best placed 0 of 1 pods (1 lacks resources). Reclaim: queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job requests 1 more. Preemption: no lower-priority job in the queue is eligible. {}
        "#]],
    );
}

#[test]
fn a_bind_is_a_request_owned_by_its_pod() {
    check(
        "node a gpu=2 gpu-memory=16000
         queue team quota=2
         job half queue=team fraction=0.5",
        &expect![[r#"
            create {
              "apiVersion": "scheduling.run.ai/v1alpha2",
              "kind": "BindRequest",
              "metadata": {
                "labels": {
                  "selected-node": "a"
                },
                "name": "half-0",
                "namespace": "lab",
                "ownerReferences": [
                  {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": "half-0",
                    "uid": "lab/half-0"
                  }
                ]
              },
              "spec": {
                "podName": "half-0",
                "selectedNode": "a",
                "receivedResourceType": "Fraction",
                "receivedGPU": {
                  "count": 1,
                  "portion": "0.50"
                },
                "selectedGPUGroups": [
                  "a-28592f47de"
                ]
              }
            }
            PatchGroupTimestamps { group: Key { namespace: "lab", name: "half" }, annotations: {"kai.scheduler/last-eviction-timestamp": None, "kai.scheduler/last-start-timestamp": Some("1970-01-01T00:16:40Z"), "kai.scheduler/stale-podgroup-timestamp": None} }
            event Scheduled on pod lab/half-0: Successfully assigned pod lab/half-0 to node a at node-pool default {}
        "#]],
    );
}

#[test]
fn a_pending_pod_gets_its_condition_once() {
    let (world, mut planner) = (world(FULL), WritePlanner::default());
    let first = report(&mut planner, &world);
    expect![[r#"
        SetUnschedulable { pod: Key { namespace: "lab", name: "new-0" }, reason: "Unschedulable", message: "No node takes pod lab/new-0: 1 node lacks GPUs (short of 1 GPU). No capacity can be freed. Consolidation: the job requests 1 GPU, only 0 are free in the whole cluster. Reclaim: queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job requests 1 more. Preemption: no lower-priority job in the queue is eligible.", is_update: false }
        conditions of lab/new:
          default 1 ["PodSchedulingErrors"] No node takes pod lab/new-0: 1 node lacks GPUs (short of 1 GPU). No capacity can be freed. Consolidation: the job requests 1 GPU, only 0 are free in the whole cluster. Reclaim: queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job requests 1 more. Preemption: no lower-priority job in the queue is eligible.
        event Unschedulable on pod lab/new-0: No node takes pod lab/new-0: 1 node lacks GPUs (short of 1 GPU). No capacity can be freed. Consolidation: the job requests 1 GPU, only 0 are free in the whole cluster. Reclaim: queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job requests 1 more. Preemption: no lower-priority job in the queue is eligible. {}
        event Unschedulable on group lab/new: No node takes pod lab/new-0: 1 node lacks GPUs (short of 1 GPU). No capacity can be freed. Consolidation: the job requests 1 GPU, only 0 are free in the whole cluster. Reclaim: queue team may not reclaim, it holds 2 GPUs of a fair share of 2 and the job requests 1 more. Preemption: no lower-priority job in the queue is eligible. {}
    "#]].assert_eq(&draw(&first));
    let world = after(world, &first);
    assert_eq!(report(&mut planner, &world), []);
}

#[test]
fn a_condition_that_no_longer_holds_is_removed() {
    let (mut world, mut planner) = (world(FULL), WritePlanner::default());
    let writes = report(&mut planner, &world);
    world = after(world, &writes);
    world.pods.remove(&PodKey::new("lab", "old-0"));
    // Bound in this cycle: the condition stays until the pod has arrived.
    let writes = report(&mut planner, &world);
    assert!(!writes.iter().any(|write| matches!(write, Write::SetGroupConditions { .. })));
    world.pods.get_mut(&PodKey::new("lab", "new-0")).unwrap().node = Some("a".to_owned());
    let writes = report(&mut planner, &world);
    let (group, conditions) = (GroupKey::new("lab", "new"), Vec::new());
    let cleared = Write::SetGroupConditions { group, conditions, is_update: true };
    assert!(writes.contains(&cleared), "{writes:?}");
}

#[test]
fn an_eviction_names_who_it_is_for() {
    check(
        "node a gpu=1
         class build value=100
         queue team quota=1 limit=1
         job old queue=team gpu=1 on=a
         job new queue=team gpu=1 priority=build",
        &expect![[r#"
            Evict { pod: Key { namespace: "lab", name: "old-0" }, uid: "lab/old-0", message: "Pod lab/old-0 was preempted by higher priority workload lab/new: makes room for job lab/new of higher priority, 100 over 50" }
            PatchGroupTimestamps { group: Key { namespace: "lab", name: "old" }, annotations: {"kai.scheduler/last-eviction-timestamp": Some("1970-01-01T00:16:40Z"), "kai.scheduler/last-start-timestamp": None, "kai.scheduler/stale-podgroup-timestamp": None} }
            Nominate { pod: Key { namespace: "lab", name: "new-0" }, node: Some("a") }
            event Evict on group lab/old: Pod lab/old-0 was preempted by higher priority workload lab/new: makes room for job lab/new of higher priority, 100 over 50 {"evictor-action-type": "preempt", "evictor-pod-group-name": "new", "evictor-pod-group-namespace": "lab", "num-evicted-pods": "1"}
            event Pipelined on pod lab/new-0: Pod lab/new-0 was pipelined to node a {}
        "#]],
    );
}

#[test]
fn a_condition_of_another_pool_stays_and_numbers_go_on() {
    let mut world = world(FULL);
    let group = world.pod_groups.get_mut(&GroupKey::new("lab", "new")).unwrap();
    group.conditions.push(SchedulingCondition {
        node_pool: "other".to_owned(),
        transition_id: "7".to_owned(),
        ..SchedulingCondition::default()
    });
    let writes = report(&mut WritePlanner::default(), &world);
    let conditions = writes.iter().find_map(|write| match write {
        Write::SetGroupConditions { conditions, .. } => Some(conditions),
        _ => None,
    });
    let shown: Vec<(&str, &str)> =
        conditions.unwrap().iter().map(|known| (known.node_pool.as_str(), known.transition_id.as_str())).collect();
    assert_eq!(shown, [("other", "7"), ("default", "8")]);
}
