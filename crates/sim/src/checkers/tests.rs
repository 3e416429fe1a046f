//! Who checks the checkers: each complains about the smallest cluster that breaks its truth, and about no other.

use expect_test::{Expect, expect};
use kai_control::Object;
use kai_control::scheduler::QueueView;
use kai_control::world::PodKey;
use kai_engine::units::{Ceiling, Triple};
use serde_json::{Value, json};

use super::*;

/// 2026-01-01.
const NOW: Timestamp = Timestamp(1_767_225_600_000_000);

/// Objects of a cluster in which all named pods were bound by the last cycle.
struct Case {
    world: World,
    performed: Performed,
    cycle: Cycle,
}

impl Case {
    /// One node with two GPUs of 10,000 MiB, 4 CPUs and 10 pod slots; one queue inside another.
    fn new() -> Self {
        let mut case = Self { world: World::default(), performed: Performed::default(), cycle: Cycle::default() };
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

    fn check(&self, expected: &Expect) {
        let settings = Settings::default();
        let evidence = Evidence {
            world: &self.world,
            settings: &settings,
            cycle: &self.cycle,
            performed: &self.performed,
            now: NOW,
        };
        let found = match check(&evidence, Span(0)) {
            Ok(()) => "fine".to_owned(),
            Err(violation) => violation.to_string(),
        };
        expected.assert_eq(&found);
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
    case.check(&expect!["work that cannot be preempted stays within quota: queue above holds 2000000 of Gpu, above its quota with work that cannot be preempted"]);
    case.group("g", &json!({"minMember": 1, "priorityClassName": "build", "preemptibility": "preemptible"}));
    case.check(&expect!["fine"]);
}

#[test]
fn books_that_do_not_add_up() {
    let mut case = case(1);
    case.whole("a", "g", 1);
    case.cycle.queues.push(QueueView {
        name: "team".to_owned(),
        display_name: "team".to_owned(),
        parent: None,
        priority: 100,
        quota: [Ceiling::Unlimited; 3],
        limit: [Ceiling::Unlimited; 3],
        weight: [0; 3],
        fair_share: Triple::ZERO,
        allocated: Triple::new(0, 0, 2_000_000),
        allocated_non_preemptible: Triple::ZERO,
        request: Triple::ZERO,
    });
    case.check(&expect![
        "queue books agree with the pods: queue team is said to hold [0, 0, 2000000], but its pods hold [0, 0, 1000000]"
    ]);
}

#[test]
fn an_effect_that_cannot_be_performed() {
    let mut case = case(1);
    case.performed.refused.push("pod t/a was bound, but does not exist".to_owned());
    case.check(&expect!["effects can be performed: pod t/a was bound, but does not exist"]);
}
