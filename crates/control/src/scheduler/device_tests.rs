//! Resource claims and NUMA zones, from objects to decisions and sentences.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::effect::{CycleResult, Effect};
use super::settings::{NumaSettings, Settings};
use super::test_cluster::{NOW, render, world};
use super::usage::Usage;
use crate::kinds::Object;
use crate::world::World;

/// A drawing, with objects on top and pods changed before they are read.
fn cluster(drawing: &str, objects: &[Value]) -> World {
    let mut world = world(drawing);
    for object in objects {
        world.apply(Object::parse(object).expect("well formed").expect("a kept kind"));
    }
    world
}

fn cycle(world: &World) -> CycleResult {
    super::cycle(world, &Settings::default(), &Usage::default(), NOW)
}

fn check(world: &World, want: &Expect) {
    want.assert_eq(&render(&cycle(world)));
}

const DRIVER: &str = "gpu.example.com";

fn class(name: &str, selectors: &[&str]) -> Value {
    let selectors: Vec<Value> = selectors.iter().map(|text| json!({"cel": {"expression": text}})).collect();
    json!({"kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors}})
}

/// Devices of a node: name, model and PCI root.
fn slice(node: &str, devices: &[(&str, &str, &str)]) -> Value {
    let device = |(name, model, root): &(&str, &str, &str)| {
        json!({"name": name, "attributes": {"model": {"string": model}, "resource.kubernetes.io/pcieRoot": {"string": root}},
            "capacity": {"memory": {"value": if *model == "big" { "80Gi" } else { "40Gi" }}}})
    };
    let devices: Vec<Value> = devices.iter().map(device).collect();
    json!({"kind": "ResourceSlice", "metadata": {"name": format!("{node}-slice")}, "spec": {
        "driver": DRIVER, "nodeName": node, "devices": devices,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})
}

fn claim(name: &str, queue: &str, requests: &Value) -> Value {
    json!({"kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "lab", "labels": {"kai.scheduler/queue": queue}},
        "spec": {"devices": {"requests": requests}}})
}

fn exactly(class: &str, count: u32, selectors: &[&str]) -> Value {
    let selectors: Vec<Value> = selectors.iter().map(|text| json!({"cel": {"expression": text}})).collect();
    json!([{"name": "gpus", "exactly": {"deviceClassName": class, "count": count, "selectors": selectors}}])
}

/// Gives waiting pods of a job claims: one each by number, or one name for all.
fn with_claims(world: &mut World, job: &str, claim: impl Fn(usize) -> String) {
    let pods = world.pods.values_mut().filter(|pod| pod.key.name.starts_with(&format!("{job}-")));
    for (index, pod) in pods.enumerate() {
        pod.claims.push(crate::objects::PodClaim {
            name: "devices".to_owned(),
            claim: Some(claim(index)),
            from_template: false,
        });
    }
}

fn two_nodes() -> Vec<Value> {
    vec![
        class(DRIVER, &["device.driver == 'gpu.example.com'"]),
        slice("a", &[("a0", "small", "p0"), ("a1", "big", "p1")]),
        slice("b", &[("b0", "big", "p0"), ("b1", "big", "p0")]),
    ]
}

#[test]
fn a_selector_picks_the_device_and_thereby_the_node() {
    let mut objects = two_nodes();
    let memory = "device.capacity['gpu.example.com'].memory.compareTo(quantity('80Gi')) >= 0";
    objects.push(claim("c", "team", &exactly(DRIVER, 2, &[memory])));
    let mut world = cluster("node a\nnode b\nqueue team\njob train queue=team", &objects);
    with_claims(&mut world, "train", |_| "c".to_owned());
    let cycle = cycle(&world);
    let Some(Effect::Bind { extras, .. }) = cycle.effects.first() else { panic!("{cycle:?}") };
    expect![[r#"
        {
          "devices": {
            "results": [
              {
                "device": "b0",
                "driver": "gpu.example.com",
                "pool": "b",
                "request": "gpus"
              },
              {
                "device": "b1",
                "driver": "gpu.example.com",
                "pool": "b",
                "request": "gpus"
              }
            ]
          },
          "nodeSelector": {
            "nodeSelectorTerms": [
              {
                "matchFields": [
                  {
                    "key": "metadata.name",
                    "operator": "In",
                    "values": [
                      "b"
                    ]
                  }
                ]
              }
            ]
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&extras.claims[0].allocation).unwrap());
    let team = &cycle.queues[0];
    assert_eq!(team.allocated.0[2], 2 * kai_engine::units::GPU);
}

#[test]
fn pods_that_share_a_claim_go_to_its_node_and_count_once() {
    let mut objects = two_nodes();
    objects.push(claim("c", "team", &exactly(DRIVER, 1, &[])));
    let mut world = cluster("node a\nnode b\nqueue team limit=1\njob train queue=team pods=3", &objects);
    with_claims(&mut world, "train", |_| "c".to_owned());
    check(
        &world,
        &expect![[r"
            bind train-0 a: fits together with 2 more pods; queue team now holds 1 GPU of a fair share of 1
            bind train-1 a: fits together with 2 more pods; queue team now holds 1 GPU of a fair share of 1
            bind train-2 a: fits together with 2 more pods; queue team now holds 1 GPU of a fair share of 1
            timestamps train: started yes, stale no
        "]],
    );
}

#[test]
fn devices_must_agree_where_a_constraint_demands_it() {
    let mut objects = two_nodes();
    let mut pair = claim("c", "team", &exactly(DRIVER, 2, &[]));
    pair["spec"]["devices"]["constraints"] =
        json!([{"matchAttribute": "resource.kubernetes.io/pcieRoot", "requests": ["gpus"]}]);
    objects.push(pair);
    let mut world = cluster("node a\nnode b\nqueue team\njob train queue=team", &objects);
    with_claims(&mut world, "train", |_| "c".to_owned());
    check(
        &world,
        &expect![[r"
            bind train-0 b: fits; queue team now holds 2 GPUs of a fair share of 2
            timestamps train: started yes, stale no
        "]],
    );
}

#[test]
fn the_first_alternative_that_can_be_met_counts() {
    let mut objects = two_nodes();
    let alternatives = json!([{"name": "gpus", "firstAvailable": [
        {"name": "many", "deviceClassName": DRIVER, "count": 4},
        {"name": "few", "deviceClassName": DRIVER, "selectors": [
            {"cel": {"expression": "device.attributes['gpu.example.com'].model == 'small'"}}]}]}]);
    objects.push(claim("c", "team", &alternatives));
    let mut world = cluster("node a\nnode b\nqueue team\njob train queue=team", &objects);
    with_claims(&mut world, "train", |_| "c".to_owned());
    let cycle = cycle(&world);
    let Some(Effect::Bind { extras, .. }) = cycle.effects.first() else { panic!("{cycle:?}") };
    let result = &extras.claims[0].allocation["devices"]["results"][0];
    assert_eq!((&result["request"], &result["device"]), (&json!("gpus/few"), &json!("a0")));
}

#[test]
fn what_is_wrong_with_a_claim_is_reported() {
    let drawing = "node a\nnode b\nqueue team\njob train queue=team";
    let report = |objects: &[Value], named: &str| {
        let mut all = two_nodes();
        all.extend_from_slice(objects);
        let mut world = cluster(drawing, &all);
        with_claims(&mut world, "train", |_| named.to_owned());
        let cycle = cycle(&world);
        assert!(!cycle.effects.iter().any(|effect| matches!(effect, Effect::Bind { .. })), "{cycle:?}");
        cycle.pending[0].explanations()[0].message.clone()
    };
    let mut unlabelled = claim("c", "team", &exactly(DRIVER, 1, &[]));
    unlabelled["metadata"]["labels"] = json!({});
    let messages = [
        report(&[], "nothing"),
        report(&[unlabelled], "c"),
        report(&[claim("c", "rivals", &exactly(DRIVER, 1, &[]))], "c"),
        report(&[claim("c", "team", &exactly("tpu.example.com", 1, &[]))], "c"),
        report(&[claim("c", "team", &exactly(DRIVER, 1, &["device.driver =="]))], "c"),
        report(
            &[claim("c", "team", &exactly(DRIVER, 1, &["device.attributes['gpu.example.com'].colour == 'red'"]))],
            "c",
        ),
        report(&[claim("c", "team", &exactly(DRIVER, 3, &[]))], "c"),
        report(
            &[claim("c", "team", &exactly(DRIVER, 2, &["device.attributes['gpu.example.com'].model == 'small'"]))],
            "c",
        ),
    ];
    expect![[r"
        No node takes pod lab/train-0: resource claim lab/nothing does not exist: create it.
        No node takes pod lab/train-0: resource claim lab/c asks for GPUs and is shared, but has no label kai.scheduler/queue: name its queue there.
        No node takes pod lab/train-0: resource claim lab/c belongs to queue rivals by its label kai.scheduler/queue, but the pod to queue team.
        No node takes pod lab/train-0: device class tpu.example.com of request gpus of resource claim lab/c does not exist: create it, or correct deviceClassName.
        No node takes pod lab/train-0: the selector `device.driver ==` of request gpus, which resource claim lab/c uses, cannot be understood: ERROR: <input>:1:17: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER} | device.driver == | ................^.
        No node takes pod lab/train-0: on 2 nodes the selector `device.attributes['gpu.example.com'].colour == 'red'` of request gpus fails, as for device gpu.example.com/a/a0: No such key: colour.
        No node takes pod lab/train-0: 2 nodes lack GPUs (the best is short of 1 GPU). The pod asks for 3 GPUs, but no node has more than 2 GPUs, even when empty.
        No node takes pod lab/train-0: 2 nodes have too few free devices for resource claim lab/c."]].assert_eq(&messages.join("\n"));
}

#[test]
fn a_victim_gives_its_devices_back() {
    let mut objects = two_nodes();
    for (name, device) in [("x0", "b0"), ("x1", "b1")] {
        let mut held =
            claim(name, "team", &exactly(DRIVER, 1, &["device.attributes['gpu.example.com'].model == 'big'"]));
        held["status"] = json!({
            "allocation": {"devices": {"results": [
                {"request": "gpus", "driver": DRIVER, "pool": "b", "device": device}]}},
            "reservedFor": [{"resource": "pods", "name": format!("old-{}", &name[1..]), "uid": format!("lab/old-{}", &name[1..])}]});
        objects.push(held);
    }
    objects.push(claim("c", "team", &exactly(DRIVER, 2, &["device.attributes['gpu.example.com'].model == 'big'"])));
    let drawing = "node a\nnode b\nqueue team\nclass high value=60\nclass low value=40\n\
                   job old queue=team priority=low on=b,b min=1\njob urgent queue=team priority=high";
    let mut world = cluster(drawing, &objects);
    with_claims(&mut world, "old", |index| format!("x{index}"));
    with_claims(&mut world, "urgent", |_| "c".to_owned());
    check(
        &world,
        &expect![[r"
            evict old-1: makes room for job lab/urgent of higher priority, 60 over 40
            evict old-0: makes room for job lab/urgent of higher priority, 60 over 40
            pipeline old-0 a: pipelined: moves here when its pod on the other node has terminated
            pipeline urgent-0 b: pipelined: starts here when terminating pods release the resources
            timestamps old: started no, stale no
            nominate urgent-0 b
            urgent waits: Pipelined: Its pods are pipelined and start when terminating pods release their nodes.
        "]],
    );
}

#[test]
fn a_plain_request_is_served_by_a_device_class() {
    let mut backing = class(DRIVER, &[]);
    backing["spec"]["extendedResourceName"] = json!("nvidia.com/gpu");
    let drawing = "node a\nqueue team\njob train queue=team gpu=2";
    let devices = slice("a", &[("a0", "small", "p0"), ("a1", "big", "p1")]);
    let cycle_of = |class: Value| cycle(&cluster(drawing, &[class, devices.clone()]));
    let bound = cycle_of(backing);
    let Some(Effect::Bind { extras, .. }) = bound.effects.first() else { panic!("{bound:?}") };
    let extended = extras.extended.as_ref().expect("a claim is to be made");
    assert_eq!(extended.requests[0]["exactly"]["count"], json!(2));
    assert_eq!(extended.requests[0]["name"], json!("container-0-request-0"));
    assert_eq!(extended.mappings[0].1, "nvidia.com/gpu");
    assert_eq!(extended.allocation["devices"]["results"].as_array().map(Vec::len), Some(2));
    // Nothing says that these devices may stand for plain GPUs.
    let refused = cycle_of(class(DRIVER, &[]));
    expect!["No node takes pod lab/train-0: 1 node has GPUs that only ResourceClaims can use."]
        .assert_eq(&refused.pending[0].explanations()[0].message);
}

#[test]
fn zones_are_predicted_and_charged() {
    let zone = |name: &str| json!({"name": name, "type": "Node", "resources": [{"name": "cpu", "allocatable": 4, "available": 4}]});
    let topology = json!({"kind": "NodeResourceTopology", "metadata": {"name": "a"},
        "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"},
                       {"name": "topologyManagerScope", "value": "pod"}],
        "zones": [zone("node-0"), zone("node-1")]});
    let mut world =
        cluster("node a cpu=32\nqueue team\njob train queue=team pods=2 cpu=3\njob more queue=team cpu=3", &[topology]);
    for pod in world.pods.values_mut() {
        pod.request.guaranteed = true;
    }
    let numa = NumaSettings { ignored: std::collections::BTreeSet::new(), reconstruct_available: true };
    let mut settings = Settings { numa: Some(numa), ..Settings::default() };
    settings.policy.numa = true;
    let cycle = super::cycle(&world, &settings, &Usage::default(), NOW);
    let zones: Vec<_> = cycle
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Bind { pod, extras, .. } => Some((pod.name.as_str(), extras.numa_zones.clone())),
            _ => None,
        })
        .collect();
    expect![[r#"
        [
            (
                "train-0",
                [
                    NumaZone {
                        zone: "node-0",
                        amount: {
                            "cpu": "3",
                        },
                    },
                ],
            ),
            (
                "train-1",
                [
                    NumaZone {
                        zone: "node-1",
                        amount: {
                            "cpu": "3",
                        },
                    },
                ],
            ),
        ]
    "#]]
    .assert_debug_eq(&zones);
    expect!["No node takes pod lab/more-0: 1 node cannot align the pod's resources in its NUMA zones as its Topology Manager demands."].assert_eq(&cycle.pending[0].explanations()[0].message);
}
