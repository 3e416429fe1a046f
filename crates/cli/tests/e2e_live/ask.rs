//! Questions to the cluster, as a user would ask them.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use test_cluster::Kubectl;

pub(crate) fn phase(kubectl: &Kubectl, pod: &str) -> String {
    run(kubectl, &format!("get pod {pod} -o jsonpath={{.status.phase}}"))
}

pub(crate) fn phases(kubectl: &Kubectl, job: &str) -> Vec<String> {
    let phases = run(kubectl, &format!("get pods -l job-name={job} -o jsonpath={{.items[*].status.phase}}"));
    phases.split_whitespace().map(str::to_owned).collect()
}

/// How many of the pods with these labels run and are not about to end.
#[track_caller]
pub(crate) fn running(kubectl: &Kubectl, selector: &str) -> usize {
    let living = |pod: &&Value| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null();
    pods(kubectl, selector).iter().filter(living).count()
}

/// How many of the pods with these labels have no node, and a condition with the reason.
#[track_caller]
pub(crate) fn waiting(kubectl: &Kubectl, selector: &str) -> usize {
    let unschedulable = |pod: &&Value| pod["spec"]["nodeName"].is_null() && scheduled(pod)["reason"] == "Unschedulable";
    pods(kubectl, selector).iter().filter(unschedulable).count()
}

/// The message of a pending pod's condition.
#[track_caller]
pub(crate) fn message(kubectl: &Kubectl, selector: &str) -> String {
    let message = |pod: &Value| scheduled(pod)["message"].as_str().map(str::to_owned);
    pods(kubectl, selector).iter().find_map(message).unwrap_or_default()
}

/// The pod group that the pods with these labels belong to, all of them.
#[track_caller]
pub(crate) fn group_of(kubectl: &Kubectl, selector: &str) -> Value {
    let link = |pod: &Value| pod["metadata"]["annotations"]["pod-group-name"].as_str().unwrap_or_default().to_owned();
    let names: BTreeSet<String> = pods(kubectl, selector).iter().map(link).collect();
    assert_eq!(names.len(), 1, "{selector} should be one group");
    get(kubectl, &format!("podgroups.scheduling.run.ai {}", names.first().expect("counted")))
}

#[track_caller]
fn pods(kubectl: &Kubectl, selector: &str) -> Vec<Value> {
    let mut pods = get(kubectl, &format!("pods -l {selector}"));
    pods["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
}

fn scheduled(pod: &Value) -> &Value {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == "PodScheduled").unwrap_or(&Value::Null)
}

#[track_caller]
pub(crate) fn get(kubectl: &Kubectl, what: &str) -> Value {
    serde_json::from_str(&run(kubectl, &format!("get {what} -o json"))).unwrap()
}

#[track_caller]
pub(crate) fn run(kubectl: &Kubectl, arguments: &str) -> String {
    kubectl.run(arguments).unwrap_or_else(|fault| panic!("{fault}"))
}

#[track_caller]
pub(crate) fn apply(kubectl: &Kubectl, manifest: &str) {
    kubectl.apply(manifest).unwrap_or_else(|fault| panic!("{fault}"));
}

/// Why a manifest is rejected that must be.
#[track_caller]
pub(crate) fn refusal(kubectl: &Kubectl, manifest: &str) -> String {
    match kubectl.apply(manifest) {
        Ok(done) => panic!("should have been refused: {done}"),
        Err(fault) => fault.to_string(),
    }
}

#[track_caller]
pub(crate) fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..300 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("30 s later it still does not hold that {what}");
}
