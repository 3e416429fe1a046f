//! `kai generate` and `kai replay`, through files as people pass them around.

use std::fs;
use std::process::Output;

use expect_test::{Expect, expect, expect_file};
use serde_json::{Value, json};

use super::invocation::{Folder, kai, root, stdout, test_name, transcript};

/// Two nodes, one queue, one pod that fits, and one that does not.
fn small() -> Value {
    let pod = |name: &str, gpus: &str| {
        json!({
            "metadata": {
                "name": name, "namespace": "team", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"pod-group-name": name},
            },
            "spec": {
                "schedulerName": "kai-scheduler",
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}],
            },
            "status": {"phase": "Pending"},
        })
    };
    let group = |name: &str| {
        json!({
            "metadata": {"name": name, "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"queue": "research", "minMember": 1},
        })
    };
    let node = |name: &str| {
        let has = json!({"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "2"});
        json!({
            "metadata": {"name": name, "labels": {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "81559"}},
            "status": {"allocatable": has, "capacity": has, "conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let resources = |gpus: i32| json!({"gpu": {"quota": gpus, "limit": -1, "overQuotaWeight": 1}, "cpu": unlimited, "memory": unlimited});
    json!({
        "config": {"actions": "allocate, reclaim"},
        "schedulerParams": {"schedulerName": "kai-scheduler", "useSchedulingSignatures": true, "fullHierarchyFairness": true},
        "rawObjects": {
            "pods": [pod("fits", "2"), pod("too-large", "3")],
            "nodes": [node("a"), node("b")],
            "queues": [
                {"metadata": {"name": "all"}, "spec": {"resources": resources(4)}},
                {"metadata": {"name": "research"}, "spec": {"parentQueue": "all", "resources": resources(4)}},
            ],
            "podGroups": [group("fits"), group("too-large")],
            "nodeResourceTopologies": null,
        },
    })
}

/// Numbers of milliseconds and megabytes, which are never the same twice.
fn blank_costs(value: &mut Value) {
    let Value::Object(map) = value else { return };
    for (key, value) in map {
        match value {
            Value::Number(_) if key.ends_with("_ms") || key == "rss_mb" => *value = json!("…"),
            Value::Object(actions) if key == "actions_ms" => {
                for (_, ms) in actions {
                    assert!(ms.as_f64().is_some_and(|ms| ms >= 0.0));
                    *ms = json!("…");
                }
            }
            _ => {}
        }
    }
}

fn replay_json(folder: &Folder, arguments: &[&str]) -> Value {
    let output = folder.run(&[&["replay", "a.json", "-o", "json"], arguments].concat());
    let mut value: Value = serde_json::from_str(&stdout(&output)).expect("the output is JSON");
    assert!(value["cycle_ms"].as_f64() >= value["open_ms"].as_f64());
    blank_costs(&mut value);
    value
}

fn folder(snapshot: &Value) -> Folder {
    Folder::new(&test_name()).file("a.json", &snapshot.to_string())
}

#[test]
fn json_has_decisions_reasons_and_shares() {
    let folder = folder(&small());
    let mut value = replay_json(&folder, &[]);
    let record = value.as_object_mut().unwrap().remove("record").expect("the record of the cycle");
    assert_eq!((&record["formatVersion"], &record["cycle"]), (&json!(2), &json!(1)));
    let placements = ["bind", "pipeline", "evict"].map(|kind| json!(kind));
    let placed = record["outcome"].as_array().unwrap().iter().filter(|effect| placements.contains(&effect["type"]));
    assert_eq!(placed.count(), value["decisions"].as_array().unwrap().len());
    assert_eq!(record["pending"].as_array().unwrap().len(), value["pending"].as_array().unwrap().len());
    let text = serde_json::to_string_pretty(&value).unwrap() + "\n";
    expect_file!["snapshots/replay.json"].assert_eq(&text);
}

#[test]
fn a_table_for_people_ends_with_the_cost() {
    let text = stdout(&folder(&small()).run(&["replay", "a.json"]));
    let (decided, cost) = text.split_once("\nCycle\n").expect("the cost comes last");
    expect_file!["snapshots/replay.txt"].assert_eq(decided);
    let words: Vec<&str> = cost.lines().map(|line| line.split("  ").next().unwrap_or_default()).collect();
    assert_eq!(
        words,
        ["2 nodes, 2 pods: 1 bound, 0 pipelined, 0 evicted", "open", "allocate", "reclaim", "cycle", "memory"]
    );
}

#[test]
fn yaml_and_json_are_the_same() {
    let folder = folder(&small());
    let yaml = stdout(&folder.run(&["replay", "a.json", "-o", "yaml"]));
    let mut value: Value = yaml_serde::from_str(&yaml).expect("the output is YAML");
    blank_costs(&mut value);
    assert_eq!(value, replay_json(&folder, &[]));
}

#[test]
fn only_the_named_actions_run() {
    let folder = folder(&small());
    let actions = |arguments: &[&str]| {
        let value = replay_json(&folder, arguments);
        let names: Vec<String> = value["actions_ms"].as_object().unwrap().keys().cloned().collect();
        (names.join(" "), value["bound"].as_u64().unwrap())
    };
    assert_eq!(actions(&["--action", "reclaim"]), ("reclaim".to_owned(), 0));
    assert_eq!(
        actions(&["--action", "preempt", "--action", "allocate", "--repeat", "3"]),
        ("allocate preempt".to_owned(), 1)
    );
    let other = folder.file("other.yaml", "actions: stalegangeviction\n");
    let value = replay_json(&other, &["--config", "other.yaml"]);
    assert_eq!(value["actions_ms"], json!({"stalegangeviction": "…"}));
}

#[test]
fn bad_objects_and_settings_are_reported_and_left_out() {
    let mut snapshot = small();
    snapshot["rawObjects"]["pods"][1]["spec"]["nodeName"] = json!(7);
    snapshot["config"]["actoins"] = json!("allocate");
    let output = folder(&snapshot).run(&["replay", "a.json"]);
    expect![[r#"
        warning: actoins is not a setting; did you mean actions?
        warning: Pod team/too-large: spec.nodeName: expected text, found the number 7
    "#]]
    .assert_eq(&String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}

fn check_bytes(bytes: &[u8], expected: Expect) {
    let folder = Folder::new(&test_name());
    fs::write(folder.path().join("a.zip"), bytes).unwrap();
    expected.assert_eq(&transcript(&folder.run(&["replay", "a.zip"])));
}

#[test]
fn a_file_that_is_not_there() {
    let output = kai(&root(), &["replay", "nowhere.zip"]);
    expect![[r#"
        exit 1
        -- stderr
        error: cannot read nowhere.zip: there is no such file or folder
          help: check the path, and that you may read it
    "#]]
    .assert_eq(&transcript(&output));
}

#[test]
fn a_foreign_file() {
    check_bytes(
        b"\x7fELF\x02\x01\x01",
        expect![[r#"
            exit 1
            -- stderr
            error: the file is neither a zip archive nor JSON
              --> a.zip
              help: give a snapshot that KAI's /get-snapshot served, or one that `kai generate` wrote
        "#]],
    );
}

#[test]
fn json_of_something_else() {
    check_bytes(
        br#"{"kind": "List", "items": []}"#,
        expect![[r#"
            exit 1
            -- stderr
            error: the JSON is no snapshot: it has no rawObjects
              --> a.zip
              help: give a snapshot that KAI's /get-snapshot served, or one that `kai generate` wrote
        "#]],
    );
}

#[test]
fn a_file_that_is_cut_off_or_damaged() {
    let folder = Folder::new(&test_name());
    generate(&folder, &["consolidation", "--nodes", "4", "-o", "a.zip"]);
    let whole = fs::read(folder.path().join("a.zip")).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(folder.path().join("b.zip"), bytes).unwrap();
        let output = folder.run(&["replay", "b.zip"]);
        assert_eq!(output.status.code(), Some(1));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            words.starts_with("error: the archive is damaged or cut off") && !words.contains("panicked"),
            "{words}"
        );
    };
    refused(&whole[..whole.len() / 2]);
    refused(&whole[..whole.len() - 1]);
    let mut damaged = whole.clone();
    damaged[whole.len() / 3] ^= 0xff;
    refused(&damaged);
}

#[test]
fn a_configuration_that_cannot_be_used() {
    let folder = folder(&small()).file("other.yaml", "actions: alocate\n");
    expect![[r#"
        exit 1
        -- stderr
        error: actions: `alocate` is not an action; did you mean allocate?
          --> other.yaml
          help: use allocate, consolidation, reclaim, preempt, stalegangeviction
    "#]]
    .assert_eq(&transcript(&folder.run(&["replay", "a.json", "--config", "other.yaml"])));
}

fn generate(folder: &Folder, arguments: &[&str]) -> Output {
    let output = folder.run(&[&["generate"], arguments].concat());
    assert_eq!(transcript(&output), "exit 0\n");
    output
}

#[test]
fn a_generated_cluster_can_be_replayed() {
    let folder = Folder::new(&test_name());
    generate(&folder, &["allocate", "--nodes", "10", "-o", "a.json"]);
    let value = replay_json(&folder, &["--repeat", "2"]);
    // All but the gang of 8 nodes, which small jobs came before.
    assert_eq!((&value["bound"], &value["evicted"]), (&json!(92), &json!(0)));
    assert_eq!((value["pending"].as_array().unwrap().len(), &value["problems"]), (1, &json!([])));
    let actions = value["actions_ms"].as_object().unwrap();
    assert_eq!(actions.len(), 5);
}

#[test]
fn equal_arguments_give_equal_files() {
    let folder = Folder::new(&test_name());
    for (name, seed) in [("a.zip", "7"), ("b.zip", "7"), ("c.zip", "8")] {
        generate(&folder, &["preempt", "--nodes", "8", "--seed", seed, "-o", name]);
    }
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert!(read("a.zip") == read("b.zip") && read("a.zip") != read("c.zip"));
}

#[test]
fn generated_manifests_can_be_simulated() {
    let folder = Folder::new(&test_name());
    generate(&folder, &["consolidation", "--nodes", "4", "--pending", "1", "-o", "a.yaml"]);
    let report: Value =
        serde_json::from_str(&stdout(&folder.run(&["simulate", "a.yaml", "--until", "5m", "-o", "json"]))).unwrap();
    assert_eq!(report["pending"], json!([]));
    let events: Vec<&str> =
        report["timeline"].as_array().unwrap().iter().filter_map(|row| row["event"].as_str()).collect();
    assert_eq!(events.iter().filter(|event| **event == "move").count(), 1, "{events:?}");
    assert_eq!(report["nodes"].as_array().unwrap().len(), 4);
}

#[test]
fn an_unknown_scenario() {
    expect![[r#"
        exit 2
        -- stderr
        error: invalid value 'alocate' for '<SCENARIO>': there are mixed, allocate, saturated, saturated_distinct, reclaim, reclaim_g1, preempt, preempt_even, consolidation, consolidation_hard, topology, topology_rack

        For more information, try '--help'.
    "#]]
    .assert_eq(&transcript(&kai(&root(), &["generate", "alocate", "-o", "a.zip"])));
}

#[test]
fn help_of_replay_and_generate() {
    expect_file!["snapshots/help-replay.txt"].assert_eq(&stdout(&kai(&root(), &["replay", "--help"])));
    expect_file!["snapshots/help-generate.txt"].assert_eq(&stdout(&kai(&root(), &["generate", "--help"])));
}
