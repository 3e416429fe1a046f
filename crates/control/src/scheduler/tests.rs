//! Whole cycles: a cluster in, effects and words out.

use expect_test::{Expect, expect};
use kai_engine::units::{Span, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::effect::Effect;
use super::settings::Settings;
use super::test_cluster::{NOW, objects, render, run_and_render, world};
use super::usage::Usage;
use crate::kinds::Object;
use crate::objects::Pod;
use crate::world::World;

fn check(text: &str, want: &Expect) {
    want.assert_eq(&run_and_render(text, &Settings::default()));
}

#[test]
fn a_gang_is_bound_together() {
    check(
        "node a gpu=2
         node b gpu=2
         queue team quota=4
         job train queue=team pods=2 gpu=2",
        &expect![[r"
            bind train-0 a: fits together with 1 more pod; queue team now holds 4 GPUs of a fair share of 4
            bind train-1 b: fits together with 1 more pod; queue team now holds 4 GPUs of a fair share of 4
            timestamps train: started yes, stale no
        "]],
    );
}

#[test]
fn times_that_cannot_be_true_count_as_absent() {
    let decide = |started: i64| {
        let mut world = world(
            "node a gpu=8
             queue top quota=8
             queue team parent=top quota=0
             queue other parent=top quota=8
             job squatter queue=team gpu=8 on=a
             job owner queue=other gpu=8",
        );
        for queue in world.queues.values_mut() {
            queue.reclaim_min_runtime = Some(Span::seconds(30));
        }
        let group = world.pod_groups.values_mut().find(|group| group.key.name == "squatter").unwrap();
        group.last_start = Some(Timestamp(NOW.0 + started * 1_000_000));
        let cycle = super::cycle(&world, &Settings::default(), &Usage::default(), NOW);
        let evicted = cycle.effects.iter().any(|effect| matches!(effect, Effect::Evict { .. }));
        (evicted, cycle.problems.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(decide(-3600), (true, vec![]), "as after a restore from a backup");
    assert_eq!(decide(-900), (true, vec![]));
    assert_eq!(decide(-10), (false, vec![]));
    assert_eq!(decide(10), (false, vec![]), "clocks differ");
    let problem = "pod group lab/squatter: The annotation kai.scheduler/last-start-timestamp is a time in the future, and \
                   counts as absent. Remove it: the scheduler writes it.";
    assert_eq!(decide(3600), (true, vec![problem.to_owned()]));
}

#[test]
fn a_pod_that_is_only_called_a_reservation_is_charged_for_its_gpus() {
    let bound = |gpus: u32, labels: &str| {
        let cluster = format!(
            "node a gpu={gpus}
             queue team quota=8
             pod impostor node=a gpu={gpus} {labels}
             job train queue=team gpu=1"
        );
        run_and_render(&cluster, &Settings::default()).starts_with("bind train-0")
    };
    assert!(!bound(1, "app=kai-resource-reservation"));
    assert!(!bound(8, "app=kai-resource-reservation device=g1"), "a reservation holds one GPU");
    assert!(bound(1, "app=kai-resource-reservation device=g1"), "users of the group are charged for the GPU");
}

/// One pod runs and one waits, in namespace `lab`; annotations are of the queue's parent.
fn restricted(annotations: &Value, labels: &Value) -> String {
    let mut world = world(
        "node a gpu=8
         queue department quota=8
         queue team parent=department quota=8
         job runs queue=team gpu=1 on=a
         job waits queue=team gpu=1",
    );
    let unlimited = json!({"quota": -1, "limit": -1});
    let parent = json!({"kind": "Queue", "metadata": {"name": "department", "annotations": annotations},
        "spec": {"resources": {"gpu": {"quota": 8, "limit": -1}, "cpu": unlimited, "memory": unlimited}}});
    let namespace = json!({"kind": "Namespace", "metadata": {"name": "lab", "labels": labels}});
    for object in [parent, namespace] {
        world.apply(Object::parse(&object).unwrap().unwrap());
    }
    render(&super::cycle(&world, &Settings::default(), &Usage::default(), NOW))
}

#[test]
fn a_queue_for_other_namespaces_takes_no_new_pods() {
    let none = json!({});
    let listed = json!({"kai.scheduler/namespaces": "prod, lab"});
    let selected = json!({"kai.scheduler/namespace-selector": "team=x"});
    let bound = restricted(&none, &none);
    assert!(bound.starts_with("bind waits-0 a"), "{bound}");
    assert_eq!(restricted(&listed, &none), bound);
    assert_eq!(restricted(&selected, &json!({"team": "x"})), bound);
    expect![[r"
        waits waits: NamespaceNotAllowed: Namespace lab may not use queue department, which is for those labelled team=x. Name another queue, or have the administrator of the queue add the namespace to its annotation kai.scheduler/namespaces.
    "]]
    .assert_eq(&restricted(&selected, &json!({"team": "y"})));
    let refused = restricted(&json!({"kai.scheduler/namespaces": "prod"}), &none);
    assert!(refused.contains("queue department, which is for prod. "), "{refused}");
    assert!(!refused.contains("evict"), "what runs goes on: {refused}");
}

#[test]
fn half_gpu_pods_share_one_device() {
    check(
        "node a gpu=2 gpu-memory=16000
         queue team quota=2
         job left queue=team fraction=0.5
         job right queue=team fraction=0.5",
        &expect![[r"
            bind left-0 a [a-ba55636071 new]: fits; queue team now holds 1 GPU of a fair share of 1
            bind right-0 a [a-ba55636071 new]: fits; queue team now holds 1 GPU of a fair share of 1
            timestamps left: started yes, stale no
            timestamps right: started yes, stale no
        "]],
    );
}

#[test]
fn a_pod_joins_a_device_that_is_shared_already() {
    check(
        "node a gpu=2 gpu-memory=16000
         queue team quota=2
         job old queue=team device-memory=8000 on=a device=g1
         job new queue=team device-memory=8000",
        &expect![[r"
            bind new-0 a [g1]: fits; queue team now holds 1 GPU of a fair share of 1
            timestamps new: started yes, stale no
        "]],
    );
}

#[test]
fn pods_outside_of_jobs_hold_their_part_of_a_device() {
    check(
        "node a gpu=1 gpu-memory=16000
         queue team quota=2
         pod stranger fraction=0.75 node=a device=g1
         job new queue=team fraction=0.5
         job small queue=team fraction=0.25",
        &expect![[r"
            bind small-0 a [g1]: fits; queue team now holds 0.25 GPUs of a fair share of 0.75
            timestamps small: started yes, stale no
            new waits: PodSchedulingErrors: No node takes pod lab/new-0: 1 node lacks 1 GPU with a free share of 0.5.
            new waits: Unschedulable: No capacity can be freed. Consolidation: the job requests 0.5 GPUs, only 0 are free in the whole cluster. Reclaim: no victim in another queue is eligible. Preemption: no lower-priority job in the queue is eligible.
        "]],
    );
}

#[test]
fn what_is_missing_is_named_for_the_best_node() {
    check(
        "node a gpu=4
         node b gpu=8
         node c gpu=8 cordoned
         node d gpu=8 taint=reserved
         queue team quota=20
         job big queue=team gpu=6 on=b
         job gang queue=team pods=3 gpu=4",
        &expect![[r"
            gang waits: PodSchedulingErrors: Only 1 of the 3 pods that must start together found room. No node takes pod lab/gang-1: 2 nodes lack GPUs (the best is short of 2 GPUs); 1 node has a taint that the pod does not tolerate; 1 node is cordoned. Add a toleration to use the tainted nodes.
            gang waits: Unschedulable: No capacity can be freed. Consolidation: tried 4 scenarios, best placed 1 of 3 pods (2 lack resources). Reclaim: no victim in another queue is eligible. Preemption: no lower-priority job in the queue is eligible.
        "]],
    );
}

#[test]
fn a_request_that_no_node_can_serve_is_reported() {
    check(
        "node a gpu=8
         queue team
         job huge queue=team gpu=16",
        &expect![[r"
            huge waits: PodSchedulingErrors: No node takes pod lab/huge-0: 1 node lacks GPUs (short of 8 GPUs). The pod asks for 16 GPUs, but no node has more than 8 GPUs, even when empty.
            huge waits: Unschedulable: No capacity can be freed. Consolidation: the job requests 16 GPUs, only 8 are free in the whole cluster. Reclaim: queue team may not reclaim, it holds 0 GPUs of a fair share of 8 and the job requests 16 more. Preemption: no lower-priority job in the queue is eligible.
        "]],
    );
}

#[test]
fn queues_that_do_not_exist_are_guessed() {
    check(
        "node a gpu=8
         queue research
         queue lost parent=nowhere
         job typo queue=reserch
         job orphan queue=lost
         job stray queue=somewhere-else
         job nameless",
        &expect![[r"
            nameless waits: QueueDoesNotExist: The job names no queue: correct spec.queue of the pod group, or the label kai.scheduler/queue of the workload.
            orphan waits: QueueDoesNotExist: Queue lost cannot be used. Its parent queue nowhere does not exist, so that jobs of this queue and of those below it wait. Create nowhere, or change spec.parentQueue.
            stray waits: QueueDoesNotExist: Queue somewhere-else does not exist. Create it, or correct spec.queue of the pod group, or the label kai.scheduler/queue of the workload.
            typo waits: QueueDoesNotExist: Queue reserch does not exist. Did you mean research? Then correct spec.queue of the pod group, or the label kai.scheduler/queue of the workload; or create queue reserch.
            queue lost: OrphanQueue: Its parent queue nowhere does not exist, so that jobs of this queue and of those below it wait. Create nowhere, or change spec.parentQueue.
        "]],
    );
}

#[test]
fn only_leaves_hold_jobs() {
    check(
        "node a gpu=8
         queue dept
         queue team parent=dept
         job high queue=dept gpu=1",
        &expect![[r"
            high waits: QueueIsNotLeaf: Queue dept has queues below it, and only queues without any hold jobs. Use one of them: team.
        "]],
    );
}

#[test]
fn limits_and_quotas_are_named_with_amounts() {
    check(
        "node a gpu=8
         queue dept limit=4 display=Research
         queue team parent=dept quota=2
         job running queue=team gpu=2 on=a
         job more queue=team pods=2 gpu=2
         job fixed queue=team gpu=3 non-preemptible",
        &expect![[r"
            fixed waits: OverLimit: Queue Research may use at most 4 GPUs, it holds 2 and the job asks for 3 more. Wait for jobs of the queue to end, or raise its limit.
            fixed waits: Unschedulable: No capacity can be freed. Reclaim: queue team may not reclaim, it holds 2 GPUs of a fair share of 4 and the job requests 3 more. Preemption: queue team has a quota of 2 GPUs, non-preemptible jobs hold 0 and the job requests 3 more.
            more waits: OverLimit: Queue Research may use at most 4 GPUs, it holds 2 and the job asks for 4 more. Wait for jobs of the queue to end, or raise its limit.
            more waits: Unschedulable: No capacity can be freed. Consolidation: tried 3 scenarios, best placed 1 of 2 pods (1 lacks resources). Reclaim: queue team may not reclaim, it holds 2 GPUs of a fair share of 4 and the job requests 4 more. Preemption: no lower-priority job in the queue is eligible.
        "]],
    );
}

#[test]
fn gangs_wait_for_their_pods() {
    check(
        "node a gpu=8
         queue team
         job half queue=team pods=2 min=4 gpu=1
         job tree queue=team subgroup=workers subgroups=driver:1,workers:2 gpu=1
         job lost queue=team subgroup=ghosts subgroups=driver:1 gpu=1
         job broken queue=team subgroups=a:1<b gpu=1",
        &expect![[r#"
            mark lost-0: Unschedulable: Sub-group "ghosts" does not exist in PodGroup lab/lost, so that the pod is ignored. Label it with one of its leaves: driver.
            broken waits: InvalidPodGroup: Sub-group a names parent b, which does not exist, so that nothing of the job is scheduled. Add b to spec.subGroups, or remove the parent.
            half waits: NotReady: Not all pods that must start together are there: 4 pods are required, there are 2.
            tree waits: NotReady: Not all pods that must start together are there: 1 pod is required of sub-group driver, there are 0; 2 pods are required of sub-group workers, there is 1.
            pod group lab/broken: InvalidPodGroup: Sub-group a names parent b, which does not exist, so that nothing of the job is scheduled. Add b to spec.subGroups, or remove the parent.
        "#]],
    );
}

#[test]
fn the_rest_of_a_gang_does_not_wait_for_pods_that_are_done() {
    check(
        "node a gpu=8
         queue team
         job partly queue=team pods=3 done=2 gpu=1
         job lacking queue=team pods=3 done=1 min=4 gpu=1
         job elastic queue=team pods=4 done=1 min=2 gpu=4",
        &expect![[r"
            bind partly-2 a: fits; queue team now holds 1 GPU of a fair share of 8
            timestamps partly: started yes, stale no
            elastic waits: PodSchedulingErrors: Only 1 of the 2 pods that must start together found room. No node takes pod lab/elastic-2: 1 node lacks GPUs (short of 1 GPU).
            elastic waits: Unschedulable: No capacity can be freed. Consolidation: the job requests 8 GPUs, only 7 are free in the whole cluster. Reclaim: queue team may not reclaim, it holds 1 GPU of a fair share of 8 and the job requests 8 more. Preemption: no lower-priority job in the queue is eligible.
            lacking waits: NotReady: Not all pods that must start together are there: 4 pods are required, there are 2.
        "]],
    );
}

#[test]
fn a_pod_is_pipelined_on_resources_that_are_being_released() {
    check(
        "node a gpu=2
         queue team
         job old queue=team gpu=2 on=a ending
         job new queue=team gpu=2",
        &expect![[r"
            pipeline new-0 a: pipelined: starts here when terminating pods release the resources
            new waits: Pipelined: Its pods are pipelined and start when terminating pods release their nodes.
        "]],
    );
}

#[test]
fn topologies_are_named() {
    check(
        "node a gpu=2 label:zone=east
         node b gpu=2 label:zone=west
         queue team
         topology fabric levels=zone
         job wide queue=team pods=2 gpu=2 topology=fabric required=zone
         job typo queue=team topology=fabrik required=zone
         job level queue=team topology=fabric required=rack",
        &expect![[r"
            level waits: PodSchedulingErrors: Topology fabric has no level rack, which is required. Its levels: zone.
            level waits: Unschedulable: No capacity can be freed. No running job may be moved or evicted for it.
            typo waits: PodSchedulingErrors: Topology fabrik does not exist. Did you mean fabric?
            typo waits: Unschedulable: No capacity can be freed. No running job may be moved or evicted for it.
            wide waits: Not enough resources for the workload: 2 pods must stay together in one zone of topology fabric; the best, east, has room for 1.
            wide waits: Unschedulable: No capacity can be freed. No running job may be moved or evicted for it.
        "]],
    );
}

#[test]
fn a_shard_sees_its_own_nodes_only() {
    let settings = Settings { node_pool_value: Some("blue".to_owned()), ..Settings::default() };
    let text = "node a gpu=2 label:kai.scheduler/node-pool=blue
         node b gpu=8
         queue team label:kai.scheduler/node-pool=blue
         queue other
         job mine queue=team gpu=4 label:kai.scheduler/node-pool=blue
         job astray queue=other gpu=1 label:kai.scheduler/node-pool=blue
         job theirs queue=team gpu=1";
    expect![[r"
        astray waits: QueueDoesNotExist: Queue other belongs to another node pool: correct spec.queue of the pod group, or the label kai.scheduler/queue of the workload.
        mine waits: PodSchedulingErrors: No node takes pod lab/mine-0: 1 node lacks GPUs (short of 2 GPUs). The pod asks for 4 GPUs, but no node has more than 2 GPUs, even when empty.
        mine waits: Unschedulable: No capacity can be freed. Consolidation: the job requests 4 GPUs, only 2 are free in the whole cluster. Reclaim: queue team may not reclaim, it holds 0 GPUs of a fair share of 2 and the job requests 4 more. Preemption: no lower-priority job in the queue is eligible.
        pod lab/theirs-0: PodGroupDoesNotExist: Pod group lab/theirs does not exist in this node pool, so that the pod waits. Create it, or correct the annotation pod-group-name.
    "]].assert_eq(&run_and_render(text, &settings));
}

#[test]
fn reasons_of_evictions_name_the_preemptor() {
    check(
        "node a gpu=4
         queue east quota=2
         queue west quota=2
         job greedy queue=west gpu=4 on=a
         job starved queue=east gpu=2",
        &expect![[r"
            evict greedy-0: makes room for job lab/starved: queue west held 4 GPUs of a fair share of 2, quota 2, priority 100; queue east held 0 GPUs of a fair share of 2, quota 2, priority 100
            pipeline starved-0 a: pipelined: starts here when terminating pods release the resources
            timestamps greedy: started no, stale no
            nominate starved-0 a
            starved waits: Pipelined: Its pods are pipelined and start when terminating pods release their nodes.
        "]],
    );
    check(
        "node a gpu=2
         queue team
         class build value=100
         job low queue=team gpu=2 on=a
         job high queue=team gpu=2 priority=build",
        &expect![[r"
            evict low-0: makes room for job lab/high of higher priority, 100 over 50
            pipeline high-0 a: pipelined: starts here when terminating pods release the resources
            timestamps low: started no, stale no
            nominate high-0 a
            high waits: Pipelined: Its pods are pipelined and start when terminating pods release their nodes.
        "]],
    );
}

#[test]
fn pods_are_moved_to_make_room() {
    check(
        "node a gpu=2
         node b gpu=2
         queue team
         job left queue=team gpu=1 on=a
         job right queue=team gpu=1 on=b
         job wide queue=team gpu=2",
        &expect![[r"
            evict right-0: moves to another node to make room for job lab/wide
            pipeline right-0 a: pipelined: moves here when its pod on the other node has terminated
            pipeline wide-0 b: pipelined: starts here when terminating pods release the resources
            timestamps right: started no, stale no
            nominate wide-0 b
            wide waits: Pipelined: Its pods are pipelined and start when terminating pods release their nodes.
        "]],
    );
}

#[test]
fn foreign_pods_take_room_and_capacity() {
    check(
        "node a gpu=4
         queue team
         pod stranger gpu=3 node=a
         job big queue=team gpu=2
         job small queue=team gpu=1",
        &expect![[r"
            bind small-0 a: fits; queue team now holds 1 GPU of a fair share of 1
            timestamps small: started yes, stale no
            big waits: PodSchedulingErrors: No node takes pod lab/big-0: 1 node lacks GPUs (short of 1 GPU).
            big waits: Unschedulable: No capacity can be freed. Consolidation: the job requests 2 GPUs, only 0 are free in the whole cluster. Reclaim: queue team may not reclaim, it holds 1 GPU of a fair share of 1 and the job requests 2 more. Preemption: no lower-priority job in the queue is eligible.
        "]],
    );
}

#[test]
fn mig_profiles_are_resources() {
    check(
        "node a has:nvidia.com/mig-1g.5gb=2
         node b gpu=2
         queue team quota=1
         job slice queue=team asks:nvidia.com/mig-1g.5gb=1
         job many queue=team asks:nvidia.com/mig-1g.5gb=3",
        &expect![[r"
            bind slice-0 a: fits; queue team now holds 1 GPU of a fair share of 4
            timestamps slice: started yes, stale no
            many waits: PodSchedulingErrors: No node takes pod lab/many-0: 2 nodes lack nvidia.com/mig-1g.5gb (the best is short of 2 nvidia.com/mig-1g.5gb). The pod asks for 3 nvidia.com/mig-1g.5gb, but no node has more than 2 nvidia.com/mig-1g.5gb, even when empty.
            many waits: Unschedulable: No capacity can be freed. Consolidation: cannot free enough. Reclaim: no victim in another queue is eligible. Preemption: no lower-priority job in the queue is eligible.
        "]],
    );
}

#[test]
fn memory_that_no_device_has_is_reported() {
    check(
        "node a gpu=1 gpu-memory=16000
         node b gpu=1
         queue team
         job fits queue=team device-memory=16000
         job large queue=team device-memory=20000
         job pair queue=team device-memory=1000 devices=2",
        &expect![[r"
            bind fits-0 a [a-0df34d41d7 new]: fits; queue team now holds 1 GPU of a fair share of 2
            timestamps fits: started yes, stale no
            large waits: PodSchedulingErrors: No node takes pod lab/large-0: 2 nodes have GPUs with too little memory (16000 MiB at most). Ask for at most 16000 MiB of each GPU, or for whole GPUs.
            large waits: Unschedulable: No capacity can be freed. Consolidation: the job requests 20000 MiB of GPU memory, only 100 MiB are free in the whole cluster. Reclaim: queue team may not reclaim, it holds 1 GPU of a fair share of 2 and the job requests 1.25 more. Preemption: no lower-priority job in the queue is eligible.
            pair waits: PodSchedulingErrors: No node takes pod lab/pair-0: 1 node has GPUs of unknown memory; 1 node lacks 2 GPUs with 1000 MiB free. Label nodes with nvidia.com/gpu.memory, or ask with gpu-fraction.
            pair waits: Unschedulable: No capacity can be freed. Consolidation: the job requests 2000 MiB of GPU memory, only 100 MiB are free in the whole cluster. Reclaim: no victim in another queue is eligible. Preemption: no lower-priority job in the queue is eligible.
        "]],
    );
}

fn bind_request(node: &str, uid: Option<&str>, status: &Value) -> Object {
    let owners: Vec<Value> = uid.map(|uid| json!({"kind": "Pod", "uid": uid})).into_iter().collect();
    let value = json!({"kind": "BindRequest", "metadata": {"name": "train-0", "namespace": "lab", "ownerReferences": owners},
        "spec": {"podName": "train-0", "selectedNode": node}, "status": status});
    Object::parse(&value).unwrap().unwrap()
}

/// The answer to its bind was lost, so a request was made anew, before a watch showed that it is bound.
#[test]
fn a_bound_pod_shares_the_gpu_it_was_bound_with_even_if_its_request_names_another() {
    let mut world = world(
        "node a gpu=2 gpu-memory=16000
         queue team
         job train queue=team fraction=0.5 on=a device=g1
         job other queue=team fraction=0.5 on=a device=g2
         job new queue=team gpu=1",
    );
    let request = json!({"kind": "BindRequest", "metadata": {"name": "train-0", "namespace": "lab"},
        "spec": {"podName": "train-0", "selectedNode": "a", "selectedGPUGroups": ["g2"]}, "status": {"phase": "Succeeded"}});
    world.apply(Object::parse(&request).unwrap().unwrap());
    let played = render(&super::cycle(&world, &Settings::default(), &Usage::default(), NOW));
    assert!(!played.contains("bind new-0"), "{played}");
}

#[test]
fn a_pod_that_is_being_bound_holds_its_node_until_the_bind_has_failed_for_good() {
    let check = |request: Object, want: &Expect| {
        let mut world = world(
            "node a gpu=2
             queue team
             job train queue=team gpu=2",
        );
        world.apply(request);
        want.assert_eq(&render(&super::cycle(&world, &Settings::default(), &Usage::default(), NOW)));
    };
    check(bind_request("a", None, &json!({})), &expect![""]);
    check(bind_request("a", Some("lab/train-0"), &json!({})), &expect![""]);
    check(
        bind_request("a", Some("an earlier pod"), &json!({})),
        &expect![[r"
            delete bind request train-0: it was made for an earlier pod of this name
            bind train-0 a: fits; queue team now holds 2 GPUs of a fair share of 2
            timestamps train: started yes, stale no
        "]],
    );
    check(
        bind_request("a", None, &json!({"phase": "Failed"})),
        &expect![[r"
            delete bind request train-0: the pod could not be bound to node a
            bind train-0 a: fits; queue team now holds 2 GPUs of a fair share of 2
            timestamps train: started yes, stale no
        "]],
    );
    check(
        bind_request("gone", None, &json!({})),
        &expect![[r"
            delete bind request train-0: node gone no longer exists
            bind train-0 a: fits; queue team now holds 2 GPUs of a fair share of 2
            timestamps train: started yes, stale no
        "]],
    );
}

/// A bit of everything.
const MIXED: &str = "node a gpu=4 gpu-memory=16000 label:zone=x
    node b gpu=2 label:zone=y
    node c has:nvidia.com/mig-1g.5gb=2 taint=mig
    queue dept quota=6
    queue east parent=dept quota=2
    queue west parent=dept quota=4
    queue lost parent=nowhere
    class build value=100
    topology fabric levels=zone
    job first queue=east gpu=1 on=a
    job shared queue=east fraction=0.5 on=a device=g1
    pod stranger gpu=1 node=b
    job gang queue=west pods=2 gpu=1 topology=fabric required=zone
    job half queue=west fraction=0.5
    job urgent queue=east gpu=2 priority=build
    job typo queue=wst gpu=1
    job tree queue=west subgroup=b subgroups=a:1,b:1<c,c gpu=1
    job orphan queue=lost";

proptest! {
    #[test]
    fn the_order_of_arrival_changes_nothing(objects in Just(objects(MIXED)).prop_shuffle()) {
        let mut shuffled = World::default();
        for object in objects {
            shuffled.apply(object);
        }
        let cycle = |world: &World| super::cycle(world, &Settings::default(), &Usage::default(), NOW);
        prop_assert_eq!(cycle(&shuffled), cycle(&world(MIXED)));
    }

    #[test]
    fn what_was_deleted_was_never_there(gone in 0_usize..40) {
        let all = objects(MIXED);
        let gone = &all[gone % all.len()];
        let (mut without, mut deleted) = (World::default(), World::default());
        for object in &all {
            deleted.apply(object.clone());
            if object.id() != gone.id() {
                without.apply(object.clone());
            }
        }
        prop_assert!(deleted.delete(&gone.id()));
        let cycle = |world: &World| super::cycle(world, &Settings::default(), &Usage::default(), NOW);
        prop_assert_eq!(cycle(&deleted), cycle(&without));
    }
}

#[test]
fn a_scheduler_that_goes_on_names_what_pods_ask_of_each_other() {
    let mut world = world("node a gpu=2\nqueue team quota=2\njob old queue=team gpu=1 on=a\njob new queue=team gpu=1");
    let mut pod = world.pods.values().find(|pod| pod.node.is_none()).expect("one is pending").clone();
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {}});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let value = json!({"metadata": {"name": "x", "namespace": "lab"}, "spec": {"affinity": apart}});
    pod.inter_pod = Pod::parse(&value).expect("well-formed").inter_pod;
    world.apply(Object::Pod(Box::new(pod)));
    let mut node = world.nodes["a"].clone();
    node.labels.insert("kubernetes.io/hostname".to_owned(), "a".to_owned());
    world.apply(Object::Node(Box::new(node)));
    let (settings, usage) = (Settings::default(), Usage::default());
    let whole = render(&super::cycle(&world, &settings, &usage, NOW));
    assert!(whole.contains("anti-affinity"), "{whole}");
    let mut scheduler = super::Scheduler::new(settings);
    for _ in 0..2 {
        let next = scheduler.cycle(&mut world, &usage, NOW);
        assert_eq!(render(&next), whole);
    }
}
