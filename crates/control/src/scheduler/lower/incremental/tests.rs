use fixedbitset::FixedBitSet;
use kai_engine::snapshot::NodeFilter;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::objects::{BindRequest, Node, PodGroup, Queue};
use crate::scheduler::lower::{lower, lower_incremental};

/// Something that happens between two cycles.
#[derive(Clone, Debug)]
enum Event {
    Put(Value),
    Gone(&'static str, String),
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": "lab"})
}

fn node(name: usize, cordoned: bool) -> Value {
    let allocatable = json!({"cpu": 64, "memory": "64Gi", "nvidia.com/gpu": 4});
    let metadata = json!({"name": format!("n{name}")});
    json!({"kind": "Node", "metadata": metadata, "spec": {"unschedulable": cordoned}, "status": {"allocatable": allocatable}})
}

fn pod() -> impl Strategy<Value = Event> {
    let what = (0..8usize, proptest::option::weighted(0.9, 0..5usize), 0..3usize, 0..4usize);
    let prerequisites =
        proptest::option::weighted(0.3, prop::sample::select(&["local", "limited", "settings", "apart"][..]));
    let how = (
        prop::sample::select(&["Pending", "Running", "Succeeded", "Failed"][..]),
        proptest::option::weighted(0.6, 0..4usize),
        proptest::option::weighted(0.1, prop::sample::select(&["2026-01-01T00:00:00Z", "1970-01-01T00:00:01Z"][..])),
        proptest::option::weighted(0.3, prop::sample::select(&["a", "b"][..])),
        prop::sample::select(&["kai-scheduler", "kai-scheduler", "kai-scheduler", "kai-scheduler", "other"][..]),
    );
    (what, how, any::<bool>(), prerequisites).prop_map(
        |((name, group, gpus, selector), (phase, node, deletion, leaf, scheduler), gated, prerequisites)| {
            let mut metadata = metadata(&format!("p{name}"));
            if let Some(group) = group {
                metadata["annotations"] = json!({"pod-group-name": format!("g{group}")});
            }
            metadata["labels"] = leaf.map_or(json!({}), |leaf| json!({"kai.scheduler/subgroup-name": leaf}));
            metadata["deletionTimestamp"] = deletion.map_or(Value::Null, |time| json!(time));
            let requests = json!({"cpu": 1, "nvidia.com/gpu": gpus});
            let mut spec = json!({"schedulerName": scheduler, "containers": [{"resources": {"requests": requests}}]});
            spec["nodeSelector"] = if selector == 0 { json!({"zone": "x"}) } else { json!({}) };
            match prerequisites {
                Some("apart") => {
                    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {}});
                    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
                    spec["affinity"] = json!({"podAntiAffinity": required});
                }
                Some("settings") => spec["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "settings"}}]),
                Some(claim) => spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]),
                None => {}
            }
            if phase != "Pending" {
                spec["nodeName"] = node.map_or(Value::Null, |node| json!(format!("n{node}")));
            } else if gated && node.is_none() {
                spec["schedulingGates"] = json!([{"name": "quota"}]);
            }
            Event::Put(json!({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}))
        },
    )
}

fn group() -> impl Strategy<Value = Event> {
    (0..5usize, 0..4usize, 0..4u32, 0..6usize).prop_map(|(name, queue, min, tree)| {
        let mut spec = json!({"queue": format!("q{queue}"), "minMember": min});
        match tree {
            0 => spec["subGroups"] = json!([{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]),
            1 => spec["subGroups"] = json!([{"name": "a"}, {"name": "a"}]),
            _ => {}
        }
        Event::Put(json!({"kind": "PodGroup", "metadata": metadata(&format!("g{name}")), "spec": spec}))
    })
}

/// A claim that ties its pod to nodes, one whose volumes nodes count, a config map: each comes or goes.
fn storage() -> impl Strategy<Value = Event> {
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]});
    let near = json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [field]}]}}});
    let mut objects = vec![
        json!({"kind": "ConfigMap", "metadata": metadata("settings")}),
        json!({"kind": "CSINode", "metadata": {"name": "n1"},
            "spec": {"drivers": [{"name": "d", "allocatable": {"count": 1}}]}}),
    ];
    for (name, spec) in [("local", near), ("limited", json!({"csi": {"driver": "d"}}))] {
        let mut claim = metadata(name);
        claim["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
        objects.push(json!({"kind": "PersistentVolumeClaim", "metadata": claim, "spec": {"volumeName": name}}));
        objects.push(json!({"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}));
    }
    let gone = (0..objects.len(), any::<bool>());
    gone.prop_map(move |(index, there)| {
        let kind = objects[index]["kind"].as_str().unwrap_or_default();
        match (there, kind) {
            (false, "ConfigMap") => Event::Gone("ConfigMap", "settings".to_owned()),
            (false, "PersistentVolumeClaim") => Event::Gone("PersistentVolumeClaim", "local".to_owned()),
            _ => Event::Put(objects[index].clone()),
        }
    })
}

fn event() -> impl Strategy<Value = Event> {
    let request = (0..8usize, 0..8usize, 0..5usize).prop_map(|(name, pod, node)| {
        let spec = json!({"podName": format!("p{pod}"), "selectedNode": format!("n{node}")});
        Event::Put(json!({"kind": "BindRequest", "metadata": metadata(&format!("r{name}")), "spec": spec}))
    });
    prop_oneof![
        10 => pod(),
        4 => group(),
        2 => request,
        3 => (0..8usize).prop_map(|name| Event::Gone("Pod", format!("p{name}"))),
        1 => (0..5usize).prop_map(|name| Event::Gone("PodGroup", format!("g{name}"))),
        1 => (0..8usize).prop_map(|name| Event::Gone("BindRequest", format!("r{name}"))),
        1 => (0..4usize, any::<bool>()).prop_map(|(name, cordoned)| Event::Put(node(name, cordoned))),
        1 => storage(),
    ]
}

fn happen(world: &mut World, event: &Event) {
    match event {
        Event::Put(value) => world.apply(Object::parse(value).unwrap().unwrap()),
        Event::Gone(kind, name) => {
            let key = crate::key::Key::new("lab", name.clone());
            world.delete(&match *kind {
                "Pod" => ObjectId::Pod(key),
                "PodGroup" => ObjectId::PodGroup(key),
                "ConfigMap" => ObjectId::ConfigMap(key),
                "PersistentVolumeClaim" => ObjectId::PersistentVolumeClaim(key),
                _ => ObjectId::BindRequest(key),
            });
        }
    }
}

fn world() -> World {
    let mut world = World::default();
    for name in 0..4 {
        world.apply(Object::Node(Box::new(Node::parse(&node(name, false)).unwrap())));
    }
    for name in 0..3 {
        let queue = json!({"metadata": {"name": format!("q{name}")}, "spec": {}});
        world.apply(Object::Queue(Box::new(Queue::parse(&queue).unwrap())));
    }
    world
}

fn show(lowered: &Lowered<'_>) -> String {
    // Node sets print where they are, not what is in them.
    let set = |set: &FixedBitSet| set.ones().collect::<Vec<_>>();
    let filter = |filter: &NodeFilter| {
        let excluded: Vec<_> = filter.excluded.iter().map(|(rule, nodes)| (*rule, set(nodes))).collect();
        format!("{:?} {excluded:?}", set(&filter.feasible))
    };
    let node_filters: Vec<String> = lowered.snapshot.node_filters.iter().map(filter).collect();
    let rest = format!("{lowered:#?}");
    let rest: Vec<&str> = rest.lines().filter(|line| !line.contains("data: 0x")).collect();
    format!("{node_filters:#?}\n{}", rest.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What is spliced together equals what is lowered from nothing.
    #[test]
    fn lowering_again_equals_lowering_from_nothing(rounds in vec(vec(event(), 0..4), 1..12)) {
        let (mut world, settings, usage) = (world(), Settings::default(), Usage::default());
        world.take_changes();
        let mut memory = lower_incremental(&world, &settings, &usage, Timestamp(0)).ok();
        for (index, round) in rounds.iter().enumerate() {
            let now = Timestamp(index as i64 * 60_000_000);
            for event in round {
                happen(&mut world, event);
            }
            let changes = world.take_changes();
            let updated = memory.and_then(|memory| memory.try_update(&world, &settings, &usage, now, &changes));
            let made = updated.map_or_else(|| lower_incremental(&world, &settings, &usage, now), Ok);
            let fresh = lower(&world, &settings, &usage, now);
            prop_assert_eq!(made.as_ref().map_or_else(|once| show(once), |memory| show(&memory.lowered(&world, &settings))), show(&fresh));
            memory = made.ok();
        }
    }
}

#[test]
fn a_pod_that_comes_starts_or_ends_is_spliced() {
    let (mut world, settings, usage) = (world(), Settings::default(), Usage::default());
    let pod = |name: usize, phase: &str, node: Value| {
        let mut metadata = metadata(&format!("p{name}"));
        metadata["annotations"] = json!({"pod-group-name": format!("g{name}")});
        let spec = json!({"schedulerName": "kai-scheduler", "nodeName": node});
        let value = json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}});
        Object::Pod(Box::new(Pod::parse(&value).unwrap()))
    };
    for name in 0..5 {
        let group = json!({"metadata": metadata(&format!("g{name}")), "spec": {"queue": "q1"}});
        world.apply(Object::PodGroup(Box::new(PodGroup::parse(&group).unwrap())));
        world.apply(pod(name, "Running", json!("n1")));
    }
    world.take_changes();
    let mut memory = lower_incremental(&world, &settings, &usage, Timestamp(0)).expect("can be spliced");
    let new_pod = json!({"metadata": metadata("p8"), "spec": {"schedulerName": "kai-scheduler"}});
    let new_pod = Object::Pod(Box::new(Pod::parse(&new_pod).unwrap()));
    let request = json!({"metadata": metadata("r"), "spec": {"podName": "p3", "selectedNode": "n2"}});
    let request = Object::BindRequest(Box::new(BindRequest::parse(&request).unwrap()));
    let (ended, again) = (pod(2, "Succeeded", json!("n1")), pod(3, "Pending", Value::Null));
    for change in [ended, again, request, new_pod, pod(8, "Pending", Value::Null), pod(9, "Pending", Value::Null)] {
        world.apply(change);
        let changes = world.take_changes();
        memory = memory.try_update(&world, &settings, &usage, Timestamp(1), &changes).expect("spliced");
        let fresh = lower(&world, &settings, &usage, Timestamp(1));
        assert_eq!(show(&memory.lowered(&world, &settings)), show(&fresh));
    }
}

#[test]
fn a_pod_without_a_group_for_which_room_is_kept_is_not() {
    let (mut world, settings, usage) = (world(), Settings::default(), Usage::default());
    let pod = json!({"metadata": metadata("p1"), "spec": {"schedulerName": "kai-scheduler"}});
    let request = json!({"metadata": metadata("p1"), "spec": {"podName": "p1", "selectedNode": "n2"}});
    world.take_changes();
    for change in [
        Object::Pod(Box::new(Pod::parse(&pod).unwrap())),
        Object::BindRequest(Box::new(BindRequest::parse(&request).unwrap())),
    ] {
        let memory = lower_incremental(&world, &settings, &usage, Timestamp(0)).expect("can be spliced");
        let is_request = matches!(change, Object::BindRequest(_));
        world.apply(change);
        let changes = world.take_changes();
        assert_eq!(memory.try_update(&world, &settings, &usage, Timestamp(1), &changes).is_none(), is_request);
    }
}
