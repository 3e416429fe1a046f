//! Each checker finds what is wrong in the smallest cluster that breaks its invariant, and in no other.

use expect_test::{Expect, expect};
use kai_control::Object;
use kai_control::key::PodKey;
use kai_control::scheduler::reasons::{EvictionReason, PipelineReason};
use kai_control::scheduler::{PendingJob, QueueView};
use kai_engine::units::{Ceiling, ResourceQuantities};
use serde_json::{Value, json};

use super::*;

/// 2026-01-01.
const NOW: Timestamp = Timestamp(1_767_225_600_000_000);

/// Objects of a cluster in which all named pods were bound by the last cycle.
struct Case {
    world: World,
    performed: Performed,
    cycle: CycleResult,
}

impl Case {
    /// One node with two GPUs of 10,000 MiB, 4 CPUs and 10 pod slots; one queue inside another.
    fn new() -> Self {
        let mut case = Self { world: World::default(), performed: Performed::default(), cycle: CycleResult::default() };
        case.add(&json!({"kind": "Node", "metadata": {"name": "n", "labels": {"nvidia.com/gpu.memory": "10000"}},
            "status": {"allocatable": {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": 2, "pods": 10}}}));
        case.add(&json!({"kind": "PriorityClass", "metadata": {"name": "build"}, "value": 100}));
        case.queue("above", None, -1, -1);
        case.queue("team", Some("above"), -1, -1);
        case
    }

    fn add(&mut self, value: &Value) {
        self.world.apply(Object::parse(value).expect("cases are well-formed").expect("of a kind that is kept"));
    }

    fn queue(&mut self, name: &str, parent: Option<&str>, quota: i64, limit: i64) {
        let open = json!({"quota": -1, "limit": -1});
        self.add(&json!({"kind": "Queue", "metadata": {"name": name}, "spec": {"parentQueue": parent,
            "resources": {"gpu": {"quota": quota, "limit": limit}, "cpu": open, "memory": open}}}));
    }

    fn group(&mut self, name: &str, spec: &Value) {
        let mut spec = spec.clone();
        spec["queue"] = json!("team");
        self.add(&json!({"kind": "PodGroup", "metadata": {"name": name, "namespace": "t"}, "spec": spec}));
    }

    /// A pod that the last cycle bound.
    fn bound(&mut self, name: &str, group: &str, metadata: &Value, requests: &Value) {
        let mut metadata = metadata.clone();
        metadata["name"] = json!(name);
        metadata["namespace"] = json!("t");
        metadata["annotations"]["pod-group-name"] = json!(group);
        self.add(&json!({"kind": "Pod", "metadata": metadata,
            "spec": {"nodeName": "n", "containers": [{"resources": {"requests": requests}}]}}));
        self.performed.bound.insert(PodKey::new("t", name));
    }

    fn whole(&mut self, name: &str, group: &str, gpus: u32) {
        self.bound(name, group, &json!({}), &json!({"nvidia.com/gpu": gpus}));
    }

    fn shared(&mut self, name: &str, annotation: &Value, device: &str) {
        let metadata = json!({"annotations": annotation, "labels": {"runai-gpu-group": device}});
        self.bound(name, "g", &metadata, &json!({}));
    }

    /// A pod that waits for a place.
    fn waiting(&mut self, name: &str, group: &str, gpus: u32) {
        self.add(&json!({"kind": "Pod",
            "metadata": {"name": name, "namespace": "t", "annotations": {"pod-group-name": group}},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"resources": {"requests": {"nvidia.com/gpu": gpus}}}]}}));
    }

    /// A pod of group `g` that the last cycle evicted for group `for_whom`.
    fn evicted(&mut self, name: &str, action: Action, for_whom: Option<&str>) {
        self.add(&json!({"kind": "Pod", "metadata": {"name": name, "namespace": "t",
            "annotations": {"pod-group-name": "g"}, "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "n", "containers": [{}]}}));
        self.performed.evicted.insert(PodKey::new("t", name));
        self.cycle.effects.push(eviction(name, "g", action, for_whom));
    }

    fn pipelined(&mut self, name: &str, group: &str) {
        self.performed.pipelined.insert(PodKey::new("t", name));
        self.cycle.effects.push(pipelined(name, group));
    }

    /// The last cycle did nothing, and a job is pending.
    fn did_nothing(&mut self) {
        self.performed = Performed::default();
        self.cycle.queues.push(view("unused", ResourceQuantities::ZERO));
        let job = GroupKey::new("t", "g");
        self.cycle.pending.push(PendingJob::new(job, "team".to_owned(), Vec::new(), None).into());
    }

    fn check(&self, expected: &Expect) {
        let settings = Settings::default();
        let observation = CycleObservation {
            world: &self.world,
            settings: &settings,
            cycle: &self.cycle,
            performed: &self.performed,
            now: NOW,
        };
        let found = match check(&observation, Span(0)) {
            Ok(()) => "fine".to_owned(),
            Err(violation) => violation.to_string(),
        };
        expected.assert_eq(&found);
    }
}

pub(super) fn eviction(name: &str, group: &str, action: Action, for_whom: Option<&str>) -> Effect {
    Effect::Evict {
        pod: PodKey::new("t", name),
        job: GroupKey::new("t", group),
        node: Some("n".to_owned()),
        action,
        preemptor: for_whom.map(|group| GroupKey::new("t", group)),
        gang_size: 1,
        why: EvictionReason::Other { preemptor: None },
    }
}

pub(super) fn pipelined(name: &str, group: &str) -> Effect {
    Effect::Pipeline {
        pod: PodKey::new("t", name),
        job: GroupKey::new("t", group),
        node: "n".to_owned(),
        gpu_groups: Vec::new(),
        why: PipelineReason::Waits,
    }
}

fn view(name: &str, allocated: ResourceQuantities) -> QueueView {
    QueueView {
        name: name.to_owned(),
        display_name: name.to_owned(),
        parent: None,
        priority: 100,
        quota: [Ceiling::Unlimited; 3],
        limit: [Ceiling::Unlimited; 3],
        weight: [0; 3],
        fair_share: ResourceQuantities::ZERO,
        allocated,
        allocated_non_preemptible: ResourceQuantities::ZERO,
        request: ResourceQuantities::ZERO,
    }
}

fn case(minimum: u32) -> Case {
    let mut case = Case::new();
    case.group("g", &json!({"minMember": minimum}));
    case
}

#[test]
fn a_full_node_is_fine() {
    let mut case = case(2);
    case.whole("a", "g", 1);
    case.whole("b", "g", 1);
    case.check(&expect!["fine"]);
}

#[test]
fn too_many_gpus_on_a_node() {
    let mut case = case(1);
    case.whole("a", "g", 2);
    case.whole("b", "g", 1);
    case.check(&expect!["no GPU is over-committed: pods on n take 3 GPUs, it has 2"]);
}

#[test]
fn too_many_cpus_on_a_node() {
    let mut case = case(1);
    case.bound("a", "g", &json!({}), &json!({"cpu": 3}));
    case.bound("b", "g", &json!({}), &json!({"cpu": 2}));
    case.check(&expect!["no node is over-committed: pods on n ask for 5000 milli-CPU, it has 4000"]);
}

#[test]
fn shares_that_fill_a_gpu_are_fine() {
    let mut case = case(1);
    case.shared("a", &json!({"gpu-fraction": "0.5"}), "x");
    case.shared("b", &json!({"gpu-memory": "5000"}), "x");
    case.whole("c", "g", 1);
    case.check(&expect!["fine"]);
}

#[test]
fn shares_larger_than_a_gpu() {
    let mut case = case(1);
    case.shared("a", &json!({"gpu-fraction": "0.6"}), "x");
    case.shared("b", &json!({"gpu-memory": "5000"}), "x");
    case.check(&expect!["no GPU is over-committed: pods on GPU x of n take 11000 MiB, it has 10000"]);
}

#[test]
fn shared_and_whole_gpus_are_counted_together() {
    let mut case = case(1);
    case.shared("a", &json!({"gpu-fraction": "0.5"}), "x");
    case.shared("b", &json!({"gpu-fraction": "0.5"}), "y");
    case.whole("c", "g", 1);
    case.check(&expect!["no GPU is over-committed: pods on n take 3 GPUs, it has 2"]);
}

#[test]
fn half_a_gang() {
    let mut case = case(3);
    case.whole("a", "g", 1);
    case.whole("b", "g", 1);
    case.check(&expect!["gangs start and stay whole: pod group t/g was started with 2 pods, less than its minimum"]);
}

#[test]
fn what_is_left_of_a_gang_that_is_partly_done() {
    let mut case = case(3);
    case.whole("a", "g", 1);
    case.whole("b", "g", 1);
    case.add(
        &json!({"kind": "Pod", "metadata": {"name": "c", "namespace": "t", "annotations": {"pod-group-name": "g"}},
        "spec": {"containers": [{}]}, "status": {"phase": "Succeeded"}}),
    );
    case.check(&expect!["fine"]);
    case.waiting("d", "g", 1);
    case.check(&expect!["gangs start and stay whole: pod group t/g was started with 2 pods, less than its minimum"]);
}

#[test]
fn a_gang_without_its_leader() {
    let mut case = Case::new();
    let leaves = json!([{"name": "leader", "minMember": 1}, {"name": "workers", "minMember": 1}]);
    case.group("g", &json!({"subGroups": leaves}));
    case.bound("w", "g", &json!({"labels": {"kai.scheduler/subgroup-name": "workers"}}), &json!({}));
    case.check(&expect!["gangs start and stay whole: pod group t/g was started with 1 pods, less than its minimum"]);
    case.bound("l", "g", &json!({"labels": {"kai.scheduler/subgroup-name": "leader"}}), &json!({}));
    case.check(&expect!["fine"]);
}

#[test]
fn a_gang_that_lost_a_pod_to_others() {
    let mut case = case(2);
    case.whole("a", "g", 1);
    case.whole("b", "g", 1);
    case.performed.bound.clear();
    case.performed.evicted.insert(PodKey::new("t", "b"));
    let mut leaving = json!({"kind": "Pod", "metadata": {"name": "b", "namespace": "t",
        "annotations": {"pod-group-name": "g"}, "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "n", "containers": [{}]}});
    case.add(&leaving);
    case.check(&expect!["gangs start and stay whole: pod group t/g was reduced to 1 pods, less than its minimum"]);
    leaving["metadata"]["name"] = json!("a");
    case.add(&leaving);
    case.performed.evicted.insert(PodKey::new("t", "a"));
    case.check(&expect!["fine"]);
}

#[test]
fn a_queue_above_its_limit_at_the_top() {
    let mut case = case(1);
    case.queue("above", None, -1, 1);
    case.whole("a", "g", 2);
    case.check(&expect!["no queue exceeds its limit: queue above holds 2000000 of Gpu, above its limit"]);
}

#[test]
fn fixed_work_above_a_quota() {
    let mut case = Case::new();
    case.queue("above", None, 1, -1);
    case.group("g", &json!({"minMember": 1, "priorityClassName": "build"}));
    case.whole("a", "g", 2);
    case.check(&expect!["non-preemptible workloads stay within quota: queue above holds 2000000 of Gpu, above its quota with work that cannot be preempted"]);
    case.group("g", &json!({"minMember": 1, "priorityClassName": "build", "preemptibility": "preemptible"}));
    case.check(&expect!["fine"]);
}

#[test]
fn books_that_do_not_add_up() {
    let mut case = case(1);
    case.whole("a", "g", 1);
    case.cycle.queues.push(view("team", ResourceQuantities::new(0, 0, 2_000_000)));
    case.check(&expect![
        "queue totals agree with the pods: queue team is reported to hold [0, 0, 2000000], but its pods hold [0, 0, 1000000]"
    ]);
}

#[test]
fn an_effect_that_cannot_be_performed() {
    let mut case = case(1);
    case.performed.rejected.push("pod t/a was bound, but does not exist".to_owned());
    case.check(&expect!["effects can be performed: pod t/a was bound, but does not exist"]);
}

#[test]
fn a_pod_that_waits_beside_room() {
    let mut case = case(1);
    case.whole("a", "g", 1);
    case.waiting("b", "g", 1);
    case.did_nothing();
    case.check(&expect!["no workload waits beside free capacity: 1 pods of t/g could start, but it waits"]);
    case.waiting("b", "g", 2);
    case.check(&expect!["fine"]);
}

#[test]
fn a_gang_that_waits_beside_room() {
    let mut case = case(2);
    case.waiting("a", "g", 1);
    case.did_nothing();
    case.check(&expect!["fine"]);
    case.waiting("b", "g", 1);
    case.check(&expect!["no workload waits beside free capacity: 2 pods of t/g could start, but it waits"]);
    case.queue("above", None, -1, 1);
    case.check(&expect!["fine"]);
}

#[test]
fn a_pod_of_another_namespace() {
    let restrict = |case: &mut Case| {
        let open = json!({"quota": -1, "limit": -1});
        case.add(&json!({"kind": "Queue",
            "metadata": {"name": "team", "annotations": {"kai.scheduler/namespaces": "other"}},
            "spec": {"resources": {"gpu": open, "cpu": open, "memory": open}}}));
    };
    let mut case = case(1);
    case.whole("a", "g", 1);
    case.check(&expect!["fine"]);
    restrict(&mut case);
    case.check(&expect![
        "queues take pods of their namespaces only: pod t/a was bound, but queue team is not for its namespace"
    ]);
    case.waiting("b", "g", 1);
    case.did_nothing();
    case.check(&expect!["fine"]);
}

#[test]
fn work_that_cannot_be_preempted_is_evicted() {
    let mut case = Case::new();
    case.group("g", &json!({"minMember": 1, "priorityClassName": "build"}));
    case.group("next", &json!({"minMember": 1}));
    case.evicted("a", Action::Reclaim, Some("next"));
    case.pipelined("b", "next");
    case.waiting("b", "next", 1);
    case.check(&expect!["non-preemptible workloads are not evicted: pod t/a was evicted, but cannot be preempted"]);
}

#[test]
fn evicted_without_a_preemptor_and_for_one_that_gets_nothing() {
    let mut case = case(1);
    case.group("next", &json!({"minMember": 2}));
    case.evicted("a", Action::Preempt, None);
    case.check(&expect!["evictions have a preemptor: pod t/a was evicted without a preemptor"]);
    case.cycle.effects.clear();
    case.evicted("a", Action::Preempt, Some("next"));
    case.check(&expect!["evictions have a preemptor: pod t/a was evicted for t/next, which gets no place"]);
    case.waiting("b", "next", 1);
    case.pipelined("b", "next");
    case.check(&expect!["evictions have a preemptor: pod t/a was evicted for t/next, which gets too little to start"]);
    case.waiting("c", "next", 1);
    case.pipelined("c", "next");
    case.check(&expect!["fine"]);
}

#[test]
fn moved_to_nowhere() {
    let mut case = case(1);
    case.group("next", &json!({"minMember": 1}));
    case.waiting("b", "next", 1);
    case.pipelined("b", "next");
    case.evicted("a", Action::Consolidate, Some("next"));
    case.check(&expect!["evictions have a preemptor: pod t/a was moved, but to nowhere"]);
    case.pipelined("a", "g");
    case.check(&expect!["fine"]);
}

#[test]
fn a_young_job_that_is_evicted() {
    let mut case = case(1);
    let group = |started: &str| {
        json!({"kind": "PodGroup", "metadata": {"name": "g", "namespace": "t",
            "annotations": {"kai.scheduler/last-start-timestamp": started}}, "spec": {"minMember": 1, "queue": "team"}})
    };
    let open = json!({"quota": -1, "limit": -1});
    case.add(&json!({"kind": "Queue", "metadata": {"name": "team"}, "spec": {"parentQueue": "above",
        "preemptMinRuntime": "1m", "resources": {"gpu": open, "cpu": open, "memory": open}}}));
    case.group("next", &json!({"minMember": 1}));
    case.waiting("b", "next", 1);
    case.pipelined("b", "next");
    case.evicted("a", Action::Preempt, Some("next"));
    case.add(&group("2025-12-31T23:59:30Z"));
    case.check(&expect![
        "minimum runtimes are respected: pod t/a was evicted, though its job has run for too short a time"
    ]);
    case.add(&group("2025-12-31T23:59:00Z"));
    case.check(&expect!["fine"]);
}

#[test]
fn devices_that_are_missing_out_of_reach_or_allocated_twice() {
    let mut case = case(1);
    let pod = |name: &str, claim: &str| {
        json!({"kind": "Pod", "metadata": {"name": name, "namespace": "t", "annotations": {"pod-group-name": "g"}},
            "spec": {"nodeName": "n", "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}})
    };
    let claim = |name: &str, status: &Value| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "t"},
            "status": status})
    };
    let device = json!({"request": "gpu", "driver": "d", "pool": "p", "device": "gpu-0"});
    let allocated = |node: &str, users: &[&str]| {
        let users: Vec<Value> =
            users.iter().map(|user| json!({"resource": "pods", "name": user, "uid": user})).collect();
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        json!({"reservedFor": users, "allocation": {"devices": {"results": [device]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}})
    };
    case.add(&pod("a", "one"));
    case.performed.bound.insert(PodKey::new("t", "a"));
    case.check(&expect!["pods have their devices: t/a is on n, but its claim gpu does not exist"]);
    case.add(&claim("one", &json!({})));
    case.check(&expect!["pods have their devices: t/a is on n, but its claim t/one has no devices"]);
    case.add(&claim("one", &allocated("n", &[])));
    case.check(&expect!["pods have their devices: t/a is on n, but claim t/one is not reserved for it"]);
    case.add(&claim("one", &allocated("elsewhere", &["a"])));
    case.check(&expect!["pods have their devices: t/a cannot reach the devices of claim t/one from n"]);
    case.add(&claim("one", &allocated("n", &["a"])));
    case.check(&expect!["fine"]);
    case.add(&claim("two", &allocated("n", &["b"])));
    case.check(&expect!["pods have their devices: device gpu-0 of p is in t/one, t/two"]);
}

#[test]
fn too_much_in_a_numa_zone() {
    let mut case = case(1);
    let resources = |cpus: &str, gpus: &str| {
        json!([{"name": "cpu", "allocatable": cpus, "available": cpus},
            {"name": "nvidia.com/gpu", "allocatable": gpus, "available": gpus}])
    };
    case.add(&json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": "n"}, "zones": [{"name": "node-0", "type": "Node", "resources": resources("2", "1")},
            {"name": "node-1", "type": "Node", "resources": resources("2", "1")}]}));
    let zones = |zone: &str| {
        let taken = format!("[{{\"zone\": \"{zone}\", \"amount\": {{\"nvidia.com/gpu\": 1}}}}]");
        json!({"annotations": {"kai.scheduler/numa-placement-predicted": taken}})
    };
    let request = json!({"nvidia.com/gpu": 1});
    case.bound("a", "g", &zones("node-0"), &request);
    case.bound("b", "g", &zones("node-1"), &request);
    case.check(&expect!["fine"]);
    case.bound("b", "g", &zones("node-0"), &request);
    case.check(&expect!["no NUMA zone is over-committed: pods take 2 GPUs of zone node-0 of n, it has 1"]);
}

#[test]
fn volumes_out_of_reach_too_many_or_shared() {
    let mut case = case(1);
    case.add(&json!({"kind": "CSINode", "metadata": {"name": "n"},
        "spec": {"drivers": [{"name": "d", "allocatable": {"count": 1}}]}}));
    let pod = |name: &str, claim: &str| {
        json!({"kind": "Pod", "metadata": {"name": name, "namespace": "t", "annotations": {"pod-group-name": "g"}},
            "spec": {"nodeName": "n", "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}})
    };
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["elsewhere"]});
    for (name, spec) in [
        ("one", json!({"csi": {"driver": "d"}})),
        ("two", json!({"csi": {"driver": "d"}})),
        ("far", json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [field]}]}}})),
    ] {
        case.add(&json!({"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}));
        let spec = json!({"volumeName": name, "accessModes": ["ReadWriteOncePod"]});
        case.add(&json!({"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "t"}, "spec": spec}));
    }
    case.add(&pod("a", "one"));
    case.performed.bound.insert(PodKey::new("t", "a"));
    case.check(&expect!["fine"]);
    case.add(&pod("b", "one"));
    case.check(&expect!["pods have their volumes: claim t/one is for one pod, but has 2"]);
    case.add(&pod("b", "two"));
    case.check(&expect!["pods have their volumes: n has 2 volumes of d, 1 at most"]);
    case.add(&pod("a", "far"));
    case.check(&expect!["pods have their volumes: t/a cannot reach the volume of claim t/far from n"]);
}
