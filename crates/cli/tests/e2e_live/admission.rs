//! What makes no sense does not enter, what shares a GPU is prepared, and a dead webhook stops as little as possible.

use std::net::TcpListener;

use serde_json::Value;
use test_cluster::{Cluster, Kubectl};

use crate::ask::{apply, await_that, get, phase, refusal, run};
use crate::kai::{Kai, cluster};

#[test]
#[ignore = "starts a real cluster"]
fn e2e_admission_refuses_and_prepares() {
    let mut cluster = cluster("e2e-admission", 1, 8);
    let kubectl = cluster.kubectl();
    let port = free_port();
    let mut kai = start(&cluster, port, &[]);
    await_asked(&kubectl);

    pods_that_ask_for_nonsense_are_refused(&kubectl);
    a_pod_that_shares_a_gpu_is_prepared(&kubectl);
    pods_of_others_are_untouched(&kubectl);
    queues_form_a_tree(&kubectl);
    a_queue_in_use_stays(&kubectl);
    groups_and_topologies_make_sense(&kubectl);
    let metrics = kai.get("/metrics").expect("metrics are answered");
    assert!(metrics.contains("kai_admission_reviews_total{webhook=\"validate-pod\",allowed=\"false\"}"), "{metrics}");
    kai.end_politely();
    drop(kai);

    only_what_nothing_else_protects_waits(&kubectl);
    let before = get(&kubectl, SECRET);
    let _kai = start(&cluster, port, &[]);
    await_asked(&kubectl);
    what_came_in_meanwhile_can_be_changed(&kubectl);
    assert_eq!(get(&kubectl, SECRET)["data"], before["data"], "a good certificate is used again");
    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
}

#[test]
#[ignore = "starts a real cluster"]
fn e2e_admission_certificates_are_renewed() {
    let cluster = cluster("e2e-certificates", 1, 8);
    let kubectl = cluster.kubectl();
    let port = free_port();
    let short = ["--certificate-validity", "24s"];
    // Two replicas, of which the API server knows one: the faster one renews.
    let mut replicas = [start(&cluster, port, &short), start_at(&cluster, free_port(), port, &short)];
    await_asked(&kubectl);

    let first = Certificates::read(&kubectl);
    assert_eq!(first.trusted, 1);
    let mut both = false;
    await_that("another certificate is served, and the old one is forgotten", || {
        // It goes unnoticed: this one would be refused if the server could not be asked.
        run_dry(&kubectl, &pod("always", "kai-scheduler", "gpu-fraction: '0.5'", ""));
        let now = Certificates::read(&kubectl);
        both |= now.trusted == 2;
        assert!(both || now.served == first.served, "the next one is trusted before it is served");
        now.served != first.served && now.trusted == 1
    });
    run_dry(&kubectl, &pod("always", "kai-scheduler", "gpu-fraction: '0.5'", ""));
    for kai in &mut replicas {
        kai.end_politely();
    }
}

const SECRET: &str = "secret kai-admission-webhook-tls-secret --namespace kai-scheduler";

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn start(cluster: &Cluster, port: u16, arguments: &[&str]) -> Kai {
    start_at(cluster, port, port, arguments)
}

fn start_at(cluster: &Cluster, port: u16, asked: u16, arguments: &[&str]) -> Kai {
    let (address, url) = (format!("127.0.0.1:{port}"), format!("https://127.0.0.1:{asked}"));
    let places = ["--webhook-addr", &address, "--webhook-url", &url, "--gpu-sharing-enabled=true"];
    Kai::start(cluster, "admission", "admission", &[&places[..], arguments].concat())
}

/// The API server learns of webhooks a moment after they are registered.
fn await_asked(kubectl: &Kubectl) {
    await_that("the API server asks", || {
        let pod = pod("asked", "kai-scheduler", "gpu-fraction: '2'", "");
        dry(kubectl, &pod).is_err_and(|why| why.contains("denied the request"))
    });
}

fn dry(kubectl: &Kubectl, manifest: &str) -> Result<String, String> {
    let create = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
    kubectl.run_with(&create, Some(manifest)).map_err(|fault| fault.to_string())
}

#[track_caller]
fn run_dry(kubectl: &Kubectl, manifest: &str) -> Value {
    let made = dry(kubectl, manifest).unwrap_or_else(|fault| panic!("{fault}"));
    serde_json::from_str(&made).unwrap()
}

fn pods_that_ask_for_nonsense_are_refused(kubectl: &Kubectl) {
    let gpu = "resources: {limits: {nvidia.com/gpu: 1}}";
    for (annotations, resources, why) in [
        ("gpu-fraction: '0.5', gpu-memory: '2000'", "", "cannot request both GPU and GPU memory; keep one of"),
        ("gpu-fraction: '0.5'", gpu, "cannot have both GPU fraction request and whole GPU"),
        ("gpu-fraction: NaN", "", "gpu-fraction annotation value must be a positive number smaller than 1.0; write"),
        ("gpu-fraction: '-0.5'", "", "gpu-fraction annotation value must be a positive number smaller than 1.0; write"),
        ("gpu-fraction: '1.5'", "", "gpu-fraction annotation value must be a positive number smaller than 1.0; write"),
        ("gpu-memory: 2Gi", "", "gpu-memory annotation value must be a positive integer greater than 0"),
        ("gpu-fraction-num-devices: '2'", "", "cannot request multiple fractional devices without"),
    ] {
        let message = refusal(kubectl, &pod("nonsense", "kai-scheduler", annotations, resources));
        let ours = "admission webhook \"admission.kai-scheduler.svc\" denied the request: ";
        assert!(message.contains(ours) && message.contains(why), "{annotations}: {message}");
    }
}

fn a_pod_that_shares_a_gpu_is_prepared(kubectl: &Kubectl) {
    apply(kubectl, &pod("shares", "kai-scheduler", "gpu-fraction: '0.5'", ""));
    let pod = get(kubectl, "pod shares");
    let prefix = pod["metadata"]["annotations"]["runai/shared-gpu-configmap"].as_str().expect("names of its maps");
    assert!(prefix.starts_with("shares-") && prefix.ends_with("-shared-gpu"), "{prefix}");
    let container = &pod["spec"]["containers"][0];
    let devices = &container["env"][0];
    assert_eq!(devices["name"], "NVIDIA_VISIBLE_DEVICES");
    assert_eq!(devices["valueFrom"]["configMapKeyRef"]["name"], format!("{prefix}-0"));
    assert_eq!(container["envFrom"][0]["configMapRef"]["name"], format!("{prefix}-0-evar"));
    assert_eq!(pod["spec"]["runtimeClassName"], "nvidia");
}

fn pods_of_others_are_untouched(kubectl: &Kubectl) {
    apply(kubectl, &pod("foreign", "somebody-else", "gpu-fraction: NaN", ""));
    let pod = get(kubectl, "pod foreign");
    assert_eq!(pod["metadata"]["annotations"].as_object().unwrap().len(), 1);
    assert!(pod["spec"]["runtimeClassName"].is_null() && pod["spec"]["containers"][0]["env"].is_null());
}

fn queues_form_a_tree(kubectl: &Kubectl) {
    // Parent and child at once: the child must not come too early.
    apply(kubectl, &format!("{}---\n{}", queue("department", ""), queue("team", "department")));
    for (name, parent, why) in [
        ("lost", "nowhere", "queue lost: its parent nowhere does not exist; create the parent first"),
        ("lost", "departmnt", "(did you mean department?)"),
        ("own", "own", "queue own: spec.parentQueue names the queue itself"),
        ("department", "team", "queue department: its parents form a circle, department < team < department"),
    ] {
        let message = refusal(kubectl, &queue(name, parent));
        assert!(message.contains("queue-validation.kai.scheduler") && message.contains(why), "{message}");
    }
    let bare = "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: bare}, spec: {}}";
    assert!(refusal(kubectl, bare).contains("resources must be specified"));
}

fn a_queue_in_use_stays(kubectl: &Kubectl) {
    let message = kubectl.run("delete queue department").expect_err("it has a child").to_string();
    assert!(
        message.contains("cannot delete queue department: it has child queues team; delete or move them"),
        "{message}"
    );
    let group = "
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: work, namespace: default}
spec: {queue: team, minMember: 1}
---";
    let work = pod("work", "kai-scheduler", "pod-group-name: work", "");
    apply(kubectl, &format!("{group}{}", work.replace("spec:", "spec:\n  nodeName: node-0")));
    await_that("it runs", || phase(kubectl, "work") == "Running");
    await_that("the queue stays because of it", || {
        let deleted = kubectl.run("delete queue team --dry-run=server");
        deleted.is_err_and(|why| why.to_string().contains("its workloads default/work are running"))
    });
    run(kubectl, "delete pod work --timeout=60s");
    await_that("the queue may go", || kubectl.run("delete queue team").is_ok());
    run(kubectl, "delete queue department");
}

fn groups_and_topologies_make_sense(kubectl: &Kubectl) {
    let group = "
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: circle, namespace: default}
spec: {subGroups: [{name: a, parent: b, minMember: 1}, {name: b, parent: a}]}";
    assert!(refusal(kubectl, group).contains("cycle detected in subgroups"));
    let topology = "
apiVersion: kai.scheduler/v1alpha1
kind: Topology
metadata: {name: twice}
spec: {levels: [{nodeLabel: zone, alias: a}, {nodeLabel: rack, alias: a}]}";
    assert!(refusal(kubectl, topology).contains("invalid topology aliases: spec.levels[1].alias"));
}

fn only_what_nothing_else_protects_waits(kubectl: &Kubectl) {
    apply(kubectl, &pod("ordinary", "kai-scheduler", "any: thing", ""));
    // Nonsense that the scheduler sees as well.
    apply(kubectl, &pod("nonsense", "kai-scheduler", "gpu-fraction-num-devices: '2'", ""));
    apply(kubectl, &queue("orphan", "nowhere"));
    let message = refusal(kubectl, &pod("unprepared", "kai-scheduler", "gpu-fraction: '0.5'", ""));
    assert!(message.contains("failed calling webhook \"admission.kai-scheduler.svc\""), "{message}");
    apply(kubectl, &pod("also-foreign", "somebody-else", "gpu-fraction: '0.5'", ""));
    let message = kubectl.run("delete queue orphan").expect_err("what runs in it is unknown").to_string();
    assert!(message.contains("failed calling webhook \"queue-deletion.kai.scheduler\""), "{message}");
}

fn what_came_in_meanwhile_can_be_changed(kubectl: &Kubectl) {
    run(kubectl, "label pod nonsense some=label");
    run(kubectl, "label queue orphan some=label");
    let message = kubectl.run("annotate pod nonsense gpu-memory=much").expect_err("that is another fault").to_string();
    assert!(message.contains("gpu-memory annotation value must be a positive integer"), "{message}");
    run(kubectl, "delete queue orphan");
}

/// What there is at one moment.
struct Certificates {
    served: String,
    /// How many authorities the API server trusts.
    trusted: usize,
}

impl Certificates {
    fn read(kubectl: &Kubectl) -> Self {
        let hook = "get mutatingwebhookconfiguration mutating-kai-admission -o";
        let bundle = "{{range.webhooks}}{{.clientConfig.caBundle|base64decode}}{{end}}";
        Self {
            served: run(kubectl, &format!("get {SECRET} -o jsonpath={{.data.tls\\.crt}}")),
            trusted: run(kubectl, &format!("{hook} go-template={bundle}")).matches("BEGIN CERTIFICATE").count(),
        }
    }
}

fn pod(name: &str, scheduler: &str, annotations: &str, resources: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default, annotations: {{{annotations}}}}}
spec:
  schedulerName: {scheduler}
  containers: [{{name: main, image: any, {resources}}}]
"
    )
}

fn queue(name: &str, parent: &str) -> String {
    format!(
        "
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: {name}}}
spec: {{parentQueue: '{parent}', resources: {{gpu: {{quota: 1}}}}}}
"
    )
}
