//! What components note for themselves, users may not write; everything else they may.

use serde_json::Value;
use test_cluster::Kubectl;

use crate::ask::{apply, await_that, get, phase, run};
use crate::kai::{Components, cluster};

#[test]
#[ignore = "starts a real cluster"]
fn e2e_state_is_written_by_components_only() {
    let mut cluster = cluster("e2e-state", 1, 8);
    let kubectl = cluster.kubectl();
    let mut components = Components::start(&cluster);
    apply(&kubectl, OBJECTS);
    policies_are_understood(&kubectl);
    let group = components_may_write(&kubectl);

    tenants_may_not(&kubectl, &group);
    tenants_may_do_everything_else(&kubectl, &group);
    administrators_may_restore_a_backup(&kubectl, &group);
    nothing_is_left_behind(&kubectl);

    cluster.check("testing").unwrap_or_else(|fault| panic!("{fault}"));
    components.end_politely();
}

/// A queue; a tenant who may do everything in one namespace, but grants no rights.
const OBJECTS: &str = "
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: department}
spec:
  resources: {gpu: {quota: 8, limit: -1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  parentQueue: department
  resources: {gpu: {quota: 8, limit: -1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: tenant, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant, namespace: default}
rules:
- {apiGroups: [''], resources: [pods, pods/status, pods/binding], verbs: ['*']}
- {apiGroups: [scheduling.run.ai], resources: ['*'], verbs: ['*']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{kind: ServiceAccount, name: tenant, namespace: default}]
";

const STARTED: &str = "kai.scheduler/last-start-timestamp";

fn pod(name: &str, metadata: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default, {metadata}}}
spec:
  schedulerName: kai-scheduler
  containers: [{{name: main, image: any, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
"
    )
}

/// As the tenant.
fn tenant(kubectl: &Kubectl, arguments: &str, input: Option<&str>) -> Result<String, String> {
    let words = ["--as", "system:serviceaccount:default:tenant"].into_iter().chain(arguments.split_whitespace());
    kubectl.run_with(&words.collect::<Vec<_>>(), input).map_err(|fault| fault.to_string())
}

#[track_caller]
fn refused(kubectl: &Kubectl, arguments: &str, input: Option<&str>, why: &str) {
    let message = tenant(kubectl, arguments, input).expect_err("it should have been refused");
    assert!(message.contains("ValidatingAdmissionPolicy") && message.contains(why), "{arguments}: {message}");
}

/// The API server checks the types of expressions when policies are stored, and says what is wrong in their status.
fn policies_are_understood(kubectl: &Kubectl) {
    for policy in ["kai-state-of-pods", "kai-state-of-pod-groups", "kai-bind-requests"] {
        let read = || get(kubectl, &format!("validatingadmissionpolicy {policy}"));
        await_that("the policy is checked", || !read()["status"]["observedGeneration"].is_null());
        let warnings = read()["status"]["typeChecking"]["expressionWarnings"].clone();
        assert!(warnings.is_null(), "{policy}: {warnings}");
    }
    await_that("policies are in force", || {
        let copy = pod("copy", "labels: {runai-gpu-group: g}");
        tenant(kubectl, "create --dry-run=server -f -", Some(&copy)).is_err()
    });
}

/// The name of the group of a pod that was scheduled.
fn components_may_write(kubectl: &Kubectl) -> String {
    apply(kubectl, &pod("single", "labels: {kai.scheduler/queue: team}"));
    await_that("the pod runs", || phase(kubectl, "single") == "Running");
    let annotation = |what: &str, key: &str| get(kubectl, what)["metadata"]["annotations"][key].clone();
    await_that("it is linked to its group", || annotation("pod single", "pod-group-name").is_string());
    assert_eq!(annotation("pod single", "received-resource-type"), "Regular", "the binder noted it");
    let group = annotation("pod single", "pod-group-name").as_str().unwrap_or_default().to_owned();
    let path = format!("podgroups.scheduling.run.ai {group}");
    await_that("the scheduler notes the start", || annotation(&path, STARTED).is_string());
    assert!(annotation(&path, "kai.scheduler/top-owner-metadata").is_string(), "the podgrouper noted it");
    group
}

fn tenants_may_not(kubectl: &Kubectl, group: &str) {
    let path = format!("podgroups.scheduling.run.ai {group}");
    let later = format!("{STARTED}=2999-01-01T00:00:00Z");
    refused(kubectl, &format!("annotate {path} --overwrite {later}"), None, STARTED);
    refused(kubectl, &format!("annotate {path} {STARTED}-"), None, STARTED);
    refused(kubectl, "label pod single runai-gpu-group=mine", None, "runai-gpu-group");
    refused(kubectl, "label pod single runai-gpu-group/mine=mine", None, "runai-gpu-group/mine");
    let received = "received-resource-type";
    refused(kubectl, &format!("annotate pod single --overwrite {received}=Fraction"), None, received);
    let through_status =
        r#"patch pod single --subresource=status --type=merge -p {"metadata":{"labels":{"runai-gpu-group":"g"}}}"#;
    refused(kubectl, through_status, None, "runai-gpu-group");
    refused(kubectl, "create -f -", Some(&pod("copy", "labels: {runai-gpu-group: g}")), "runai-gpu-group");
    let of_its_own = format!(
        "
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {{name: own, namespace: default, annotations: {{{STARTED}: '2999-01-01T00:00:00Z'}}}}
spec: {{queue: team, minMember: 1}}
"
    );
    refused(kubectl, "create -f -", Some(&of_its_own), STARTED);
    let request = "
apiVersion: scheduling.run.ai/v1alpha2
kind: BindRequest
metadata: {name: own, namespace: default}
spec: {podName: single, selectedNode: any, receivedResourceType: Regular}
";
    refused(kubectl, "create -f -", Some(request), "bind requests are written by the scheduler and the binder");
}

fn tenants_may_do_everything_else(kubectl: &Kubectl, group: &str) {
    let may = |arguments: &str, input: Option<&str>| {
        tenant(kubectl, arguments, input).unwrap_or_else(|why| panic!("{arguments}: {why}"));
    };
    may("label pod single color=red", None);
    may(&format!("annotate podgroups.scheduling.run.ai {group} note=mine"), None);
    may("create -f -", Some(&pod("second", "labels: {kai.scheduler/queue: team}")));
    await_that("a pod of the tenant runs", || phase(kubectl, "second") == "Running");
    let own = "
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: own, namespace: default}
spec: {queue: team, minMember: 1}
";
    may("create -f -", Some(own));
    may("delete podgroups.scheduling.run.ai own", None);
}

fn administrators_may_restore_a_backup(kubectl: &Kubectl, group: &str) {
    let path = format!("podgroups.scheduling.run.ai {group}");
    run(kubectl, &format!("annotate {path} --overwrite {STARTED}=2026-01-01T00:00:00Z"));
    assert_eq!(get(kubectl, &path)["metadata"]["annotations"][STARTED], "2026-01-01T00:00:00Z");
}

/// The garbage collector is not hindered.
fn nothing_is_left_behind(kubectl: &Kubectl) {
    run(kubectl, "delete pod single second --wait=false");
    await_that("groups and bind requests end with their pods", || {
        let left = |kind: &str| get(kubectl, &format!("{kind}.scheduling.run.ai"))["items"] == Value::Array(Vec::new());
        left("podgroups") && left("bindrequests")
    });
}
