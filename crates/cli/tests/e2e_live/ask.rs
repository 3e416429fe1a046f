//! Questions to the cluster, as a user would ask them.

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

/// What is said about a manifest that must not enter.
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
