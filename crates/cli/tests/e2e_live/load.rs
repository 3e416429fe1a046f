//! Work for a small cluster, more than it can do at once, and what must hold of it at any moment and in the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use test_cluster::Kubectl;

use crate::ask::{apply, get, run};

pub(crate) const QUEUES: &str = "
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: department}
spec:
  resources: {gpu: {quota: -1, limit: -1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  parentQueue: department
  resources: {gpu: {quota: -1, limit: -1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}
";

/// Jobs of a wave: pods, and GPUs of each.
const GANGS: [(u32, u32); 5] = [(2, 4), (3, 2), (4, 1), (1, 8), (1, 1)];

/// How long every pod works.
const WORK: &str = "2s";

/// Submits a wave: gangs of several sizes, and pods that share GPUs.
pub(crate) fn submit(kubectl: &Kubectl, wave: u32) {
    let mut manifests = String::new();
    for (gang, (pods, gpus)) in GANGS.into_iter().enumerate() {
        let priority = if gang % 2 == 0 { "build" } else { "train" };
        let _ = write!(
            manifests,
            "
---
apiVersion: batch/v1
kind: Job
metadata:
  name: gang-{wave}-{gang}
  labels: {{kai.scheduler/queue: team, priorityClassName: {priority}}}
  annotations: {{kai.scheduler/batch-min-member: \"{pods}\"}}
spec:
  parallelism: {pods}
  completions: {pods}
  backoffLimit: 100
  template:
    metadata: {{labels: {{kai.scheduler/queue: team}}, annotations: {{e2e.test/run-for: {WORK}}}}}
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers: [{{name: main, image: any, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"
        );
    }
    for (number, fraction) in ["0.5", "0.3"].into_iter().enumerate() {
        let _ = write!(
            manifests,
            "
---
apiVersion: v1
kind: Pod
metadata:
  name: shared-{wave}-{number}
  labels: {{kai.scheduler/queue: team}}
  annotations: {{gpu-fraction: \"{fraction}\", e2e.test/run-for: {WORK}}}
spec:
  schedulerName: kai-scheduler
  restartPolicy: Never
  containers: [{{name: main, image: any}}]
"
        );
    }
    apply(kubectl, &manifests);
}

/// What is not as it should be after this many waves, once everything has come to rest.
pub(crate) fn left_over(kubectl: &Kubectl, waves: u32) -> Vec<String> {
    let mut problems = Vec::new();
    let jobs = get(kubectl, "jobs");
    let complete = items(&jobs).filter(|job| job["status"]["succeeded"] == job["spec"]["completions"]).count();
    let submitted = waves as usize * GANGS.len();
    if complete != submitted {
        problems.push(format!("{complete} of {submitted} gangs have done their work"));
    }
    let pods = get(kubectl, "pods");
    for pod in items(&pods).filter(|pod| !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))) {
        let condition = items_of(&pod["status"]["conditions"]).find(|condition| condition["type"] == "PodScheduled");
        let message = condition.and_then(|condition| condition["message"].as_str()).unwrap_or("no condition");
        let (phase, node) = (&pod["status"]["phase"], &pod["spec"]["nodeName"]);
        problems.push(format!("pod {} is {phase} on {node}: {message}", name(pod)));
    }
    for reservation in run(kubectl, "get pods -n kai-resource-reservation -o name").lines() {
        problems.push(format!("{reservation} reserves a GPU without users"));
    }
    let requests = get(kubectl, "bindrequests.scheduling.run.ai -A");
    for request in items(&requests).filter(|request| request["status"]["phase"] != "Succeeded") {
        let status = &request["status"];
        problems.push(format!("bind request {} is {}: {}", name(request), status["phase"], status["reason"]));
    }
    let held = run(kubectl, "get queues -o jsonpath={.items[*].status.allocated}");
    if held.contains("nvidia.com/gpu\":\"") && !held.contains("nvidia.com/gpu\":\"0\"") {
        problems.push(format!("queues still hold {held}"));
    }
    problems
}

/// Looks at the cluster all the time, for what may never be seen.
pub(crate) struct Watchman {
    done: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchman {
    pub(crate) fn start(kubectl: &Kubectl, gpus_of_node: f64) -> Self {
        let (done, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (kubectl, theirs, found) = (kubectl.clone(), Arc::clone(&done), Arc::clone(&seen));
        let thread = thread::spawn(move || {
            let mut nodes = BTreeMap::new();
            while !theirs.load(Ordering::SeqCst) {
                let pods = get(&kubectl, "pods -A");
                found.lock().unwrap().extend(violations(&pods, gpus_of_node, &mut nodes));
                thread::sleep(Duration::from_millis(200));
            }
        });
        Self { done, seen, thread: Some(thread) }
    }

    /// Everything it has seen that may not be.
    pub(crate) fn report(mut self) -> Vec<String> {
        self.done.store(true, Ordering::SeqCst);
        self.thread.take().expect("it is asked once").join().expect("it could look at the cluster all the time");
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

/// `nodes` remembers where each pod was bound.
fn violations(pods: &Value, gpus_of_node: f64, nodes: &mut BTreeMap<String, String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut used: BTreeMap<&str, f64> = BTreeMap::new();
    let mut shared: BTreeMap<&str, f64> = BTreeMap::new();
    for pod in items(pods) {
        let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let before = nodes.entry(uid).or_insert_with(|| node.to_owned());
        if before != node {
            problems.push(format!("pod {} was bound to {before} and to {node}", name(pod)));
        }
        if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
            continue;
        }
        let number = |text: &Value| text.as_str().and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        *used.entry(node).or_default() +=
            number(&pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]);
        if let Some(group) = pod["metadata"]["labels"]["runai-gpu-group"].as_str() {
            *shared.entry(group).or_default() += number(&pod["metadata"]["annotations"]["gpu-fraction"]);
        }
    }
    let over = used.iter().filter(|(_, used)| **used > gpus_of_node);
    problems.extend(over.map(|(node, used)| format!("{used} GPUs of {node} are in use")));
    let over = shared.iter().filter(|(_, used)| **used > 1.0001);
    problems.extend(over.map(|(group, used)| format!("{used} of GPU {group} are in use")));
    problems
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    items_of(&list["items"])
}

fn items_of(array: &Value) -> impl Iterator<Item = &Value> {
    array.as_array().into_iter().flatten()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

#[test]
fn the_watchman_sees_what_may_not_be() {
    let pod = |uid: &str, node: &str, gpus: &str| {
        serde_json::json!({
            "metadata": {"name": uid, "uid": uid},
            "spec": {"nodeName": node, "containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
        })
    };
    let half = |uid: &str| {
        serde_json::json!({
            "metadata": {"name": uid, "uid": uid, "labels": {"runai-gpu-group": "g"}, "annotations": {"gpu-fraction": "0.6"}},
            "spec": {"nodeName": "n1", "containers": [{}]},
        })
    };
    let mut nodes = BTreeMap::new();
    let fine = serde_json::json!({"items": [pod("a", "n1", "4"), pod("b", "n1", "4"), half("c")]});
    assert_eq!(violations(&fine, 8.0, &mut nodes), Vec::<String>::new());
    let wrong = serde_json::json!({"items": [pod("a", "n2", "4"), pod("d", "n2", "5"), half("c"), half("e")]});
    assert_eq!(
        violations(&wrong, 8.0, &mut nodes),
        ["pod a was bound to n1 and to n2", "9 GPUs of n2 are in use", "1.2 of GPU g are in use"]
    );
}
