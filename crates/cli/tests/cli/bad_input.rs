//! Bad manifests: one clear error each, and nothing is simulated.

use expect_test::{Expect, expect};

use super::invocation::check_file;

fn check(text: &str, expected: Expect) {
    check_file(text, &expected);
}

/// A pod of one container, with more metadata.
fn pod(metadata: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: x, namespace: team, {metadata}}}
spec: {{schedulerName: kai-scheduler, containers: [{{name: main, image: ubuntu}}]}}
"
    )
}

fn queue(name: &str, parent: &str) -> String {
    format!(
        "apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: {name}}}
spec:
  parentQueue: {parent}
  resources: {{gpu: {{quota: 1, limit: -1}}, cpu: {{limit: -1}}, memory: {{limit: -1}}}}
---
"
    )
}

#[test]
fn queues_in_a_circle() {
    check(
        &[queue("a", "b"), queue("b", "c"), queue("c", "b")].concat(),
        expect![[r#"
        exit 1
        -- stderr
        error: queues are each other's parents: b → c → b
          --> a.yaml, document 2 (line 8), Queue b, spec.parentQueue
          help: remove spec.parentQueue from the one that should be at the top
    "#]],
    );
}

#[test]
fn a_queue_that_is_its_own_parent() {
    check(
        &queue("a", "a"),
        expect![[r#"
        exit 1
        -- stderr
        error: queues are each other's parents: a → a
          --> a.yaml, document 1 (line 1), Queue a, spec.parentQueue
          help: remove spec.parentQueue from the one that should be at the top
    "#]],
    );
}

#[test]
fn fraction_and_memory() {
    check(
        &pod(r#"annotations: {gpu-fraction: "0.5", gpu-memory: "1000"}"#),
        expect![[r#"
        exit 1
        -- stderr
        error: a pod asks for a GPU by fraction or by memory, not by both
          --> a.yaml, document 1 (line 1), Pod team/x, metadata.annotations.gpu-memory
          help: keep one of the annotations gpu-fraction and gpu-memory
    "#]],
    );
}

#[test]
fn fraction_and_whole_gpus() {
    let text = pod(r#"annotations: {gpu-fraction: "0.5"}"#);
    check(
        &text.replace("image: ubuntu", "image: ubuntu, resources: {limits: {nvidia.com/gpu: 1}}"),
        expect![[r#"
        exit 1
        -- stderr
        error: the containers ask for whole GPUs already
          --> a.yaml, document 1 (line 1), Pod team/x, metadata.annotations.gpu-fraction
          help: remove nvidia.com/gpu from the containers, or this annotation
    "#]],
    );
}

#[test]
fn a_negative_fraction() {
    check(
        &pod(r#"annotations: {gpu-fraction: "-0.5"}"#),
        expect![[r#"
        exit 1
        -- stderr
        error: `-0.5` must be greater than 0
          --> a.yaml, document 1 (line 1), Pod team/x, metadata.annotations.gpu-fraction
          help: write a number between 0 and 1, such as 0.5
    "#]],
    );
}

#[test]
fn a_fraction_that_is_not_a_number() {
    check(
        &pod(r#"annotations: {gpu-fraction: "NaN"}"#),
        expect![[r#"
        exit 1
        -- stderr
        error: `NaN` is not a number
          --> a.yaml, document 1 (line 1), Pod team/x, metadata.annotations.gpu-fraction
          help: write a number between 0 and 1, such as 0.5
    "#]],
    );
}

#[test]
fn a_fraction_of_one() {
    check(
        &pod(r#"annotations: {gpu-fraction: "1"}"#),
        expect![[r#"
        exit 1
        -- stderr
        error: `1` is not less than one GPU
          --> a.yaml, document 1 (line 1), Pod team/x, metadata.annotations.gpu-fraction
          help: for whole GPUs remove the annotation and request nvidia.com/gpu in a container
    "#]],
    );
}

#[test]
fn a_fraction_without_quotes() {
    check(
        &pod("annotations: {gpu-fraction: 0.5}"),
        expect![[r#"
        exit 1
        -- stderr
        error: expected text, found the number 0.5
          --> a.yaml, document 1 (line 1), Pod team/x, metadata.annotations.gpu-fraction
          help: put it in quotes: "0.5"
    "#]],
    );
}

#[test]
fn negative_memory() {
    check(
        &pod(r#"annotations: {gpu-memory: "-1"}"#),
        expect![[r#"
        exit 1
        -- stderr
        error: `-1` is not a memory size in MiB
          --> a.yaml, document 1 (line 1), Pod team/x, metadata.annotations.gpu-memory
          help: write a whole number of MiB from 1 up, such as 8000
    "#]],
    );
}

#[test]
fn no_devices() {
    check(
        &pod(r#"annotations: {gpu-memory: "1000", gpu-fraction-num-devices: "0"}"#),
        expect![[r#"
        exit 1
        -- stderr
        error: `0` is not a number of GPUs
          --> a.yaml, document 1 (line 1), Pod team/x, metadata.annotations.gpu-fraction-num-devices
          help: write a whole number from 1 up
    "#]],
    );
}

#[test]
fn a_quantity_that_does_not_parse() {
    check(
        &pod("").replace("image: ubuntu", "image: ubuntu, resources: {requests: {cpu: 2cores}}"),
        expect![[r#"
            exit 1
            -- stderr
            error: `2cores` is not a quantity
              --> a.yaml, document 1 (line 1), Pod team/x, spec.containers[0].resources.requests.cpu
              help: write an amount such as 2, 500m or 8Gi, without spaces
        "#]],
    );
}

#[test]
fn a_quantity_that_does_not_parse_in_a_template() {
    check(
        "# jobs
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: team}
spec:
  template:
    spec:
      containers:
      - {name: main, image: ubuntu, resources: {limits: {nvidia.com/gpu: many}}}
",
        expect![[r#"
            exit 1
            -- stderr
            error: `many` is not a quantity
              --> a.yaml, document 2 (line 6), Job team/train, spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]
              help: write an amount such as 2, 500m or 8Gi, without spaces
        "#]],
    );
}

#[test]
fn a_node_with_a_quantity_that_does_not_parse() {
    check(
        "apiVersion: v1
kind: Node
metadata: {name: n}
status: {allocatable: {memory: 12Gigs}}
",
        expect![[r#"
            exit 1
            -- stderr
            error: `12Gigs` is not a quantity
              --> a.yaml, document 1 (line 1), Node n, status.allocatable.memory
              help: write an amount such as 2, 500m or 8Gi, without spaces
        "#]],
    );
}

#[test]
fn a_quota_that_is_not_a_number() {
    check(
        &queue("a", "\"\"").replace("quota: 1", "quota: .nan"),
        expect![[r#"
            exit 1
            -- stderr
            error: `.nan` is not a number that can be used
              --> a.yaml, document 1 (line 1), Queue a, spec.resources.gpu.quota
              help: write a finite number
        "#]],
    );
}

#[test]
fn a_name_given_twice() {
    check(
        &[pod(""), "---\n".to_owned(), pod("")].concat(),
        expect![[r#"
        exit 1
        -- stderr
        error: Pod team/x is there twice, first in a.yaml, document 1 (line 1)
          --> a.yaml, document 2 (line 6), Pod team/x, metadata.name
          help: rename or remove one of them; later changes belong into a file that a Scenario step applies
    "#]],
    );
}

#[test]
fn an_unknown_kind() {
    check(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n",
        expect![[r#"
            exit 1
            -- stderr
            error: the simulator does not know kind `Service`
              --> a.yaml, document 1 (line 1), Service
              help: remove it, or declare it in the config map kai-workload-kinds if it makes pods
        "#]],
    );
}

#[test]
fn a_misspelt_kind() {
    check(
        "apiVersion: batch/v1\nkind: Jop\nmetadata: {name: web}\n",
        expect![[r#"
        exit 1
        -- stderr
        error: the simulator does not know kind `Jop`
          --> a.yaml, document 1 (line 1), Jop
          help: did you mean `Job`?
    "#]],
    );
}

#[test]
fn a_kind_of_another_group() {
    check(
        "apiVersion: kueue.x-k8s.io/v1beta1\nkind: Topology\nmetadata: {name: dc}\n",
        expect![[r#"
        exit 1
        -- stderr
        error: Topology of `kueue.x-k8s.io/v1beta1` is not understood
          --> a.yaml, document 1 (line 1), Topology, apiVersion
          help: write `apiVersion: kai.scheduler/v1alpha1`
    "#]],
    );
}

#[test]
fn an_object_without_a_name() {
    check(
        "apiVersion: v1\nkind: Pod\nspec: {}\n",
        expect![[r#"
        exit 1
        -- stderr
        error: the object has no name
          --> a.yaml, document 1 (line 1), Pod, metadata.name
          help: give it a metadata.name
    "#]],
    );
}

#[test]
fn a_name_that_kubernetes_refuses() {
    check(
        &pod("").replace("name: x", "name: My_Pod"),
        expect![[r#"
        exit 1
        -- stderr
        error: `My_Pod` is not a name that Kubernetes accepts
          --> a.yaml, document 1 (line 1), Pod My_Pod, metadata.name
          help: use lower-case letters, digits, `-` and `.`, at most 253 of them
    "#]],
    );
}

#[test]
fn a_pod_without_containers() {
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {}\n",
        expect![[r#"
        exit 1
        -- stderr
        error: the pod has no containers
          --> a.yaml, document 1 (line 1), Pod default/x, spec.containers
          help: give it at least one container
    "#]],
    );
}

#[test]
fn a_job_without_a_template() {
    check(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {parallelism: 2}\n",
        expect![[r#"
        exit 1
        -- stderr
        error: there is no pod template
          --> a.yaml, document 1 (line 1), Job default/x, spec.template
          help: describe the pods under spec.template
    "#]],
    );
}

#[test]
fn a_job_of_minus_one_pods() {
    check(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {parallelism: -1}\n",
        expect![[r#"
        exit 1
        -- stderr
        error: expected a whole number from 0 up, found the number -1
          --> a.yaml, document 1 (line 1), Job default/x, spec.parallelism
          help: write a whole number here
    "#]],
    );
}

#[test]
fn a_job_of_far_too_many_pods() {
    check(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {parallelism: 4000000}\n",
        expect![[r#"
        exit 1
        -- stderr
        error: 4000000 is more than a cluster holds
          --> a.yaml, document 1 (line 1), Job default/x, spec.parallelism
          help: write a number up to 150000
    "#]],
    );
}

#[test]
fn an_object_in_a_list() {
    check(
        "apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n}
- apiVersion: scheduling.run.ai/v2
  kind: Queue
  metadata: {name: q}
  spec: {priority: high}
",
        expect![[r#"
            exit 1
            -- stderr
            error: expected a whole number, found the text `high`
              --> a.yaml, document 1 (line 1), Queue q, spec.priority
              help: write a whole number here
        "#]],
    );
}

#[test]
fn text_that_is_not_yaml() {
    check(
        "apiVersion: v1\nkind: [Pod\nmetadata: {name: x}\n",
        expect![[r#"
        exit 1
        -- stderr
        error: this is not valid YAML: did not find expected ',' or ']'
          --> a.yaml, document 1 (line 3)
          help: check indentation, quotes and colons around that line
    "#]],
    );
}

#[test]
fn a_document_that_is_no_object() {
    check(
        "just text\n",
        expect![[r#"
        exit 1
        -- stderr
        error: this document is not a Kubernetes object
          --> a.yaml, document 1 (line 1)
          help: start it with `apiVersion:`, `kind:` and `metadata:`
    "#]],
    );
}

#[test]
fn a_duration_that_is_none() {
    check(
        &pod("annotations: {kai.scheduler/sim-duration: forever}"),
        expect![[r#"
        exit 1
        -- stderr
        error: `forever` is not a span of time
          --> a.yaml, document 1 (line 1), Pod team/x, metadata.annotations[kai.scheduler/sim-duration]
          help: write it like 90s, 5m or 1h30m
    "#]],
    );
}

#[test]
fn sub_groups_in_a_circle() {
    check(
        "apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: g, namespace: team}
spec:
  queue: team
  subGroups:
  - {name: a, parent: b}
  - {name: b, parent: a}
",
        expect![[r#"
            exit 1
            -- stderr
            error: sub-groups are each other's parents: a → b → a
              --> a.yaml, document 1 (line 1), PodGroup team/g, spec.subGroups[0].parent
              help: remove one of these parents
        "#]],
    );
}
