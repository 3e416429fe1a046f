use std::fmt::Write;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::kinds::Object;
use crate::world::World;

fn rules() -> PodRules {
    PodRules { gpu_sharing: true, ..PodRules::default() }
}

fn pod(annotations: &Value, resources: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "train", "annotations": annotations},
        "spec": {"schedulerName": "kai-scheduler", "containers": [
            {"name": "main", "resources": resources}, {"name": "side"},
        ]},
    })
}

fn result_of(annotations: &Value, resources: &Value) -> String {
    let result = validate_pod(&pod(annotations, resources), "lab", &rules());
    if result.allowed() { "allowed".to_owned() } else { result.message() }
}

#[test]
fn each_rule_about_shared_gpus_refuses_in_known_words() {
    let gpu = json!({"limits": {"nvidia.com/gpu": 1}});
    let none = json!({});
    let cases = [
        (json!({}), &gpu),
        (json!({"gpu-fraction": "0.5"}), &none),
        (json!({"gpu-fraction": ".5"}), &none),
        (json!({"gpu-fraction": "5e-1", "gpu-fraction-num-devices": "2"}), &none),
        (json!({"gpu-memory": "2000"}), &none),
        (json!({"mps": "true"}), &none),
        (json!({"gpu-fraction": "0.5"}), &gpu),
        (json!({"gpu-fraction": "0.5", "gpu-memory": "2000"}), &none),
        (json!({"gpu-memory": "2000"}), &gpu),
        (json!({"gpu-fraction-num-devices": "2"}), &none),
        (json!({"gpu-memory": "0"}), &none),
        (json!({"gpu-memory": "2Gi"}), &none),
        (json!({"gpu-fraction": "1"}), &none),
        (json!({"gpu-fraction": "-0.5"}), &none),
        (json!({"gpu-fraction": "NaN"}), &none),
        (json!({"gpu-fraction": "half"}), &none),
        (json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}), &none),
        (json!({"gpu-fraction": 0.5}), &none),
    ];
    let mut text = String::new();
    for (annotations, resources) in &cases {
        writeln!(text, "{annotations} {resources}\n  {}", result_of(annotations, resources)).unwrap();
    }
    expect![[r#"
        {} {"limits":{"nvidia.com/gpu":1}}
          allowed
        {"gpu-fraction":"0.5"} {}
          allowed
        {"gpu-fraction":".5"} {}
          allowed
        {"gpu-fraction":"5e-1","gpu-fraction-num-devices":"2"} {}
          allowed
        {"gpu-memory":"2000"} {}
          allowed
        {"mps":"true"} {}
          MPS is only supported with GPU fraction request; add the annotation gpu-fraction, or remove mps
        {"gpu-fraction":"0.5"} {"limits":{"nvidia.com/gpu":1}}
          cannot have both GPU fraction request and whole GPU resource request/limit; remove nvidia.com/gpu from the containers, or the annotation gpu-fraction
        {"gpu-fraction":"0.5","gpu-memory":"2000"} {}
          cannot request both GPU and GPU memory; keep one of the annotations gpu-fraction and gpu-memory and the resource nvidia.com/gpu
        {"gpu-memory":"2000"} {"limits":{"nvidia.com/gpu":1}}
          cannot request both GPU and GPU memory; keep one of the annotations gpu-fraction and gpu-memory and the resource nvidia.com/gpu
        {"gpu-fraction-num-devices":"2"} {}
          cannot request multiple fractional devices without specifying fraction portion or gpu-memory; add the annotation gpu-fraction or gpu-memory
        {"gpu-memory":"0"} {}
          gpu-memory annotation value must be a positive integer greater than 0; write whole MiB, such as "2000"
        {"gpu-memory":"2Gi"} {}
          gpu-memory annotation value must be a positive integer greater than 0; write whole MiB, such as "2000"
        {"gpu-fraction":"1"} {}
          gpu-fraction annotation value must be a positive number smaller than 1.0; write a part of one GPU such as "0.5", or request whole GPUs as nvidia.com/gpu
        {"gpu-fraction":"-0.5"} {}
          gpu-fraction annotation value must be a positive number smaller than 1.0; write a part of one GPU such as "0.5", or request whole GPUs as nvidia.com/gpu
        {"gpu-fraction":"NaN"} {}
          gpu-fraction annotation value must be a positive number smaller than 1.0; write a part of one GPU such as "0.5", or request whole GPUs as nvidia.com/gpu
        {"gpu-fraction":"half"} {}
          gpu-fraction annotation value must be a positive number smaller than 1.0; write a part of one GPU such as "0.5", or request whole GPUs as nvidia.com/gpu
        {"gpu-fraction":"0.5","gpu-fraction-num-devices":"0"} {}
          fraction count annotation value must be a positive integer greater than 0; write the number of GPUs to share, such as "2"
        {"gpu-fraction":0.5} {}
          metadata.annotations.gpu-fraction: expected text, found the number 0.5; put it in quotes: "0.5"
    "#]]
    .assert_eq(&text);
}

#[test]
fn sharing_must_be_switched_on() {
    let result = validate_pod(&pod(&json!({"gpu-fraction": "0.5"}), &json!({})), "lab", &PodRules::default());
    assert!(
        result.message().starts_with(
            "attempting to create a pod lab/train with gpu sharing request, while GPU sharing is disabled"
        )
    );
}

#[test]
fn pods_of_other_schedulers_are_left_alone() {
    let mut pod = pod(&json!({"gpu-fraction": "9"}), &json!({}));
    pod["spec"]["schedulerName"] = json!("default-scheduler");
    assert!(validate_pod(&pod, "lab", &rules()).allowed());
    assert_eq!(mutate_pod(&pod, "lab", "abcdefg", &rules()).unwrap(), pod);
}

#[test]
fn a_pod_that_will_be_refused_is_left_as_it_is() {
    let pod = pod(&json!({"gpu-fraction": "0.5", "gpu-memory": "2000"}), &json!({}));
    assert_eq!(mutate_pod(&pod, "lab", "abcdefg", &rules()).unwrap(), pod);
    assert!(!validate_pod(&pod, "lab", &rules()).allowed());
}

fn mutated(pod: &Value, rules: &PodRules, want: &Expect) {
    let text = match mutate_pod(pod, "lab", "abcdefg", rules) {
        Ok(pod) => serde_json::to_string_pretty(&pod).unwrap(),
        Err(result) => result.message(),
    };
    want.assert_eq(&text);
}

#[test]
fn a_sharing_pod_reads_its_devices_from_config_maps() {
    mutated(
        &pod(&json!({"gpu-fraction": "0.5"}), &json!({})),
        &rules(),
        &expect![[r#"
        {
          "apiVersion": "v1",
          "kind": "Pod",
          "metadata": {
            "annotations": {
              "gpu-fraction": "0.5",
              "runai/shared-gpu-configmap": "train-abcdefg-shared-gpu"
            },
            "name": "train"
          },
          "spec": {
            "containers": [
              {
                "env": [
                  {
                    "name": "NVIDIA_VISIBLE_DEVICES",
                    "valueFrom": {
                      "configMapKeyRef": {
                        "key": "NVIDIA_VISIBLE_DEVICES",
                        "name": "train-abcdefg-shared-gpu-0"
                      }
                    }
                  },
                  {
                    "name": "RUNAI_NUM_OF_GPUS",
                    "valueFrom": {
                      "configMapKeyRef": {
                        "key": "RUNAI_NUM_OF_GPUS",
                        "name": "train-abcdefg-shared-gpu-0"
                      }
                    }
                  },
                  {
                    "name": "GPU_PORTION",
                    "valueFrom": {
                      "configMapKeyRef": {
                        "key": "GPU_PORTION",
                        "name": "train-abcdefg-shared-gpu-0"
                      }
                    }
                  }
                ],
                "envFrom": [
                  {
                    "configMapRef": {
                      "name": "train-abcdefg-shared-gpu-0-evar",
                      "optional": false
                    }
                  }
                ],
                "name": "main",
                "resources": {}
              },
              {
                "name": "side"
              }
            ],
            "runtimeClassName": "nvidia",
            "schedulerName": "kai-scheduler",
            "volumes": [
              {
                "configMap": {
                  "name": "train-abcdefg-shared-gpu-0"
                },
                "name": "train-abcdefg-shared-gpu-0-vol"
              }
            ]
          }
        }"#]],
    );
}

#[test]
fn wiring_a_pod_twice_is_wiring_it_once() {
    let rules = PodRules { block_visible_devices: true, hami_core: true, ..rules() };
    let once = mutate_pod(&pod(&json!({"gpu-memory": "2000"}), &json!({})), "lab", "abcdefg", &rules).unwrap();
    assert_eq!(mutate_pod(&once, "lab", "hijklmn", &rules).unwrap(), once);
    assert!(validate_pod(&once, "lab", &rules).allowed());
}

#[test]
fn long_names_are_cut_to_fit_a_volume_name() {
    let mut pod = pod(&json!({"gpu-fraction": "0.5"}), &json!({}));
    pod["metadata"]["name"] = json!("a-very-long-name.of.a-pod-that-is-.-cut-somewhere");
    let pod = mutate_pod(&pod, "lab", "abcdefg", &rules()).unwrap();
    let volume = pod["spec"]["volumes"][0]["name"].as_str().unwrap();
    assert_eq!(volume, "a-very-long-name-of-a-pod-that-is-abcdefg-shared-gpu-0-vol");
    let map = pod["spec"]["volumes"][0]["configMap"]["name"].as_str().unwrap();
    assert_eq!(map, "a-very-long-name.of.a-pod-that-is-abcdefg-shared-gpu-0");
}

#[test]
fn an_unknown_container_is_named() {
    let pod = pod(&json!({"gpu-fraction": "0.5", "gpu-fraction-container-name": "gpu"}), &json!({}));
    mutated(
        &pod,
        &rules(),
        &expect![
            "failed to get fraction container ref: container with name gpu not found for fraction request; set the annotation gpu-fraction-container-name to the name of a container"
        ],
    );
}

#[test]
fn containers_without_a_gpu_see_none() {
    let rules = PodRules { block_visible_devices: true, ..rules() };
    let pod = pod(&json!({}), &json!({"requests": {"nvidia.com/gpu": "1"}}));
    let pod = mutate_pod(&pod, "lab", "abcdefg", &rules).unwrap();
    assert_eq!(pod["spec"]["containers"][0]["env"], json!(null));
    assert_eq!(pod["spec"]["containers"][1]["env"], json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]));
    let mut sneaky = pod.clone();
    sneaky["spec"]["containers"][1]["env"][0]["value"] = json!("all");
    assert!(validate_pod(&sneaky, "lab", &rules).message().starts_with("container side has an environment variable"));
}

fn world(queues: &[(&str, Option<&str>)]) -> World {
    let mut world = World::default();
    for (name, parent) in queues {
        let object = json!({"kind": "Queue", "metadata": {"name": name},
            "spec": {"parentQueue": parent, "resources": {"cpu": {"quota": 1000}}}});
        world.apply(Object::parse(&object).unwrap().unwrap());
    }
    world
}

fn queue(name: &str, parent: Option<&str>) -> Value {
    json!({"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": {"cpu": {"quota": 2000}}}})
}

#[test]
fn queues_form_a_tree() {
    let world = world(&[("top", None), ("middle", Some("top")), ("leaf", Some("middle"))]);
    let mut text = String::new();
    for (name, parent) in [
        ("new", None),
        ("new", Some("leaf")),
        ("new", Some("midle")),
        ("new", Some("elsewhere")),
        ("top", Some("top")),
        ("top", Some("leaf")),
    ] {
        let result = validate_queue(&queue(name, parent), &world, false);
        writeln!(text, "{name} below {parent:?}: {}", result.message()).unwrap();
    }
    expect![[r#"
        new below None: 
        new below Some("leaf"): 
        new below Some("midle"): queue new: its parent midle does not exist (did you mean middle?); create the parent first, or correct spec.parentQueue
        new below Some("elsewhere"): queue new: its parent elsewhere does not exist; create the parent first, or correct spec.parentQueue
        top below Some("top"): queue top: spec.parentQueue names the queue itself; name another queue, or remove it for a top queue
        top below Some("leaf"): queue top: its parents form a circle, top < leaf < middle < top; name a parent that is not below this queue
    "#]].assert_eq(&text);
    let bare = json!({"metadata": {"name": "a"}, "spec": {}});
    assert_eq!(validate_queue(&bare, &world, false).message(), "resources must be specified");
}

#[test]
fn quotas_above_the_parents_are_mentioned_when_asked_for() {
    let world = world(&[("top", None), ("other", Some("top"))]);
    assert_eq!(validate_queue(&queue("new", Some("top")), &world, false).warnings, Vec::<String>::new());
    let result = validate_queue(&queue("new", Some("top")), &world, true);
    assert!(result.allowed());
    expect![[r"
        queue new: its cpu quota is larger than that of its parent top
        the cpu quotas of the children of queue top exceed its own"]]
    .assert_eq(&result.warnings.join("\n"));
}

#[test]
fn a_queue_in_use_stays() {
    let mut world = world(&[("top", None), ("leaf", Some("top")), ("idle", Some("top"))]);
    let group = json!({"kind": "PodGroup", "metadata": {"name": "g", "namespace": "lab"}, "spec": {"queue": "leaf"}});
    let running = json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "lab",
        "annotations": {"pod-group-name": "g"}}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
    for object in [&group, &running] {
        world.apply(Object::parse(object).unwrap().unwrap());
    }
    assert_eq!(
        delete_queue("top", &world).message(),
        "cannot delete queue top: it has child queues idle, leaf; delete or move them first"
    );
    assert!(delete_queue("leaf", &world).message().contains("its workloads lab/g are running"));
    assert!(delete_queue("idle", &world).allowed());
}

fn group(spec: &Value) -> Value {
    json!({"metadata": {"name": "g"}, "spec": spec})
}

#[test]
fn topology_levels_without_a_topology_are_warned_about() {
    let result = |spec: Value| validate_pod_group(&group(&spec), false);
    let sub = json!({"name": "a", "minMember": 1, "topologyConstraint": {"preferredTopologyLevel": "rack"}});
    let found = result(json!({"topologyConstraint": {"requiredTopologyLevel": "zone"}, "subGroups": [sub]}));
    assert!(found.allowed());
    let warning = |place: &str| format!("{place} names a level but no topology and is ignored; name a Topology");
    assert_eq!(found.warnings, [warning("spec.topologyConstraint"), warning("spec.subGroups[0].topologyConstraint")]);
    let named = json!({"topologyConstraint": {"topology": "dc", "requiredTopologyLevel": "zone"}});
    assert_eq!(result(named), AdmissionResult::allow());
}

#[test]
fn pod_groups_beyond_a_bound_are_refused_by_its_name() {
    let refused = |length: usize, parent: &dyn Fn(usize) -> Option<String>| {
        let sub_groups: Value = (0..length)
            .map(|index| match parent(index) {
                None => json!({"name": format!("s{index}"), "minMember": 1}),
                Some(parent) => json!({"name": format!("s{index}"), "parent": parent}),
            })
            .collect();
        validate_pod_group(&json!({"metadata": {"name": "g"}, "spec": {"subGroups": sub_groups}}), true).message()
    };
    let chain = |index: usize| index.checked_sub(1).map(|above| format!("s{above}"));
    assert!(refused(5_000, &chain).contains("at most 32 levels are taken"), "{}", refused(5_000, &chain));
    assert!(refused(300_000, &chain).contains("at most 16384 are taken"));
    assert_eq!(refused(16_384, &|_| None), "");
}

#[test]
fn sub_groups_form_a_tree_with_minima_that_make_sense() {
    let cases = [
        json!({"minMember": 2}),
        json!({"minMember": 2, "minSubGroup": 1}),
        json!({"subGroups": [{"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}]}),
        json!({"subGroups": [{"name": "a", "minMember": 1, "parent": "b"}]}),
        json!({"subGroups": [{"name": "a", "minMember": 1, "parent": "b"}, {"name": "b", "parent": "a"}]}),
        json!({"subGroups": [{"name": "a", "minMember": 1, "minSubGroup": 1}]}),
        json!({"subGroups": [{"name": "a", "minSubGroup": 1}, {"name": "b"}]}),
        json!({"subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1, "parent": "a"}]}),
        json!({"subGroups": [{"name": "a", "minSubGroup": 2}, {"name": "b", "minMember": 1, "parent": "a"}]}),
        json!({"minSubGroup": 1}),
    ];
    let mut text = String::new();
    for spec in &cases {
        let (create, update) = (validate_pod_group(&group(spec), false), validate_pod_group(&group(spec), true));
        writeln!(text, "{spec}\n  create: {:?} {:?}", create.denials, create.warnings).unwrap();
        if update != create {
            writeln!(text, "  update: {:?} {:?}", update.denials, update.warnings).unwrap();
        }
    }
    expect![[r#"
        {"minMember":2}
          create: [] []
        {"minMember":2,"minSubGroup":1}
          create: ["minMember and minSubGroup are mutually exclusive: set minMember (2) for pods without sub-groups, or minSubGroup for sub-groups"] []
        {"subGroups":[{"minMember":1,"name":"a"},{"minMember":1,"name":"a"}]}
          create: ["duplicate subgroup name a"] []
        {"subGroups":[{"minMember":1,"name":"a","parent":"b"}]}
          create: ["parent b of a was not found"] []
        {"subGroups":[{"minMember":1,"name":"a","parent":"b"},{"name":"b","parent":"a"}]}
          create: ["cycle detected in subgroups"] []
        {"subGroups":[{"minMember":1,"minSubGroup":1,"name":"a"}]}
          create: ["subgroup \"a\": minMember and minSubGroup are mutually exclusive"] []
        {"subGroups":[{"minSubGroup":1,"name":"a"},{"name":"b"}]}
          create: ["subgroup \"a\": minSubGroup cannot be set on a leaf SubGroup (no child SubGroups)", "subgroup a: minMember is required", "subgroup b: minMember is required"] []
        {"subGroups":[{"minMember":1,"name":"a"},{"minMember":1,"name":"b","parent":"a"}]}
          create: ["subgroup \"a\": minMember cannot be set on a mid-level SubGroup (has child SubGroups); use minSubGroup instead"] []
          update: [] ["subgroup \"a\": minMember cannot be set on a mid-level SubGroup (has child SubGroups); use minSubGroup instead"]
        {"subGroups":[{"minSubGroup":2,"name":"a"},{"minMember":1,"name":"b","parent":"a"}]}
          create: [] ["subgroup \"a\": minSubGroup (2) exceeds the number of direct child SubGroups (1)"]
        {"minSubGroup":1}
          create: [] ["minSubGroup (1) exceeds the number of direct child SubGroups (0)"]
    "#]].assert_eq(&text);
}

#[test]
fn an_alias_means_one_level() {
    let topology = |levels: Value| validate_topology(&json!({"metadata": {"name": "t"}, "spec": {"levels": levels}}));
    assert!(topology(json!([{"nodeLabel": "zone", "alias": "z"}, {"nodeLabel": "rack"}])).allowed());
    let result = topology(json!([
        {"nodeLabel": "zone", "alias": "rack"}, {"nodeLabel": "rack", "alias": "r"}, {"nodeLabel": "host", "alias": "r"},
    ]));
    expect!["invalid topology aliases: spec.levels[0].alias: rack is the nodeLabel of a level; choose another alias; spec.levels[2].alias: r is the alias of an earlier level; choose another alias"].assert_eq(&result.message());
}

#[test]
fn what_was_wrong_before_a_change_does_not_stop_it() {
    let [fine, one, both] = [&[][..], &["a"], &["a", "b"]].map(|denials| AdmissionResult {
        denials: denials.iter().map(|why| (*why).to_owned()).collect(),
        warnings: vec!["mind".to_owned()],
    });
    assert_eq!(
        one.clone().tolerating_existing(&both),
        AdmissionResult { denials: Vec::new(), warnings: vec!["a".into(), "mind".into()] }
    );
    assert_eq!(both.clone().tolerating_existing(&one), both);
    assert_eq!(one.clone().tolerating_existing(&fine), one);
    assert_eq!(fine.clone().tolerating_existing(&one), fine);
}
