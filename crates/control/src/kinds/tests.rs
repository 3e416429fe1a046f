//! No object, however odd, makes a parser panic; and what it complains about can be found.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::kinds::{Kind, Object, ObjectId, Scope};
use crate::{World, for_each_kind, objects};

macro_rules! full_objects {
    ($($variant:ident $table:ident $name:literal $api_version:literal $plural:literal $scope:ident $presence:ident
        $list:literal;)*) => {
        /// An object in which all fields that are read have a value.
        fn full(kind: Kind) -> Value {
            let mut object = match kind {
                $(Kind::$variant => objects::$variant::full(),)*
            };
            object["apiVersion"] = json!(kind.row().api_version);
            object["kind"] = json!(kind.name());
            if kind.row().scope == Scope::Namespaced {
                object["metadata"]["namespace"] = json!("lab");
            }
            object
        }
    };
}

for_each_kind!(full_objects);

/// Every place of a value, as JSON pointers.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    let mut down = |key: &str, inner: &Value| {
        let place = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        all.push(place.clone());
        places(inner, &place, all);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| down(key, inner)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, inner)| down(&index.to_string(), inner)),
        _ => {}
    }
}

fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "[-+0-9.eEGimns/: ]{0,12}".prop_map(Value::from),
        Just(json!([])),
        Just(json!([null])),
        Just(json!({})),
        Just(json!({"": ""})),
    ]
}

#[test]
fn full_objects_are_parsed_and_kept_as_what_they_are() {
    for &kind in Kind::ALL {
        let object = Object::parse(&full(kind)).unwrap().unwrap();
        let id = object.id();
        assert_eq!(id, ObjectId::new(kind, kind.key_of(&full(kind))), "{kind:?}");
        let mut world = World::default();
        world.apply(object);
        assert!(world.delete(&id), "{kind:?}");
    }
}

#[test]
fn an_object_without_a_namespace_has_one_key_for_all_readers() {
    for &kind in Kind::ALL {
        for namespace in [Value::Null, json!("")] {
            let mut object = full(kind);
            object["metadata"]["namespace"] = namespace;
            let id = Object::parse(&object).unwrap().unwrap().id();
            let expected = if kind.row().scope == Scope::Namespaced { "default" } else { "" };
            assert_eq!((id.key().namespace.as_str(), kind.key_of(&object)), (expected, id.key()), "{kind:?}");
        }
    }
}

#[test]
fn other_groups_may_have_kinds_of_the_same_names() {
    assert_eq!(Kind::of("kai.scheduler/v2", "Topology"), Some(Kind::Topology));
    assert_eq!(Kind::of("kueue.x-k8s.io/v1beta1", "Topology"), None);
    assert_eq!(Kind::of("scheduling.k8s.io/v1alpha1", "PodGroup"), None);
    assert_eq!(Kind::of("v1", "Pod"), Some(Kind::Pod));
    assert_eq!(Kind::of("", "Queue"), Some(Kind::Queue));
}

#[test]
fn ids_are_written_with_their_group() {
    for &kind in Kind::ALL {
        let id = Object::parse(&full(kind)).unwrap().unwrap().id();
        let written = json!(id);
        assert_eq!(written["group"].as_str().unwrap_or_default(), kind.row().group());
        assert_eq!(serde_json::from_value::<ObjectId>(written).unwrap(), id);
    }
    let other = json!({"group": "kueue.x-k8s.io", "kind": "Topology", "name": "racks"});
    assert!(serde_json::from_value::<ObjectId>(other).is_err());
    let without = json!({"kind": "Topology", "name": "racks"});
    assert_eq!(serde_json::from_value::<ObjectId>(without).unwrap(), ObjectId::Topology("racks".to_owned()));
}

#[test]
fn rows_are_unlike_each_other() {
    for (index, kind) in Kind::ALL.iter().enumerate() {
        let row = kind.row();
        assert_eq!((row.kind, *kind as usize), (*kind, index));
        for other in &Kind::ALL[..index] {
            assert_ne!((row.group(), row.plural), (other.row().group(), other.row().plural));
            assert!(row.snapshot_list.is_empty() || row.snapshot_list != other.row().snapshot_list);
        }
    }
}

#[test]
fn cycles_depend_on_kinds_with_a_list_in_snapshot_files() {
    for kind in Kind::ALL {
        assert_eq!(Kind::CYCLE_INPUTS.contains(kind), !kind.row().snapshot_list.is_empty(), "{kind:?}");
    }
}

/// A pod that holds 8 GPUs of a node, with all other fields.
fn placed_pod() -> Value {
    let mut pod = full(Kind::Pod);
    pod["metadata"]["annotations"] = json!({"pod-group-name": "g", "mps": "false"});
    pod["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": 8});
    pod
}

proptest! {
    #[test]
    fn a_pod_with_a_node_holds_its_gpus_whatever_odd_value_it_has(
        place in any::<prop::sample::Index>(),
        odd in odd_value(),
    ) {
        let mut pod = placed_pod();
        let mut all = Vec::new();
        places(&pod, "", &mut all);
        // What says that it has a node, who it is, and what it holds.
        let needed = |place: &String| {
            ["/kind", "/apiVersion", "/metadata", "/metadata/name", "/spec", "/spec/nodeName"].contains(&place.as_str())
                || "/spec/containers/0/resources/limits/nvidia.com~1gpu".starts_with(place.as_str())
        };
        all.retain(|place| !needed(place));
        let place: &String = place.get(&all);
        *pod.pointer_mut(place).expect("a place of the object") = odd;
        let Object::Pod(read) = Object::parse(&pod).unwrap().unwrap() else { panic!("it is a pod") };
        prop_assert!(read.request.resources.gpus == 8 && read.request.sharing.is_none(), "{}: {:?}", place, read);
        prop_assert_eq!(read.node.as_deref(), Some("n"));
    }

    #[test]
    fn an_odd_value_is_read_or_refused_with_its_place(
        kind in prop::sample::select(Kind::ALL),
        place in any::<prop::sample::Index>(),
        odd in odd_value(),
    ) {
        let mut object = full(kind);
        let mut all = Vec::new();
        places(&object, "", &mut all);
        let place: &String = place.get(&all);
        *object.pointer_mut(place).expect("a place of the object") = odd;
        if let Err(malformed) = Object::parse(&object) {
            prop_assert!(!malformed.field.is_empty() && !malformed.problem.is_empty() && !malformed.hint.is_empty());
        }
    }
}
