//! A kind that its users declare in a config map, as the page about it tells.

use serde_json::{Value, json};
use test_cluster::Kubectl;

use crate::ask::{apply, await_that, get, group_of, run, running, waiting};
use crate::kai::{Components, cluster, kai};
use crate::workloads::{QUEUE, QUEUES, create_owner, kind, pod};

#[test]
#[ignore = "starts a real cluster"]
fn e2e_declared_kinds_are_gangs() {
    let mut cluster = cluster("e2e-own-kinds", 1, 4);
    let kubectl = cluster.kubectl();
    let mut components = Components::start(&cluster);
    apply(&kubectl, QUEUES);
    apply(&kubectl, &kind(("ml.example.com", "v1", "Trainer", "trainers")).to_string());
    run(&kubectl, "wait --for=condition=Established crd --all --timeout=60s");
    apply(&kubectl, &kai(&["rbac", "--kind", "ml.example.com/trainers"].map(AsRef::as_ref)));
    apply(&kubectl, &pod("blocker", &json!({QUEUE: "test", "priorityClassName": "inference"}), 2).to_string());
    await_that("half of the node is taken", || running(&kubectl, QUEUE) == 1);

    apply(&kubectl, &declarations());
    trainer(&kubectl, "bert", &json!({"nodes": 4, "minNodes": 3, "team": "test", "class": "build"}));
    await_that("four pods have a reason", || waiting(&kubectl, "trainer=bert") == 4);
    assert_eq!(running(&kubectl, "trainer=bert"), 0, "two would fit, three are needed");
    let group = group_of(&kubectl, "trainer=bert");
    assert_eq!(group["metadata"]["ownerReferences"][0]["kind"], "Trainer");
    let spec = &group["spec"];
    assert_eq!(
        (&spec["minMember"], &spec["queue"], &spec["priorityClassName"]),
        (&json!(3), &json!("test"), &json!("build"))
    );
    run(&kubectl, "delete pod blocker");
    await_that("all four run", || running(&kubectl, "trainer=bert") == 4);

    a_field_that_is_no_number_is_named_in_events_of_the_pods(&kubectl);
    an_invalid_declaration_is_named_in_events_of_the_config_map(&kubectl);
    without_the_declaration_two_of_four_start(&kubectl);

    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
    components.end_politely();
}

fn a_field_that_is_no_number_is_named_in_events_of_the_pods(kubectl: &Kubectl) {
    trainer(kubectl, "odd", &json!({"nodes": "many", "team": "test"}));
    await_that("events of its pods name the field", || events_of(kubectl, "odd-0").contains(".spec.nodes"));
    run(kubectl, "delete pods -l trainer=odd");
}

fn an_invalid_declaration_is_named_in_events_of_the_config_map(kubectl: &Kubectl) {
    let patch = json!({"data": {"broken": "kind: Sweep"}}).to_string();
    let arguments = ["patch", "configmap", NAME, "-n", NAMESPACE, "--type=merge", "--patch", &patch];
    kubectl.run_with(&arguments, None).unwrap_or_else(|fault| panic!("{fault}"));
    await_that("events of the config map name the key", || {
        run(kubectl, &format!("get events -n {NAMESPACE} --field-selector=involvedObject.name={NAME} -o json"))
            .contains("data.broken: replicas")
    });
}

/// What changes in the config map counts at once, for pods that wait as well.
fn without_the_declaration_two_of_four_start(kubectl: &Kubectl) {
    run(kubectl, "delete pods -l trainer=bert");
    apply(kubectl, &pod("blocker", &json!({QUEUE: "test", "priorityClassName": "inference"}), 2).to_string());
    await_that("half of the node is taken", || running(kubectl, QUEUE) == 1);
    trainer(kubectl, "gpt", &json!({"nodes": 4, "team": "test"}));
    await_that("four pods have a reason", || waiting(kubectl, "trainer=gpt") == 4);
    assert_eq!(group_of(kubectl, "trainer=gpt")["spec"]["minMember"], 4);
    run(kubectl, "label trainer gpt kai.scheduler/queue=test");
    run(kubectl, &format!("delete configmap {NAME} -n {NAMESPACE}"));
    await_that("two start, since none waits for the others", || running(kubectl, "trainer=gpt") == 2);
    assert_eq!(group_of(kubectl, "trainer=gpt")["spec"]["minMember"], 1);
}

const NAME: &str = "kai-workload-kinds";
const NAMESPACE: &str = "kai-scheduler";

/// The config map on the page about kinds of one's own.
fn declarations() -> String {
    let page = include_str!("../../../../docs/guides/custom-workload-kinds.md");
    let (_, after) = page.split_once("```yaml\n").unwrap();
    after.split_once("```").unwrap().0.to_owned()
}

/// An object, and the pods that its controller would make.
fn trainer(kubectl: &Kubectl, name: &str, spec: &Value) {
    let object = json!({
        "apiVersion": "ml.example.com/v1", "kind": "Trainer", "metadata": {"name": name}, "spec": spec,
    });
    let owner = create_owner(kubectl, &object, "trainers.ml.example.com");
    for number in 0..4 {
        let mut pod = pod(&format!("{name}-{number}"), &json!({"trainer": name}), 1);
        pod["metadata"]["ownerReferences"] = json!([owner]);
        apply(kubectl, &pod.to_string());
    }
}

fn events_of(kubectl: &Kubectl, pod: &str) -> String {
    get(kubectl, &format!("events --field-selector=involvedObject.name={pod}")).to_string()
}
