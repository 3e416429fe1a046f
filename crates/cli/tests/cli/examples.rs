//! Each example gives what its README shows: as tables, beside the manifests, and as JSON.

use expect_test::expect_file;

use super::invocation::{Folder, kai, root, stdout, test_name};

macro_rules! examples {
    ($($test:ident: $name:literal, $expected:literal, [$($path:literal),+];)*) => {$(
        #[test]
        fn $test() {
            let table = kai(&root(), &["simulate", $($path),+]);
            expect_file![concat!("../../../../examples/", $expected)].assert_eq(&stdout(&table));
            let json = kai(&root(), &["simulate", $($path),+, "--output", "json"]);
            expect_file![concat!("snapshots/", $name, ".json")].assert_eq(&stdout(&json));
        }
    )*};
}

examples! {
    consolidation: "consolidation", "consolidation/expected.txt", ["examples/consolidation"];
    devices: "devices", "devices/expected.txt", ["examples/devices"];
    elastic: "elastic", "elastic/expected.txt", ["examples/elastic"];
    fair_share: "fair-share", "fair-share/expected.txt", ["examples/fair-share"];
    fractions: "fractions", "fractions/expected.txt", ["examples/fractions"];
    gang: "gang", "gang/expected.txt", ["examples/gang"];
    job_set: "job-set", "job-set/expected.txt", ["examples/job-set"];
    kubeflow: "kubeflow", "kubeflow/expected.txt", ["examples/kubeflow"];
    leader_worker_set: "leader-worker-set", "leader-worker-set/expected.txt", ["examples/leader-worker-set"];
    own_kind: "own-kind", "own-kind/expected.txt", ["examples/own-kind"];
    ray: "ray", "ray/expected.txt", ["examples/ray"];
    elastic_reclaim: "elastic-reclaim", "elastic-reclaim/expected.txt", ["examples/elastic-reclaim"];
    min_runtime: "min-runtime", "min-runtime/expected.txt", ["examples/min-runtime"];
    neighbours: "neighbours", "neighbours/expected.txt", ["examples/neighbours"];
    over_quota_weights: "over-quota-weights", "over-quota-weights/expected.txt", ["examples/over-quota-weights"];
    priority: "priority", "priority/expected.txt", ["examples/priority"];
    reclaim: "reclaim", "reclaim/expected.txt", ["examples/reclaim"];
    stale_gang: "stale-gang", "stale-gang/expected.txt", ["examples/stale-gang"];
    time_fairness: "time-fairness", "time-fairness/expected.txt", ["examples/time-fairness"];
    volumes: "volumes", "volumes/expected.txt", ["examples/volumes"];
    binpack: "binpack", "spread-vs-binpack/expected.txt", ["examples/spread-vs-binpack"];
    spread: "spread", "spread-vs-binpack/spread/expected.txt",
        ["examples/spread-vs-binpack/cluster.yaml", "examples/spread-vs-binpack/spread"];
}

#[test]
fn every_example_folder_is_tested_and_explained() {
    let tested = [
        "consolidation",
        "devices",
        "elastic",
        "elastic-reclaim",
        "fair-share",
        "fractions",
        "gang",
        "job-set",
        "kubeflow",
        "leader-worker-set",
        "min-runtime",
        "neighbours",
        "over-quota-weights",
        "own-kind",
        "priority",
        "ray",
        "reclaim",
        "spread-vs-binpack",
        "stale-gang",
        "time-fairness",
        "volumes",
    ];
    let folders = std::fs::read_dir(root().join("examples")).expect("examples are there");
    for folder in folders.map(|entry| entry.expect("examples can be read").path()).filter(|path| path.is_dir()) {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        assert!(tested.contains(&name.as_str()), "examples/{name} has no test");
        assert!(folder.join("README.md").is_file(), "examples/{name} has no README.md");
    }
}

/// Pods with GPUs on each node as `name (GPUs)`, without the number that tells replacements apart.
fn places(report: &serde_json::Value) -> Vec<String> {
    let nodes = report["nodes"].as_array().expect("nodes are a list");
    let pod = |pod: &serde_json::Value| {
        let name = pod["name"].as_str().unwrap_or_default();
        let job = name.rsplit_once('-').map_or(name, |(job, _)| job);
        format!("{} ({})", job.split_once('/').map_or(job, |(_, job)| job), pod["gpu"])
    };
    let line = |node: &serde_json::Value| {
        let pods: Vec<String> = node["pods"].as_array().into_iter().flatten().map(pod).collect();
        format!("{}: {}", node["name"].as_str().unwrap_or_default(), pods.join(" + "))
    };
    nodes.iter().map(line).collect()
}

#[test]
fn consolidation_makes_room_by_moving_one_pod() {
    let output = kai(&root(), &["simulate", "examples/consolidation", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    assert_eq!(
        places(&report),
        [
            "node-1: training-job-1 (4) + training-job-a (4)",
            "node-2: training-job-3 (6) + training-job-2 (2)",
            "node-3: training-job-b (3) + interactive-job (5)",
            "node-4: ",
        ]
    );
}

#[test]
fn without_keeping_nodes_whole_nothing_moves() {
    let mut folder = Folder::new(&test_name());
    for file in ["nodes.yaml", "1-queues.yaml", "2-initial-state.yaml", "3-new-workloads.yaml", "scenario.yaml"] {
        let text =
            std::fs::read_to_string(root().join("examples/consolidation").join(file)).expect("the file is there");
        folder = folder.file(file, &text.replace("keepNodesWhole: true", "keepNodesWhole: false"));
    }
    let report: serde_json::Value =
        serde_json::from_str(&stdout(&folder.run(&["simulate", ".", "-o", "json"]))).expect("it is JSON");
    assert_eq!(places(&report)[3], "node-4: training-job-a (4)");
    let events = report["timeline"].as_array().expect("the timeline is a list");
    assert!(events.iter().all(|event| event["event"] != "move" && event["event"] != "evict"));
}

#[test]
fn yaml_and_json_are_the_same() {
    let arguments = |format| ["simulate", "examples/consolidation", "-o", format];
    let json: serde_json::Value = serde_json::from_str(&stdout(&kai(&root(), &arguments("json")))).expect("it is JSON");
    let yaml: serde_json::Value = yaml_serde::from_str(&stdout(&kai(&root(), &arguments("yaml")))).expect("it is YAML");
    assert_eq!(json, yaml);
}

#[test]
fn colours_are_shown_on_demand_only() {
    let run = |color| stdout(&kai(&root(), &["simulate", "examples/gang", "--color", color]));
    assert!(run("always").contains("\u{1b}["));
    assert!(!run("auto").contains("\u{1b}["), "standard output is no terminal here");
    assert!(!run("never").contains("\u{1b}["));
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let run = || stdout(&kai(&root(), &["simulate", "examples/gang", "-o", "json", "--seed", "7"]));
    assert_eq!(run(), run());
}
