//! A cluster in which every amount is as large as objects may have it: no sum or product leaves its type. Tests are built
//! with overflow checks, so that one that does is a panic.

use kai_engine::units::Timestamp;
use serde_json::{Value, json};

use super::{Settings, Usage, cycle};
use crate::kinds::Object;
use crate::world::World;

const NOW: Timestamp = Timestamp(1_000_000_000);

fn most() -> Value {
    json!({"cpu": "1G", "memory": "50T", "nvidia.com/gpu": 1_000_000, "nvidia.com/mig-64g.4096gb": 10_000,
        "ephemeral-storage": "1P", "example.com/nic": "1T"})
}

fn pod(name: &str, group: &str, node: Option<&str>, annotations: &Value, amounts: &Value) -> Value {
    let mut annotations = annotations.clone();
    annotations["pod-group-name"] = json!(group);
    json!({
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "lab", "uid": name, "annotations": annotations,
            "creationTimestamp": "9999-01-01T00:00:00Z"},
        "spec": {"schedulerName": "kai-scheduler", "nodeName": node, "priority": i32::MAX,
            "containers": [{"name": "main", "resources": {"requests": amounts}}]},
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
    })
}

#[test]
fn no_sum_of_the_largest_amounts_wraps_around() {
    let mut objects = Vec::new();
    for number in 0..40 {
        let mut offered = most();
        offered["pods"] = json!(1_000_000);
        objects.push(json!({"kind": "Node", "metadata": {"name": format!("n{number}"),
            "labels": {"nvidia.com/gpu.memory": i64::MAX.to_string()}}, "status": {"allocatable": offered}}));
    }
    for (name, parent, amount) in [("top", "", 1e300), ("a", "top", 1e300), ("b", "top", 0.0), ("c", "top", -1.0)] {
        let amounts = json!({"quota": amount, "limit": 1e300, "overQuotaWeight": 1e300});
        objects.push(json!({"kind": "Queue", "metadata": {"name": name}, "spec": {"parentQueue": parent,
            "priority": i32::MAX, "resources": {"cpu": amounts, "memory": amounts, "gpu": amounts}}}));
    }
    for (number, queue) in (0..60).zip(["a", "b", "c"].into_iter().cycle()) {
        let group = format!("g{number}");
        let delay = if number % 2 == 0 { "0s" } else { "2562047h47m16s" };
        objects.push(json!({"kind": "PodGroup", "metadata": {"name": group, "namespace": "lab", "uid": group},
            "spec": {"queue": queue, "minMember": if number == 0 { u32::MAX } else { 1 }, "preemptionDelay": delay}}));
        let node = format!("n{number}");
        let node = (number < 40).then_some(node.as_str());
        let shared = json!({"gpu-memory": "1048576", "gpu-fraction-num-devices": "1024"});
        objects.push(match number % 3 {
            0 => pod(&group, &group, node, &json!({}), &most()),
            1 => pod(&group, &group, node, &shared, &json!({"memory": "50T"})),
            _ => pod(&group, &group, node, &json!({"nvidia.com/mig-64g.4096gb": "10000"}), &most()),
        });
    }
    let mut world = World::default();
    for object in &objects {
        let object = Object::parse(object).unwrap_or_else(|malformed| panic!("{object}: {malformed}"));
        world.apply(object.expect("of a kind that is kept"));
    }
    let usage = Usage { queues: ["a", "b", "c"].map(|queue| (queue.to_owned(), [1_000_000_000; 3])).into() };
    let result = cycle(&world, &Settings::default(), &usage, NOW);
    for queue in &result.queues {
        assert!(queue.allocated.0.iter().chain(&queue.request.0).all(|amount| *amount >= 0), "{queue:?}");
    }
}
