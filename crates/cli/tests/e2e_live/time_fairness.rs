//! The queue that has used less of the cluster comes first, as Prometheus remembers it; and the older one, while it
//! does not answer.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use test_cluster::{Kubectl, MonitoringPrograms, Progress};

use crate::ask::{apply, await_that, phase, run, waiting};
use crate::kai::{Components, cluster, free_port};
use crate::walkthroughs::example;
use crate::workloads::{QUEUE, pod};

#[test]
#[ignore = "starts a real cluster"]
fn e2e_who_has_used_less_comes_first() {
    let name = "e2e-time-fairness";
    let measures = MonitoringPrograms::find_or_build(&Progress::start(name)).unwrap_or_else(|fault| panic!("{fault}"));
    let mut cluster = cluster(name, 1, 1);
    let kubectl = cluster.kubectl();
    let prometheus = free_port();
    let config = cluster.state().kubeconfig.with_file_name("scheduler.yaml");
    std::fs::write(&config, scheduler_config(prometheus).to_string()).unwrap();
    let mut components = Components::start_with(&cluster, &["--scheduler-conf", config.to_str().unwrap()]);
    apply(&kubectl, &queues());

    // Prometheus is not there. Of two that are equal, the older one is entitled to the only GPU.
    submit(&kubectl, "long", "older");
    await_that("it runs", || phase(&kubectl, "long") == "Running");
    submit(&kubectl, "short", "younger");
    await_that("the other is pending with a reason", || waiting(&kubectl, &format!("{QUEUE}=younger")) == 1);
    assert_eq!((fair_share(&components, "older"), fair_share(&components, "younger")), (1.0, 0.0));
    await_that("the log warns of it", || components.log("scheduler").contains("usage query failed"));
    run(&kubectl, "delete pod short --timeout=60s");

    let nodes = cluster.start_kube_state_metrics(&measures).unwrap_or_else(|fault| panic!("{fault}"));
    let read = prometheus_config(components.port("queuecontroller"), nodes);
    cluster.start_prometheus(&measures, prometheus, &read).unwrap_or_else(|fault| panic!("{fault}"));
    await_that("it is known who had it all the time", || usage(&components, "older") > 0.7);
    run(&kubectl, r#"patch queue older --type=merge --patch={"spec":{"displayName":"Research"}}"#);
    thread::sleep(Duration::from_secs(4));
    assert!(
        usage(&components, "older") > 0.8,
        "by another name it is still the same queue: {}",
        usage(&components, "older")
    );

    submit(&kubectl, "short", "younger");
    await_that("who has used less gets the GPU", || phase(&kubectl, "short") == "Running");
    assert!(run(&kubectl, "get pods --output=name").lines().eq(["pod/short"]), "the other has lost it");
    assert!(metric_of(&components, "kai_scenarios_simulation_by_action", r#"action="reclaim""#) > 0.0);
    assert!(metric_of(&components, "kai_usage_query_latency_milliseconds_count", "") > 0.0);

    cluster.stop_program("prometheus").unwrap_or_else(|fault| panic!("{fault}"));
    await_that("what is too old does not count", || usage(&components, "older") == 0.0);
    assert!(components.log("scheduler").contains("usage data is stale"), "the log warns of it");
    submit(&kubectl, "next", "older");
    await_that("there is no usage, and the older queue comes first", || phase(&kubectl, "next") == "Running");

    cluster.start_prometheus(&measures, prometheus, &read).unwrap_or_else(|fault| panic!("{fault}"));
    submit(&kubectl, "last", "younger");
    await_that("the past counts again", || phase(&kubectl, "last") == "Running");
    assert!(usage(&components, "older") > usage(&components, "younger"));

    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
    components.end_politely();
}

/// Files as the example shows them to people, with shorter periods.
fn scheduler_config(prometheus: u16) -> Value {
    let mut config = shown(1);
    let usage = &mut config["usageDBConfig"];
    usage["connectionString"] = format!("http://kai:p%40ss@127.0.0.1:{prometheus}").into();
    usage["usageParams"]["windowSize"] = "10m".into();
    usage["usageParams"]["fetchInterval"] = "500ms".into();
    usage["usageParams"]["stalenessPeriod"] = "2s".into();
    usage["usageParams"]["waitTimeout"] = "1s".into();
    usage["usageParams"]["extraParams"] = json!({"queryResolution": "1s"});
    config
}

fn prometheus_config(queue_controller: u16, kube_state_metrics: u16) -> Value {
    let mut config = shown(0);
    config["global"]["scrape_interval"] = "1s".into();
    for (job, port) in [queue_controller, kube_state_metrics].into_iter().enumerate() {
        config["scrape_configs"][job]["static_configs"][0]["targets"][0] = format!("127.0.0.1:{port}").into();
    }
    config
}

fn shown(which: usize) -> Value {
    let text = example("time-fairness/README.md");
    let block = text.split("```yaml\n").nth(which + 1).and_then(|rest| rest.split("```").next());
    yaml_serde::from_str(block.expect("the example has two files")).unwrap()
}

/// Of equal rights, and without a quota. Names decide if both are made in the same second.
fn queues() -> String {
    let queue = |name: &str| {
        format!(
            "
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: {name}}}
spec:
  resources:
    cpu: {{quota: -1, limit: -1, overQuotaWeight: 1}}
    gpu: {{quota: 0, limit: -1, overQuotaWeight: 1}}
    memory: {{quota: -1, limit: -1, overQuotaWeight: 1}}
---"
        )
    };
    [queue("older"), queue("younger")].concat()
}

fn submit(kubectl: &Kubectl, name: &str, queue: &str) {
    apply(kubectl, &pod(name, &json!({QUEUE: queue}), 1).to_string());
}

fn usage(components: &Components, queue: &str) -> f64 {
    metric_of(components, "kai_queue_gpu_usage", &format!("queue_metadata_name=\"{queue}\""))
}

fn fair_share(components: &Components, queue: &str) -> f64 {
    metric_of(components, "kai_queue_fair_share_gpu", &format!("queue_metadata_name=\"{queue}\""))
}

/// A metric of the scheduler with this label; nothing, if it says nothing.
fn metric_of(components: &Components, metric: &str, label: &str) -> f64 {
    let metrics = components.get("scheduler", "/metrics");
    let line = metrics.lines().find(|line| line.starts_with(metric) && line.contains(label));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
}
