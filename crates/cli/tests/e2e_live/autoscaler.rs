//! The node-scale adjuster beside a cluster autoscaler: nodes come for pods that share GPUs, and none for pods that wait
//! for their queue.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use test_cluster::Kubectl;

use crate::ask::{apply, await_that, get, message, run, running};
use crate::kai::{Components, Kai, cluster};
use crate::workloads::{QUEUE, pod};

#[test]
#[ignore = "starts a real cluster"]
fn e2e_autoscalers_see_shared_gpus_and_not_those_who_wait_for_quota() {
    let mut cluster = cluster("e2e-autoscaler", 1, 1);
    let kubectl = cluster.kubectl();
    let mut components = Components::start(&cluster);
    let mut adjuster = Kai::start(&cluster, "nodescaleadjuster", "node-scale-adjuster", &[]);
    apply(&kubectl, QUEUES);
    let mut autoscaler = Autoscaler { kubectl: kubectl.clone(), helped: BTreeSet::new(), added: 0 };

    halves(&kubectl, &["one", "two"], "open");
    await_that("two halves share the GPU that is there", || running(&kubectl, QUEUE) == 2);
    autoscaler.poll();
    assert_eq!(autoscaler.added, 0, "no pod is pending");

    halves(&kubectl, &["three", "four", "five"], "open");
    await_that("two scaling pods stand for three halves", || scaling_pods(&kubectl).lines().count() == 2);
    await_that("nodes come until all run", || {
        autoscaler.poll();
        running(&kubectl, QUEUE) == 5
    });
    assert_eq!(autoscaler.added, 2, "three halves need two GPUs");
    await_that("there are no scaling pods for pods that run", || scaling_pods(&kubectl).is_empty());

    // At the limit of their queue, with and without parts of GPUs.
    halves(&kubectl, &["first"], "tight");
    await_that("what the limit allows runs", || running(&kubectl, QUEUE) == 6);
    halves(&kubectl, &["second"], "tight");
    apply(&kubectl, &pod("third", &json!({QUEUE: "tight", "whole": "yes"}), 1).to_string());
    await_that("conditions of both name the limit", || {
        ["half=second", "whole"].iter().all(|pod| message(&kubectl, pod).contains("limit"))
    });
    for _ in 0..20 {
        autoscaler.poll();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(autoscaler.added, 2, "no node would help them");
    assert!(scaling_pods(&kubectl).is_empty());

    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
    adjuster.end_politely();
    components.end_politely();
}

const QUEUES: &str = "
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: all}
spec:
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: open}
spec:
  parentQueue: all
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: tight}
spec:
  parentQueue: all
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: 0.5, limit: 0.5, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
";

/// Adds nodes as a cluster autoscaler would: it sees pods that a scheduler found no node for, knows nothing of
/// parts of GPUs and of queues, and helps each pod once. Plays the default scheduler as well, of which there is none here.
struct Autoscaler {
    kubectl: Kubectl,
    helped: BTreeSet<String>,
    added: u64,
}

impl Autoscaler {
    fn poll(&mut self) {
        let pods = get(&self.kubectl, "pods --all-namespaces");
        for pod in pods["items"].as_array().into_iter().flatten().filter(|pod| unschedulable(pod)) {
            if gpus(pod) > 0 && self.helped.insert(pod["metadata"]["uid"].to_string()) {
                let node = self.add_node(gpus(pod));
                if pod["spec"]["schedulerName"] == "default-scheduler" {
                    self.bind(pod, &node);
                }
            }
        }
    }

    fn add_node(&mut self, gpus: u64) -> String {
        let name = format!("scaled-{}", self.added);
        let room = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string()});
        let labels = json!({"nvidia.com/gpu.count": gpus.to_string(), "nvidia.com/gpu.memory": "81920"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"capacity": room, "allocatable": room},
        });
        apply(&self.kubectl, &node.to_string());
        self.added += 1;
        name
    }

    /// Scaling pods end at once.
    fn bind(&self, pod: &Value, node: &str) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        run(&self.kubectl, &format!("annotate pod {name} --namespace kai-scale-adjust e2e.test/run-for=1s"));
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
        let path = format!("/api/v1/namespaces/kai-scale-adjust/pods/{name}/binding");
        let create = ["create", "--raw", &path, "--filename=-"];
        self.kubectl.run_with(&create, Some(&binding.to_string())).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

fn unschedulable(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let given_up = |condition: &Value| {
        condition["type"] == "PodScheduled" && condition["status"] == "False" && condition["reason"] == "Unschedulable"
    };
    pod["spec"]["nodeName"].is_null() && conditions.any(given_up)
}

fn gpus(pod: &Value) -> u64 {
    let asked = &pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"];
    asked.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Pods that ask for half a GPU each.
fn halves(kubectl: &Kubectl, names: &[&str], queue: &str) {
    let half = |name: &&str| {
        let mut pod = pod(name, &json!({QUEUE: queue, "half": name}), 0);
        pod["metadata"]["annotations"] = json!({"gpu-fraction": "0.5"});
        pod["spec"]["containers"][0]["resources"] = json!({});
        pod
    };
    let items: Vec<Value> = names.iter().map(half).collect();
    apply(kubectl, &json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
}

fn scaling_pods(kubectl: &Kubectl) -> String {
    run(kubectl, "get pods --namespace kai-scale-adjust -o name")
}
