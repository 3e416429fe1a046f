//! Plays scenarios on a cluster, one after the other, each in a namespace of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use test_cluster::{Cluster, Kubectl, Progress};

use crate::Failed;
use crate::scenario::{Scenario, Step};
use crate::sight::{Seen, Sight};

const POLL_PERIOD: Duration = Duration::from_millis(500);
/// So many polls until a step counts as not reached: what came of it instead is compared.
const POLLS_MAX: usize = 140;
/// Both schedulers look once a second, and write down what they saw a moment later.
const SETTLE: Duration = Duration::from_secs(4);

pub(crate) fn all(cluster: &mut Cluster, scenarios: &[Scenario], progress: &Progress) -> Result<Vec<Sight>, Failed> {
    let kubectl = cluster.kubectl();
    await_webhooks(&kubectl)?;
    let dir = cluster.state().kubeconfig.parent().unwrap_or(Path::new(".")).to_owned();
    // What is gone before the end of a scenario is seen as well.
    let bind_requests = Watch::start(&kubectl, &dir, "bindrequests.scheduling.run.ai")?;
    let pods = Watch::start(&kubectl, &dir, "pods")?;
    let mut played = Vec::new();
    for scenario in scenarios {
        let outcomes = play(&kubectl, scenario)?;
        let namespace = &scenario.name;
        let seen = Seen {
            outcomes,
            now: list(&kubectl, &format!("get podgroups.scheduling.run.ai,pods,configmaps,events -n {namespace}"))?,
            queues: list(&kubectl, "get queues.scheduling.run.ai")?,
            reservations: list(&kubectl, &format!("get pods -n {RESERVATIONS}"))?,
            bind_requests: bind_requests.in_namespace(namespace)?,
            pods: pods.in_namespace(namespace)?,
        };
        played.push(seen.sight());
        clear(&kubectl, scenario)?;
        cluster.check(&format!("playing {namespace}"))?;
        progress.report(format_args!("{namespace} played"));
    }
    Ok(played)
}

const RESERVATIONS: &str = "kai-resource-reservation";

/// What came of each step.
fn play(kubectl: &Kubectl, scenario: &Scenario) -> Result<Vec<String>, Failed> {
    let namespace = &scenario.name;
    kubectl.run(&format!("create namespace {namespace}"))?;
    let mut outcomes = Vec::new();
    for step in &scenario.steps {
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": step.objects}).to_string();
        let apply = ["apply", "--server-side", "--namespace", namespace, "--filename=-"];
        kubectl.run_with(&apply, Some(&objects))?;
        outcomes.push(await_outcome(kubectl, namespace, step)?);
        thread::sleep(SETTLE);
    }
    Ok(outcomes)
}

fn await_outcome(kubectl: &Kubectl, namespace: &str, step: &Step) -> Result<String, Failed> {
    let mut polls = 0;
    loop {
        let pods = list(kubectl, &format!("get pods -n {namespace}"))?;
        let mut living = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let (placed, waiting): (Vec<_>, Vec<_>) = living.by_ref().partition(|pod| pod["spec"]["nodeName"].is_string());
        let running = placed.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        polls += 1;
        if (running, waiting.len()) == (step.running, step.waiting) || polls == POLLS_MAX {
            return Ok(format!("{running} running, {} waiting", waiting.len()));
        }
        thread::sleep(POLL_PERIOD);
    }
}

/// Removes everything, and waits until nothing is left of it.
fn clear(kubectl: &Kubectl, scenario: &Scenario) -> Result<(), Failed> {
    let namespace = &scenario.name;
    for step in &scenario.steps {
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": step.objects}).to_string();
        let delete = ["delete", "--namespace", namespace, "--ignore-not-found", "--wait=false", "--filename=-"];
        kubectl.run_with(&delete, Some(&objects))?;
    }
    for _ in 0..POLLS_MAX {
        let left = list(kubectl, &format!("get pods,podgroups.scheduling.run.ai -n {namespace}"))?.len()
            + list(kubectl, &format!("get pods -n {RESERVATIONS}"))?.len();
        if left == 0 {
            return Ok(());
        }
        thread::sleep(POLL_PERIOD);
    }
    Err(format!("something of {namespace} is left behind").into())
}

/// The API server learns of webhooks a moment after they are registered. Both sides refuse more than a whole GPU.
fn await_webhooks(kubectl: &Kubectl) -> Result<(), Failed> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "asked", "annotations": {"gpu-fraction": "2"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "any"}]},
    });
    for _ in 0..POLLS_MAX {
        let create = ["create", "--dry-run=server", "--filename=-"];
        if kubectl.run_with(&create, Some(&pod.to_string())).is_err() {
            return Ok(());
        }
        thread::sleep(POLL_PERIOD);
    }
    Err("the webhook for pods is never asked".into())
}

fn list(kubectl: &Kubectl, question: &str) -> Result<Vec<Value>, Failed> {
    let mut answer: Value = serde_json::from_str(&kubectl.run(&format!("{question} -o json"))?)?;
    Ok(answer["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// Everything that was ever seen of one kind, in a file.
struct Watch {
    child: Child,
    file: PathBuf,
}

impl Watch {
    fn start(kubectl: &Kubectl, dir: &Path, kind: &str) -> Result<Self, Failed> {
        let file = dir.join(format!("{kind}.watch"));
        let mut command = kubectl.command();
        command.args(["get", kind, "--all-namespaces", "--watch", "--output=json"]);
        let child = command.stdin(Stdio::null()).stdout(File::create(&file)?).spawn()?;
        Ok(Self { child, file })
    }

    /// The last state of each object.
    fn in_namespace(&self, namespace: &str) -> Result<Vec<Value>, Failed> {
        let text = fs::read_to_string(&self.file)?;
        let mut last: Vec<Value> = Vec::new();
        for object in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            // The last one may be half written; it is of the next scenario.
            let Ok(object) = object else { break };
            if object["metadata"]["namespace"] != namespace {
                continue;
            }
            last.retain(|known| known["metadata"]["uid"] != object["metadata"]["uid"]);
            last.push(object);
        }
        Ok(last)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
